//! Forged journals: what a listing would finish, if it believed them.

use std::fs;

use crate::format::RefFormat;

use super::forge::{Dialect, Journal, Signer, Step};
use super::{Kind, Made, Scene, kind};

/// How large a file is that is nowhere.
const HUGE: u64 = 8 << 30;

type Steps = fn(&Scene) -> Vec<Step>;

/// Journals that are whole, by what their steps do, and whether all that they name may be named:
/// then it is what a process of this user may have left here.
const STEPS: &[(&str, &str, Steps, bool)] = &[
    (
        "appends, absolute",
        "A line in ~/.bashrc by a listing.",
        append_absolute,
        false,
    ),
    (
        "appends, ..",
        "The same without knowing where the home is.",
        append_above,
        false,
    ),
    (
        "cuts, ..",
        "Only the attacker's keys are left.",
        cut_above,
        false,
    ),
    (
        "makes folders",
        "A file where the user's shell looks for one.",
        make_folders,
        false,
    ),
    (
        "removes, absolute",
        "A file of the user's is gone.",
        remove_absolute,
        false,
    ),
    (
        "removes, ..",
        "The same without knowing where it is.",
        remove_above,
        false,
    ),
    (
        "renames out",
        "The attacker's file has the place of the user's.",
        rename_out,
        false,
    ),
    (
        "renames in",
        "The user's file is in a folder that is sent back.",
        rename_in,
        false,
    ),
    (
        "appends through a link",
        "The name is a log, and a link leads out.",
        append_linked,
        true,
    ),
    (
        "appends behind a link",
        "A folder on the way is a link.",
        append_behind_link,
        true,
    ),
    (
        "removes behind a link",
        "A folder on the way is a link.",
        remove_behind_link,
        true,
    ),
    (
        "renames behind a link",
        "A folder on the way is a link.",
        rename_behind_link,
        true,
    ),
    (
        "changes the configuration",
        "A program of the attacker's runs later.",
        take_config,
        false,
    ),
    (
        "makes a hook",
        "A program of the attacker's runs later.",
        make_hook,
        false,
    ),
    (
        "removes a pack",
        "The objects are gone.",
        remove_pack,
        false,
    ),
    (
        "names of no ref",
        "Files that are no refs are changed.",
        no_ref,
        false,
    ),
    (
        "names with a line feed",
        "One name is read as two.",
        line_feed,
        false,
    ),
    (
        "a length without end",
        "More memory than there is.",
        endless,
        true,
    ),
    (
        "of this repository",
        "Refs are changed by whoever may write there.",
        ordinary,
        true,
    ),
];

#[expect(clippy::too_many_lines, reason = "a list of kinds")]
pub(super) fn kinds() -> Vec<Kind> {
    let mut kinds = Vec::new();
    for &dialect in Dialect::ALL {
        for &(name, wants, steps, is_sound) in STEPS {
            let name = format!("{}: {name}", dialect.name());
            let mut made = kind(name, wants, move |scene| {
                Journal::new(dialect, Signer::Dead, steps(scene)).put(scene, PLACE)
            });
            made.genuine = is_sound && dialect == Dialect::NEWEST;
            kinds.push(made);
        }
        let more = [
            kind(
                "owner unknown",
                "Who cannot be made out counts as dead.",
                move |scene| {
                    Journal::new(dialect, Signer::Nobody, append_above(scene)).put(scene, PLACE)
                },
            ),
            kind(
                "of another repository",
                "Who runs elsewhere counts as dead.",
                move |scene| {
                    Journal::new(dialect, Signer::Elsewhere, ordinary(scene)).put(scene, PLACE)
                },
            ),
            kind(
                "removes a link as a lock",
                "A link of the user's is gone.",
                move |scene| lock_outside(scene, dialect),
            ),
            kind(
                "of another user",
                "Somebody changes refs that are not his.",
                move |scene| {
                    Journal::new(dialect, Signer::Dead, ordinary(scene)).put(scene, PLACE)?;
                    scene.give_away(PLACE)
                },
            ),
            kind("cut", "Half of it is done.", move |scene| {
                cut(scene, dialect)
            })
            .genuine(),
            kind(
                "of a worktree",
                "The journal of a worktree is believed.",
                move |scene| {
                    let name = "worktrees/side/refdb.journal";
                    Journal::new(dialect, Signer::Dead, append_above(scene)).put(scene, name)
                },
            )
            .seen_from("side"),
            kind(
                "in a folder of a clone",
                "A listing changes what was cloned.",
                move |scene| Journal::new(dialect, Signer::Dead, ordinary(scene)).put(scene, PLACE),
            )
            .bare(),
            kind(
                "leads out of a folder of a clone",
                "A line in ~/.bashrc.",
                move |scene| {
                    Journal::new(dialect, Signer::Dead, append_above(scene)).put(scene, PLACE)
                },
            )
            .bare(),
        ];
        kinds.extend(more.map(|mut kind| {
            // One in another form is left alone.
            kind.genuine &= dialect == Dialect::NEWEST;
            kind.name = format!("{}: {}", dialect.name(), kind.name);
            kind
        }));
    }
    kinds.extend(odd());
    kinds
}

/// What is no journal at all, where one would be.
#[expect(clippy::too_many_lines, reason = "a list of kinds")]
fn odd() -> Vec<Kind> {
    vec![
        kind(
            "journal: of a later version",
            "What is not understood is thrown away.",
            |scene| scene.write(PLACE, "refdb journal 99\nsome text\0"),
        ),
        kind(
            "journal: no bytes",
            "What is no journal is thrown away.",
            |scene| scene.write(PLACE, ""),
        )
        // A loss of power leaves that.
        .genuine(),
        kind(
            "journal: some text",
            "What is no journal is thrown away.",
            |scene| scene.write(PLACE, "the only copy of something\n"),
        ),
        kind(
            "journal: huge",
            "More memory or time than there is.",
            |scene| scene.sparse(PLACE, HUGE),
        ),
        kind(
            "journal: nearly too long",
            "The same, of a file that is just short enough to be read.",
            // All zeros would be a journal that a loss of power cut.
            |scene| scene.sparse_after(b"x", PLACE, (4 << 30) - 1),
        ),
        kind(
            "journal: whole, with a hole of 4 GB",
            "8 GB of memory by any command, for a file of 4 KB.",
            |scene| with_hole(scene, u32::MAX - 5000),
        ),
        kind(
            "journal: whole, with a hole that is just small enough",
            "The same, of one that is read.",
            |scene| with_hole(scene, (1 << 28) - 5000),
        )
        .genuine(),
        kind(
            "journal: sums of a large file",
            "Half a minute of any command, to read it under each of its names.",
            |scene| sums(scene, 100, 500 << 20),
        ),
        kind(
            "journal: sums of a file of many names",
            "The same with a smaller file that has more names.",
            |scene| sums(scene, 10_000, 1 << 20),
        )
        .only(RefFormat::Files),
        kind(
            "journal: the sum of a file, many times",
            "The same with a smaller file.",
            |scene| {
                let name = "refs/heads/zeros";
                scene.sparse(name, 1 << 20)?;
                with_removal(scene, vec![Step::Zeros(name.into(), 1 << 20); 100_000])
            },
        ),
        kind("journal: FIFO", "Every command waits for ever.", |scene| {
            scene.fifo(PLACE)
        }),
        kind(
            "journal: device",
            "Every command reads for ever.",
            |scene| scene.device(PLACE),
        ),
        kind("journal: folder", "No command works any more.", |scene| {
            scene.write("refdb.journal/precious", "the only copy of something\n")
        }),
        kind(
            "journal: link to a file",
            "The user's file is taken for one.",
            |scene| scene.link(PLACE, format!("{}/home/.bashrc", scene.out())),
        ),
        kind(
            "journal: link to a device",
            "Every command reads for ever.",
            |scene| scene.link(PLACE, "/dev/zero"),
        ),
        kind(
            "journal: link to itself",
            "Every command goes in a circle.",
            |scene| scene.link(PLACE, "refdb.journal"),
        ),
    ]
}

const PLACE: &str = "refdb.journal";
const LINE: &str = "echo attacked\n";

fn append_absolute(scene: &Scene) -> Vec<Step> {
    let path = scene.absolute("home/.bashrc");
    vec![Step::Append(path, 1 << 20, LINE.into())]
}

fn append_above(scene: &Scene) -> Vec<Step> {
    let path = format!("logs/../{}/home/.bashrc", scene.out());
    vec![Step::Append(path, 1 << 20, LINE.into())]
}

fn cut_above(scene: &Scene) -> Vec<Step> {
    let path = format!("{}/home/.ssh/authorized_keys", scene.out());
    vec![Step::Append(path, 0, "ssh-ed25519 attacker\n".into())]
}

fn make_folders(scene: &Scene) -> Vec<Step> {
    let path = format!("{}/home/.config/shell/rc", scene.out());
    vec![Step::Append(path, 0, LINE.into())]
}

fn remove_absolute(scene: &Scene) -> Vec<Step> {
    vec![Step::Remove(scene.absolute("work/tracked"))]
}

fn remove_above(scene: &Scene) -> Vec<Step> {
    vec![Step::Remove(format!(
        "refs/../{}/work/.git/config",
        scene.out()
    ))]
}

fn rename_out(scene: &Scene) -> Vec<Step> {
    let to = format!("{}/home/.bashrc", scene.out());
    vec![Step::Rename("HEAD".into(), to)]
}

fn rename_in(scene: &Scene) -> Vec<Step> {
    let from = scene.absolute("home/.ssh/authorized_keys");
    vec![Step::Rename(from, "refs/heads/taken".into())]
}

fn append_linked(scene: &Scene) -> Vec<Step> {
    scene
        .link("logs/refs/heads/linked", scene.absolute("home/.bashrc"))
        .expect("a link");
    vec![Step::Append(
        "logs/refs/heads/linked".into(),
        1 << 20,
        LINE.into(),
    )]
}

fn append_behind_link(scene: &Scene) -> Vec<Step> {
    scene
        .link("logs/refs/heads/linked", scene.absolute("home"))
        .expect("a link");
    vec![Step::Append(
        "logs/refs/heads/linked/one".into(),
        1 << 20,
        LINE.into(),
    )]
}

fn remove_behind_link(scene: &Scene) -> Vec<Step> {
    scene
        .link("refs/heads/linked", scene.absolute("home/notes"))
        .expect("a link");
    vec![Step::Remove("refs/heads/linked/one".into())]
}

fn rename_behind_link(scene: &Scene) -> Vec<Step> {
    scene
        .link("refs/tags/linked", scene.absolute("home/.ssh"))
        .expect("a link");
    scene
        .write("refs/tags/.x.lock", "ssh-ed25519 attacker\n")
        .expect("a file");
    vec![Step::Rename(
        "refs/tags/.x.lock".into(),
        "refs/tags/linked/authorized_keys".into(),
    )]
}

fn take_config(scene: &Scene) -> Vec<Step> {
    scene
        .write(".new", "[core]\n\thooksPath = /tmp\n")
        .expect("a file");
    vec![Step::Rename(".new".into(), "config".into())]
}

fn make_hook(_: &Scene) -> Vec<Step> {
    vec![Step::Append(
        "hooks/reference-transaction".into(),
        0,
        LINE.into(),
    )]
}

fn remove_pack(scene: &Scene) -> Vec<Step> {
    let packs = std::fs::read_dir(scene.git_dir().join("objects/pack")).expect("packs");
    let names = packs.map(|entry| entry.expect("a pack").file_name());
    names
        .map(|name| Step::Remove(format!("objects/pack/{}", name.to_string_lossy())))
        .collect()
}

fn no_ref(_: &Scene) -> Vec<Step> {
    vec![
        Step::Remove("description".into()),
        Step::Remove("info/exclude".into()),
        Step::Append("refs/heads/x.lock".into(), 0, LINE.into()),
        Step::Rename(
            "worktrees/side/gitdir".into(),
            "worktrees/side/commondir".into(),
        ),
    ]
}

fn line_feed(scene: &Scene) -> Vec<Step> {
    let path = format!("logs/refs/heads/a\nremove {}/home/.bashrc\n", scene.out());
    vec![Step::Append(path, 0, LINE.into())]
}

fn endless(_: &Scene) -> Vec<Step> {
    vec![Step::Append(
        "logs/refs/heads/main".into(),
        u64::MAX,
        String::new(),
    )]
}

fn ordinary(_: &Scene) -> Vec<Step> {
    vec![
        Step::Remove("refs/heads/topic".into()),
        Step::Remove("logs/refs/heads/topic".into()),
        Step::Append("logs/refs/heads/main".into(), 0, LINE.into()),
    ]
}

fn with_hole(scene: &Scene, len: u32) -> Made {
    let steps = vec![Step::Hole("logs/refs/heads/main".into(), len)];
    Journal::new(Dialect::NEWEST, Signer::Dead, steps).put(scene, PLACE)
}

/// A journal that knows a file of so many bytes, under each of so many names, by its checksum.
fn sums(scene: &Scene, names: usize, len: u32) -> Made {
    let name = |at: usize| format!("refs/heads/zeros{at}");
    scene.sparse(&name(0), len.into())?;
    for at in 1..names {
        let linked = fs::hard_link(scene.place(&name(0)), scene.place(&name(at)));
        linked.map_err(|error| error.to_string())?;
    }
    let steps = (0..names).map(|at| Step::Zeros(name(at), len));
    with_removal(scene, steps.collect())
}

/// A journal that takes something away, if only all is there that comes.
fn with_removal(scene: &Scene, mut steps: Vec<Step>) -> Made {
    steps.push(Step::Remove("refs/heads/topic".into()));
    Journal::new(Dialect::NEWEST, Signer::Dead, steps).put(scene, PLACE)
}

/// The user has a link in the home; its text is known, as that of a lock would be.
fn lock_outside(scene: &Scene, dialect: Dialect) -> Made {
    let link = scene.home().join(".profile");
    std::os::unix::fs::symlink(".bashrc", link).map_err(|error| error.to_string())?;
    let mut journal = Journal::new(dialect, Signer::Dead, Vec::new());
    journal.lock = (
        format!("{}/home/.profile", scene.out()),
        ".bashrc".to_owned(),
    );
    journal.put(scene, PLACE)
}

fn cut(scene: &Scene, dialect: Dialect) -> Made {
    Journal::new(dialect, Signer::Dead, ordinary(scene)).put(scene, PLACE)?;
    Journal::cut(scene, PLACE, 30)
}
