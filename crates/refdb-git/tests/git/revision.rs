//! Revision expressions: Git's answers, warnings and refusals.

use std::fs;

use refdb::RefName;
use refdb::system::OsSystem;
use refdb_git::Repository;
use refdb_git::date::{self, Zone};
use refdb_git::repository::{Environment, OpenOptions};
use refdb_git::revision::{Direction, Note, Revisions, Shortener};
use refdb_testkit::oracle::{TIME, environment, git};
use refdb_testkit::repo::Repo;
use refdb_testkit::{Format, for_every_format};

fn open(repo: &Repo) -> Repository {
    OpenOptions::new()
        .environment(Environment::from_pairs(environment()))
        .discover(repo.path())
        .expect("it is a repository")
}

/// What is printed for an expression: the id, and what is said on standard error.
type Answer = (String, Vec<String>);

fn ask_git(repo: &Repo, expression: &str) -> Answer {
    let out = repo.git(["rev-parse", "--verify", expression]).run();
    let text = String::from_utf8(out.stderr).expect("text");
    let lines = text.lines().map(str::to_owned);
    let said = lines.filter(|line| line != "fatal: Needed a single revision");
    let id = String::from_utf8(out.stdout).expect("text");
    (id.trim_end().to_owned(), said.collect())
}

fn ask_refdb(repository: &Repository, expression: &str) -> Answer {
    let revisions = Revisions::new(repository).check_object_names(true);
    let answer = revisions.resolve(expression.as_bytes());
    let mut said: Vec<String> = revisions
        .notes()
        .into_iter()
        .map(|note| match note {
            Note::Warning(text) => format!("warning: {text}"),
            Note::Error(text) => format!("error: {text}"),
            Note::Hint(text) => format!("hint: {text}").trim_end().to_owned(),
            Note::Text(text) => text,
        })
        .flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    let id = match answer {
        Ok(Some(oid)) => oid.to_string(),
        Ok(None) => String::new(),
        Err(error) => {
            said.extend(format!("fatal: {error}").lines().map(str::to_owned));
            String::new()
        }
    };
    (id, said)
}

#[track_caller]
fn compare(repo: &Repo, expressions: &[&str]) {
    let repository = open(repo);
    let mut failures = String::new();
    for expression in expressions {
        let expected = ask_git(repo, expression);
        let ours = ask_refdb(&repository, expression);
        if ours != expected {
            failures.push_str(&format!(
                "{expression}\n  Git   {expected:?}\n  refdb {ours:?}\n"
            ));
        }
    }
    assert!(failures.is_empty(), "{failures}");
}

/// Makes a repository with branches, tags, remote-tracking branches, reflogs and a merge.
fn repo(format: Format) -> Repo {
    let repo = Repo::init(format);
    let objects = repo.objects();
    let commit = |number: usize| objects.commits[number].as_str();
    let (parents, tree) = ([commit(300), commit(20)], &objects.tree);
    let commit_tree = [
        "commit-tree",
        tree,
        "-p",
        parents[0],
        "-p",
        parents[1],
        "-m",
        "A merge",
    ];
    let merge = repo.git(commit_tree).run().text();
    repo.update_refs(format!(
        "create refs/heads/topic/x {}\ncreate refs/tags/v1 {}\ncreate refs/tags/main {}\n\
         create refs/tags/nested {}\ncreate refs/tags/tree {}\ncreate refs/tags/blob {}\n\
         create refs/remotes/origin/main {}\n\
         symref-create refs/remotes/origin/HEAD refs/remotes/origin/main\n\
         symref-create refs/heads/dangling refs/heads/none\ncreate refs/heads/merge {merge}\n\
         symref-create refs/heads/link refs/heads/main\ncreate refs/heads/{} {}\n\
         create refs/heads/only {}\ncreate refs/foo/bar {}\ncreate refs/blobs/b {}\n\
         create refs/remotes/up/stream {}\ncreate refs/heads/origin {}\n",
        commit(300),
        objects.tags[10].id,
        commit(5),
        objects.nested_tags[2].id,
        objects.tree_tag.id,
        objects.blob_tag.id,
        commit(400),
        &commit(7)[..6],
        commit(8),
        commit(450),
        commit(30),
        objects.blob,
        commit(40),
        commit(41),
    ));
    let mut old = format.zero();
    for (number, time) in [(100, 1000), (101, 2000), (102, 3000), (500, 90_000)] {
        let new = commit(number).to_owned();
        let update = ["update-ref", "-m", "x", "refs/heads/main", &new, &old];
        repo.git(update).at(TIME + time, "+0230").run().ok();
        old = new;
    }
    for (from, to) in [
        ("main", "topic/x"),
        ("topic/x", "only"),
        ("only", commit(3)),
        (commit(3), "merge"),
        ("merge", "main"),
    ] {
        let message = format!("checkout: moving from {from} to {to}");
        let target = format!("refs/heads/{to}");
        if to.len() > 30 {
            let update = ["update-ref", "--no-deref", "-m", &message, "HEAD", to];
            repo.git(update).run().ok();
        } else {
            repo.git(["symbolic-ref", "-m", &message, "HEAD", &target])
                .run()
                .ok();
        }
    }
    let line = format!("{}\t\tbranch 'x' of nowhere\n", commit(12));
    fs::write(repo.git_dir().join("FETCH_HEAD"), line).expect("a file");
    for (key, value) in [
        ("remote.origin.url", "/nowhere"),
        ("remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*"),
        ("branch.main.remote", "origin"),
        ("branch.main.merge", "refs/heads/main"),
        ("branch.topic/x.remote", "."),
        ("branch.topic/x.merge", "refs/heads/main"),
        ("branch.only.remote", "origin"),
        ("branch.only.merge", "refs/tags/odd"),
    ] {
        repo.config(key, value);
    }
    repo
}

for_every_format! {
    fn names_and_suffixes(format) {
        let repo = repo(format);
        let lying = &repo.objects().lying_tag;
        repo.update_refs(format!("create refs/tags/lying {lying}\n"));
        let objects = repo.objects();
        let hex = &objects.commits[50];
        let short = &hex[..10];
        let upper = short.to_uppercase();
        let described = format!("v1-3-g{short}");
        let wrongly_described = format!("a..b-3-g{short}");
        let missing = format!("{}^{{object}}", objects.missing);
        let parent_of_hex = format!("{hex}~2");
        compare(&repo, &[
            hex, short, &upper, &described, &wrongly_described, &parent_of_hex, &objects.missing,
            &missing, &hex[..3], "HEAD", "@", "main", "heads/main", "refs/heads/main", "tags/main",
            "topic/x", "v1", "nested", "origin", "origin/main", "origin/HEAD", "remotes/origin",
            "link", "dangling", "nosuch", "foo/bar", "refs", "heads", "only", "FETCH_HEAD",
            "MERGE_HEAD", "ORIG_HEAD", "up/stream", "HEAD~", "HEAD^", "HEAD~0", "HEAD^0", "HEAD~5",
            "HEAD~100000", "HEAD~99999999999999999999", "HEAD^2", "merge^2", "merge^1", "merge^3",
            "merge^2~3^0", "merge^^^", "v1^{}", "v1^{commit}", "v1^{tag}", "v1^{tree}", "v1~2",
            "v1^{blob}", "v1^{object}", "nested^{}", "nested^{tag}", "tree^{}", "tree^{tree}",
            "tree^{commit}", "tree~1", "blob^{}", "blob^{blob}", "lying", "lying^{}", "tree^0",
            "lying~1", "lying^0", "treetag~1",
            "lying^{commit}", "lying^{tag}", "HEAD^{tree}", "HEAD^{tree}^{tree}", "HEAD^{tag}",
            "HEAD^{foo}", "HEAD^{", "^{tree}", "HEAD^{}^{}~1", "HEAD^{commit}~1^{tree}",
        ]);
    }

    fn reflogs_and_branches(format) {
        let repo = repo(format);
        compare(&repo, &[
            "main@{0}", "main@{1}", "main@{3}", "main@{4}", "main@{5}", "main@{99}", "@{0}",
            "@{1}", "@{99}", "HEAD@{0}", "HEAD@{1}", "HEAD@{5}", "HEAD@{50}", "@@{1}",
            "refs/heads/main@{1}", "topic/x@{0}", "topic/x@{1}", "nosuch@{1}", "v1@{0}", "v1@{1}",
            "link@{0}", "link@{1}", "origin/main@{0}", "main@{1700001000}", "main@{1700002500}",
            "main@{1700000500}", "main@{1700003000}", "main@{1800000000}", "main@{100000000}",
            "main@{2023-11-14 22:50:00 +0000}", "main@{2001-01-01}", "main@{now}",
            "main@{1 minute ago}", "main@{garbage}", "main@{}", "main@{-1}", "main@{1}~2^{tree}",
            "@{-1}", "@{-2}", "@{-3}", "@{-4}", "@{-5}", "@{-6}", "@{-0}", "@{-1}~1", "@{-2}^{tree}",
            "@{-1}@{0}", "@{-4}@{u}", "@{u}", "@{upstream}", "@{U}", "main@{u}", "HEAD@{u}", "@@{u}",
            "main@{upstream}~3", "main@{u}@{0}", "topic/x@{u}", "only@{u}", "merge@{u}",
            "nosuch@{u}", "@{push}", "main@{push}", "topic/x@{push}", "merge@{push}", "@{foo}",
            "@foo", "a@b", "@{-1", "@{", "@@", "@{u}@{u}", "HEAD@{u}~1", "main@{0}@{0}",
        ]);
        repo.config("push.default", "current");
        compare(&repo, &["@{push}", "topic/x@{push}", "merge@{push}"]);
        repo.config("push.default", "nothing");
        compare(&repo, &["@{push}"]);
        repo.config("push.default", "upstream");
        compare(&repo, &["@{push}", "topic/x@{push}"]);
        repo.config("remote.origin.push", "refs/heads/m*:refs/heads/n*");
        compare(&repo, &["@{push}", "topic/x@{push}"]);
        repo.config("core.warnAmbiguousRefs", "false");
        compare(&repo, &["main", "main@{1}", "origin"]);
    }

    fn paths_and_searches(format) {
        let repo = repo(format);
        compare(&repo, &[
            "HEAD:", "HEAD:file", "HEAD:nosuch", "HEAD:file/x", "v1:file", "tree:file", "blob:file",
            "main@{1}:file", "nosuch:file", "HEAD:./file", "HEAD:../file", "HEAD:.//file",
            "HEAD^{tree}:file", ":/commit 17$", ":/commit 1", ":/nothing like it", ":/!!x",
            ":/^A merge", ":/!-commit", ":/A.*merge",
            ":/(", "HEAD^{/commit 20}", "HEAD^{/A merge}", "merge^{/commit 2[0-9]}", "HEAD^{/}",
            "v1^{/commit 5}", "HEAD^{/!-commit 500}", "HEAD^{/commit 20}~1",
        ]);
    }

    fn names_are_shortened_as_git_does(format) {
        let repo = repo(format);
        let repository = open(&repo);
        let revisions = Revisions::new(&repository);
        let mut shortener = Shortener::new(&repository);
        for (strict, option) in [(true, "strict"), (false, "loose")] {
            for listed in repo.refs() {
                let name = RefName::new(&listed.name).expect("Git lists it");
                let ours = revisions.shorten(name.as_bytes(), strict).expect("it can be read");
                // Often enough that it begins to walk.
                for _ in 0..3 {
                    let walked = shortener.shorten(name.as_bytes(), strict).expect("it can be read");
                    assert_eq!(walked, ours);
                }
                let name = listed.name.to_string();
                let abbreviate = format!("--abbrev-ref={option}");
                let config = format!("core.warnAmbiguousRefs={strict}");
                let arguments = ["-c", &config, "rev-parse", "--symbolic-full-name", &abbreviate];
                // The name of a symref is shortened after it was followed.
                let followed = listed.symref.as_ref().map_or(name.clone(), ToString::to_string);
                if followed == name {
                    let expected = repo.git(arguments).arg(&name).run().text();
                    assert_eq!(ours.to_string(), expected, "{name} {option}");
                }
            }
        }
    }

    fn tracking_branches_are_those_that_git_lists(format) {
        let repo = repo(format);
        let repository = open(&repo);
        let revisions = Revisions::new(&repository);
        let listed = "--format=%(refname) %(upstream) %(push)";
        let listed = repo.git(["for-each-ref", listed, "refs/heads"]).run().text();
        let ours: Vec<String> = listed
            .lines()
            .map(|line| {
                let name = line.split(' ').next().expect("a name");
                let branch = RefName::new(name).expect("Git lists it");
                let of = |direction| {
                    let found = revisions.tracking_branch(branch, direction);
                    found.expect("it can be read").unwrap_or_default()
                };
                format!("{name} {} {}", of(Direction::Upstream), of(Direction::Push))
            })
            .collect();
        assert_eq!(ours.join("\n"), listed);
        for name in ["@{-1}", "@{-2}", "@{-4}@{u}", "main", "@{u}", "@", "@{-9}"] {
            let out = repo.git(["check-ref-format", "--branch", name]).run();
            let ours = revisions.expand_branch(name.as_bytes());
            if out.code() == 0 {
                assert_eq!(ours.expect("Git expands it").to_string(), out.text());
            } else {
                let ours = ours.expect("it names no branch");
                assert!(RefName::new(&ours).is_err() || ours == "@", "{name}: {ours}");
            }
        }
    }
}

#[test]
fn ambiguous_ids_are_decided_by_what_is_asked_for() {
    // Four digits are few for so many objects.
    let repo = repo(Format::REFTABLE_SHA1);
    let ids = repo.git([
        "cat-file",
        "--batch-all-objects",
        "--batch-check=%(objectname)",
    ]);
    let mut contents = String::new();
    for number in 0..3000 {
        let content = format!("{number}\n");
        contents.push_str(&format!("blob\ndata {}\n{content}\n", content.len()));
    }
    repo.git(["fast-import", "--quiet"])
        .stdin(contents)
        .run()
        .ok();
    let ids = ids.run().text();
    let mut starts: Vec<&str> = ids.lines().map(|id| &id[..4]).collect();
    starts.sort_unstable();
    let shared: Vec<&str> = starts
        .windows(2)
        .filter(|w| w[0] == w[1])
        .map(|w| w[0])
        .collect();
    assert!(shared.len() > 5, "{shared:?}");
    let repository = open(&repo);
    for start in shared.iter().take(40) {
        for suffix in ["", "^{commit}", "^0", "^{tree}", "^{blob}", ":file"] {
            let expression = format!("{start}{suffix}");
            let (expected, said) = ask_git(&repo, &expression);
            let (ours, ours_said) = ask_refdb(&repository, &expression);
            assert_eq!(ours, expected, "{expression}");
            assert_eq!(ours_said.first(), said.first(), "{expression}");
        }
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a list of dates")]
fn dates_are_read_as_git_reads_them() {
    // A Tuesday, in the afternoon.
    let now = 1_700_000_000;
    let repo = Repo::init(Format::FILES_SHA1);
    let mut failures = String::new();
    for tz in ["UTC", "EST5EDT,M3.2.0,M11.1.0", "<+0545>-5:45"] {
        let zone = Zone::local(Some(tz.as_bytes()), &OsSystem::new());
        for text in [
            "now",
            "today",
            "yesterday",
            "noon",
            "midnight",
            "tea",
            "last friday",
            "last tuesday",
            "2 fridays ago",
            "2 weeks ago",
            "3.days.ago",
            "1 second ago",
            "10 minutes",
            "5 hours ago",
            "one week ago",
            "ten days ago",
            "last month",
            "3 months ago",
            "11 months ago",
            "last year",
            "2 years 3 months ago",
            "1.month.1.day.ago",
            "5pm",
            "5 pm",
            "11am",
            "6am yesterday",
            "yesterday 5pm",
            "yesterday 10:30",
            "noon yesterday",
            "yesterday noon",
            "10:30",
            "23:59:58",
            "Aug 18",
            "aug",
            "18 aug 2021",
            "December 25",
            "2022",
            "12",
            "31",
            "1",
            "0",
            "never",
            "2022-08-18",
            "8/18/2021",
            "18.8.2021",
            "2022-08-18 10:11:12",
            "2022-08-18T10:11:12Z",
            "2022-08-18 10:11:12 -0330",
            "@86400 +0000",
            "1234567890",
            "Thu Aug 18 12:45:06 2022 +0200",
            "Thu, 18 Aug 2022 12:45:06 EST",
            "31 jan 2023 1 month ago",
            "last week tuesday",
            "today",
            "today noon",
            "noon today",
            "1:30 today",
            "5 aug today",
            "5 days ago today",
            "today 5",
            "tea 5",
            "tea aug",
            "tea 2 days",
            "tea now",
            "tea 2 tuesdays",
            "24:00 2 thursdays",
            "aug 18 2021 2 fridays",
            "aug12:45",
            "yesterday5",
            "ten5 days",
            "1:00 11/24",
            "23:00 11/24",
            "1700000000 12:45 aug",
            // Without a year, with one that is none, or later than now.
            "06-01",
            "12-31",
            "11-20",
            "11/28",
            "20/11",
            "20.11.",
            "5.6",
            "06-01 10:00",
            "1969-12-31",
            "1969-06-01",
            "1969-12-05",
            "1969-12-31T00:00:00",
            "31 Dec 1969",
            "1850-02-03",
            "2101-01-01",
            "12/31/2035",
            "31.12.35",
            "05/06/2023",
            "06/05/24",
            "2022-31-08",
            "99-12-31",
            "70-12-31",
        ] {
            let since = format!("--since={text}");
            let run = git(repo.path())
                .args(["rev-parse", &since])
                .env("GIT_TEST_DATE_NOW", now.to_string())
                .env("TZ", tz);
            let expected = run.run().text();
            let ours = date::approximate(text.as_bytes(), now, &zone);
            let ours =
                ours.map_or_else(|| "nothing".to_owned(), |ours| format!("--max-age={ours}"));
            if ours != expected {
                failures.push_str(&format!("{tz} {text}: Git {expected}, refdb {ours}\n"));
            }
        }
    }
    assert!(failures.is_empty(), "{failures}");
}

#[test]
fn however_many_suffixes_an_expression_has_it_has_an_answer() {
    let repo = repo(Format::FILES_SHA1);
    let repository = open(&repo);
    let ask = |expression: String| ask_refdb(&repository, &expression);
    let (head, _) = ask("HEAD".to_owned());
    assert_eq!(
        ask(format!("HEAD{}", "^0".repeat(100_000))),
        (head.clone(), vec![])
    );
    assert_eq!(ask(format!("HEAD{}", "^{}".repeat(100))), (head, vec![]));
    assert_eq!(
        ask(format!("HEAD{}", "^".repeat(100_000))),
        (String::new(), vec![])
    );
    let (none, said) = ask(format!("HEAD{}", "^{}".repeat(101)));
    assert_eq!(none, "");
    assert_eq!(
        said,
        ["fatal: a revision can have no more than 100 suffixes '^{...}'"]
    );
}

#[test]
fn a_reflog_that_leads_in_a_circle_names_nothing() {
    let repo = repo(Format::FILES_SHA1);
    let (oid, _) = ask_refdb(&open(&repo), "HEAD");
    let line = format!("{oid} {oid} A <a@b> {TIME} +0000\tcheckout: moving from @{{-1}} to main\n");
    fs::write(repo.git_dir().join("logs/HEAD"), line).expect("a reflog");
    let repository = open(&repo);
    for expression in ["@{-1}", "@{-1}@{u}", "@{-1}@{-1}", "@{-1}@{1}"] {
        let answer = Revisions::new(&repository).resolve(expression.as_bytes());
        assert!(!matches!(answer, Ok(Some(_))), "{expression}: {answer:?}");
    }
}

/// Puts a loose object into the repository under a name that need not be its hash.
fn put_object(repo: &Repo, id: &str, kind: &str, content: &str) {
    let raw = format!("{kind} {}\0{content}", content.len()).into_bytes();
    let (mut a, mut b) = (1_u32, 0_u32);
    for &byte in &raw {
        a = (a + u32::from(byte)) % 65_521;
        b = (b + a) % 65_521;
    }
    let len = u16::try_from(raw.len()).expect("one block");
    // A zlib stream of one stored block.
    let mut stream = vec![0x78, 0x01, 0x01];
    stream.extend(len.to_le_bytes());
    stream.extend((!len).to_le_bytes());
    stream.extend(&raw);
    stream.extend((b << 16 | a).to_be_bytes());
    let dir = repo.git_dir().join("objects").join(&id[..2]);
    fs::create_dir_all(&dir).expect("a directory");
    fs::write(dir.join(&id[2..]), stream).expect("an object");
}

#[test]
fn a_tag_that_names_itself_leads_nowhere() {
    let repo = repo(Format::FILES_SHA1);
    let id = "ab".repeat(20);
    let content = format!("object {id}\ntype tag\ntag t\ntagger A <a@b> 1 +0000\n\nx\n");
    put_object(&repo, &id, "tag", &content);
    let repository = open(&repo);
    for suffix in ["^{}", "^{commit}", "^{tree}", "^", "~2", ":file"] {
        let answer = Revisions::new(&repository).resolve(format!("{id}{suffix}").as_bytes());
        assert!(matches!(answer, Ok(None)), "{suffix}: {answer:?}");
    }
    assert_eq!(ask_refdb(&repository, &format!("{id}^{{tag}}")).0, id);
}
