//! Each library does the tasks in a repository of its own; Git says what came of them.

use refdb_examples::{git2_tasks, gix_ref_tasks, refdb_tasks};
use refdb_testkit::Format;
use refdb_testkit::repo::Repo;

/// Runs the tasks of one module.
macro_rules! everyday {
    ($tasks:ident, $format:expr, $keeps_log:expr) => {{
        let repo = Repo::init($format);
        for (key, value) in [("user.name", "A"), ("user.email", "a@example.org")] {
            repo.config(key, value);
        }
        let [first, second] = [0, 1].map(|at| repo.objects().commits[at].as_str());
        let ours = $tasks::open(&repo.git_dir()).expect("it opens");
        let git = |args: &[&str]| repo.git(args).run().text().trim().to_owned();
        let (main, topic) = ("refs/heads/main", "refs/heads/topic");
        let (tip, create) = ($tasks::tip, $tasks::create);

        let head = git(&["symbolic-ref", "HEAD"]);
        assert_eq!($tasks::checked_out(&ours).expect("HEAD"), Some(head));
        assert_eq!(tip(&ours, main).expect("an answer"), None);
        assert!(create(&ours, main, first).expect("it can be written"));
        assert!(!create(&ours, main, second).expect("it is refused"));
        assert_eq!(git(&["rev-parse", main]), first);
        assert_eq!(tip(&ours, main).expect("an answer").as_deref(), Some(first));

        assert!($tasks::advance(&ours, main, first, second).expect("it can be written"));
        assert!(!$tasks::advance(&ours, main, first, second).expect("it is refused"));
        assert_eq!(git(&["rev-parse", main]), second);
        let history = $tasks::history(&ours, main).expect("it can be read");
        let expected = [(second, "push"), (first, "branch: created")];
        assert_eq!(
            history,
            expected.map(|(id, why)| (id.to_owned(), why.to_owned()))
        );

        $tasks::rename(&ours, main, topic).expect("it can be renamed");
        assert_eq!(git(&["for-each-ref", "--format=%(refname)"]), topic);
        let log = git(&["reflog", "show", "--format=%gs", topic]);
        assert_eq!(log.contains("branch: created"), $keeps_log, "{log}");
        $tasks::switch(&ours, topic).expect("HEAD can be set");
        assert_eq!(git(&["symbolic-ref", "HEAD"]), topic);

        let tags = ["refs/tags/one", "refs/tags/two"];
        assert!($tasks::several(&ours, &tags, first).expect("they can be written"));
        let more = ["refs/tags/three", "refs/tags/two"];
        assert!(!$tasks::several(&ours, &more, second).expect("they are refused"));
        assert_eq!(git(&["tag"]), "one\ntwo");

        assert!(create(&ours, "refs/heads/gone", first).expect("it can be written"));
        $tasks::delete(&ours, "refs/heads/gone").expect("it can be deleted");
        let list = $tasks::branches(&ours).expect("they can be listed");
        assert_eq!(list, [(topic.to_owned(), second.to_owned())]);
        repo.assert_sound();
    }};
}

#[test]
fn with_refdb() {
    for format in [
        Format::FILES_SHA1,
        Format::FILES_SHA256,
        Format::REFTABLE_SHA1,
        Format::REFTABLE_SHA256,
    ] {
        everyday!(refdb_tasks, format, true);
    }
}

#[test]
fn with_gix_ref() {
    everyday!(gix_ref_tasks, Format::FILES_SHA1, false);
}

#[test]
fn with_git2() {
    everyday!(git2_tasks, Format::FILES_SHA1, true);
}
