//! What belongs to somebody else, and what nobody or everybody may read.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::forge::{Dialect, Journal, Signer, Step};
use super::{Kind, Made, Scene, kind};
use crate::format::RefFormat;

#[expect(clippy::too_many_lines, reason = "a list of kinds")]
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
            "owner: a journal, and logs lead out",
            "A listing writes where its maker may not.",
            |scene| {
                scene.remove("logs")?;
                scene.link("logs", scene.absolute("other"))?;
                shared_journal(
                    scene,
                    Step::Append("logs/HEAD".into(), 0, "attacked\n".into()),
                )
            },
        )
        .leads("other"),
        kind(
            "owner: a journal, and packed-refs leads out",
            "A listing removes what its maker may not.",
            |scene| {
                scene.remove("packed-refs")?;
                scene.link("packed-refs", scene.absolute("home/.bashrc"))?;
                shared_journal(scene, Step::Remove("packed-refs".into()))
            },
        )
        .leads("home/.bashrc")
        .only(RefFormat::Files),
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

/// In a shared repository journals are believed whoever of the group made them.
fn shared_journal(scene: &Scene, step: Step) -> Made {
    scene.configure("[core]\n\tsharedRepository = group")?;
    Journal::new(Dialect::NEWEST, Signer::Dead, vec![step]).put(scene, "refdb.journal")?;
    scene.give_away("refdb.journal")
}

fn mode(scene: &Scene, name: &str, mode: u32) -> Made {
    let path = scene.git_dir().join(name);
    let mode = fs::Permissions::from_mode(mode);
    fs::set_permissions(path, mode).map_err(|error| error.to_string())
}
