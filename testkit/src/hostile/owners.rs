//! What belongs to somebody else, and what nobody or everybody may read.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::forge::{Dialect, Journal, Signer, Step};
use super::{Kind, Made, Scene, kind};

pub(super) fn kinds() -> Vec<Kind> {
    vec![
        kind(
            "owner: the whole repository",
            "Hooks and settings of somebody else.",
            |scene| scene.give_all_away(),
        ),
        kind(
            "owner: everything, with a journal",
            "A listing finishes it.",
            |scene| {
                journal(scene)?;
                scene.give_all_away()
            },
        ),
        kind(
            "owner: everything, with a migration",
            "A listing finishes it.",
            |scene| {
                scene.link("refdb-migration", scene.absolute("home"))?;
                scene.give_all_away()
            },
        ),
        kind(
            "owner: refs",
            "Refs of somebody else are trusted.",
            |scene| {
                scene.give_away("refs")?;
                scene.give_away("refs/heads")
            },
        ),
        kind(
            "owner: configuration",
            "Settings of somebody else are trusted.",
            |scene| scene.give_away("config"),
        ),
        kind(
            "mode: everybody may write",
            "Anybody leaves a journal there.",
            |scene| {
                journal(scene)?;
                scene.give_away("refdb.journal")?;
                mode(scene, "", 0o777)
            },
        ),
        kind(
            "mode: nobody may read",
            "What cannot be read counts as missing.",
            |scene| {
                mode(scene, "refs/heads", 0)?;
                mode(scene, scene.list(), 0)
            },
        ),
        kind(
            "mode: refs with special bits",
            "A ref is taken for a lock.",
            |scene| {
                mode(scene, scene.list(), 0o7644)?;
                mode(scene, "HEAD", 0o7644)
            },
        ),
        kind(
            "owner: a folder of a clone",
            "A listing finishes what is in it.",
            |scene| {
                journal(scene)?;
                scene.give_all_away()
            },
        )
        .bare(),
    ]
}

fn journal(scene: &Scene) -> Made {
    let log = "logs/refs/heads/topic".to_owned();
    let steps = vec![Step::Remove("refs/heads/topic".into()), Step::Remove(log)];
    Journal::new(Dialect::NEWEST, Signer::Dead, steps).put(scene, "refdb.journal")
}

fn mode(scene: &Scene, name: &str, mode: u32) -> Made {
    let path = scene.git_dir().join(name);
    let mode = fs::Permissions::from_mode(mode);
    fs::set_permissions(path, mode).map_err(|error| error.to_string())
}
