//! Forged migrations and repairs: `refdb-migration`, `refdb-kept`, `refdb-damaged`.

use std::fs;

use super::forge::{self, BARRIER, Signer, migration, owner};
use super::{Form, Kind, Made, Scene, kind};
use crate::format::RefFormat;

pub(super) fn kinds() -> Vec<Kind> {
    let mut kinds = linked();
    kinds.extend(items());
    kinds.extend(odd());
    kinds.extend(after());
    // Whoever may write there knows what a migration of this repository would say of itself.
    let mut signed = linked();
    signed.extend(items());
    signed.extend(odd());
    kinds.extend(signed.into_iter().map(sign));
    kinds.extend(brought().into_iter().map(claim));
    kinds
}

/// Migrations that an archive brings along, with all that one leaves.
fn brought() -> Vec<Kind> {
    const ALL: &[&str] = &[
        "HEAD",
        "packed-refs",
        "refs/heads",
        "refs/tags",
        "logs",
        "reftable",
    ];
    vec![
        kind(
            "migration: before the switch",
            "A listing moves all refs away.",
            |scene| {
                scene.folder("refdb-migration/old")?;
                scene.folder("refdb-migration/new/refs")?;
                switching(scene, ALL)
            },
        ),
        kind(
            "migration: behind the switch",
            "A listing removes what it takes for old refs.",
            |scene| switched(scene, false),
        ),
    ]
}

/// Has a migration say that it was made for some repository.
fn claim(mut kind: Kind) -> Kind {
    kind.name = format!("claimed {}", kind.name);
    let make = kind.make;
    kind.make = Box::new(move |scene| {
        make(scene)?;
        let text = "refdb migration\n1 2\n00000000-0000-4000-8000-000000000000\n";
        scene.write("refdb-migration/made-for", text)
    });
    kind
}

/// Has a migration say that it was made for this repository, if it is in a folder.
fn sign(mut kind: Kind) -> Kind {
    kind.name = format!("signed {}", kind.name);
    // In a clone of somebody else nothing is finished by whoever only reads.
    kind.genuine = kind.form == Form::Work;
    let make = kind.make;
    kind.make = Box::new(move |scene| {
        make(scene)?;
        let folder = scene.git_dir().join("refdb-migration");
        if !fs::symlink_metadata(&folder).is_ok_and(|stat| stat.is_dir()) {
            return Ok(());
        }
        scene.write("refdb-migration/made-for", forge::made_for(scene)?)
    });
    kind
}

/// Links in the place of the folders themselves.
#[expect(clippy::too_many_lines, reason = "a list of kinds")]
fn linked() -> Vec<Kind> {
    vec![
        kind(
            "migration: link to the home",
            "A listing empties the home.",
            |scene| scene.link("refdb-migration", scene.absolute("home")),
        ),
        kind(
            "migration: link, ..",
            "A listing empties the user's clone.",
            |scene| scene.link("refdb-migration", format!("{}/work", scene.out())),
        ),
        kind(
            "migration: link, in a clone",
            "A listing empties the clone.",
            |scene| scene.link("refdb-migration", format!("{}/work/.git", scene.out())),
        )
        .bare(),
        kind(
            "migration: link to nothing",
            "A folder is made elsewhere.",
            |scene| scene.link("refdb-migration", scene.absolute("home/new")),
        ),
        kind(
            "migration: link to itself",
            "Every command fails.",
            |scene| scene.link("refdb-migration", "refdb-migration"),
        ),
        kind(
            "kept: link to the home",
            "A migration empties the home.",
            |scene| scene.link("refdb-kept", scene.absolute("home")),
        ),
        kind(
            "kept: link, and a migration to end",
            "A listing empties the home.",
            |scene| {
                scene.link("refdb-kept", format!("{}/home", scene.out()))?;
                switched(scene, false)
            },
        ),
        kind(
            "migration: old leads out",
            "Refs are put where they are not looked for.",
            |scene| {
                switched(scene, true)?;
                scene.link("refdb-migration/old", scene.absolute("home/notes"))
            },
        ),
        kind(
            "migration: old, in a clone",
            "The same, by a listing in a clone.",
            |scene| {
                switched(scene, true)?;
                scene.link("refdb-migration/old", scene.absolute("home/notes"))
            },
        )
        .bare(),
        kind(
            "migration: new leads out",
            "What is taken back lands elsewhere.",
            |scene| {
                switching(scene, &["config"])?;
                scene.link("refdb-migration/new", scene.absolute("home/notes"))
            },
        ),
        kind(
            "migration: worktrees lead out",
            "Another folder counts as worktrees.",
            |scene| {
                switched(scene, false)?;
                scene.link("worktrees", format!("{}/work", scene.out()))
            },
        ),
        kind(
            "migration: a worktree leads out",
            "Another store counts as its.",
            |scene| {
                switched(scene, false)?;
                scene.link("worktrees/side", scene.absolute("work/.git"))
            },
        ),
        kind(
            "damaged: link to the home",
            "A repair writes into the home.",
            |scene| {
                scene.link("refdb-damaged", scene.absolute("home"))?;
                scene.write("refs/heads/broken", "no id\n")
            },
        ),
        kind(
            "damaged: link to nothing",
            "A repair makes a folder elsewhere.",
            |scene| {
                scene.link("refdb-damaged", scene.absolute("home/new"))?;
                scene.write("HEAD", "")
            },
        ),
    ]
}

/// What a migration would take back.
fn items() -> Vec<Kind> {
    let kinds = [
        (
            "..",
            "A file of the user's goes into the repository.",
            ITEMS_ABOVE,
        ),
        (
            "absolute",
            "A file of the user's goes into the repository.",
            ITEMS_ABSOLUTE,
        ),
        (
            "HEAD elsewhere",
            "The user's HEAD says something else.",
            ITEMS_HEAD,
        ),
        (
            "of the repository",
            "The configuration is gone.",
            ITEMS_INSIDE,
        ),
        ("all of it", "The repository is gone.", ITEMS_ALL),
    ];
    let mut kinds: Vec<Kind> = kinds
        .into_iter()
        .map(|(name, wants, items)| {
            kind(format!("migration: items, {name}"), wants, move |scene| {
                switching(scene, items)
            })
        })
        .collect();
    kinds.push(
        kind(
            "migration: items, in a clone",
            "The user's HEAD is another.",
            |scene| switching(scene, ITEMS_HEAD),
        )
        .bare(),
    );
    kinds
}

const ITEMS_ABOVE: &[&str] = &["{out}/home/.bashrc", "logs/../{out}/work/tracked"];
const ITEMS_ABSOLUTE: &[&str] = &["{world}/home/.bashrc"];
const ITEMS_HEAD: &[&str] = &["{out}/work/.git/HEAD"];
const ITEMS_INSIDE: &[&str] = &["config", "objects", "hooks"];
const ITEMS_ALL: &[&str] = &[".", "..", ""];

/// What is in the place of the folder and its files.
#[expect(clippy::too_many_lines, reason = "a list of kinds")]
fn odd() -> Vec<Kind> {
    vec![
        kind(
            "migration: of this repository",
            "Whatever is said to be left is removed.",
            |scene| switching(scene, &[]),
        ),
        kind("migration: file", "Every command fails.", |scene| {
            scene.write("refdb-migration", "the only copy of something\n")
        }),
        kind(
            "migration: FIFO",
            "Every command waits for ever.",
            |scene| scene.fifo("refdb-migration"),
        ),
        kind(
            "migration: some folder",
            "A folder of that name is emptied.",
            |scene| scene.write("refdb-migration/precious", "the only copy of something\n"),
        ),
        kind(
            "migration: some folder, in a clone",
            "It is emptied by a listing.",
            |scene| scene.write("refdb-migration/precious", "the only copy of something\n"),
        )
        .bare(),
        kind(
            "migration: journal is a FIFO",
            "Every command waits for ever.",
            |scene| scene.fifo("refdb-migration/journal"),
        ),
        kind(
            "migration: journal is a device",
            "Every command reads for ever.",
            |scene| scene.link("refdb-migration/journal", "/dev/zero"),
        ),
        kind(
            "migration: journal is huge",
            "More memory than there is.",
            |scene| scene.sparse("refdb-migration/journal", 8 << 30),
        ),
        kind(
            "migration: journal of other formats",
            "It is thrown away.",
            |scene| scene.write("refdb-migration/journal", migration("cvs", "svn", true)),
        ),
        kind(
            "migration: items are a FIFO",
            "Every command waits for ever.",
            |scene| {
                switching(scene, &[])?;
                scene.fifo("refdb-migration/items")
            },
        ),
        kind(
            "migration: items are huge",
            "More memory than there is.",
            |scene| {
                switching(scene, &[])?;
                scene.sparse("refdb-migration/items", 8 << 30)
            },
        ),
        kind(
            "migration: items are a device",
            "Every command reads for ever.",
            |scene| {
                switching(scene, &[])?;
                scene.link("refdb-migration/items", "/dev/zero")
            },
        ),
        kind(
            "migration: of another user",
            "Somebody changes refs that are not his.",
            |scene| {
                switching(scene, ITEMS_INSIDE)?;
                scene.give_away("refdb-migration/items")?;
                scene.give_away("refdb-migration/journal")?;
                scene.give_away("refdb-migration")
            },
        ),
        kind(
            "migration: locks and bars",
            "Writers are kept out for good.",
            |scene| {
                scene.link("refs/heads/barred", BARRIER)?;
                scene.link(
                    "refs/heads/main.lock",
                    owner(Signer::Dead, "refdb-migration"),
                )?;
                scene.link("config.lock", owner(Signer::Dead, "refdb-migration"))
            },
        ),
        kind(
            "migration: configuration leads out",
            "The user's is changed.",
            |scene| {
                let path = scene.absolute("home/notes/config");
                fs::copy(scene.git_dir().join("config"), &path)
                    .map_err(|error| error.to_string())?;
                switching(scene, &["config"])?;
                scene.link("config", path)
            },
        ),
    ]
}

/// What is kept of an earlier migration.
fn after() -> Vec<Kind> {
    vec![
        kind(
            "kept: some folder",
            "It is taken for the old refs.",
            |scene| scene.write("refdb-kept/precious", "the only copy of something\n"),
        ),
        kind(
            "kept: journal is a FIFO",
            "Going back waits for ever.",
            |scene| scene.fifo("refdb-kept/journal"),
        ),
        kind(
            "kept: journal of this format",
            "Going back destroys what is there.",
            |scene| {
                let format = scene.format().refs.name();
                scene.write("refdb-kept/journal", migration(format, format, true))
            },
        ),
        kind(
            "kept: refs lead out",
            "Going back takes refs from elsewhere.",
            |scene| {
                let (from, to) = (other(scene), scene.format().refs.name());
                scene.write("refdb-kept/journal", migration(from, to, true))?;
                scene.link("refdb-kept/refs", scene.absolute("home"))?;
                scene.link("refdb-kept/reftable", scene.absolute("home"))
            },
        ),
        kind("kept: file", "A migration fails in the middle.", |scene| {
            scene.write("refdb-kept", "the only copy of something\n")
        }),
        kind("damaged: file", "A repair fails in the middle.", |scene| {
            scene.write("refdb-damaged", "the only copy of something\n")?;
            scene.write("HEAD", "")
        }),
        kind(
            "damaged: earlier ones lead out",
            "A repair writes elsewhere.",
            |scene| {
                for number in 0..4 {
                    let name = format!("refdb-damaged/{number}");
                    scene.link(&name, scene.absolute("home/notes"))?;
                }
                scene.write("HEAD", "")
            },
        ),
    ]
}

/// The other format's name.
fn other(scene: &Scene) -> &'static str {
    match scene.format().refs {
        RefFormat::Files => RefFormat::Reftable.name(),
        RefFormat::Reftable => RefFormat::Files.name(),
    }
}

/// A migration that did not come to the switch, with what it is said to have put in place.
fn switching(scene: &Scene, items: &[&str]) -> Made {
    let (from, to) = (scene.format().refs.name(), other(scene));
    let journal = "refdb-migration/journal";
    scene.write(journal, migration(from, to, true))?;
    scene.folder("refdb-migration/new")?;
    let world = scene.absolute("");
    let mut text = String::new();
    for item in items {
        let item = item.replace("{out}", scene.out());
        text.push_str(&item.replace("{world}/", &world));
        text.push('\0');
    }
    scene.write("refdb-migration/items", text)
}

/// A migration that came to the switch: the format is the new one.
fn switched(scene: &Scene, keep: bool) -> Made {
    let (from, to) = (other(scene), scene.format().refs.name());
    scene.write("refdb-migration/journal", migration(from, to, keep))?;
    scene.write("refdb-migration/old/refs/heads/old", "")
}
