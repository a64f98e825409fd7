//! Forged recovery data: what refdb would have to finish if a process of it had left that.
//!
//! 1. Everything is told in steps at places; a [`Dialect`] makes text of it, so that another form of
//!    the journal is one more dialect, and every kind is there in each.
//! 2. Whoever forges knows all that is to be known: the machine, the boot, the number of a process
//!    that is gone.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Seek, Write as _};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use refdb::system::{GUARDED_MODE, Machine, OsSystem, System};

use super::{Made, Scene};

/// In which form a journal is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// Journal 2: steps on paths, each guarded by a link that says who holds it.
    Paths,
    /// Journal 3: steps on places, in the file whose names are the locks.
    Places,
}

impl Dialect {
    /// All that refdb reads or has read.
    pub(super) const ALL: &[Dialect] = &[Dialect::Paths, Dialect::Places];
    /// What refdb writes today.
    pub(super) const NEWEST: Dialect = Dialect::Places;

    pub(super) fn name(self) -> &'static str {
        match self {
            Dialect::Paths => "journal 2",
            Dialect::Places => "journal 5",
        }
    }
}

/// Who is said to have left something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signer {
    /// A process of this machine that has ended.
    Dead,
    /// Nobody that can be made out.
    Nobody,
    /// A process of another machine.
    Elsewhere,
}

/// One step, at a place as it is to be written.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Rename(String, String),
    Remove(String),
    Append(String, u64, String),
    /// So many zeros come behind so many bytes: a hole in the journal, and its last step.
    Hole(String, u32),
    /// What comes is known by the checksum of so many zeros.
    Zeros(String, u32),
}

/// A forged journal.
#[derive(Clone, Debug)]
pub(super) struct Journal {
    pub(super) dialect: Dialect,
    pub(super) signer: Signer,
    /// The lock that guards all steps, and the text it has.
    pub(super) lock: (String, String),
    pub(super) steps: Vec<Step>,
}

impl Journal {
    /// A journal with these steps, whose lock is brought along.
    pub(super) fn new(dialect: Dialect, signer: Signer, steps: Vec<Step>) -> Journal {
        Journal {
            dialect,
            signer,
            lock: (LOCK.to_owned(), owner(signer, "refdb")),
            steps,
        }
    }

    /// Puts it in place, with the locks that it needs.
    pub(super) fn put(&self, scene: &Scene, name: &str) -> Made {
        let (lock, text) = &self.lock;
        match self.dialect {
            Dialect::Paths => {
                if lock == LOCK {
                    scene.link(lock, text)?;
                }
                scene.link(&format!("{name}.lock"), owner(self.signer, "refdb"))?;
                scene.write(name, self.paths())
            }
            Dialect::Places => {
                // It says which file it is, and that is known only when there is one.
                scene.write(name, "")?;
                let path = scene.git_dir().join(name);
                let text = self.places(scene, &path)?;
                self.fill(&path, text).map_err(|error| error.to_string())?;
                guard(&path)?;
                if lock != LOCK {
                    return Ok(());
                }
                fs::hard_link(&path, scene.place(lock)).map_err(|error| error.to_string())
            }
        }
    }

    /// Cuts a journal that was put in place short by so many bytes.
    pub(super) fn cut(scene: &Scene, name: &str, bytes: u64) -> Made {
        let file = fs::File::options()
            .write(true)
            .open(scene.git_dir().join(name));
        let cut = |file: fs::File| {
            let len = file.metadata()?.len();
            file.set_len(len.saturating_sub(bytes))
        };
        file.and_then(cut).map_err(|error| error.to_string())
    }

    fn places(&self, scene: &Scene, path: &Path) -> Result<String, String> {
        let stat = |path: &Path| fs::metadata(path).map_err(|error| error.to_string());
        let (dir, own) = (stat(&scene.git_dir())?, stat(path)?);
        let far = u64::from(self.signer == Signer::Elsewhere);
        let mut text = signed(self.signer, "transaction");
        let (guard, name) = place(self.lock.0.trim_end_matches(".lock"));
        let _ = write!(
            text,
            "journal 5\n{} {}\nlock\0{guard}\0{name}\0",
            dir.ino() + far,
            own.ino() + far
        );
        for step in &self.steps {
            let _ = match step {
                Step::Rename(_, to) => {
                    let (word, name) = place(to);
                    write!(text, "put\x000\0{word}\0{name}\0\x000\0")
                }
                Step::Remove(path) => {
                    let (word, name) = place(path);
                    write!(text, "remove\x000\0{word}\0{name}\0\x000\0")
                }
                Step::Append(path, at, lines) => {
                    let ((word, name), len) = (place(path), lines.len());
                    write!(text, "append\x000\0{word}\0{name}\0{at}\0{len}\0{lines}")
                }
                Step::Hole(path, len) => {
                    let (word, name) = place(path);
                    write!(text, "append\x000\0{word}\0{name}\00\0{len}\0")
                }
                Step::Zeros(path, len) => {
                    let ((word, name), sum) = (place(path), zeros_behind(checksum(b""), *len));
                    write!(text, "put\x000\0{word}\0{name}\0{sum}\00\0")
                }
            };
        }
        Ok(text)
    }

    /// Writes steps, and behind them that this is all.
    fn fill(&self, path: &Path, steps: String) -> io::Result<()> {
        let hole = match self.steps.last() {
            Some(&Step::Hole(_, len)) => len,
            _ => 0,
        };
        let mut file = fs::File::create(path)?;
        let sum = zeros_behind(checksum(steps.as_bytes()), hole);
        file.write_all(steps.as_bytes())?;
        file.seek(io::SeekFrom::Current(hole.into()))?;
        file.write_all(format!("end\0{sum:016x}\0").as_bytes())
    }

    fn paths(&self) -> Vec<u8> {
        let mut text = String::from("refdb journal 2\n");
        let own = owner(self.signer, "refdb");
        let (lock, lock_text) = &self.lock;
        let _ = write!(text, "{own}\0owner\0{lock_text}\0lock\0{lock}\0");
        for step in &self.steps {
            let _ = match step {
                Step::Rename(from, to) => write!(text, "rename\x000\0{from}\0{to}\0\0"),
                Step::Remove(path) => write!(text, "remove\x000\0{path}\0"),
                Step::Append(path, at, lines) => {
                    write!(text, "append\x000\0{path}\0{at}\0{}\0{lines}", lines.len())
                }
                Step::Hole(..) | Step::Zeros(..) => unreachable!("this dialect has none"),
            };
        }
        let sum = checksum(text.as_bytes());
        let _ = write!(text, "end\0{sum:016x}\0");
        text.into_bytes()
    }
}

/// The lock that most forged journals bring along.
pub(super) const LOCK: &str = "refs/heads/forged.lock";

/// Returns the text of a lock, which says who holds it and what for.
pub(super) fn owner(signer: Signer, mark: &str) -> String {
    if signer == Signer::Nobody {
        return "nobody in particular".to_owned();
    }
    let me = OsSystem::new().machine();
    // When the process started, and in which namespace, are two numbers here.
    let digits = me.boot.chars().filter(char::is_ascii_hexdigit);
    let boot: String = digits.take(12).collect();
    let host = match signer {
        Signer::Elsewhere => "another.example.org",
        _ => &me.host,
    };
    format!(
        "{mark} {GONE} 2a {:x} {boot} 00c0ffee {host}",
        0xf000_0000_u32
    )
}

/// Returns the word and the name by which a journal names what has that path.
fn place(path: &str) -> (&'static str, &str) {
    match path {
        "packed-refs" => ("packed-refs", ""),
        "reftable/tables.list" => ("list", ""),
        path => match path.strip_prefix("logs/") {
            Some(name) => ("log", name),
            None => ("ref", path),
        },
    }
}

/// Returns how a lock begins that is a file.
pub(super) fn signed(signer: Signer, purpose: &str) -> String {
    let Machine { host, boot } = OsSystem::new().machine();
    match signer {
        Signer::Dead => format!(
            "refdb lock 5\n{purpose} 00c0ffee00c0ffee\nprocess {GONE}\nhost {host}\nboot {boot}\n\n"
        ),
        Signer::Elsewhere => format!(
            "refdb lock 5\n{purpose} 00c0ffee00c0ffee\nprocess 1\nhost another.example.org\nboot \n\n"
        ),
        Signer::Nobody => "refdb lock 5\nnobody in particular\n\n".to_owned(),
    }
}

/// Marks a file as one that its process has for itself, as locks are.
pub(super) fn guard(path: &Path) -> Made {
    let mode = fs::Permissions::from_mode(0o600 | GUARDED_MODE);
    fs::set_permissions(path, mode).map_err(|error| error.to_string())
}

/// Returns what a migration says of the repository that it was made for.
pub(super) fn made_for(scene: &Scene) -> Result<String, String> {
    let ino = |path: &Path| {
        let stat = fs::metadata(path);
        stat.map(|stat| stat.ino())
            .map_err(|error| error.to_string())
    };
    let common = scene.git_dir();
    let (dir, own) = (ino(&common)?, ino(&common.join("refdb-migration"))?);
    Ok(format!("refdb migration\n{dir} {own}\n"))
}

/// A number that no process has: more than the kernel gives.
const GONE: u32 = 4_194_999;

/// Returns the text that a migration writes about itself.
pub(super) fn migration(from: &str, to: &str, keep: bool) -> String {
    let keep = if keep { "yes" } else { "no" };
    format!("from {from}\nto {to}\nkeep {keep}\n")
}

/// What keeps writers out of a directory while refs are migrated.
pub(super) const BARRIER: &str = "refdb-frozen--the-refs-are-being-migrated";

/// FNV-1a.
fn checksum(content: &[u8]) -> u64 {
    content.iter().fold(0xcbf2_9ce4_8422_2325, |sum, &byte| {
        (sum ^ u64::from(byte)).wrapping_mul(FNV_PRIME)
    })
}

const FNV_PRIME: u64 = 0x0100_0000_01b3;

/// Returns the checksum of what has the checksum `sum` and of zeros behind it.
fn zeros_behind(sum: u64, len: u32) -> u64 {
    sum.wrapping_mul(FNV_PRIME.wrapping_pow(len))
}
