//! What objects are: the first one that a process asks for, and those after it, as Git tells them.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use refdb::objects::Objects;
use refdb::{ErrorKind, ObjectFormat, ObjectId};
use refdb_git::objects::Odb;
use refdb_testkit::repo::Repo;
use refdb_testkit::{Format, for_every_format};

/// More packs than a database has room for that counts them when it is opened.
const PACKS: usize = 70;

fn format_of(repo: &Repo) -> ObjectFormat {
    ObjectFormat::from_name(repo.format().objects.name()).expect("it is known")
}

fn objects_of(repo: &Repo) -> PathBuf {
    repo.git_dir().join("objects")
}

fn open(repo: &Repo) -> Odb {
    Odb::new(objects_of(repo), [], format_of(repo))
}

fn id(hex: &str) -> ObjectId {
    ObjectId::from_hex(hex.trim().as_bytes()).expect("an id")
}

/// Writes a blob; in a pack of its own if it is to be `packed`.
fn blob(repo: &Repo, text: &str, packed: bool) -> ObjectId {
    let written = repo.git(["hash-object", "-w", "--stdin"]).stdin(text);
    let hex = written.run().text().trim().to_owned();
    if packed {
        let pack = objects_of(repo).join("pack/pack");
        let packing = repo.git(["pack-objects", "-q"]).arg(pack);
        packing.stdin(format!("{hex}\n")).run().ok();
        let path = objects_of(repo).join(&hex[..2]).join(&hex[2..]);
        fs::remove_file(path).expect("it is loose");
    }
    id(&hex)
}

/// Returns the files of packs with that ending.
fn packs(repo: &Repo, ending: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(objects_of(repo).join("pack")).expect("a folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let mut paths: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|it| it == ending))
        .collect();
    paths.sort();
    paths
}

fn make_fifo(path: &Path) {
    let made = Command::new("/usr/bin/mkfifo").arg(path).status();
    assert!(made.expect("it runs").success());
}

/// Compares every object with what Git tells, each as the first one that is asked for, and as one of many.
fn compare(repo: &Repo) -> usize {
    let format = format_of(repo);
    let batch = "--batch-check=%(objectname) %(objecttype) %(objectsize)";
    let told = repo.git(["cat-file", "--batch-all-objects", batch]);
    let told = told.run().text();
    let open = || Odb::new(repo.git_dir().join("objects"), [], format);
    let one = open();
    for line in told.lines() {
        let id = line.split(' ').next().expect("an id");
        let id = ObjectId::from_hex(id.as_bytes()).expect("an id");
        for odb in [&open(), &one] {
            let header = odb
                .header(id)
                .expect("it can be read")
                .expect("it is there");
            let (kind, size) = (header.kind.as_str(), header.size);
            assert_eq!(format!("{id} {kind} {size}"), line);
        }
    }
    let missing = ObjectId::from_hex(&vec![b'7'; format.hex_len()]).expect("an id");
    assert_eq!(open().kind(missing).expect("it can be looked for"), None);
    told.lines().count()
}

for_every_format! {
    fn headers_are_those_that_git_tells(format) {
        let repo = Repo::init_bare(format);
        // Large blobs that are nearly the same: packed, one is a difference from the other.
        let text = |last: &str| format!("{}{last}\n", "a line like any other\n".repeat(500));
        for last in ["one", "another"] {
            let made = repo.git(["hash-object", "-w", "--stdin"]).stdin(text(last));
            let id = made.run().text();
            repo.update_refs(format!("create refs/blobs/{last} {}\n", id.trim()));
        }
        for (level, len) in (0..=9).zip([0, 1, 20, 50, 60, 70, 300, 5000, 70_000, 1 << 20]) {
            let level = format!("core.looseCompression={level}");
            let made = repo.git(["-c", &level, "hash-object", "-w", "--stdin"]);
            made.stdin("x".repeat(len)).run().ok();
        }
        let count = compare(&repo);
        assert!(count > 14, "{count} objects");
        repo.git(["repack", "-q", "-a", "-d"]).run().ok();
        let loose = repo.git(["hash-object", "-w", "--stdin"]).stdin("loose");
        loose.run().ok();
        let verified = repo.git(["count-objects", "-v"]).run().text();
        assert!(verified.contains("packs: 1"), "{verified}");
        compare(&repo);
    }
}

/// A damaged file is the same to whoever asks for it first, and later: the first look is another one.
#[test]
fn damage_is_the_same_at_the_first_look() {
    let repo = Repo::init_bare(Format::FILES_SHA1);
    let mut told = [0, 0];
    for text in ["short".to_owned(), "a line like any other\n".repeat(20)] {
        let oid = blob(&repo, &text, false);
        let hex = oid.to_string();
        let path = objects_of(&repo).join(&hex[..2]).join(&hex[2..]);
        let whole = fs::read(&path).expect("it is loose");
        fs::remove_file(&path).expect("it is there");
        let mut damaged: Vec<Vec<u8>> = (0..whole.len()).map(|len| whole[..len].into()).collect();
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut other = whole.clone();
                other[at] ^= 1 << bit;
                damaged.push(other);
            }
        }
        for content in damaged {
            fs::write(&path, &content).expect("room");
            let later = open(&repo);
            let missing = id(&"7".repeat(40));
            assert_eq!(later.kind(missing).expect("it can be looked for"), None);
            let looks = [open(&repo).header(oid), later.header(oid)];
            let [first, later] = looks.map(|header| header.ok().flatten());
            assert_eq!(first, later, "{content:?}");
            told[usize::from(first.is_some())] += 1;
        }
    }
    assert!(told[0] > 200 && told[1] > 200, "{told:?}");
}

#[test]
fn packs_that_come_and_go_are_seen_by_a_database_that_stays_open() {
    for format in [Format::FILES_SHA1, Format::FILES_SHA256] {
        let repo = Repo::init_bare(format);
        let odb = open(&repo);
        let mut known = Vec::new();
        for number in 0..PACKS {
            known.push(blob(&repo, &format!("blob {number}"), true));
            let found = odb.kind(known[number]).expect("it can be read");
            assert!(found.is_some(), "{format}: pack {number}");
        }
        let all_are_there = || {
            for (number, oid) in known.iter().enumerate() {
                let read = odb
                    .read(*oid)
                    .expect("it can be read")
                    .expect("it is there");
                assert_eq!(read.data, format!("blob {number}").as_bytes(), "{format}");
            }
        };
        all_are_there();
        // Once more with all of them in one index, then in one pack.
        repo.git(["multi-pack-index", "write"]).run().ok();
        all_are_there();
        for oid in &known {
            repo.update_refs(format!("create refs/blobs/{oid} {oid}\n"));
        }
        repo.git(["repack", "-q", "-a", "-d"]).run().ok();
        assert_eq!(packs(&repo, "pack").len(), 1, "{format}");
        all_are_there();
        let late = blob(&repo, "late", true);
        repo.git(["multi-pack-index", "write"]).run().ok();
        assert!(
            odb.kind(late).expect("it can be read").is_some(),
            "{format}"
        );
        // What the index of all says is enough.
        for path in packs(&repo, "idx") {
            fs::remove_file(path).expect("it is there");
        }
        assert!(
            open(&repo)
                .read(known[7])
                .expect("it can be read")
                .is_some()
        );
        assert!(open(&repo).storage(late).expect("it can be read").is_some());
    }
}

for_every_format! {
    fn a_file_whose_size_begins_with_a_zero_holds_no_object(format) {
        let repo = Repo::init_bare(format);
        let content = "a content that is longer than its header";
        let real = blob(&repo, content, false);
        let path = repo.git(["hash-object", "--stdin"]).stdin("another").run().text();
        let (dir, rest) = path.split_at(2);
        let dir = objects_of(&repo).join(dir);
        fs::create_dir_all(&dir).expect("room");
        let mut file = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
        write!(file, "blob 0{}\0{content}", content.len()).expect("room");
        fs::write(dir.join(rest), file.finish().expect("room")).expect("room");
        let odb = open(&repo);
        assert!(odb.read(real).expect("it can be read").is_some());
        assert_eq!(odb.kind(id(&path)).expect("it can be read"), None);
        assert_eq!(odb.read(id(&path)).expect("it can be read"), None);
    }

    /// An index of several packs names one copy of each object, and that may be in another pack than what is a
    /// difference from it.
    fn what_an_object_is_a_difference_from_is_in_its_own_pack(format) {
        let repo = Repo::init_bare(format);
        let texts = [1000, 900].map(|lines| (0..lines).map(|at| format!("line {at}\n")).collect::<String>());
        let blobs = texts.each_ref().map(|text| blob(&repo, text, false));
        let pack = |prefix: &str, blobs: &[ObjectId]| {
            let at = objects_of(&repo).join(prefix);
            let list: String = blobs.iter().map(|oid| format!("{oid}\n")).collect();
            repo.git(["pack-objects", "-q", "--no-reuse-delta"]).arg(at).stdin(list).run().text()
        };
        pack("pack/pack", &blobs);
        repo.git(["prune-packed", "-q"]).run().ok();
        let list = "%(objectname) %(deltabase)";
        let list = repo.git(["cat-file", "--batch-all-objects"]).arg(format!("--batch-check={list}"));
        let zeros = "0".repeat(format_of(&repo).hex_len());
        let listed = list.run().text();
        let mut differs = listed.lines().filter_map(|line| line.split_once(' '));
        let (_, base) = differs.rfind(|(_, base)| *base != zeros).expect("one is a difference");
        let preferred = pack("pack/pack", &[id(base)]);
        let write = repo.git(["multi-pack-index", "write"]);
        write.arg(format!("--preferred-pack=pack-{}.idx", preferred.trim())).run().ok();
        let odb = open(&repo);
        for (oid, text) in blobs.iter().zip(&texts) {
            let object = odb.read(*oid).expect("it can be read").expect("it is there");
            assert_eq!(object.data, text.as_bytes());
            let header = odb.header(*oid).expect("it can be read").expect("it is there");
            assert_eq!(header.size, text.len() as u64);
        }
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one chain of repositories")]
fn alternates_are_followed_as_by_git() {
    let repos: Vec<Repo> = (0..9)
        .map(|_| Repo::init_bare(Format::FILES_SHA1))
        .collect();
    let blobs: Vec<ObjectId> = (0..9)
        .map(|number| {
            blob(
                &repos[number],
                &format!("alternate {number}"),
                number % 2 == 0,
            )
        })
        .collect();
    let list = |number: usize, lines: &str| {
        let path = objects_of(&repos[number]).join("info/alternates");
        fs::write(path, lines).expect("room");
    };
    let path = |number: usize| objects_of(&repos[number]).display().to_string();
    let check = |what: &str| {
        let mut count = 0;
        for oid in &blobs {
            let git = repos[0].git(["cat-file", "-e"]).arg(oid.to_string()).run();
            let ours = open(&repos[0]).kind(*oid).expect("it can be read");
            assert_eq!(ours.is_some(), git.code() == 0, "{what}: {oid}");
            let hex = oid.to_string();
            let found = open(&repos[0]).abbreviations();
            let found = found.and_then(|found| found.with_prefix(&hex.as_bytes()[..12]));
            assert_eq!(
                found.expect("it can be read").len(),
                usize::from(ours.is_some())
            );
            count += usize::from(ours.is_some());
        }
        count
    };
    for (number, next) in (1..9).enumerate() {
        list(number, &format!("{}\n", path(next)));
    }
    assert_eq!(check("one behind the other"), 7);
    list(0, &format!("{}\n", path(0)));
    assert_eq!(check("itself"), 1);
    list(0, &format!("{}/../objects/\n", path(0)));
    assert_eq!(check("itself by another name"), 1);
    list(0, &format!("{}\n{}\n", path(1), path(2)));
    list(1, &format!("{}\n", path(0)));
    list(2, &format!("{}\n{}\n{}\n", path(1), path(0), path(2)));
    assert_eq!(check("each other"), 3);
    list(
        0,
        &format!(
            "# no\n\n/none/such\n\"{}\"\n{}/info/alternates\n",
            path(3),
            path(4)
        ),
    );
    list(3, "");
    assert_eq!(check("what is none"), 2);
    let long = "x".repeat(100_000);
    list(
        0,
        &format!("{long}\n/{}\n{}\n", "y/".repeat(3_000), path(3)),
    );
    assert_eq!(check("what no path can be"), 2);
    let relative = PathBuf::from("..")
        .join("..")
        .join(repos[5].git_dir().file_name().expect("a name"));
    list(0, &format!("{}\n", relative.join("objects").display()));
    list(5, "");
    check("a relative path");
    // The whole list of the environment, with a circle in it.
    let dirs = [
        PathBuf::from(path(6)),
        PathBuf::from(path(0)),
        PathBuf::from("/none/such"),
    ];
    list(0, "");
    list(6, &format!("{}\n", path(0)));
    let odb = Odb::new(objects_of(&repos[0]), dirs, ObjectFormat::Sha1);
    assert!(odb.kind(blobs[6]).expect("it can be read").is_some());
    assert_eq!(odb.kind(blobs[7]).expect("it can be read"), None);
}

/// Whoever cannot look does not say that there is nothing.
#[test]
fn a_failure_is_no_absence() {
    let repo = Repo::init_bare(Format::FILES_SHA1);
    let packed = blob(&repo, "packed", true);
    let loose = blob(&repo, "loose", false);
    let missing = id(&"7".repeat(40));
    let told = |oid: ObjectId, what: &str| {
        for error in [
            open(&repo).header(oid).map(drop).expect_err(what),
            open(&repo).read(oid).map(drop).expect_err(what),
            open(&repo).storage(oid).map(drop).expect_err(what),
        ] {
            assert_eq!(error.kind(), ErrorKind::Io, "{what}: {error}");
        }
    };
    let there = |oid: ObjectId, what: &str| {
        let read = open(&repo).read(oid).expect("it can be read");
        assert!(read.is_some(), "{what}");
    };
    for ending in ["idx", "pack"] {
        let path = packs(&repo, ending).remove(0);
        let old = fs::read(&path).expect("it can be read");
        fs::remove_file(&path).expect("it is there");
        make_fifo(&path);
        told(packed, "a FIFO");
        there(loose, "beside a FIFO");
        fs::remove_file(&path).expect("it is there");
        fs::create_dir(&path).expect("room");
        told(packed, "a folder");
        there(loose, "beside a folder");
        fs::remove_dir(&path).expect("it is there");
        std::os::unix::fs::symlink("/dev/zero", &path).expect("room");
        told(packed, "a device");
        fs::remove_file(&path).expect("it is there");
        if ending == "idx" {
            // Nobody knows what a damaged index has; a damaged pack has nothing.
            fs::write(&path, "no index").expect("room");
            told(packed, "a damaged index");
            told(missing, "a damaged index");
            there(loose, "beside a damaged index");
        } else {
            fs::write(&path, "no pack").expect("room");
            assert_eq!(open(&repo).read(packed).expect("it can be read"), None);
        }
        fs::remove_file(&path).expect("it is there");
        fs::write(&path, old).expect("room");
        there(packed, "as it was");
    }
    let hex = loose.to_string();
    let path = objects_of(&repo).join(&hex[..2]).join(&hex[2..]);
    fs::remove_file(&path).expect("it is there");
    make_fifo(&path);
    assert_eq!(open(&repo).read(loose).expect("it can be looked for"), None);
    let several = objects_of(&repo).join("pack/multi-pack-index");
    make_fifo(&several);
    there(packed, "beside an index that is a FIFO");
    let list = objects_of(&repo).join("info/alternates");
    make_fifo(&list);
    told(missing, "a list of alternates that is a FIFO");
}
