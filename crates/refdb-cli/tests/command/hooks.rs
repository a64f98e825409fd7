//! What a hook finds when it is called: the folder, its name, its environment; and hooks that
//! cannot be called, or do not read. All of it beside Git, in twin repositories.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::beside::{Twins, answer};
use refdb_testkit::{Format, for_every_format, oracle};

/// Says everything that a hook can see.
const TELLS_ALL: &str = "#!/bin/sh
[ \"$1\" = prepared ] || exit 0
echo \"$0 in $(pwd)\"
env | grep -E '^GIT_(DIR|PREFIX|WORK_TREE|IMPLICIT|NAMESPACE|COMMON_DIR|CONFIG_PARAMETERS)' | sort
";

/// Makes twin repositories with the same hook.
fn hooked(format: Format, hook: &str, mode: u32) -> Twins {
    let twins = Twins::new(format);
    for repo in twins.both() {
        put(&repo.git_dir().join("hooks"), hook, mode);
    }
    twins
}

fn put(folder: &Path, hook: &str, mode: u32) {
    fs::create_dir_all(folder).expect("a folder");
    let path = folder.join("reference-transaction");
    fs::write(&path, hook).expect("a file");
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("a file of ours");
}

const UPDATE: [&str; 3] = ["update-ref", "refs/heads/x", "{c}"];

for_every_format! {
    fn a_hook_finds_the_repository(format) {
        let twins = hooked(format, TELLS_ALL, 0o755);
        let with = |options: &[&'static str]| [options, &UPDATE].concat();
        for below in [".", "sub", "sub/deep", ".git", ".git/refs"] {
            let seen = twins.same(below, &[], &UPDATE, "");
            assert!(seen.stderr.contains("reference-transaction in <repo>"), "{}", seen.stderr);
            twins.same(below, &[("GIT_WORK_TREE", "<repo>")], &UPDATE, "");
            twins.same(below, &[("GIT_WORK_TREE", "<repo>/sub")], &UPDATE, "");
            twins.same(below, &[("GIT_DIR", "<repo>/.git")], &UPDATE, "");
            twins.same(below, &[], &with(&["--work-tree=<repo>"]), "");
            twins.same(below, &[], &with(&["--git-dir=<repo>/.git", "--bare"]), "");
            twins.same(below, &[], &with(&["--namespace=n"]), "");
        }
        twins.same("sub", &[], &with(&["--git-dir=../.git"]), "");
        twins.same("sub", &[], &with(&["--git-dir=../.git", "--work-tree=.."]), "");
        twins.same("sub", &[], &with(&["--git-dir=../.git", "--work-tree=/"]), "");
        twins.same(".git", &[], &with(&["--bare"]), "");
        twins.same(".", &[], &with(&["-C", "sub"]), "");
        twins.same(".", &[("V", "it's")], &with(&["-c", "a.b", "-c", "a.c=", "-c", "A.d=!'"]), "");
        twins.same(".", &[("V", "it's")], &with(&["--config-env=a.b=V"]), "");
        twins.same(".", &[("GIT_CONFIG_PARAMETERS", "'a.b=c'")], &with(&["-c", "a.d=e"]), "");
        for repo in twins.both() {
            repo.config("core.worktree", "..");
        }
        for below in [".", "sub", ".git"] {
            twins.same(below, &[], &UPDATE, "");
        }
        twins.assert_same_state();
        for repo in twins.both() {
            repo.git(["config", "--unset", "core.worktree"]).run().ok();
            repo.config("core.bare", "true");
        }
        for below in [".", "sub", ".git"] {
            twins.same(below, &[], &UPDATE, "");
        }
    }

    fn hooks_of_bare_repositories_and_linked_worktrees(format) {
        let twins = hooked(format, TELLS_ALL, 0o755);
        let mut seen = Vec::new();
        let ours = Path::new(env!("CARGO_BIN_EXE_refdb"));
        for (program, repo) in [(oracle::program(), &twins.git), (ours, &twins.ours)] {
            repo.git(["worktree", "add", "-q", "--detach", "linked"]).run().ok();
            repo.git(["clone", "-q", "--bare", ".", "bare"]).run().ok();
            put(&repo.path().join("bare/hooks"), TELLS_ALL, 0o755);
            fs::create_dir(repo.path().join("linked/sub")).expect("a folder");
            let run = |below| answer(program, repo, below, &[], &UPDATE, "");
            seen.push(["linked", "linked/sub", "bare", "bare/objects"].map(run));
        }
        assert_eq!(seen[1], seen[0]);
    }

    fn hooks_elsewhere(format) {
        let twins = hooked(format, "#!/bin/sh\necho usual\n", 0o755);
        for repo in twins.both() {
            put(&repo.path().join("sub/hooks"), "#!/bin/sh\necho \"$0 $1\"\n", 0o755);
        }
        let home = [("HOME", "<repo>/sub")];
        for (value, below) in [
            ("sub/hooks", "."),
            ("sub/hooks", "sub"),
            ("../sub/hooks", ".git"),
            ("<repo>/sub/hooks", "sub"),
            ("~/hooks", "sub"),
            ("", "."),
            ("/dev/null", "."),
        ] {
            let set = format!("core.hooksPath={value}");
            let args = [&["-c", set.as_str()][..], &UPDATE].concat();
            let seen = twins.same(below, &home, &args, "");
            let is_none = value.is_empty() || value == "/dev/null";
            assert_eq!(seen.stderr.contains("preparing"), !is_none, "{value}: {}", seen.stderr);
        }
    }

    fn hooks_that_cannot_be_called(format) {
        let told = "hint: The '.git/hooks/reference-transaction' hook was ignored";
        let twins = hooked(format, "#!/bin/sh\nexit 1\n", 0o644);
        assert!(twins.same(".", &[], &UPDATE, "").stderr.starts_with(told));
        let quiet = ["-c", "advice.ignoredHook=false"];
        assert_eq!(twins.same(".", &[], &[&quiet[..], &UPDATE].concat(), "").stderr, "");
        assert_eq!(twins.same(".", &[("GIT_ADVICE", "0")], &UPDATE, "").stderr, "");
        // Without a first line it is one for the shell; with a wrong one it is none.
        let twins = hooked(format, "echo $1\n", 0o755);
        twins.same(".", &[], &UPDATE, "");
        let twins = hooked(format, "#!/nonexistent\n", 0o755);
        assert_eq!(twins.same(".", &[], &UPDATE, "").code, Some(128));
        let twins = hooked(format, "#!/bin/sh\n[ $1 != prepared ] || kill -9 $$\n", 0o755);
        assert_eq!(twins.same(".", &[], &UPDATE, "").code, Some(128));
    }

    fn a_hook_need_not_read(format) {
        let twins = hooked(format, "#!/bin/sh\nexec <&-\nexit 0\n", 0o755);
        let line = |index: usize| format!("create refs/heads/branch-{index} {{c}}\n");
        let input: String = (0..5_000).map(line).collect();
        let seen = twins.same(".", &[], &["update-ref", "--stdin"], &input);
        assert_eq!((seen.code, seen.stderr.as_str()), (Some(0), ""));
        assert_eq!(twins.ours.refs().len(), 5_004);
    }

    fn one_call_for_a_whole_batch(format) {
        let twins = hooked(format, "#!/bin/sh\necho $1 $(wc -l)\n", 0o755);
        let line = |index: usize| format!("create refs/heads/branch-{index} {{c}}\n");
        let input: String = (0..3_000).map(line).collect();
        let seen = twins.same(".", &[], &["update-ref", "--stdin"], &input);
        assert_eq!(seen.stderr, "preparing 3000\nprepared 3000\ncommitted 3000\n");
    }

    fn a_hook_sees_locks_and_values(format) {
        let hook = "#!/bin/sh\necho $1 $(git rev-parse -q --verify refs/heads/x) \
                    $(git rev-parse -q --verify refs/heads/main)\n\
                    git update-ref refs/heads/x HEAD || echo locked\n";
        let twins = hooked(format, hook, 0o755);
        // The hook calls itself by its own writes, unless they have none.
        let hook = hook.replace("git update-ref", "git -c core.hooksPath= update-ref");
        for repo in twins.both() {
            put(&repo.git_dir().join("hooks"), &hook, 0o755);
        }
        let seen = twins.same(".", &[], &["update-ref", "refs/heads/x", "{c}"], "");
        assert!(seen.stderr.contains("locked"), "{}", seen.stderr);
        let dialogue = "start\nupdate refs/heads/x {c}\nprepare\nabort\n";
        twins.same(".", &[], &["update-ref", "--stdin"], dialogue);
    }
}
