//! A small real repository with objects of every kind, made without Git.

use std::fs::{create_dir_all, remove_dir_all, write};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use flate2::Compression;
use flate2::write::ZlibEncoder;
use refdb::layout::Layout;
use refdb_git::objects::Odb;
use refdb::system::OsSystem;
use refdb_testkit::ours;
use refdb::{Edit, ObjectFormat, ObjectId, RefFormat, RefName, Store};

/// One that is changed; [`Fixture::reset`] brings it back.
pub(crate) static FIXTURE: LazyLock<Fixture> = LazyLock::new(|| Fixture::new("changed"));
/// One that stays as it is.
pub(crate) static STABLE: LazyLock<Fixture> = LazyLock::new(|| Fixture::new("stable"));

const CONFIG: &str = "[core]\n\tfsync = none\n\tlogAllRefUpdates = always\n\
    [user]\n\tname = A\n\temail = a@b\n\
    [branch \"main\"]\n\tremote = origin\n\tmerge = refs/heads/main\n\
    [remote \"origin\"]\n\turl = ../o\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n";

pub(crate) struct Fixture {
    top: PathBuf,
    pub(crate) git_dir: PathBuf,
    refs: Vec<(&'static str, String)>,
}

impl Fixture {
    /// Makes it in `TMPDIR`, for this process.
    fn new(name: &str) -> Fixture {
        let top = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        let git_dir = top.join("repo.git");
        let objects = top.join("objects");
        create_dir_all(objects.join("info")).expect("room");
        let tree = object(&objects, "tree", b"");
        let mut time = 1_700_000_000;
        let mut commit = |parents: &[&String], message: &str| {
            time += 1000;
            let parents: String = parents.iter().map(|it| format!("parent {it}\n")).collect();
            let who = format!("A U Thor <a@b> {time} +0130");
            let text = format!("tree {tree}\n{parents}author {who}\ncommitter {who}\n\n{message}");
            object(&objects, "commit", text.as_bytes())
        };
        let one = commit(&[], "one\n");
        let two = commit(
            &[&one],
            "two\n\nA body\nof two lines.\n\nSigned-off-by: A <a@b>\nX: y\n z\n",
        );
        let three = commit(&[&one], "three\r\n\r\nwith returns\r\n");
        let four = commit(&[&two, &three], "");
        let five = commit(&[&four], "five: \u{e4}\u{20ac}\nand on");
        let six = commit(&[&three, &one, &two], "an octopus\n\n---\nAcked-by: B\n");
        let tag = format!(
            "object {two}\ntype commit\ntag v1\ntagger T <t@u> 1700009999 -0800\n\nv one\n\nk: v\n"
        );
        let tag = object(&objects, "tag", tag.as_bytes());
        let nested = format!("object {tag}\ntype tag\ntag v2\n\nno tagger");
        let nested = object(&objects, "tag", nested.as_bytes());
        let blob = object(&objects, "blob", b"text\n");
        let refs = vec![
            ("refs/heads/main", five),
            ("refs/heads/side", six),
            ("refs/heads/old", three),
            ("refs/remotes/origin/main", four),
            ("refs/tags/v1", tag),
            ("refs/tags/v2", nested),
            ("refs/tags/blob", blob),
            ("refs/tags/tree", tree),
        ];
        let fixture = Fixture { top, git_dir, refs };
        fixture.reset(RefFormat::Files);
        fixture
    }

    /// Makes the repository as it was at first, in a format.
    pub(crate) fn reset(&self, format: RefFormat) {
        let _ = remove_dir_all(&self.git_dir);
        let objects = self.git_dir.join("objects/info");
        create_dir_all(&objects).expect("room");
        let elsewhere = self.top.join("objects");
        let put = |path: &str, text: &str| write(self.git_dir.join(path), text).expect("room");
        put(
            "objects/info/alternates",
            &format!("{}\n", elsewhere.display()),
        );
        put("HEAD", "ref: refs/heads/main\n");
        match format {
            RefFormat::Files => {
                create_dir_all(self.git_dir.join("refs/heads")).expect("room");
                put("config", CONFIG);
                let mut packed: Vec<_> = self.refs.clone();
                packed.sort();
                let lines = packed.iter().map(|(name, oid)| format!("{oid} {name}\n"));
                let header = "# pack-refs with: sorted \n".to_owned();
                put(
                    "packed-refs",
                    &[header].into_iter().chain(lines).collect::<String>(),
                );
            }
            RefFormat::Reftable => {
                create_dir_all(self.git_dir.join("refs")).expect("room");
                create_dir_all(self.git_dir.join("reftable")).expect("room");
                // A repository with objects that has no list has lost it.
                put("reftable/tables.list", "\n");
                put("refs/heads", "this repository uses the reftable format\n");
                let more = "[core]\n\trepositoryFormatVersion = 1\n\
                    [extensions]\n\trefStorage = reftable\n";
                put("config", &format!("{CONFIG}{more}"));
                self.fill();
            }
        }
    }

    /// Writes the first table.
    fn fill(&self) {
        let odb = Odb::new(self.top.join("objects"), [], ObjectFormat::Sha1);
        let mut options = ours::simulated(ObjectFormat::Sha1);
        options.fsync = false;
        let store = Store::open(
            Arc::new(OsSystem::new()),
            Layout::main(&self.git_dir),
            RefFormat::Reftable,
            Arc::new(odb),
            options,
        );
        let store = store.expect("a store");
        let name = |text: &'static str| RefName::new(text).expect("a good name");
        let mut transaction = store.transaction();
        let head = Edit::symbolic(name("HEAD"), name("refs/heads/main")).no_deref();
        transaction.add(head).expect("a good edit");
        for (text, oid) in &self.refs {
            let oid = ObjectId::from_hex(oid.as_bytes()).expect("an id");
            transaction
                .add(Edit::update(name(text), oid))
                .expect("a good edit");
        }
        let _ = transaction.commit().expect("nothing is in the way");
    }

    /// Returns arguments for a command in the repository.
    pub(crate) fn args<const N: usize>(&self, args: [&[u8]; N]) -> Vec<Vec<u8>> {
        let git_dir = format!("--git-dir={}", self.git_dir.display());
        let all = [git_dir.as_bytes()].into_iter().chain(args);
        all.map(<[u8]>::to_vec).collect()
    }
}

/// Writes a loose object; returns its id.
fn object(objects: &Path, kind: &str, content: &[u8]) -> String {
    let mut whole = format!("{kind} {}\0", content.len()).into_bytes();
    whole.extend(content);
    let mut hasher = gix_hash::hasher(gix_hash::Kind::Sha1);
    hasher.update(&whole);
    let id = hasher.try_finalize().expect("no collision").to_string();
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&whole).expect("memory");
    let dir = objects.join(&id[..2]);
    create_dir_all(&dir).expect("room");
    write(dir.join(&id[2..]), encoder.finish().expect("memory")).expect("room");
    id
}
