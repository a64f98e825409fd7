//! Listings of refs of which each has an object of its own: what is asked of many objects at once, and sorting.

use std::fmt::Write as _;
use std::fs;

use bstr::ByteSlice;
use refdb_testkit::repo::Repo;
use refdb_testkit::{for_every_format, oracle};

/// More than are asked for at once in halves, and sorted in one group.
const COUNT: usize = 9_000;

/// Returns what makes a commit and a branch for each of the numbers, and a tag for some of them.
fn commits(numbers: std::ops::Range<usize>) -> String {
    let mut stream = String::new();
    for number in numbers {
        let (date, zone) = (1_500_000_000 + number * 7919 % 100_000, number % 12);
        let name = format!(
            "refs/heads/{:02}/{}-{number}",
            number % 37,
            ["a", "B"][number % 2]
        );
        let _ = write!(
            stream,
            "reset {name}\ncommit {name}\nmark :1\nauthor A{} <a@example.com> {date} +{zone:02}00\n\
             committer C <c@example.com> {} +0000\ndata <<.\nsubject {}\n\nbody\n.\n",
            number % 5,
            date / 3,
            number % 101,
        );
        if number % 9 == 0 {
            let _ = write!(
                stream,
                "tag v{number}\nfrom :1\ntagger T <t@example.com> {date} +0000\ndata 1\nt\n"
            );
        }
        if number % 1000 == 0 {
            let _ = write!(
                stream,
                "blob\nmark :2\ndata <<.\n{number}\n.\ntag b{number}\nfrom :2\ntagger T <t@example.com> {date} +0000\ndata 1\nb\n"
            );
        }
    }
    stream
}

fn both_say(repo: &Repo, list: &[&str]) {
    let git = repo.git(list).run();
    let ours = oracle::run_of(env!("CARGO_BIN_EXE_refdb"), repo.path())
        .args(list)
        .run();
    assert_eq!(ours.stderr.as_bstr(), git.stderr.as_bstr(), "{list:?}");
    assert_eq!(ours.code(), git.code(), "{list:?}");
    let different = ours
        .stdout
        .split(|byte| *byte == b'\n')
        .zip(git.stdout.split(|byte| *byte == b'\n'));
    let different = different.enumerate().find(|(_, (ours, git))| ours != git);
    let shown = different.map(|(at, (ours, git))| {
        let text = |line| String::from_utf8_lossy(line).into_owned();
        (at, text(ours), text(git))
    });
    assert!(ours.stdout == git.stdout, "{list:?}: {shown:?}");
}

for_every_format! {
    fn each_ref_may_have_an_object_of_its_own(format) {
        let repo = Repo::init(format);
        repo.config("fastimport.unpackLimit", "1");
        // Three packs, one of whose objects the next one has as well, differences by offset and by id, and loose ones.
        let import = |numbers| {
            let run = repo.git(["fast-import", "--quiet", "--date-format=raw"]);
            run.stdin(commits(numbers)).run().ok();
        };
        import(0..COUNT / 3);
        repo.git(["-c", "repack.useDeltaBaseOffset=false", "repack", "-adq"]).run().ok();
        let pack = repo.git_dir().join("objects/pack");
        for entry in fs::read_dir(&pack).expect("packs").flatten() {
            if entry.path().extension().is_some_and(|extension| extension == "pack") {
                fs::write(entry.path().with_extension("keep"), "").expect("it is kept");
            }
        }
        import(COUNT / 3..COUNT * 2 / 3);
        repo.git(["-c", "repack.packKeptObjects=true", "repack", "-aq"]).run().ok();
        import(COUNT * 2 / 3..COUNT);
        let tree = repo.git(["hash-object", "-w", "-t", "tree", "/dev/null"]).run().text();
        for number in 0..20 {
            let message = format!("loose {number}");
            let commit = repo.git(["commit-tree", "-m", &message, tree.trim()]).run().text();
            repo.update_refs(format!("create refs/heads/{number:02}/loose {}\n", commit.trim()));
        }
        repo.git(["pack-refs", "--all"]).run().ok();
        let lists: [&[&str]; 14] = [
            &["for-each-ref"],
            &["for-each-ref", "--format=%(objecttype) %(objectsize) %(refname)"],
            &["for-each-ref", "--format=%(objectsize) %(refname:short)"],
            &["for-each-ref", "--format=%(refname) %(*objecttype) %(*objectname) %(subject) %(*subject)"],
            &["for-each-ref", "--count=8200", "--format=%(subject)%(authorname)"],
            &["for-each-ref", "--format=%(if:equals=tag)%(objecttype)%(then)%(*authordate)%(end)", "--omit-empty"],
            &["for-each-ref", "--sort=objectname"],
            &["for-each-ref", "--sort=-objectname", "--sort=objecttype"],
            &["for-each-ref", "--sort=-refname", "--format=%(refname)"],
            &["for-each-ref", "--ignore-case"],
            &["for-each-ref", "--ignore-case", "--sort=-authorname", "--sort=objectsize"],
            &["for-each-ref", "--sort=-creatordate", "--sort=subject", "--count=8193"],
            &["for-each-ref", "--sort=committerdate:short", "--format=%(committerdate) %(refname)"],
            &["for-each-ref", "--sort=-version:refname"],
        ];
        lists.iter().for_each(|list| both_say(&repo, list));
        // All packs in one index.
        repo.git(["multi-pack-index", "write"]).run().ok();
        lists[..4].iter().for_each(|list| both_say(&repo, list));
        // A damaged id in it hides none but those that begin alike.
        let several = pack.join("multi-pack-index");
        let whole = fs::read(&several).expect("an index");
        let ids: Vec<String> = repo.git(["for-each-ref", "--format=%(objectname)", "--count=40"]).run().text()
            .lines().map(str::to_owned).collect();
        let bytes: Vec<u8> = (0..ids[20].len() / 2)
            .map(|at| u8::from_str_radix(&ids[20][2 * at..2 * at + 2], 16).expect("digits"))
            .collect();
        let at = whole.windows(bytes.len()).position(|window| window == bytes).expect("it is there");
        let mut damaged = whole.clone();
        damaged[at..at + bytes.len()].fill(0xff);
        fs::remove_file(&several).expect("an index");
        fs::write(&several, damaged).expect("written");
        let others = ids.iter().filter(|id| id[..2] != ids[20][..2]);
        for id in others {
            let run = oracle::run_of(env!("CARGO_BIN_EXE_refdb"), repo.path());
            let run = run.args(["for-each-ref", "--format=%(subject)", "--points-at", id.as_str()]).run();
            assert_eq!(run.code(), 0, "{id}");
        }
        fs::remove_file(&several).expect("an index");
        fs::write(&several, whole).expect("written");
        // What is lost is told behind all that comes before it. Where Git reads content, it ends itself by a fault then.
        let lost = repo.git(["rev-parse", "refs/heads/12/loose"]).run().text();
        let (folder, file) = lost.trim().split_at(2);
        fs::remove_file(repo.git_dir().join("objects").join(folder).join(file)).expect("an object");
        lists[..3].iter().for_each(|list| both_say(&repo, list));
    }
}
