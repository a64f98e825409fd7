//! A committed transaction that nobody can finish: something stands in the place of a ref since its process was
//! killed. A person has a way out, and is told what that loses.

use super::*;

const FILES: [Format; 2] = [Format::FILES_SHA1, Format::FILES_SHA256];

/// A repository in which a transaction was killed that gives two refs another value, the second one returned, and
/// something else is where the first one was.
fn stuck(format: Format) -> (Repo, String) {
    let base = Repo::init(format);
    let [old, new] = [0, 1].map(|at| base.objects().commits[at].clone());
    base.update_refs(format!(
        "create refs/heads/a {old}\ncreate refs/heads/b {old}\n"
    ));
    let input = format!("update refs/heads/a {new}\nupdate refs/heads/b {new}\n");
    let update = ["update-ref", "--stdin"];
    let trial = base.duplicate();
    let log = trial.path().join("strace");
    traced(trial.path(), &update, &input, &log, None).ok();
    let calls = calls(&fs::read_to_string(&log).expect("strace writes text"));
    let is_journalled = |call: &&Call| {
        let repo = base.duplicate();
        traced(repo.path(), &update, &input, &log, Some(call));
        let journal = repo.git_dir().join("refdb.journal");
        // Before the first ref got its value.
        journal.exists() && repo.refs().iter().all(|listed| listed.id == old)
    };
    let at = calls
        .iter()
        .rfind(is_journalled)
        .expect("there is a journal");
    let repo = base.duplicate();
    traced(repo.path(), &update, &input, &log, Some(at));
    let in_the_way = repo.git_dir().join("refs/heads/a");
    fs::remove_file(&in_the_way).expect("a ref");
    fs::create_dir_all(in_the_way.join("x")).expect("a folder");
    fs::write(in_the_way.join("x/file"), "").expect("a file");
    (repo, new)
}

#[test]
fn what_cannot_be_finished_is_given_up_by_whoever_says_so() {
    if !can_kill(WHAT, 0) {
        return;
    }
    for format in FILES {
        let (repo, new) = stuck(format);
        let git_dir = repo.git_dir();
        let ours = |args: &[&str]| {
            let run = oracle::run_of(env!("CARGO_BIN_EXE_refdb"), repo.path());
            run.args(args).run()
        };
        let said = |out: &Output| String::from_utf8_lossy(&out.stderr).into_owned();
        for stuck in [
            &["update-ref", "refs/heads/c", &new][..],
            &["refs", "repair", "--remove-locks"],
        ] {
            let out = ours(stuck);
            assert!(!out.status.success(), "{stuck:?}");
            assert!(
                said(&out).contains("refs repair --give-up"),
                "{stuck:?}: {}",
                said(&out)
            );
            assert!(git_dir.join("refdb.journal").exists());
        }
        let dry = ours(&["refs", "repair", "--give-up", "--dry-run"]);
        assert!(git_dir.join("refdb.journal").exists(), "{}", said(&dry));
        let out = ours(&["refs", "repair", "--give-up"]);
        let told = said(&out);
        assert!(
            told.contains("refs/heads/a") && told.contains(&new),
            "{told}"
        );
        let mut left = Vec::new();
        locks(&git_dir, &mut left);
        assert!(left.is_empty(), "{left:?}");
        assert!(!git_dir.join("refdb.journal").exists());
        let listed: Vec<(String, String)> = repo
            .refs()
            .into_iter()
            .map(|listed| (listed.name.to_string(), listed.id))
            .collect();
        assert_eq!(listed, [("refs/heads/b".to_owned(), new.clone())], "{told}");
        ours(&["update-ref", "refs/heads/c", &new]).ok();
        repo.git(["update-ref", "refs/heads/d", &new]).run().ok();
    }
}
