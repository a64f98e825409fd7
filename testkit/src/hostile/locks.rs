//! Forged locks, and links where new content is written.

use std::fs;

use super::forge::{self, Signer, owner, signed};
use super::{Kind, Made, Scene, kind};
use crate::format::RefFormat;

/// What commands lock, in either format.
const LOCKED: &[&str] = &[
    "HEAD",
    "refs/heads/main",
    "refs/heads/new",
    "packed-refs",
    "refdb.journal",
    "reftable/tables.list",
    "config",
];

#[expect(clippy::too_many_lines, reason = "a list of kinds")]
pub(super) fn kinds() -> Vec<Kind> {
    vec![
        kind(
            "locks: of the dead",
            "Whatever a lock is said to guard is changed.",
            |scene| each(scene, |lock| scene.link(lock, owner(Signer::Dead, "refdb"))),
        )
        .genuine(),
        kind(
            "locks: of another machine",
            "Nobody can write any more.",
            |scene| {
                each(scene, |lock| {
                    scene.link(lock, owner(Signer::Elsewhere, "refdb"))
                })
            },
        ),
        kind(
            "locks: files of the dead",
            "Whatever a lock is said to guard is changed.",
            |scene| each(scene, |lock| file(scene, lock, Signer::Dead)),
        )
        .genuine(),
        kind(
            "locks: files of another machine",
            "Nobody can write any more.",
            |scene| each(scene, |lock| file(scene, lock, Signer::Elsewhere)),
        )
        .genuine(),
        kind(
            "locks: files of nobody",
            "What cannot be read counts as left.",
            |scene| each(scene, |lock| file(scene, lock, Signer::Nobody)),
        )
        .genuine(),
        kind(
            "locks: names of one file",
            "One lock stands for all that it is a name of.",
            |scene| {
                scene.write("some", signed(Signer::Dead, "transaction"))?;
                guard(scene, "some")?;
                let some = scene.git_dir().join("some");
                each(scene, |lock| {
                    fs::hard_link(&some, scene.place(lock)).map_err(|error| error.to_string())
                })
            },
        )
        .genuine(),
        kind(
            "locks: of nobody",
            "What cannot be read counts as left.",
            |scene| {
                each(scene, |lock| {
                    scene.link(lock, owner(Signer::Nobody, "refdb"))
                })
            },
        ),
        kind(
            "locks: links to a file",
            "The user's file is removed as a lock.",
            |scene| {
                each(scene, |lock| {
                    scene.link(lock, scene.absolute("home/.bashrc"))
                })
            },
        ),
        kind(
            "locks: links to nothing",
            "A lock is made elsewhere.",
            |scene| each(scene, |lock| scene.link(lock, scene.absolute("home/new"))),
        ),
        kind(
            "locks: FIFOs",
            "Whoever asks whose lock it is waits for ever.",
            |scene| each(scene, |lock| scene.fifo(lock)),
        ),
        kind(
            "locks: folders",
            "What is in the way is removed, with what is in it.",
            |scene| {
                each(scene, |lock| {
                    scene.write(&format!("{lock}/precious"), "the only copy\n")
                })
            },
        ),
        kind(
            "locks: guarded FIFOs",
            "Whoever looks for the dead waits for ever.",
            |scene| {
                each(scene, |lock| {
                    scene.fifo(lock)?;
                    guard(scene, lock)
                })
            },
        ),
        kind(
            "locks: guarded, and nobody has them",
            "They are taken over.",
            |scene| {
                each(scene, |lock| {
                    scene.write(lock, "the only copy\n")?;
                    guard(scene, lock)
                })
            },
        )
        .genuine(),
        kind(
            "new content: links to a file",
            "New content goes into the user's file.",
            |scene| {
                each_value(scene, |value| {
                    scene.link(value, scene.absolute("home/.bashrc"))
                })
            },
        ),
        kind(
            "new content: links to nothing",
            "New content goes elsewhere.",
            |scene| each_value(scene, |value| scene.link(value, scene.absolute("home/new"))),
        ),
        kind(
            "new content: FIFOs",
            "Whoever writes waits for ever.",
            |scene| each_value(scene, |value| scene.fifo(value)),
        ),
        kind(
            "new content: folders",
            "Folders are removed with what is in them.",
            |scene| {
                each_value(scene, |value| {
                    scene.write(&format!("{value}/precious"), "the only copy\n")
                })
            },
        ),
        kind(
            "new content: of the dead, linked",
            "The same, when a lock is taken over.",
            |scene| {
                each(scene, |lock| scene.link(lock, owner(Signer::Dead, "refdb")))?;
                each_value(scene, |value| {
                    scene.link(value, scene.absolute("home/.bashrc"))
                })
            },
        )
        .genuine(),
        kind(
            "pid files: links to a file",
            "A number goes into the user's file.",
            |scene| {
                scene.configure("[core]\n\tlockfilePid = true")?;
                each(scene, |lock| {
                    let target = lock.strip_suffix(".lock").unwrap_or(lock);
                    scene.link(
                        &format!("{target}~pid.lock"),
                        scene.absolute("home/.bashrc"),
                    )
                })
            },
        ),
        kind(
            "pid files: links to nothing",
            "A file is made elsewhere.",
            |scene| {
                scene.configure("[core]\n\tlockfilePid = true")?;
                each(scene, |lock| {
                    let target = lock.strip_suffix(".lock").unwrap_or(lock);
                    scene.link(&format!("{target}~pid.lock"), scene.absolute("home/new"))
                })
            },
        ),
        kind(
            "pid files: FIFOs beside locks",
            "Telling who holds it waits for ever.",
            |scene| {
                each(scene, |lock| {
                    scene.write(lock, "")?;
                    let target = lock.strip_suffix(".lock").unwrap_or(lock);
                    scene.fifo(&format!("{target}~pid.lock"))
                })
            },
        ),
        kind(
            "barriers: of the dead",
            "A directory is taken away.",
            |scene| {
                let text = owner(Signer::Dead, "refdb");
                scene.link("refs/heads/barred", &text)?;
                scene.link("refs/heads/barred.lock", &text)?;
                scene.link("logs/refs/heads/barred", &text)
            },
        )
        .only(RefFormat::Files),
        kind(
            "barriers: that lead somewhere",
            "A text that is a path as well.",
            |scene| {
                // The folder of that name is there, so that the link is one to the user's notes.
                let text = owner(Signer::Dead, "refdb");
                scene.link(&format!("refs/heads/{text}"), scene.absolute("home/notes"))?;
                scene.link("refs/heads/barred", &text)?;
                scene.link("refs/heads/barred.lock", &text)
            },
        )
        .only(RefFormat::Files),
        kind(
            "barriers: that bar folders of refs",
            "What is behind it is taken for gone.",
            |scene| {
                let text = "refdb-locked-0123456789abcdef";
                scene.link("refs/heads/dir", text)?;
                scene.link("refs/heads/barred", text)?;
                scene.write(text, "the only copy\n")?;
                file(scene, "refs/heads/barred.lock", Signer::Dead)
            },
        )
        .only(RefFormat::Files)
        .genuine(),
        kind(
            "tables: claimed by the dead",
            "Tables are taken for leftovers.",
            |scene| {
                let lock = format!("{}.lock", scene.table());
                scene.link(&lock, owner(Signer::Dead, "refdb"))?;
                scene.link("reftable/tables.list.lock", owner(Signer::Dead, "refdb"))
            },
        )
        .only(RefFormat::Reftable),
        kind(
            "tables: leftovers lead out",
            "A repair removes the user's files.",
            |scene| {
                let name = "reftable/0x000000000001-0x000000000001-0badf00d.ref";
                scene.link(name, scene.absolute("home/.bashrc"))?;
                scene.link("reftable/.tmp.ref", scene.absolute("home/notes"))
            },
        )
        .only(RefFormat::Reftable),
    ]
}

/// Makes something of the lock of each file that is locked.
fn each(scene: &Scene, make: impl Fn(&str) -> Made) -> Made {
    each_place(scene, |place| make(&format!("{place}.lock")))
}

/// Makes something where the new content of each file is written, or was by an older refdb.
fn each_value(scene: &Scene, make: impl Fn(&str) -> Made) -> Made {
    each_place(scene, |place| {
        make(&format!("{place}~0123456789abcdef.lock"))?;
        make(&format!("{place}.lock.lock"))?;
        match place.rsplit_once('/') {
            Some((dir, name)) => make(&format!("{dir}/.{name}.lock")),
            None => make(&format!(".{place}.lock")),
        }
    })
}

fn each_place(scene: &Scene, make: impl Fn(&str) -> Made) -> Made {
    let is_files = scene.format().refs == RefFormat::Files;
    let here = |place: &&&str| match **place {
        "reftable/tables.list" => !is_files,
        "packed-refs" | "refs/heads/main" | "refs/heads/new" => is_files,
        _ => true,
    };
    LOCKED.iter().filter(here).try_for_each(|place| make(place))
}

/// Makes a lock that is a file.
fn file(scene: &Scene, lock: &str, signer: Signer) -> Made {
    scene.write(lock, signed(signer, "transaction"))?;
    guard(scene, lock)
}

fn guard(scene: &Scene, lock: &str) -> Made {
    forge::guard(&scene.git_dir().join(lock))
}
