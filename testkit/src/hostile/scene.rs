//! The world around a hostile repository.
//!
//! ```text
//! world/
//!   home/                 of the user: .bashrc, .ssh/authorized_keys, notes/
//!   other/                another repository of the user
//!   work/                 the user's clone: .git, tracked files
//!     vendor/thing/       what is hostile: a repository with a worktree `side`, or a bare one
//! ```

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{chown, lchown, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

use crate::cache;
use crate::format::{Format, RefFormat};
use crate::objects::Objects;
use crate::oracle::git;

use super::Made;

/// Where the hostile repository is in the world.
const THING: &str = "work/vendor/thing";

/// What kind of repository a scene has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// With a working folder.
    Work,
    /// Bare, and so found inside of another working folder.
    Bare,
}

/// A hostile repository and what is around it.
#[derive(Debug)]
pub struct Scene {
    world: PathBuf,
    format: Format,
    form: Form,
}

impl Scene {
    /// Makes the world anew in `folder`, all healthy.
    ///
    /// # Panics
    ///
    /// If the file system refuses.
    pub fn make(folder: &Path, format: Format, form: Form) -> Scene {
        let key = format!("hostile-{format}-{form:?}");
        // Beside the world, so that objects can be links.
        let near = folder.join(&key);
        if !near.is_dir() {
            let made = cache::folder(&key, |dir| make(dir, format, form));
            cache::copy(&made, &near).expect("there is room");
        }
        let world = folder.join("world");
        remove(&world);
        cache::copy(&near, &world).expect("there is room");
        Scene {
            world,
            format,
            form,
        }
    }

    /// Returns the folder that everything is in.
    pub fn world(&self) -> &Path {
        &self.world
    }

    /// Returns where the hostile repository is, from the world.
    pub fn inside() -> &'static Path {
        Path::new(THING)
    }

    /// Returns the folder of the hostile repository.
    pub fn thing(&self) -> PathBuf {
        self.world.join(THING)
    }

    /// Returns the folder that has its refs.
    pub fn git_dir(&self) -> PathBuf {
        match self.form {
            Form::Work => self.thing().join(".git"),
            Form::Bare => self.thing(),
        }
    }

    /// Returns the user's home.
    pub fn home(&self) -> PathBuf {
        self.world.join("home")
    }

    /// Returns the formats.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Returns the objects that every repository here has.
    pub fn objects(&self) -> &'static Objects {
        Objects::standard(self.format.objects)
    }

    /// Returns the way from the folder with the refs to the world.
    pub(super) fn out(&self) -> &'static str {
        match self.form {
            Form::Work => "../../../..",
            Form::Bare => "../../..",
        }
    }

    /// Returns the path of something in the world as text.
    pub(super) fn absolute(&self, below: &str) -> String {
        let path = self.world.join(below);
        path.to_str().expect("the folder has a plain name").into()
    }

    /// Clears the place of something in the folder with the refs, and returns its path. With `../`
    /// it is beside that folder, which need not be there.
    pub(super) fn place(&self, name: &str) -> PathBuf {
        let path = match name.strip_prefix("../") {
            Some(name) => self.thing().join(name),
            None => self.git_dir().join(name),
        };
        let parent = path.parent().expect("it is in a folder");
        // In one of the formats some folders are files.
        for folder in parent.ancestors().filter(|at| at.starts_with(self.thing())) {
            if !folder.is_dir() {
                remove(folder);
            }
        }
        fs::create_dir_all(parent).expect("a folder");
        remove(&path);
        path
    }

    /// Writes a file in the folder with the refs.
    pub(super) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> Made {
        fs::write(self.place(name), content).map_err(|error| error.to_string())
    }

    /// Makes a link in the folder with the refs.
    pub(super) fn link(&self, name: &str, to: impl AsRef<Path>) -> Made {
        symlink(to, self.place(name)).map_err(|error| error.to_string())
    }

    /// Makes a folder in the folder with the refs.
    pub(super) fn folder(&self, name: &str) -> Made {
        fs::create_dir(self.place(name)).map_err(|error| error.to_string())
    }

    /// Makes a FIFO, to which nobody ever writes.
    pub(super) fn fifo(&self, name: &str) -> Made {
        self.node(name, FileType::Fifo, 0)
    }

    /// Makes the device of which zeros are read without end.
    pub(super) fn device(&self, name: &str) -> Made {
        self.node(name, FileType::CharacterDevice, makedev(1, 5))
    }

    fn node(&self, name: &str, kind: FileType, device: u64) -> Made {
        let path = self.place(name);
        mknodat(CWD, &path, kind, Mode::from_raw_mode(0o666), device)
            .map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Makes a file of so many bytes that are nowhere.
    pub(super) fn sparse(&self, name: &str, len: u64) -> Made {
        self.sparse_after(b"", name, len)
    }

    /// As [`Scene::sparse`], behind some bytes.
    pub(super) fn sparse_after(&self, start: &[u8], name: &str, len: u64) -> Made {
        let make = || {
            let mut file = fs::File::create(self.place(name))?;
            file.write_all(start)?;
            file.set_len(len)
        };
        make().map_err(|error: std::io::Error| error.to_string())
    }

    /// Takes something out of the folder with the refs.
    pub(super) fn remove(&self, name: &str) -> Made {
        remove(&self.git_dir().join(name));
        Ok(())
    }

    /// Gives something to another user.
    pub(super) fn give_away(&self, name: &str) -> Made {
        let path = self.git_dir().join(name);
        lchown(&path, Some(STRANGER), Some(STRANGER)).map_err(|error| error.to_string())
    }

    /// Gives the whole hostile folder to another user.
    pub(super) fn give_all_away(&self) -> Made {
        fn give(path: &Path) -> std::io::Result<()> {
            if path.is_dir() && !path.is_symlink() {
                for entry in fs::read_dir(path)? {
                    give(&entry?.path())?;
                }
                return chown(path, Some(STRANGER), Some(STRANGER));
            }
            // Objects are links to those of all scenes.
            let stat = fs::symlink_metadata(path)?;
            match stat.is_file() && stat.permissions().readonly() {
                true => Ok(()),
                false => lchown(path, Some(STRANGER), Some(STRANGER)),
            }
        }
        give(&self.thing()).map_err(|error| error.to_string())
    }

    /// Adds lines to the configuration.
    pub(super) fn configure(&self, lines: &str) -> Made {
        let path = self.git_dir().join("config");
        let old = fs::read_to_string(&path).map_err(|error| error.to_string())?;
        self.write("config", format!("{old}{lines}\n"))
    }

    /// Returns a name of this format for a file that holds the list of refs.
    pub(super) fn list(&self) -> &'static str {
        match self.format.refs {
            RefFormat::Files => "packed-refs",
            RefFormat::Reftable => "reftable/tables.list",
        }
    }

    /// Returns the file of the newest table.
    pub(super) fn table(&self) -> String {
        let list = fs::read_to_string(self.git_dir().join("reftable/tables.list"));
        let list = list.expect("there are tables");
        format!("reftable/{}", list.lines().next_back().expect("a table"))
    }
}

/// Somebody who has no account.
const STRANGER: u32 = 12345;

/// Removes whatever has that name.
fn remove(path: &Path) {
    let Ok(stat) = fs::symlink_metadata(path) else {
        return;
    };
    let removed = match stat.is_dir() {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    };
    removed.expect("it can be removed");
}

/// Makes the world by Git.
fn make(world: &Path, format: Format, form: Form) {
    let home = world.join("home");
    for dir in ["notes", ".ssh"] {
        fs::create_dir_all(home.join(dir)).expect("a folder");
    }
    for file in [".bashrc", ".ssh/authorized_keys", "notes/one", "notes/two"] {
        fs::write(home.join(file), format!("# the user's {file}\n")).expect("a file");
    }
    let (work, other, thing) = (world.join("work"), world.join("other"), world.join(THING));
    repository(&work, format, Form::Work);
    fs::write(work.join("tracked"), "the user's work\n").expect("a file");
    repository(&other, format, Form::Bare);
    fs::create_dir_all(&thing).expect("a folder");
    repository(&thing, format, form);
    if form == Form::Work {
        let add = ["worktree", "add", "-q", "--relative-paths", "--detach"];
        let add = git(&thing).args(add);
        add.args(["--no-checkout", "side", "HEAD"]).run().ok();
        let bisect = ["update-ref", "refs/bisect/bad", "HEAD"];
        git(thing.join("side")).args(bisect).run().ok();
    }
}

/// Makes a repository that has something of everything.
fn repository(dir: &Path, format: Format, form: Form) {
    fs::create_dir_all(dir).expect("a folder");
    let ref_format = format!("--ref-format={}", format.refs.name());
    let object_format = format!("--object-format={}", format.objects.name());
    let init = git(dir).args(["init", "-q", &ref_format, &object_format]);
    let (init, git_dir) = match form {
        Form::Work => (init, dir.join(".git")),
        Form::Bare => (init.arg("--bare"), dir.to_owned()),
    };
    init.run().ok();
    let objects = Objects::standard(format.objects);
    objects.put_into(&git_dir.join("objects"));
    let settings = ["config", "core.logAllRefUpdates", "true"];
    git(dir).args(settings).run().ok();
    let (commits, tags) = (&objects.commits, &objects.tags);
    let update = |script: String| git(dir).args(["update-ref", "--stdin"]).stdin(script).run();
    update(format!(
        "create refs/heads/main {}\ncreate refs/heads/dir/deep {}\ncreate refs/tags/v1 {}\n\
         create refs/remotes/origin/main {}\n",
        commits[10], commits[11], tags[0].id, commits[12]
    ))
    .ok();
    git(dir).args(["pack-refs", "--all"]).run().ok();
    let update = |script: String| git(dir).args(["update-ref", "--stdin"]).stdin(script).run();
    update(format!(
        "update refs/heads/main {}\ncreate refs/heads/topic {}\n",
        commits[13], commits[14]
    ))
    .ok();
    for (name, to) in [
        ("refs/heads/sym", "refs/heads/main"),
        ("refs/remotes/origin/HEAD", "refs/remotes/origin/main"),
    ] {
        git(dir).args(["symbolic-ref", name, to]).run().ok();
    }
}
