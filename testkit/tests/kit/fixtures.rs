//! The fixtures, seen through Git.

use refdb_testkit::for_every_format;
use refdb_testkit::oracle::{EMAIL, NAME, TIME, ZONE};
use refdb_testkit::repo::Repo;
use refdb_testkit::state::{LogEntry, Target};

for_every_format! {
    fn a_repository_has_the_formats_it_was_made_with(format) {
        for repo in [Repo::init(format), Repo::init_bare(format)] {
            let say = |what: &str| repo.git(["rev-parse", what]).run().text();
            assert_eq!(say("--show-ref-format"), format.refs.name());
            assert_eq!(say("--show-object-format"), format.objects.name());
            let dir = repo.git_dir().canonicalize().expect("it is there");
            assert_eq!(say("--absolute-git-dir"), dir.to_str().expect("ASCII"));
            assert_eq!(repo.refs(), []);
            repo.assert_sound();
        }
    }

    fn refs_are_listed_with_symref_and_peeled_value(format) {
        let repo = Repo::init(format);
        let objects = repo.objects();
        let (commit, tag) = (&objects.commits[3], &objects.nested_tags[2]);
        repo.update_refs(format!(
            "create refs/heads/main {commit}\ncreate refs/tags/t {}\ncreate ORIG_HEAD {commit}\n",
            tag.id
        ));
        let refs = repo.refs();
        let names: Vec<String> = refs.iter().map(|r| r.name.to_string()).collect();
        assert_eq!(names, ["HEAD", "ORIG_HEAD", "refs/heads/main", "refs/tags/t"]);
        assert_eq!(refs[0].symref.as_ref().expect("HEAD is one"), "refs/heads/main");
        assert_eq!(refs[0].id, *commit);
        assert_eq!(refs[2].peeled, None);
        assert_eq!(refs[3].id, tag.id);
        assert_eq!(refs[3].peeled.as_ref(), Some(&tag.peeled));
    }

    fn the_state_holds_refs_as_stored_and_reflogs(format) {
        let repo = Repo::init(format);
        let [one, two] = [&repo.objects().commits[1], &repo.objects().commits[2]];
        let zero = format.zero();
        repo.update_refs(format!("create refs/heads/main {one}\ncreate refs/heads/a/b {one}\n"));
        repo.git(["pack-refs", "--all"]).run().ok();
        let update = repo.git(["update-ref", "-m", "a  message", "refs/heads/a/b", two]);
        update.at(1_234_567_890, "-0700").run().ok();
        repo.git(["symbolic-ref", "refs/heads/sym", "refs/heads/none"]).run().ok();
        let state = repo.state();
        let mut refs = state.refs.iter().map(|(name, target)| (name.to_string(), target.clone()));
        let mut expect = |name: &str, target: Target| {
            assert_eq!(refs.next(), Some((name.to_owned(), target)));
        };
        expect("HEAD", Target::Symbolic("refs/heads/main".into()));
        expect("refs/heads/a/b", Target::Direct(two.clone()));
        expect("refs/heads/main", Target::Direct(one.clone()));
        expect("refs/heads/sym", Target::Symbolic("refs/heads/none".into()));
        assert_eq!(refs.next(), None);
        let entry = |old: &str, new: &str, time, zone: &str, message: &str| LogEntry {
            old: old.to_owned(),
            new: new.to_owned(),
            committer: format!("{NAME} <{EMAIL}>").into(),
            time,
            zone: zone.to_owned(),
            message: message.into(),
        };
        let created = entry(&zero, one, TIME, ZONE, "");
        let updated = entry(one, two, 1_234_567_890, "-0700", "a message");
        let log = [created, updated];
        assert_eq!(state.log("HEAD"), &log[..1]);
        assert_eq!(state.log("refs/heads/a/b"), log);
        assert_eq!(state.logs.len(), 3);
    }

    fn a_worktree_has_refs_of_its_own(format) {
        let repo = Repo::init(format);
        let worktree = repo.worktree("linked");
        let [one, two] = [&repo.objects().commits[0], &repo.objects().commits[2]];
        worktree.git(["update-ref", "refs/bisect/bad", two]).run().ok();
        worktree.git(["update-ref", "refs/heads/shared", two]).run().ok();
        let names = |refs: Vec<refdb_testkit::repo::Listed>| -> Vec<String> {
            refs.iter().map(|r| r.name.to_string()).collect()
        };
        assert_eq!(names(worktree.refs()), ["HEAD", "refs/bisect/bad", "refs/heads/shared"]);
        assert_eq!(names(repo.refs()), ["refs/heads/shared"]);
        let own = worktree.state().refs;
        assert_eq!(own.get("HEAD".as_bytes()), Some(&Target::Direct(one.clone())));
        assert_eq!(own.get("refs/bisect/bad".as_bytes()), Some(&Target::Direct(two.clone())));
        assert_eq!(own.get("refs/heads/shared".as_bytes()), None);
    }

    fn a_duplicate_is_independent(format) {
        let repo = Repo::init(format);
        let commit = &repo.objects().commits[0];
        repo.update_refs(format!("create refs/heads/main {commit}\n"));
        let second = repo.duplicate();
        assert_eq!(second.state(), repo.state());
        second.update_refs("delete refs/heads/main\n".to_owned());
        assert_ne!(second.state(), repo.state());
    }
}
