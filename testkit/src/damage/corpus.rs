//! A corpus of damaged stores: every kind of damage that the deep check knows, done with a seed to
//! a repository that has all there is to damage.
//!
//! ```no_run
//! use refdb_testkit::damage::corpus::{Subject, kinds};
//! use refdb_testkit::{Format, rng::Rng};
//!
//! let subject = Subject::new(Format::REFTABLE_SHA1);
//! for kind in kinds(subject.format()) {
//!     let expected = (kind.apply)(&subject, &mut Rng::new(1));
//!     println!("{}: {}", kind.name, expected.file.display());
//!     subject.restore();
//! }
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::format::{Format, RefFormat};
use crate::repo::Repo;
use crate::rng::Rng;

use super::{loose, stack, tables};

/// Does a damage, and says where it is to be found.
pub type Apply = Box<dyn Fn(&Subject, &mut Rng) -> Expected>;

/// One kind of damage.
pub struct Kind {
    /// What it is, in a few words.
    pub name: String,
    /// Does it, and says where it is to be found.
    pub apply: Apply,
}

/// Where a check should find a damage.
#[derive(Clone, Debug)]
pub struct Expected {
    /// The file.
    pub file: PathBuf,
    /// The bytes in which the place must lie; `None` where the file as a whole is meant.
    pub offsets: Option<Range<u64>>,
    /// Whether it is only a warning.
    pub warning: bool,
}

impl Expected {
    /// A file as a whole, or any place in it.
    pub fn file(file: impl Into<PathBuf>) -> Expected {
        Expected {
            file: file.into(),
            offsets: None,
            warning: false,
        }
    }

    /// A place in a file.
    pub fn at(file: impl Into<PathBuf>, offsets: Range<usize>) -> Expected {
        Expected {
            offsets: Some(offsets.start as u64..offsets.end as u64),
            ..Expected::file(file)
        }
    }

    /// Something that harms nobody yet.
    pub fn warning(self) -> Expected {
        Expected {
            warning: true,
            ..self
        }
    }
}

/// Returns every kind of damage to a store of that format.
pub fn kinds(format: Format) -> Vec<Kind> {
    let mut kinds = loose::heads();
    match format.refs {
        RefFormat::Files => kinds.extend(loose::kinds()),
        RefFormat::Reftable => {
            kinds.extend(tables::kinds());
            kinds.extend(stack::kinds());
        }
    }
    kinds
}

/// A repository to be damaged, and put back as it was.
pub struct Subject {
    repo: Repo,
    whole: BTreeMap<PathBuf, Vec<u8>>,
}

/// How many branches the repository has.
const BRANCHES: usize = 300;

impl Subject {
    /// Makes a repository by Git with branches, annotated tags, symrefs and reflogs; for `files`
    /// some packed and some loose, for `reftable` in three tables, the oldest of which has every
    /// section with several blocks.
    pub fn new(format: Format) -> Subject {
        let repo = Repo::init(format);
        let objects = repo.objects();
        repo.config("reftable.blockSize", "512");
        let mut script = String::new();
        for at in 0..BRANCHES {
            let commit = &objects.commits[at % objects.commits.len()];
            script.push_str(&format!(
                "create refs/heads/team-{}/topic-{at} {commit}\n",
                at % 7
            ));
        }
        for (at, tag) in objects.tags.iter().enumerate() {
            script.push_str(&format!("create refs/tags/v{at} {}\n", tag.id));
        }
        repo.update_refs(script);
        repo.git(["pack-refs", "--all"]).run().ok();
        repo.config("reftable.geometricFactor", "2");
        let loose: String = (0..30)
            .map(|at| format!("create refs/heads/late-{at} {}\n", objects.commits[at]))
            .collect();
        repo.update_refs(loose);
        let (one, two) = (&objects.commits[0], &objects.commits[1]);
        repo.update_refs(format!(
            "create refs/heads/main {one}\nupdate refs/heads/team-0/topic-0 {two}\n"
        ));
        let head = [
            "symbolic-ref",
            "refs/remotes/origin/HEAD",
            "refs/heads/main",
        ];
        repo.git(head).run().ok();
        let whole = content(&repo.git_dir());
        Subject { repo, whole }
    }

    /// Returns the formats.
    pub fn format(&self) -> Format {
        self.repo.format()
    }

    /// Returns the repository.
    pub fn repo(&self) -> &Repo {
        &self.repo
    }

    /// Returns the path of a file of the store.
    pub fn path(&self, name: &str) -> PathBuf {
        self.repo.git_dir().join(name)
    }

    /// Returns the content of a file of the store, as it was when all was well.
    pub fn original(&self, path: &Path) -> Vec<u8> {
        self.whole[path].clone()
    }

    /// Writes a file of the store.
    pub fn write(&self, path: &Path, content: impl AsRef<[u8]>) {
        let parent = path.parent().expect("a file is in a folder");
        fs::create_dir_all(parent).expect("the folder can be made");
        let _ = fs::remove_file(path);
        fs::write(path, content).expect("the file can be written");
    }

    /// Puts everything back as it was.
    pub fn restore(&self) {
        let git_dir = self.repo.git_dir();
        for path in content(&git_dir).into_keys() {
            if !self.whole.contains_key(&path) {
                fs::remove_file(path).expect("the file can be removed");
            }
        }
        for (path, content) in &self.whole {
            if fs::read(path).ok().as_ref() != Some(content) {
                if path.is_dir() {
                    fs::remove_dir_all(path).expect("the folder can be removed");
                }
                self.write(path, content);
            }
        }
    }
}

/// Returns all files of a store with their content.
fn content(git_dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![git_dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("the folder can be read") {
            let path = entry.expect("an entry").path();
            let is_objects = path == git_dir.join("objects");
            if path.is_dir() && !path.is_symlink() && !is_objects {
                folders.push(path);
            } else if !is_objects {
                let bytes = fs::read(&path).unwrap_or_default();
                files.insert(path, bytes);
            }
        }
    }
    files
}
