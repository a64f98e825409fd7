//! What objects are: the first one that a process asks for, and those after it, as Git tells them.

use refdb::objects::{Objects, Odb};
use refdb::{ObjectFormat, ObjectId};
use refdb_testkit::for_every_format;
use refdb_testkit::repo::Repo;

/// Compares every object with what Git tells, each as the first one that is asked for, and as one of many.
fn compare(repo: &Repo) -> usize {
    let format = ObjectFormat::from_name(repo.format().objects.name()).expect("it is known");
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
        let count = compare(&repo);
        assert!(count > 4, "{count} objects");
        repo.git(["repack", "-q", "-a", "-d"]).run().ok();
        let loose = repo.git(["hash-object", "-w", "--stdin"]).stdin("loose");
        loose.run().ok();
        let verified = repo.git(["count-objects", "-v"]).run().text();
        assert!(verified.contains("packs: 1"), "{verified}");
        compare(&repo);
    }
}
