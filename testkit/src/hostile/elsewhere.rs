//! Files that say where the repository is, and say somewhere else.

use std::fs;

use super::forge::{Dialect, Journal, Signer, Step};
use super::{Kind, Made, Scene, kind};

pub(super) fn kinds() -> Vec<Kind> {
    let mut kinds = gitfiles();
    kinds.extend(stores());
    kinds.extend(folders());
    kinds
}

fn gitfiles() -> Vec<Kind> {
    vec![
        kind(
            "gitfile: to another repository",
            "Its refs are changed.",
            |scene| scene.write("../.git", format!("gitdir: {}\n", scene.absolute("other"))),
        ),
        kind(
            "gitfile: to the user's clone",
            "Its refs are changed.",
            |scene| scene.write("../.git", "gitdir: ../../.git\n"),
        ),
        kind(
            "gitfile: to the home",
            "The home is taken for a repository.",
            |scene| scene.write("../.git", format!("gitdir: {}\n", scene.absolute("home"))),
        ),
        kind("gitfile: to a device", "Reading it never ends.", |scene| {
            scene.write("../.git", "gitdir: /dev/zero\n")
        }),
        kind("gitfile: a megabyte", "All of it is a path.", |scene| {
            scene.write("../.git", format!("gitdir: {}\n", "a/".repeat(1 << 19)))
        }),
        kind(
            "gitfile: with a line feed",
            "One path is read as two.",
            |scene| scene.write("../.git", "gitdir: ../../.git\ngitdir: /\n"),
        ),
        kind(
            "commondir: another repository",
            "Its refs are changed.",
            |scene| scene.write("commondir", format!("{}\n", scene.absolute("other"))),
        ),
        kind(
            "commondir: the home",
            "The home is taken for a repository.",
            |scene| scene.write("commondir", format!("{}/home\n", scene.out())),
        ),
        kind(
            "commondir: nothing",
            "Something is made elsewhere.",
            |scene| scene.write("commondir", format!("{}\n", scene.absolute("nothing"))),
        ),
        kind(
            "commondir: of a worktree, another repository",
            "Its refs are changed.",
            |scene| {
                let to = format!("{}\n", scene.absolute("other"));
                scene.write("worktrees/side/commondir", to)
            },
        )
        .seen_from("side"),
        kind(
            "worktree: leads to the home",
            "The home is taken for a worktree.",
            |scene| {
                let to = format!("{}\n", scene.absolute("home/.git"));
                scene.write("worktrees/side/gitdir", to)
            },
        ),
        kind(
            "worktree: leads to a device",
            "Reading it never ends.",
            |scene| scene.write("worktrees/side/gitdir", "/dev/zero\n"),
        ),
    ]
}

fn stores() -> Vec<Kind> {
    vec![
        kind(
            "store: another repository",
            "Its refs are changed.",
            |scene| store(scene, "other"),
        )
        .owns("other"),
        kind(
            "store: the user's clone",
            "Its refs are changed.",
            |scene| store(scene, "work/.git"),
        )
        .owns("work/.git"),
        kind("store: the home", "The home is taken for refs.", |scene| {
            store(scene, "home")
        })
        .owns("home"),
        kind("store: nothing", "Something is made elsewhere.", |scene| {
            store(scene, "nothing")
        })
        .owns("nothing"),
        kind("store: ..", "Its refs are changed.", |scene| {
            let format = scene.format().refs.name();
            let version = "[core]\n\trepositoryformatversion = 1\n";
            let to = format!("{format}://{}/other", scene.out());
            scene.configure(&format!("{version}[extensions]\n\trefStorage = {to}"))
        })
        .owns("other"),
        kind(
            "store: unknown",
            "What is not understood is taken for files.",
            |scene| {
                let version = "[core]\n\trepositoryformatversion = 1\n";
                scene.configure(&format!("{version}[extensions]\n\trefStorage = ../../x"))
            },
        ),
        kind(
            "store: another one, with a journal",
            "A listing changes it.",
            |scene| {
                let steps = vec![Step::Remove("refs/heads/topic".into())];
                Journal::new(Dialect::NEWEST, Signer::Dead, steps).put(scene, "refdb.journal")?;
                store(scene, "other")
            },
        )
        .owns("other")
        .genuine(),
        kind(
            "working folder: the home",
            "Files of the home are changed.",
            |scene| scene.configure(&format!("[core]\n\tworktree = {}", scene.absolute("home"))),
        ),
    ]
}

/// Has the configuration say that refs are somewhere in the world.
fn store(scene: &Scene, at: &str) -> Made {
    let format = scene.format().refs.name();
    let at = scene.absolute(at);
    scene.configure(&format!(
        "[core]\n\trepositoryformatversion = 1\n[extensions]\n\trefStorage = {format}://{at}"
    ))
}

/// Folders in which a repository is found that nobody put there as one.
fn folders() -> Vec<Kind> {
    vec![
        kind(
            "bare: in a clone",
            "What is in it counts as settings.",
            |scene| scene.configure("[core]\n\tpager = touch attacked"),
        )
        .bare(),
        kind(
            "bare: without configuration",
            "It is taken for one nevertheless.",
            |scene| scene.remove("config"),
        )
        .bare(),
        kind(
            "bare: its worktrees lead out",
            "The user's clone is its worktree.",
            |scene| {
                scene.write(
                    "worktrees/x/gitdir",
                    format!("{}\n", scene.absolute("work/.git")),
                )?;
                scene.write("worktrees/x/commondir", "../..\n")?;
                scene.write("worktrees/x/HEAD", "ref: refs/heads/main\n")
            },
        )
        .bare(),
        kind(
            "bare: in the folder of refs",
            "A folder of refs is a repository.",
            |scene| nested(scene, "refs/heads/inner"),
        ),
        kind(
            "bare: in a repository, with a migration",
            "A listing empties it.",
            |scene| {
                let name = "nested/refdb-migration";
                nested(scene, "nested")?;
                scene.link(name, scene.absolute("home"))
            },
        )
        .seen_from(".git/nested"),
    ]
}

/// Makes what is taken for a bare repository.
fn nested(scene: &Scene, at: &str) -> Made {
    for folder in ["objects", "refs"] {
        scene.folder(&format!("{at}/{folder}"))?;
    }
    scene.write(&format!("{at}/HEAD"), "ref: refs/heads/main\n")?;
    fs::copy(
        scene.git_dir().join("config"),
        scene.git_dir().join(at).join("config"),
    )
    .map(drop)
    .map_err(|error| error.to_string())
}
