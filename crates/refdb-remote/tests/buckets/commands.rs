//! Every command works with the URL of a bucket, and what it prints is what it prints of local refs.

use refdb_testkit::oracle::{self, Output};
use refdb_testkit::repo::Repo;
use refdb_testkit::{Format, for_every_format};

use crate::liar::Place;
use crate::server::Conditions;

pub(crate) fn refdb(place: &Place, repo: &Repo, args: &[&str]) -> Output {
    run(place, repo, args, "")
}

pub(crate) fn run(place: &Place, repo: &Repo, args: &[&str], stdin: &str) -> Output {
    let mut run = oracle::run_of(env!("CARGO_BIN_EXE_refdb-remote"), repo.path()).args(args);
    for (name, value) in place.environment() {
        run = run.env(name, value);
    }
    run.stdin(stdin).run()
}

pub(crate) fn said(output: &Output) -> String {
    let text = [output.stdout.as_slice(), &output.stderr].concat();
    format!("{}: {}", output.code(), String::from_utf8_lossy(&text))
}

/// How many refs are carried over.
const MANY: usize = 1000;

for_every_format! {
    fn a_repository_moves_into_a_bucket_and_back(format) {
        let place = Place::new(0);
        let url = place.url(&format!("moves-{}-{}", format.refs.name(), format.objects.name()));
        let repo = Repo::init(format);
        let commits = &repo.objects().commits;
        let names = (0..MANY).map(|at| format!("create refs/heads/b{at} {}\n", commits[at % 4]));
        repo.update_refs(names.collect::<String>());
        repo.git(["update-ref", "-m", "moved", "HEAD", &commits[0]]).run().ok();
        let probed = refdb(&place, &repo, &["probe", &url]).text();
        assert!(probed.ends_with("can keep a store"), "{probed}");
        refdb(&place, &repo, &["store", "init", &url]).ok();
        let again = refdb(&place, &repo, &["store", "init", &url]);
        assert!(said(&again).contains("there is a store already"), "{}", said(&again));
        let told = refdb(&place, &repo, &["store", "import", &url]).text();
        assert!(told.starts_with(&format!("Imported {} refs", MANY + 2)), "{told}");
        let here = refdb(&place, &repo, &["for-each-ref"]).text();
        assert_eq!(here.lines().count(), MANY + 1);
        repo.config("refdb.store", &url);
        assert_eq!(refdb(&place, &repo, &["for-each-ref"]).text(), here);

        // Small and large transactions, in one process after another.
        let input = format!("start\ncreate refs/tags/t {0}\ndelete refs/heads/b7\ncommit\n", commits[5]);
        let told = run(&place, &repo, &["update-ref", "--stdin"], &input).text();
        assert_eq!(told, "start: ok\ncommit: ok");
        let large = (0..3000).map(|at| format!("create refs/x/{at:05} {}\n", commits[at % 4]));
        run(&place, &repo, &["update-ref", "--stdin"], &large.collect::<String>()).ok();
        let refused = refdb(&place, &repo, &["update-ref", "refs/tags/t/below", &commits[0]]);
        assert!(said(&refused).contains("'refs/tags/t' exists"), "{}", said(&refused));
        refdb(&place, &repo, &["store", "verify"]).ok();
        refdb(&place, &repo, &["pack-refs", "--all"]).ok();
        let told = refdb(&place, &repo, &["store", "maintain", "--grace=0"]).text();
        assert!(told.starts_with("Removed "), "{told}");
        refdb(&place, &repo, &["refs", "verify"]).ok();
        let status = refdb(&place, &repo, &["store", "status"]).text();
        assert!(status.contains("tables            1, "), "{status}");

        let there = refdb(&place, &repo, &["for-each-ref"]).text();
        assert_eq!(there.lines().count(), MANY + 1 + 3000);
        let new = Repo::init(format);
        refdb(&place, &new, &["store", "freeze", "--reason=moving", &url]).ok();
        let late = refdb(&place, &repo, &["update-ref", "refs/heads/late", &commits[0]]);
        assert!(said(&late).contains("frozen (moving)"), "{}", said(&late));
        refdb(&place, &new, &["store", "export", &url]).ok();
        // Git reads what came back.
        let git = new.git(["for-each-ref"]).run().text();
        assert_eq!(git, there);
    }
}

#[test]
fn a_bucket_whose_conditions_do_not_hold_is_refused() {
    for conditions in [Conditions::LookTooEarly, Conditions::NoMatch] {
        let place = Place::in_memory(conditions, 0);
        let repo = Repo::init(Format::ALL[0]);
        let probed = refdb(&place, &repo, &["probe", &place.url("lies")]);
        let said = said(&probed);
        assert!(probed.code() != 0 && said.contains("refused: "), "{said}");
        assert!(said.contains("would lose commits"), "{said}");
    }
}

#[test]
fn who_cannot_be_reached_is_told_at_once() {
    let repo = Repo::init(Format::ALL[0]);
    let place = Place::in_memory(Conditions::Hold, 0);
    let url = "s3://refs/x?endpoint=http://127.0.0.1:9";
    let begun = std::time::Instant::now();
    let read = refdb(&place, &repo, &["--store", url, "for-each-ref"]);
    assert!(said(&read).contains("no connection"), "{}", said(&read));
    assert_eq!(read.code(), 128);
    assert!(begun.elapsed().as_secs() < 10, "{:?}", begun.elapsed());
    let missing = refdb(
        &place,
        &repo,
        &["--store", &place.url("nothing"), "for-each-ref"],
    );
    assert!(
        said(&missing).contains("there is no store; to make one"),
        "{}",
        said(&missing)
    );
}
