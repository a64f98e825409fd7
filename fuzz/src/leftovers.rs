//! What a process leaves that dies (journals, locks, the folder of a migration), in the hands of
//! somebody who wants to do harm.
//!
//! The files are real ones, of processes that died at any of their operations, so that a target need
//! not know what is in them. Then they are changed: bytes of them, all of them, or into links. The
//! next processes end, and change nothing outside of the repository.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use refdb_maintenance::migrate::{Migration, finish_interrupted};
use refdb::objects::NoObjects;
use refdb_git::repository::{Environment, OpenOptions};
use refdb::store::Optimize;
use refdb_simulation::{Fault, SimSystem};
use refdb_testkit::ours;
use refdb::system::{FileKind, System};
use refdb::{Edit, LogOrder, ObjectFormat, RefFormat, Store};

use super::stores::{GIT_DIR, commit, empty, name, oid, open, refs, write};
use super::transactions::Input;

/// What died, and left something: of which kind, and where.
struct States {
    disks: Vec<(SimSystem, RefFormat)>,
    paths: Vec<PathBuf>,
}

static JOURNALS: LazyLock<States> = LazyLock::new(|| States::of("journal", transact));
static LOCKS: LazyLock<States> = LazyLock::new(|| States::of(".lock", transact));
static MIGRATIONS: LazyLock<States> = LazyLock::new(|| States::of("migration", migrate));

pub(crate) fn journal(bytes: &[u8]) {
    changed(&JOURNALS, bytes, false);
}

pub(crate) fn lock(bytes: &[u8]) {
    changed(&LOCKS, bytes, false);
}

pub(crate) fn migration(bytes: &[u8]) {
    changed(&MIGRATIONS, bytes, false);
}

/// Somebody does change something outside, so that this is seen to be noticed.
pub(crate) fn outside(bytes: &[u8]) {
    changed(&JOURNALS, bytes, !bytes.is_empty());
}

impl States {
    /// Lets a process die at each of its operations; keeps what has left a path with `word` in it.
    fn of(word: &str, work: fn(&SimSystem, RefFormat) -> refdb::Result<()>) -> States {
        let (mut disks, mut paths) = (Vec::new(), BTreeSet::new());
        for format in [RefFormat::Files, RefFormat::Reftable] {
            let before = repository(format);
            for at in 0.. {
                let disk = before.fork();
                let process = disk.process(2000);
                process.set_fault(Some(Fault::dies_at(at)));
                let done = work(&process, format);
                process.end();
                let all = tree(&disk, Path::new(GIT_DIR), None);
                let is_left = |path: &&PathBuf| path.to_string_lossy().contains(word);
                let left: Vec<_> = all.into_keys().filter(|path| is_left(&path)).collect();
                if !left.is_empty() {
                    paths.extend(left);
                    disks.push((disk, format));
                }
                if done.is_ok() && process.op_count() < at {
                    break;
                }
            }
        }
        assert!(
            !disks.is_empty(),
            "nothing with '{word}' in its name is ever left"
        );
        let paths = paths.into_iter().collect();
        States { disks, paths }
    }
}

/// Makes a repository, and what is around it.
fn repository(format: RefFormat) -> SimSystem {
    let system = empty(format);
    for dir in ["/home/u/.ssh", "/repo/sub", "/etc", "/repo/.git/objects"] {
        system
            .create_dir_all(dir.as_ref())
            .expect("a new directory");
    }
    for path in [
        "/home/u/.bashrc",
        "/home/u/.ssh/id",
        "/repo/sub/file",
        "/etc/passwd",
    ] {
        write(&system, path, b"precious\n");
    }
    let storage = match format {
        RefFormat::Files => "",
        RefFormat::Reftable => {
            "[core]\nrepositoryformatversion=1\n[extensions]\nrefstorage=reftable\n"
        }
    };
    write(&system, "config", storage.as_bytes());
    write(&system, "HEAD", b"ref: refs/heads/main\n");
    let store = open(&system, format);
    for (number, text) in ["refs/heads/main", "refs/heads/old", "refs/tags/t"]
        .iter()
        .enumerate()
    {
        let edit = Edit::update(name(text), oid(number as u64 + 1));
        commit(&store, edit).expect("no fault");
    }
    store.optimize(&Optimize::default()).expect("no fault");
    system.sync_all();
    system
}

/// Changes several refs at once, and packs them.
fn transact(system: &SimSystem, format: RefFormat) -> refdb::Result<()> {
    let store = open(system, format);
    let mut transaction = store.transaction();
    for text in ["refs/heads/main", "refs/heads/new", "refs/tags/u"] {
        transaction.add(Edit::update(name(text), oid(9)))?;
    }
    transaction.add(Edit::delete(name("refs/heads/old")))?;
    let _ = transaction.commit()?;
    store.optimize(&Optimize::default())
}

fn migrate(system: &SimSystem, format: RefFormat) -> refdb::Result<()> {
    let to = match format {
        RefFormat::Files => RefFormat::Reftable,
        RefFormat::Reftable => RefFormat::Files,
    };
    let options = ours::simulated(ObjectFormat::Sha1);
    let system = Arc::new(system.clone());
    let migration = Migration::new(system, GIT_DIR, format, Arc::new(NoObjects), options);
    migration.to(to).keep(true).run().map(drop)
}

/// Everything below a directory but for what is below another: kinds, modes, and contents.
fn tree(
    system: &SimSystem,
    dir: &Path,
    but: Option<&Path>,
) -> BTreeMap<PathBuf, (u32, FileKind, Vec<u8>)> {
    let (mut found, mut dirs) = (BTreeMap::new(), vec![dir.to_owned()]);
    while let Some(dir) = dirs.pop() {
        for entry in system.read_dir(&dir).expect("a directory") {
            let path = dir.join(String::from_utf8_lossy(&entry.name).as_ref());
            let content = match entry.kind {
                FileKind::File => system.read(&path).unwrap_or_default(),
                FileKind::Symlink => {
                    let text = system.read_link(&path).unwrap_or_default();
                    text.into_os_string().into_encoded_bytes()
                }
                _ => {
                    if but != Some(path.as_path()) {
                        dirs.push(path.clone());
                    }
                    Vec::new()
                }
            };
            let mode = system.lstat(&path).map_or(0, |stat| stat.mode);
            found.insert(path, (mode, entry.kind, content));
        }
    }
    found
}

/// Changes what was left, as the input says, and lets others work in the repository.
fn changed(states: &States, bytes: &[u8], spoil: bool) {
    let mut input = Input(bytes.get(..4096).unwrap_or(bytes));
    let which = usize::from(input.next()) << 8 | usize::from(input.next());
    let (disk, format) = &states.disks[which % states.disks.len()];
    let disk = disk.fork();
    for _ in 0..8 {
        if input.0.is_empty() {
            break;
        }
        let path = &states.paths[input.pick(states.paths.len())];
        change(&disk, path, &mut input);
    }
    let git_dir = Path::new(GIT_DIR);
    let before = tree(&disk, Path::new("/"), Some(git_dir));
    for pid in [3000, 3001] {
        let process = disk.process(pid);
        work(&process, *format);
        assert!(process.op_count() < 100_000, "it does not end");
    }
    if spoil {
        let mut file = disk
            .append("/home/u/.bashrc".as_ref())
            .expect("it is there");
        file.write_all(b"more\n").expect("no fault");
    }
    let mut after = tree(&disk, Path::new("/"), Some(git_dir));
    for (path, was) in &before {
        assert_eq!(
            after.remove(path).as_ref(),
            Some(was),
            "outside: {}",
            path.display()
        );
    }
    assert!(after.is_empty(), "new outside: {after:?}");
}

/// Where nobody may get from a repository.
const ELSEWHERE: [&[u8]; 8] = [
    b"/home/u/.bashrc",
    b"/home/u/.ssh",
    b"/home/u/new",
    b"/repo/sub",
    b"../sub/file",
    b"../../home/u/.bashrc",
    b"refs/../../sub/file",
    b"..",
];

/// Changes a file, under all of its names, or a link, or makes one.
fn change(disk: &SimSystem, path: &Path, input: &mut Input<'_>) {
    let text = disk.read_link(path).ok();
    let mut is_link = text.is_some();
    let old = match text {
        Some(text) => text.into_os_string().into_encoded_bytes(),
        None => disk.read(path).unwrap_or_default(),
    };
    let how = input.next();
    let mut new = match how % 5 {
        0 => {
            let at = usize::from(input.next()) << 8 | usize::from(input.next());
            let at = at.min(old.len());
            let end = (at + usize::from(input.next())).min(old.len());
            [&old[..at], input.take(), &old[end..]].concat()
        }
        // One word of it leads out of the repository, or what the input says.
        kind @ (1 | 2) => {
            let which = input.pick(words(&old).count().max(1));
            let word = match kind {
                1 => ELSEWHERE[input.pick(ELSEWHERE.len())],
                _ => input.take(),
            };
            let words = words(&old).enumerate();
            let words = words.map(|(at, old)| if at == which { word } else { old });
            words.collect::<Vec<_>>().concat()
        }
        kind => {
            is_link = kind == 3;
            input.take().to_vec()
        }
    };
    let others = other_names(disk, path);
    let old_ino = inode(disk, path);
    // What cannot be done is left: something else is in its place.
    let _ = remove(disk, path);
    if let Some(dir) = path.parent() {
        let _ = disk.create_dir_all(dir);
    }
    if is_link {
        let _ = disk.symlink(Path::new(OsStr::from_bytes(&new)), path);
    } else if let Ok(mut file) = disk.create_new(path, 0o666) {
        if how < 0xe0 {
            // It says which file it is, and what its checksum is.
            let (from, to) = (old_ino, inode(disk, path).to_string());
            let renamed = |word| match word == from.to_string().as_bytes() {
                true => to.as_bytes(),
                false => word,
            };
            new = words(&new).map(renamed).collect::<Vec<_>>().concat();
            put_sum_right(&old, &mut new);
        }
        let _ = file.write_all(&new);
    }
    if how < 0xf0 {
        for other in others {
            let _ = disk.remove_file(&other);
            let _ = disk.hard_link(path, &other);
        }
    }
}

/// Cuts a text into words and what is between them.
fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-".contains(byte);
    text.chunk_by(move |one, other| is_word(one) == is_word(other))
}

/// Returns the number of a file, or 0.
fn inode(disk: &SimSystem, path: &Path) -> u64 {
    disk.lstat(path).map_or(0, |stat| stat.ino)
}

/// Returns the other names of a file.
fn other_names(disk: &SimSystem, path: &Path) -> Vec<PathBuf> {
    let own = inode(disk, path);
    let mut names = tree(disk, Path::new(GIT_DIR), None);
    names.retain(|other, _| other != path && inode(disk, other) == own);
    names.into_keys().collect()
}

/// If the old content has a checksum in it (FNV-1a of all before some place, in hexadecimal), the new
/// one gets its own, at the same distance from its end.
fn put_sum_right(old: &[u8], new: &mut [u8]) {
    const DIGITS: usize = 16;
    let is_number = |word: &[u8]| word.iter().all(u8::is_ascii_hexdigit);
    let words = old.windows(DIGITS).enumerate();
    for (at, word) in words.filter(|(_, word)| is_number(word)) {
        let up_to = sums(old).position(|sum| format!("{sum:016x}").as_bytes() == word);
        let from_end = |place: usize| new.len().checked_sub(old.len() - place);
        if let Some(up_to) = up_to
            && let (Some(at), Some(up_to)) = (from_end(at), from_end(up_to))
        {
            let sum = sums(new).nth(up_to).expect("not behind its end");
            new[at..at + DIGITS].copy_from_slice(format!("{sum:016x}").as_bytes());
        }
    }
}

/// Returns the checksums of everything that the content begins with, from nothing on.
fn sums(content: &[u8]) -> impl Iterator<Item = u64> {
    let first = 0xcbf2_9ce4_8422_2325;
    let next = |sum: &mut u64, byte: &u8| {
        *sum = (*sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        Some(*sum)
    };
    [first].into_iter().chain(content.iter().scan(first, next))
}

/// Removes whatever is there.
fn remove(disk: &SimSystem, path: &Path) -> std::io::Result<()> {
    if disk.lstat(path)?.kind != FileKind::Directory {
        return disk.remove_file(path);
    }
    for entry in disk.read_dir(path)? {
        remove(
            disk,
            &path.join(String::from_utf8_lossy(&entry.name).as_ref()),
        )?;
    }
    disk.remove_dir(path)
}

/// Opens the repository, lists, changes and packs its refs, whatever comes of it.
fn work(process: &SimSystem, format: RefFormat) {
    let system = Arc::new(process.clone());
    let repository = OpenOptions::new()
        .system(system)
        .environment(Environment::from_pairs([("HOME", "/home/u")]))
        .current_dir(GIT_DIR)
        .open(GIT_DIR.as_ref());
    if let Ok(repository) = repository {
        let _ = refs(repository.store());
        let _ = finish_interrupted(&repository);
    }
    let store: Store = open(process, format);
    let _ = refs(&store);
    let _ = store.log(name("refs/heads/main"), LogOrder::NewestFirst);
    let _ = commit(&store, Edit::update(name("refs/heads/more"), oid(7)));
    let _ = commit(&store, Edit::delete(name("refs/heads/main")));
    let _ = store.optimize(&Optimize::default());
    let _ = refs(&store);
}
