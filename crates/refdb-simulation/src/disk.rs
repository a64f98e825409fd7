//! What a simulated disk holds: as processes see it, and as it would be after a power failure.
//!
//! Every file knows how much of it is durable, every directory the names that are, and between the
//! two stands the list of changes to names in the order in which they were made.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;

use super::inodes::Inodes;
use super::restless::Restless;
use refdb_system::{DirEntry, FileKind, Scan, Stat};

/// The number of an inode.
pub(super) type Ino = u64;

/// The inode of `/`.
pub(super) const ROOT: Ino = 1;

/// How many symbolic links a path is followed through, and how long a name may be, as in Linux.
const LINKS_MAX: usize = 40;
const NAME_MAX: usize = 255;

/// What one operation takes.
const TICK: Duration = Duration::from_micros(1);

#[derive(Clone, Debug)]
pub(super) struct Disk {
    /// Shared with the disks that were copied from this one, until they change.
    pub(super) inodes: Inodes,
    /// The changes to names that are not durable, the oldest first.
    pub(super) pending: Vec<NameChange>,
    pub(super) next_ino: Ino,
    /// The time since 1970, which can be set.
    pub(super) clock: Duration,
    /// The time since the disk was made.
    pub(super) passed: Duration,
    /// By how much the clock is set whenever somebody sleeps.
    pub(super) set_by: i64,
    pub(super) random: u64,
    pub(super) machine: Machine,
    /// Whether it says that something is durable without making it so.
    pub(super) lies: bool,
    /// Whether it has a call that makes everything durable.
    pub(super) syncs_at_once: bool,
    /// Whether other machines have the file system as well.
    pub(super) is_shared: bool,
    /// Whether no file can have a second name.
    pub(super) has_one_name: bool,
    /// The user whose processes run, who owns all files.
    pub(super) user: u32,
    /// The directories that are in the lower layer of an overlay.
    pub(super) lower: BTreeSet<Ino>,
    /// Whether its directories look as if they changed all the time.
    pub(super) restless: Option<Restless>,
}

/// What a machine knows beside its disk, until it loses power.
#[derive(Clone, Debug, Default)]
pub(super) struct Machine {
    /// How often it was booted.
    pub(super) boots: u64,
    /// The processes that run, with the tick at which each started.
    pub(super) running: BTreeMap<u32, u64>,
    /// The directories and files that processes have for themselves: which process, and when it
    /// started.
    pub(super) guarded: BTreeMap<Ino, (u32, u64)>,
    pub(super) ticks: u64,
}

impl Machine {
    /// Lets a process begin, in place of any that has its identifier.
    pub(super) fn start(&mut self, pid: u32) -> u64 {
        self.ticks += 1;
        self.running.insert(pid, self.ticks);
        self.ticks
    }

    /// Gives a directory or file to a process; returns whether no other one has it.
    pub(super) fn guard(&mut self, ino: Ino, process: (u32, u64)) -> bool {
        if self.is_taken(ino) {
            return false;
        }
        self.guarded.insert(ino, process);
        true
    }

    /// Returns whether a process that runs has a directory or file for itself.
    pub(super) fn is_taken(&self, ino: Ino) -> bool {
        let owner = self.guarded.get(&ino);
        owner.is_some_and(|(pid, started)| self.running.get(pid) == Some(started))
    }

    /// Gives free what a process has for itself.
    pub(super) fn unguard(&mut self, ino: Ino, process: (u32, u64)) {
        if self.guarded.get(&ino) == Some(&process) {
            self.guarded.remove(&ino);
        }
    }

    /// Ends all processes and starts anew.
    pub(super) fn boot(&mut self) {
        *self = Machine {
            boots: self.boots + 1,
            ..Machine::default()
        };
    }
}

#[derive(Clone, Debug)]
pub(super) struct Inode {
    pub(super) node: Node,
    pub(super) mode: u32,
    pub(super) mtime: Duration,
    pub(super) ctime: Duration,
    /// How many names it has.
    pub(super) nlink: u64,
}

#[derive(Clone, Debug)]
pub(super) enum Node {
    File {
        content: Arc<Vec<u8>>,
        /// How many bytes are durable; files only grow.
        durable_len: usize,
    },
    Directory {
        names: BTreeMap<Vec<u8>, Ino>,
        durable: BTreeMap<Vec<u8>, Ino>,
    },
    Symlink(Vec<u8>),
}

/// A change to the names in one directory or two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NameChange {
    pub(super) removed: Option<(Ino, Vec<u8>)>,
    pub(super) added: Vec<(Ino, Vec<u8>, Ino)>,
}

impl NameChange {
    fn concerns(&self, dir: Ino) -> bool {
        self.removed
            .as_ref()
            .is_some_and(|removed| removed.0 == dir)
            || self.added.iter().any(|added| added.0 == dir)
    }
}

/// Where a path leads: the directory, the last name in it, and what has that name.
pub(super) struct Found {
    pub(super) dir: Ino,
    pub(super) name: Vec<u8>,
    pub(super) ino: Option<Ino>,
}

impl Disk {
    pub(super) fn new(seed: u64) -> Self {
        let mut disk = Disk {
            inodes: Inodes::default(),
            pending: Vec::new(),
            next_ino: ROOT,
            clock: Duration::from_secs(1_700_000_000),
            passed: Duration::ZERO,
            set_by: 0,
            random: seed,
            machine: Machine::default(),
            lies: false,
            syncs_at_once: true,
            is_shared: false,
            has_one_name: false,
            user: 0,
            lower: BTreeSet::new(),
            restless: None,
        };
        disk.machine.boot();
        disk.new_inode(Node::empty_dir(), 0o755);
        disk
    }

    /// Lets the time of one operation pass.
    pub(super) fn tick(&mut self) {
        self.pass(TICK);
    }

    /// Lets time pass.
    pub(super) fn pass(&mut self, time: Duration) {
        self.clock += time;
        self.passed += time;
    }

    pub(super) fn set_clock(&mut self, seconds: i64) {
        let by = Duration::from_secs(seconds.unsigned_abs());
        self.clock = match seconds {
            ..0 => self.clock.saturating_sub(by),
            _ => self.clock + by,
        };
    }

    pub(super) fn new_inode(&mut self, node: Node, mode: u32) -> Ino {
        let ino = self.next_ino;
        self.next_ino += 1;
        let inode = Inode {
            node,
            mode,
            mtime: self.clock,
            ctime: self.clock,
            nlink: 0,
        };
        self.inodes.insert(ino, Arc::new(inode));
        ino
    }

    pub(super) fn inode(&self, ino: Ino) -> io::Result<&Inode> {
        let inode = self.inodes.get(ino).map(Arc::as_ref);
        inode.ok_or_else(|| Errno::STALE.into())
    }

    pub(super) fn inode_mut(&mut self, ino: Ino) -> io::Result<&mut Inode> {
        let inode = self.inodes.get_mut(ino).map(Arc::make_mut);
        inode.ok_or_else(|| Errno::STALE.into())
    }

    pub(super) fn names(&self, dir: Ino) -> io::Result<&BTreeMap<Vec<u8>, Ino>> {
        match &self.inode(dir)?.node {
            Node::Directory { names, .. } => Ok(names),
            _ => Err(Errno::NOTDIR.into()),
        }
    }

    /// Follows a path to its last name; `follow` says whether a link of that name is followed too.
    pub(super) fn find(&self, path: &Path, follow: bool) -> io::Result<Found> {
        self.find_from(ROOT, path, follow, &mut 0)
    }

    fn find_from(
        &self,
        start: Ino,
        path: &Path,
        follow: bool,
        links: &mut usize,
    ) -> io::Result<Found> {
        let mut dirs = vec![start];
        let mut found = Found {
            dir: start,
            name: b".".to_vec(),
            ino: Some(start),
        };
        let mut components = path.components().peekable();
        while let Some(component) = components.next() {
            let dir = dirs.last().copied().unwrap_or(ROOT);
            let last = components.peek().is_none();
            let name = match component {
                Component::Normal(name) => name.as_bytes(),
                Component::ParentDir => {
                    dirs.pop();
                    let ino = dirs.last().copied().unwrap_or(ROOT);
                    found = Found {
                        dir: ino,
                        name: b".".to_vec(),
                        ino: Some(ino),
                    };
                    continue;
                }
                Component::RootDir => {
                    dirs = vec![ROOT];
                    found = Found {
                        dir: ROOT,
                        name: b".".to_vec(),
                        ino: Some(ROOT),
                    };
                    continue;
                }
                Component::CurDir | Component::Prefix(_) => continue,
            };
            if name.len() > NAME_MAX {
                return Err(Errno::NAMETOOLONG.into());
            }
            let ino = self.names(dir)?.get(name).copied();
            found.dir = dir;
            found.name.clear();
            found.name.extend_from_slice(name);
            found.ino = ino;
            if let Some(ino) = ino
                && let Node::Symlink(text) = &self.inode(ino)?.node
                && (follow || !last)
            {
                *links += 1;
                if *links > LINKS_MAX {
                    return Err(Errno::LOOP.into());
                }
                let text = Path::new(std::ffi::OsStr::from_bytes(text));
                found = self.find_from(dir, text, true, links)?;
            }
            if !last {
                dirs.push(found.ino.ok_or(Errno::NOENT)?);
            }
        }
        Ok(found)
    }

    /// Follows a path to something that exists.
    pub(super) fn existing(&self, path: &Path, follow: bool) -> io::Result<Ino> {
        Ok(self.find(path, follow)?.ino.ok_or(Errno::NOENT)?)
    }

    /// Follows a path to a name that is still free.
    pub(super) fn free(&self, path: &Path) -> io::Result<Found> {
        let found = self.find(path, false)?;
        match found.ino {
            Some(_) => Err(Errno::EXIST.into()),
            None => Ok(found),
        }
    }

    /// Gives an inode a name, takes one away, or both at once.
    pub(super) fn change_names(&mut self, change: NameChange) -> io::Result<()> {
        let clock = self.clock;
        if let Some((dir, name)) = &change.removed {
            let inode = self.inode_mut(*dir)?;
            inode.mtime = clock;
            if let Some(unnamed) = inode.names_mut()?.remove(name) {
                self.inode_mut(unnamed)?.nlink -= 1;
            }
        }
        for (dir, name, ino) in &change.added {
            let inode = self.inode_mut(*dir)?;
            inode.mtime = clock;
            if let Some(unnamed) = inode.names_mut()?.insert(name.clone(), *ino) {
                self.inode_mut(unnamed)?.nlink -= 1;
            }
            let inode = self.inode_mut(*ino)?;
            inode.ctime = clock;
            inode.nlink += 1;
        }
        self.pending.push(change);
        Ok(())
    }

    /// Makes the names in a directory durable.
    pub(super) fn sync_names(&mut self, dir: Ino) -> io::Result<()> {
        self.names(dir)?;
        let (done, left) = std::mem::take(&mut self.pending)
            .into_iter()
            .partition(|change| change.concerns(dir));
        self.pending = left;
        self.make_durable(done);
        Ok(())
    }

    /// Makes all content and all names durable.
    pub(super) fn sync_all(&mut self) {
        let pending = std::mem::take(&mut self.pending);
        self.make_durable(pending);
        for inode in self.inodes.values_mut().map(Arc::make_mut) {
            if let Node::File {
                content,
                durable_len,
            } = &mut inode.node
            {
                *durable_len = content.len();
            }
        }
    }

    /// Puts all directories that are there into the lower layer of an overlay.
    pub(super) fn lower_directories(&mut self) {
        let inodes = self.inodes.iter();
        let directories = inodes.filter(|(_, inode)| inode.node.kind() == FileKind::Directory);
        self.lower = directories.map(|(ino, _)| ino).collect();
    }

    /// Applies changes to what would be there after a power failure.
    pub(super) fn make_durable(&mut self, changes: Vec<NameChange>) {
        for change in changes {
            if let Some((dir, name)) = change.removed
                && let Some(durable) = self.durable_mut(dir)
            {
                durable.remove(&name);
            }
            for (dir, name, ino) in change.added {
                if let Some(durable) = self.durable_mut(dir) {
                    durable.insert(name, ino);
                }
            }
        }
    }

    fn durable_mut(&mut self, dir: Ino) -> Option<&mut BTreeMap<Vec<u8>, Ino>> {
        match &mut self.inode_mut(dir).ok()?.node {
            Node::Directory { durable, .. } => Some(durable),
            _ => None,
        }
    }

    pub(super) fn stat(&self, ino: Ino) -> io::Result<Stat> {
        let inode = self.inode(ino)?;
        let nanoseconds = |time: Duration| i128::try_from(time.as_nanos()).unwrap_or(i128::MAX);
        let len = match &inode.node {
            Node::File { content, .. } => content.len(),
            Node::Directory { names, .. } => names.len(),
            Node::Symlink(text) => text.len(),
        };
        Ok(Stat {
            kind: inode.node.kind(),
            len: len as u64,
            dev: 1,
            ino,
            mtime_ns: nanoseconds(inode.mtime),
            ctime_ns: nanoseconds(inode.ctime),
            uid: 0,
            gid: 0,
            mode: inode.mode,
            nlink: inode.nlink,
        })
    }

    /// Reads a directory once.
    pub(super) fn scan(&mut self, dir: Ino) -> io::Result<Scan> {
        let entries = self.list(dir)?;
        Ok(match &mut self.restless {
            Some(restless) => restless.scan(dir, entries),
            None => Scan {
                entries,
                quiet: true,
                changed: false,
            },
        })
    }

    fn list(&self, dir: Ino) -> io::Result<Vec<DirEntry>> {
        self.names(dir)?
            .iter()
            .map(|(name, ino)| {
                Ok(DirEntry {
                    name: name.clone(),
                    kind: self.inode(*ino)?.node.kind(),
                })
            })
            .collect()
    }

    pub(super) fn content(&self, ino: Ino) -> io::Result<&Arc<Vec<u8>>> {
        match &self.inode(ino)?.node {
            Node::File { content, .. } => Ok(content),
            Node::Directory { .. } => Err(Errno::ISDIR.into()),
            Node::Symlink(_) => Err(Errno::LOOP.into()),
        }
    }

    /// Adds bytes to the end of a file.
    pub(super) fn append(&mut self, ino: Ino, bytes: &[u8]) -> io::Result<()> {
        let clock = self.clock;
        let inode = self.inode_mut(ino)?;
        inode.mtime = clock;
        inode.ctime = clock;
        if let Node::File { content, .. } = &mut inode.node {
            Arc::make_mut(content).extend_from_slice(bytes);
        }
        Ok(())
    }

    /// Makes the content of a file durable.
    pub(super) fn sync_content(&mut self, ino: Ino) -> io::Result<()> {
        if let Node::File {
            content,
            durable_len,
        } = &mut self.inode_mut(ino)?.node
        {
            *durable_len = content.len();
        }
        Ok(())
    }

    /// Hashes the tree of names with what they name.
    pub(super) fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash_tree(ROOT, &mut hasher);
        hasher.finish()
    }

    fn hash_tree(&self, ino: Ino, hasher: &mut DefaultHasher) {
        let Some(inode) = self.inodes.get(ino) else {
            return;
        };
        inode.mode.hash(hasher);
        match &inode.node {
            Node::File { content, .. } => content.hash(hasher),
            Node::Symlink(text) => text.hash(hasher),
            Node::Directory { names, .. } => {
                names.len().hash(hasher);
                for (name, &ino) in names {
                    name.hash(hasher);
                    self.hash_tree(ino, hasher);
                }
            }
        }
    }

    /// Returns the next random number (SplitMix64).
    pub(super) fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

impl Inode {
    fn names_mut(&mut self) -> io::Result<&mut BTreeMap<Vec<u8>, Ino>> {
        match &mut self.node {
            Node::Directory { names, .. } => Ok(names),
            _ => Err(Errno::NOTDIR.into()),
        }
    }
}

impl Node {
    pub(super) fn empty_dir() -> Self {
        Node::Directory {
            names: BTreeMap::new(),
            durable: BTreeMap::new(),
        }
    }

    pub(super) fn file(content: &[u8]) -> Self {
        Node::File {
            content: Arc::new(content.to_vec()),
            durable_len: content.len(),
        }
    }

    pub(super) fn empty_file() -> Self {
        Node::File {
            content: Arc::default(),
            durable_len: 0,
        }
    }

    pub(super) fn kind(&self) -> FileKind {
        match self {
            Node::File { .. } => FileKind::File,
            Node::Directory { .. } => FileKind::Directory,
            Node::Symlink(_) => FileKind::Symlink,
        }
    }
}
