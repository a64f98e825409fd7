//! Repositories in temporary folders.
//!
//! 1. Every repository has the standard [`Objects`], and no ref but HEAD.
//! 2. The folder is removed when the [`Repo`] is dropped.
//!
//! ```
//! use refdb_testkit::{repo::Repo, Format};
//!
//! let repo = Repo::init(Format::FILES_SHA256);
//! let commit = &repo.objects().commits[0];
//! repo.update_refs(format!("create refs/heads/main {commit}\n"));
//! assert_eq!(repo.refs()[0].name, "HEAD");
//! assert_eq!(repo.refs()[1].id, *commit);
//! assert_eq!(repo.reflogs()["HEAD".as_bytes()].len(), 1);
//! ```

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use bstr::{BString, ByteSlice};
use tempfile::TempDir;

use crate::cache;
use crate::format::{Format, RefFormat};
use crate::objects::Objects;
use crate::oracle::{GitRun, git};
use crate::state::{LogEntry, State};

/// A ref as Git lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its full name.
    pub name: BString,
    /// The object it resolves to.
    pub id: String,
    /// Where a symref finally leads.
    pub symref: Option<BString>,
    /// What the object peels to, if it is a tag.
    pub peeled: Option<String>,
}

/// A repository that a test may do anything with.
#[derive(Debug)]
pub struct Repo {
    folder: TempDir,
    format: Format,
    bare: bool,
}

/// A linked worktree of a [`Repo`].
#[derive(Debug)]
pub struct Worktree {
    /// Its working folder.
    pub path: PathBuf,
    /// Its own folder in the repository, where its own refs are.
    pub git_dir: PathBuf,
}

impl Repo {
    /// Makes a repository with a working folder.
    pub fn init(format: Format) -> Repo {
        Repo::make(format, false)
    }

    /// Makes a bare repository, in which Git keeps no reflogs unless told to.
    pub fn init_bare(format: Format) -> Repo {
        Repo::make(format, true)
    }

    fn make(format: Format, bare: bool) -> Repo {
        let key = format!("repo-{format}{}", if bare { "-bare" } else { "" });
        let made = cache::folder(&key, |dir| {
            let ref_format = format!("--ref-format={}", format.refs.name());
            let object_format = format!("--object-format={}", format.objects.name());
            let init = git(dir).args(["init", "-q", &ref_format, &object_format]);
            let init = if bare { init.arg("--bare") } else { init };
            init.run().ok();
        });
        let repo = Repo::copy_of(&made, format, bare);
        repo.objects().put_into(&repo.git_dir().join("objects"));
        repo
    }

    /// Makes a bare repository with the refs of a script: in one table or in packed-refs, as a clone has them.
    /// With thousands of refs this takes Git a twentieth of the time of making each in a file and packing them.
    /// There must be no tags among them: the migration of Git 2.55 says of all that it packs that it peels to nothing.
    #[track_caller]
    pub fn init_bare_with(format: Format, script: impl Into<Vec<u8>>) -> Repo {
        let tables = Format::new(RefFormat::Reftable, format.objects);
        let repo = Repo::init_bare(tables);
        repo.update_refs(script);
        if format.refs == RefFormat::Files {
            repo.git(["refs", "migrate", "--ref-format=files"])
                .run()
                .ok();
        }
        Repo { format, ..repo }
    }

    /// Copies a repository that lies in `from`.
    pub(crate) fn copy_of(from: &Path, format: Format, bare: bool) -> Repo {
        let folder = tempfile::Builder::new()
            .prefix("refdb-")
            .tempdir()
            .expect("a folder");
        cache::copy(from, folder.path()).expect("a repository can be copied");
        Repo {
            folder,
            format,
            bare,
        }
    }

    /// Makes a second repository with the same content. It must have no linked worktree, since
    /// those hold the path of their repository.
    pub fn duplicate(&self) -> Repo {
        Repo::copy_of(self.path(), self.format, self.bare)
    }

    /// Returns the folder in which Git is run: the working folder, if there is one.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the folder with the refs and objects.
    pub fn git_dir(&self) -> PathBuf {
        if self.bare {
            self.path().to_owned()
        } else {
            self.path().join(".git")
        }
    }

    /// Returns the formats it was made with.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Returns the objects that are in it.
    pub fn objects(&self) -> &'static Objects {
        Objects::standard(self.format.objects)
    }

    /// Begins a run of Git in it.
    pub fn git(&self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> GitRun {
        git(self.path()).args(args)
    }

    /// Has Git carry out a script for `git update-ref --stdin`.
    ///
    /// # Panics
    ///
    /// If Git refuses it.
    #[track_caller]
    pub fn update_refs(&self, script: impl Into<Vec<u8>>) {
        self.git(["update-ref", "--stdin"]).stdin(script).run().ok();
    }

    /// Sets a value in the repository's configuration.
    pub fn config(&self, key: &str, value: &str) {
        self.git(["config", key, value]).run().ok();
    }

    /// Makes a branch whose reflog has no entry: an empty reflog is not none.
    pub fn quiet_branch(&self, name: &str, commit: &str) {
        let create = ["update-ref", "--create-reflog", name, commit];
        self.git(create).run().ok();
        self.git(["reflog", "expire", "--expire=all", name])
            .run()
            .ok();
        self.git(["reflog", "exists", name]).run().ok();
    }

    /// Makes a linked worktree `name` with a detached HEAD at the first commit.
    pub fn worktree(&self, name: &str) -> Worktree {
        let path = self.git_dir().join("..linked").join(name);
        let commit = &self.objects().commits[0];
        let add = ["worktree", "add", "-q", "--detach", "--no-checkout"];
        self.git(add).arg(&path).arg(commit).run().ok();
        Worktree {
            git_dir: self.git_dir().join("worktrees").join(name),
            path,
        }
    }

    /// Returns all refs that resolve, root refs included, as Git lists them.
    pub fn refs(&self) -> Vec<Listed> {
        list(self.path())
    }

    /// Returns the entries of all reflogs, oldest first.
    pub fn reflogs(&self) -> BTreeMap<BString, Vec<LogEntry>> {
        self.state().logs
    }

    /// Returns everything that is stored, dangling symrefs included.
    pub fn state(&self) -> State {
        State::read(&self.git_dir())
    }

    /// Has Git check the refs and the objects they need.
    ///
    /// # Panics
    ///
    /// If Git finds fault.
    #[track_caller]
    pub fn assert_sound(&self) {
        let out = self.git(["refs", "verify", "--strict"]).run();
        assert!(out.status.success(), "{}", out.stderr.as_bstr());
        self.git(["for-each-ref", "--format=%(objecttype)"])
            .run()
            .ok();
    }
}

impl Worktree {
    /// Begins a run of Git in it.
    pub fn git(&self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> GitRun {
        git(&self.path).args(args)
    }

    /// Returns all refs that resolve there, its own and the shared ones.
    pub fn refs(&self) -> Vec<Listed> {
        list(&self.path)
    }

    /// Returns what is stored in its own part of the store.
    pub fn state(&self) -> State {
        State::read(&self.git_dir)
    }
}

fn list(dir: &Path) -> Vec<Listed> {
    let format = "--format=%(objectname)%00%(symref)%00%(*objectname)%00%(refname)";
    let out = git(dir)
        .args(["for-each-ref", "--include-root-refs", format])
        .run()
        .ok();
    let text = |bytes: &[u8]| bytes.to_str().expect("an id is hexadecimal").to_owned();
    let some = |bytes: &[u8]| {
        if bytes.is_empty() {
            None
        } else {
            Some(text(bytes))
        }
    };
    out.lines()
        .map(|line| {
            let mut fields = line.splitn_str(4, b"\0");
            let mut next = || fields.next().expect("four fields");
            let (id, symref, peeled) = (text(next()), next(), some(next()));
            let symref = if symref.is_empty() {
                None
            } else {
                Some(symref.into())
            };
            Listed {
                id,
                symref,
                peeled,
                name: next().into(),
            }
        })
        .collect()
}
