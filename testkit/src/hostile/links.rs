//! Links in every place: Git follows some of them, and refdb may do no more than Git.

use super::{Kind, Made, Scene, kind};
use crate::format::RefFormat::{Files, Reftable};

/// Which links there are: where, and where they lead from the world. A name that begins with `=`
/// is the text of the link.
const LINKS: &[(&str, &str, &str)] = &[
    (
        "refs",
        "other/refs",
        "Refs of the user's other repository are changed.",
    ),
    ("refs", "home", "The home is taken for refs."),
    (
        "refs/tags",
        "home",
        "The home is taken for refs, and swept.",
    ),
    (
        "refs/heads/linked",
        "home/notes",
        "The user's notes are taken for refs.",
    ),
    (
        "refs/heads/linked",
        "nothing",
        "Something is made elsewhere.",
    ),
    (
        "refs/heads/linked",
        "home/.bashrc",
        "The user's file is shown, or replaced.",
    ),
    (
        "refs/heads/main",
        "home/.ssh/authorized_keys",
        "The user's file is shown, or replaced.",
    ),
    (
        "refs/heads/topic",
        "other/refs/heads/topic",
        "A ref elsewhere is changed.",
    ),
    (
        "refs/heads/..data",
        "home",
        "A name that starts with dots is a way out.",
    ),
    (
        "refs/remotes",
        "=..",
        "Refs are found in themselves, without end.",
    ),
    ("logs", "home", "Reflogs are written into the home."),
    (
        "logs/HEAD",
        "home/.bashrc",
        "A line in ~/.bashrc by an update.",
    ),
    (
        "logs/refs/heads",
        "home",
        "Reflogs are written into the home, and swept.",
    ),
    (
        "logs/refs/heads/main",
        "home/.bashrc",
        "A line in ~/.bashrc by an update.",
    ),
    (
        "logs/refs/heads/topic",
        "nothing",
        "A file is made elsewhere.",
    ),
    (
        "packed-refs",
        "home/notes/one",
        "The user's file is replaced.",
    ),
    (
        "packed-refs",
        "other/packed-refs",
        "The refs of another repository are replaced.",
    ),
    ("packed-refs", "nothing", "A file is made elsewhere."),
    ("HEAD", "other/HEAD", "Another repository has another HEAD."),
    (
        "HEAD",
        "home/.bashrc",
        "The user's file is taken for HEAD, and replaced.",
    ),
    ("HEAD", "=refs/heads/main", "An old form of a symref."),
    (
        "HEAD",
        "=refs/heads/../../../../../../home/new",
        "An old form of a symref, leading out.",
    ),
    (
        "config",
        "other/config",
        "The configuration of another repository is changed.",
    ),
    (
        "config",
        "home/.bashrc",
        "The user's file is replaced by a migration.",
    ),
    ("objects", "other/objects", "Objects elsewhere are removed."),
    (
        "objects/pack",
        "home",
        "Files of the user's are taken for packs.",
    ),
    (
        "worktrees",
        "home",
        "Folders of the user's are taken for worktrees.",
    ),
    (
        "worktrees/side",
        "other",
        "Another repository is taken for a worktree.",
    ),
    (
        "worktrees/side/refs",
        "home",
        "The home is taken for refs of a worktree.",
    ),
    (
        "worktrees/side/logs",
        "home",
        "Reflogs are written into the home.",
    ),
    (
        "worktrees/side/HEAD",
        "home/.bashrc",
        "The user's file is taken for HEAD.",
    ),
    (
        "reftable",
        "other/reftable",
        "Tables of another repository are changed.",
    ),
    (
        "reftable",
        "home",
        "The home is taken for tables, and swept.",
    ),
    (
        "reftable",
        "nothing",
        "Tables are made elsewhere, or there seem to be none.",
    ),
    (
        "reftable/tables.list",
        "home/.bashrc",
        "The user's file is replaced.",
    ),
    (
        "reftable/tables.list",
        "other/reftable/tables.list",
        "Another list is replaced.",
    ),
    ("hooks", "home", "Files of the user's are run."),
    ("info", "home", "Files of the user's are changed."),
    (
        "ORIG_HEAD",
        "home/.bashrc",
        "The user's file is shown, or removed.",
    ),
    (
        "refs/stash",
        "home/.bashrc",
        "The user's file is shown, or removed.",
    ),
];

pub(super) fn kinds() -> Vec<Kind> {
    let mut kinds: Vec<Kind> = LINKS
        .iter()
        .map(|&(place, to, wants)| {
            let name = format!("link: {place} to {}", to.trim_start_matches('='));
            let mut made = kind(name, wants, move |scene| link(scene, place, to));
            made.leads = (!to.starts_with('=')).then_some(to);
            // Git, which does not migrate worktrees, changes the configuration there as well.
            made.belongs = (place == "config").then_some(to);
            match place {
                _ if place.starts_with("reftable") => made.only(Reftable),
                _ if is_loose(place) => made.only(Files),
                _ => made,
            }
        })
        .collect();
    kinds.push(
        kind(
            "link: a table to a file",
            "The user's file is removed as a table.",
            |scene| scene.link(&scene.table(), scene.absolute("home/.bashrc")),
        )
        .leads("home/.bashrc")
        .only(Reftable),
    );
    kinds.push(kind(
        "link: .git",
        "Another repository is changed.",
        |scene| scene.link("../.git", scene.absolute("other")),
    ));
    let everything = kind(
        "link: everything, relative",
        "All of it leads out at once.",
        |scene| {
            for place in ["refs", "logs", "packed-refs", "reftable"] {
                let to = format!("{}/other/{place}", scene.out());
                scene.link(place, to)?;
            }
            Ok(())
        },
    );
    kinds.push(everything.leads("other"));
    kinds
}

fn is_loose(place: &str) -> bool {
    let loose = ["refs/", "logs/refs/", "packed-refs", "ORIG_HEAD"];
    loose.iter().any(|start| place.starts_with(start))
}

fn link(scene: &Scene, place: &str, to: &str) -> Made {
    match to.strip_prefix('=') {
        Some(text) => scene.link(place, text),
        None => scene.link(place, scene.absolute(to)),
    }
}
