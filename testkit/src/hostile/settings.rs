//! Settings and programs that a repository brings: whoever reads runs none, and whoever writes runs
//! those that Git runs.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::forge::{Dialect, Journal, Signer, Step};
use super::{Kind, Scene, kind};

#[expect(clippy::too_many_lines, reason = "a list of kinds")]
pub(super) fn kinds() -> Vec<Kind> {
    vec![
        kind(
            "programs: settings that name one",
            "A program is run by a listing.",
            |scene| {
                let program = program(scene, "attack")?;
                scene.configure(&format!(
                "[core]\n\tpager = {program}\n\tfsmonitor = {program}\n\teditor = {program}\n\
                 \tsshCommand = {program}\n\taskPass = {program}\n\talternateRefsCommand = {program}\n\
                 [gpg]\n\tprogram = {program}\n[diff]\n\texternal = {program}\n\
                 [pager]\n\tfor-each-ref = {program}\n\treflog = {program}\n\tshow-ref = {program}\n\
                 [credential]\n\thelper = {program}\n\
                 [alias]\n\tfor-each-ref = !{program}\n\trefs = !{program}"
            ))
            },
        ),
        kind(
            "programs: hooks",
            "A program is run by a listing.",
            |scene| {
                let program = program(scene, "hooks/reference-transaction")?;
                for hook in ["post-update", "pre-auto-gc", "post-checkout"] {
                    scene.link(&format!("hooks/{hook}"), &program)?;
                }
                Ok(())
            },
        )
        .owns("home/attacked"),
        kind(
            "programs: hooks elsewhere",
            "A program of the user's is run.",
            |scene| {
                program(scene, "reference-transaction")?;
                scene.configure("[core]\n\thooksPath = .git")
            },
        )
        .owns("home/attacked"),
        kind(
            "programs: hooks, with a journal",
            "Recovery runs a program.",
            |scene| {
                program(scene, "hooks/reference-transaction")?;
                let log = "logs/refs/heads/topic".to_owned();
                let steps = vec![Step::Remove("refs/heads/topic".into()), Step::Remove(log)];
                Journal::new(Dialect::NEWEST, Signer::Dead, steps).put(scene, "refdb.journal")
            },
        )
        .owns("home/attacked")
        .genuine(),
        kind(
            "settings: everybody may write",
            "The user's files are made so.",
            |scene| scene.configure("[core]\n\tsharedRepository = 0666"),
        ),
        kind(
            "settings: symrefs are links",
            "A symref is a link that leads out.",
            |scene| {
                let settings = "[core]\n\tpreferSymlinkRefs = true\n\tlogAllRefUpdates = always";
                scene.configure(settings)?;
                let target = format!("ref: refs/heads/../../{}/home/new\n", scene.out());
                scene.write("refs/heads/sym", target)
            },
        ),
        kind(
            "settings: numbers out of range",
            "Memory or time without end.",
            |scene| {
                scene.configure(
                    "[reftable]\n\tblockSize = 4294967295\n\trestartInterval = 65535\n\
                 \tgeometricFactor = 255\n[core]\n\tabbrev = 4\n\tpackedGitWindowSize = 1g\n\
                 [gc]\n\treflogExpire = 99999999999999999999\n[pack]\n\tthreads = 99999\n\
                 [refdb]\n\tdirectoryLockMin = 0",
                )
            },
        ),
        kind(
            "settings: wrong words",
            "A wrong word stops everything, or is passed over.",
            |scene| {
                scene.configure(
                    "[core]\n\tlogAllRefUpdates = sideways\n\tbare = perhaps\n\
                 \tsharedRepository = nobody\n[refdb]\n\tdirectoryLockMin = many",
                )
            },
        ),
        kind("settings: a long line", "All of the memory.", |scene| {
            scene.configure(&format!("[user]\n\tname = {}", "x".repeat(4 << 20)))
        }),
        kind(
            "settings: names of remotes",
            "A remote is named as a way out.",
            |scene| {
                scene.configure(&format!(
                    "[remote \"../../{0}/home\"]\n\turl = .\n\
                 \tfetch = +refs/heads/*:refs/remotes/../../{0}/home/*\n\
                 [branch \"main\"]\n\tremote = ../../{0}/home\n\tmerge = refs/heads/../../x\n\
                 [branch \"topic\"]\n\tremote = .\n\tmerge = /etc/passwd",
                    scene.out()
                ))
            },
        ),
        kind(
            "settings: refs that are hidden",
            "What is hidden is taken for missing.",
            |scene| scene.configure("[transfer]\n\thideRefs = refs\n[core]\n\tignoreCase = true"),
        ),
    ]
}

/// Makes a program that writes into the home, and returns its path.
fn program(scene: &Scene, name: &str) -> Result<String, String> {
    let path = scene.git_dir().join(name);
    let attack = scene.absolute("home/attacked");
    scene.write(
        name,
        format!("#!/bin/sh\nexec 2>&-\necho attacked >> {attack}\n"),
    )?;
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(&path, mode).map_err(|error| error.to_string())?;
    Ok(path.display().to_string())
}
