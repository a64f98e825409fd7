//! Objects to point refs at: made once with `git fast-import`, linked into every repository.
//!
//! ```
//! use refdb_testkit::{objects::Objects, ObjectFormat};
//!
//! let objects = Objects::standard(ObjectFormat::Sha1);
//! assert_eq!(objects.commits.len(), 600);
//! assert_eq!(objects.tags[0].peeled, objects.commits[0]);
//! ```

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::cache;
use crate::format::ObjectFormat;
use crate::oracle::{EMAIL, NAME, TIME, ZONE, git};

/// Commits of the standard set.
const COMMITS: usize = 600;
/// Annotated tags of commits in the standard set.
const TAGS: usize = 64;
/// Each so many commits the file changes, and with it the tree.
const COMMITS_PER_TREE: usize = 50;

/// An annotated tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The tag object.
    pub id: String,
    /// What it peels to.
    pub peeled: String,
}

/// The ids of a set of objects, all in full hexadecimal digits.
#[derive(Clone, Debug)]
pub struct Objects {
    /// Commits, each the parent of the next.
    pub commits: Vec<String>,
    /// Annotated tags: number i is of commit i.
    pub tags: Vec<Tag>,
    /// Tags of tags of commits, two to four tags deep.
    pub nested_tags: Vec<Tag>,
    /// A tag of a tree.
    pub tree_tag: Tag,
    /// A tag of a blob.
    pub blob_tag: Tag,
    /// A tag that says its object is a commit, though it is a blob. It peels to nothing.
    pub lying_tag: String,
    /// A tree.
    pub tree: String,
    /// A blob.
    pub blob: String,
    /// A well-formed id of which there is no object.
    pub missing: String,
    /// The folder with the packs.
    folder: PathBuf,
}

impl Objects {
    /// Returns the set that every [`Repo`](crate::repo::Repo) has: 600 commits, 64 tags and one
    /// of each odd kind.
    pub fn standard(format: ObjectFormat) -> &'static Objects {
        static SHA1: OnceLock<Objects> = OnceLock::new();
        static SHA256: OnceLock<Objects> = OnceLock::new();
        let made = match format {
            ObjectFormat::Sha1 => &SHA1,
            ObjectFormat::Sha256 => &SHA256,
        };
        made.get_or_init(|| Objects::new(format, COMMITS, TAGS))
    }

    /// Makes a set with so many commits and annotated tags of them, or finds it made before.
    ///
    /// # Panics
    ///
    /// If there is no commit or no tag, or more tags than commits.
    pub fn new(format: ObjectFormat, commits: usize, tags: usize) -> Objects {
        assert!(tags > 0 && tags <= commits, "each tag is of another commit");
        let key = format!("objects-{}-{commits}-{tags}", format.name());
        let folder = cache::folder(&key, |dir| make(dir, format, commits, tags));
        let list = fs::read_to_string(folder.join("ids")).expect("written when it was made");
        let mut ids = list.lines().map(str::to_owned);
        let mut next = || ids.next().expect("the list is complete");
        let commits: Vec<String> = (0..commits).map(|_| next()).collect();
        let tags: Vec<Tag> = (0..tags)
            .map(|i| Tag {
                id: next(),
                peeled: commits[i].clone(),
            })
            .collect();
        let nested_tags = (0..3)
            .map(|_| Tag {
                id: next(),
                peeled: commits[0].clone(),
            })
            .collect();
        let (blob, tree) = (next(), next());
        let tree_tag = Tag {
            id: next(),
            peeled: tree.clone(),
        };
        let blob_tag = Tag {
            id: next(),
            peeled: blob.clone(),
        };
        let lying_tag = next();
        let missing = "d".repeat(format.hex_len());
        Objects {
            commits,
            tags,
            nested_tags,
            tree_tag,
            blob_tag,
            lying_tag,
            tree,
            blob,
            missing,
            folder: folder.join("objects"),
        }
    }

    /// Puts the objects into the object folder of a repository.
    ///
    /// # Panics
    ///
    /// If the file system refuses.
    pub fn put_into(&self, objects: &Path) {
        cache::copy(&self.folder, objects).expect("objects can be copied");
    }
}

/// Makes a repository in `dir` whose object folder and list `ids` are what is wanted.
#[expect(clippy::too_many_lines, reason = "one object after the other")]
fn make(dir: &Path, format: ObjectFormat, commits: usize, tags: usize) {
    let object_format = format!("--object-format={}", format.name());
    git(dir)
        .args(["init", "-q", "--bare", "--ref-format=files", &object_format])
        .arg(dir)
        .run()
        .ok();
    let mut stream = String::new();
    let first_tag = commits + 1;
    for i in 0..commits {
        let mark = i + 1;
        let time = TIME + u64::try_from(i).expect("a small number");
        let message = format!("commit {i}\n");
        writeln!(
            stream,
            "commit refs/import/x\nmark :{mark}\nauthor {NAME} <{EMAIL}> {time} {ZONE}\n\
             committer {NAME} <{EMAIL}> {time} {ZONE}\ndata {}\n{message}",
            message.len()
        )
        .expect("a string takes everything");
        if i % COMMITS_PER_TREE == 0 {
            let content = format!("content {i}\n");
            writeln!(
                stream,
                "M 100644 inline file\ndata {}\n{content}",
                content.len()
            )
            .expect("a string takes everything");
        }
    }
    let mut tag = |name: String, mark: usize, from: usize| {
        writeln!(
            stream,
            "tag {name}\nmark :{mark}\nfrom :{from}\ntagger {NAME} <{EMAIL}> {TIME} {ZONE}\n\
             data 4\ntag\n"
        )
        .expect("a string takes everything");
    };
    for i in 0..tags {
        tag(format!("tag{i}"), first_tag + i, i + 1);
    }
    for depth in 0..3 {
        let of = if depth == 0 {
            first_tag
        } else {
            first_tag + tags + depth - 1
        };
        tag(format!("nested{depth}"), first_tag + tags + depth, of);
    }
    git(dir)
        .args([
            "-c",
            "fastimport.unpackLimit=0",
            "fast-import",
            "--quiet",
            "--export-marks=marks",
        ])
        .stdin(stream)
        .run()
        .ok();
    let mut ids = marks(&fs::read_to_string(dir.join("marks")).expect("just written"));
    for name in [format!("{}:file", ids[0]), format!("{}^{{tree}}", ids[0])] {
        ids.push(git(dir).args(["rev-parse", &name]).run().text());
    }
    let [blob, tree] = [ids[ids.len() - 2].clone(), ids[ids.len() - 1].clone()];
    for (object, kind) in [(&tree, "tree"), (&blob, "blob"), (&blob, "commit")] {
        let text = format!(
            "object {object}\ntype {kind}\ntag odd\ntagger {NAME} <{EMAIL}> {TIME} {ZONE}\n\ntag\n"
        );
        let hash = ["hash-object", "-t", "tag", "-w", "--stdin"];
        ids.push(git(dir).args(hash).stdin(text).run().text());
    }
    fs::write(dir.join("ids"), ids.join("\n")).expect("the folder can be written");
}

/// Returns the ids of an exported list of marks, in the order of the marks.
fn marks(list: &str) -> Vec<String> {
    let mut marks: Vec<(usize, &str)> = list
        .lines()
        .map(|line| {
            let (mark, id) = line[1..].split_once(' ').expect("a mark and an id");
            (mark.parse().expect("a mark is a number"), id)
        })
        .collect();
    marks.sort_unstable();
    marks.into_iter().map(|(_, id)| id.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Format;
    use crate::repo::Repo;

    #[test]
    fn every_object_is_what_it_is_said_to_be() {
        for format in [Format::FILES_SHA1, Format::FILES_SHA256] {
            let repo = Repo::init(format);
            let objects = repo.objects();
            let mut input = String::new();
            let mut expected = String::new();
            let mut expect = |id: &str, kind: &str| {
                writeln!(input, "{id}").expect("a string takes everything");
                writeln!(expected, "{kind}").expect("a string takes everything");
            };
            objects.commits.iter().for_each(|id| expect(id, "commit"));
            objects
                .tags
                .iter()
                .chain(&objects.nested_tags)
                .for_each(|t| expect(&t.id, "tag"));
            expect(&objects.tree, "tree");
            expect(&objects.blob, "blob");
            expect(&objects.lying_tag, "tag");
            let out = repo
                .git(["cat-file", "--batch-check=%(objecttype)"])
                .stdin(input)
                .run();
            assert_eq!(out.text(), expected.trim_end());
            let odd = [&objects.tree_tag, &objects.blob_tag];
            for tag in objects
                .tags
                .iter()
                .chain(&objects.nested_tags)
                .chain(odd)
                .skip(60)
            {
                let name = format!("{}^{{}}", tag.id);
                assert_eq!(repo.git(["rev-parse", &name]).run().text(), tag.peeled);
            }
            let missing = repo.git(["cat-file", "-e", &objects.missing]).run();
            assert_eq!(missing.code(), 1);
        }
    }
}
