//! Repositories to measure in: made from nothing, without Git, and copied for each measurement.
//!
//! 1. The objects stand in one pack, as after a clone; copies share it by hard links, since no
//!    measured program changes a pack.
//! 2. Every repository is bare, so that no reflogs are written unless they are asked for.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use flate2::write::ZlibEncoder;
use flate2::{Compression, Crc};
use refdb::{ObjectFormat, ObjectId, RefFormat};

/// Commits in the pack.
const COMMITS: usize = 600;
/// Annotated tags in the pack.
const TAGS: usize = 2_000;
/// The name of a pack that is being written.
const UNFINISHED: &str = "tmp_pack";
/// The time of the first commit, in seconds since 1970.
const TIME: usize = 1_700_000_000;
/// The seconds from one commit to the next.
const STEP: usize = 60;

/// Makes an empty repository.
///
/// # Errors
/// When a file cannot be written.
pub(crate) fn create(
    dir: &Path,
    format: RefFormat,
    objects: ObjectFormat,
    alternate: Option<&Path>,
) -> io::Result<()> {
    for folder in ["objects/info", "objects/pack", "refs"] {
        fs::create_dir_all(dir.join(folder))?;
    }
    let mut config = format!(
        "[core]\n\trepositoryformatversion = 1\n\tfilemode = true\n\tbare = true\n\
         [extensions]\n\tobjectformat = {}\n",
        objects.name()
    );
    match format {
        RefFormat::Files => {
            fs::create_dir(dir.join("refs/heads"))?;
            fs::write(dir.join("HEAD"), "ref: refs/heads/main\n")?;
        }
        RefFormat::Reftable => {
            fs::create_dir(dir.join("reftable"))?;
            fs::write(dir.join("reftable/tables.list"), "\n")?;
            // Both stand there so that programs without reftable see a repository, and no refs.
            fs::write(dir.join("refs/heads"), "this repository uses reftable\n")?;
            fs::write(dir.join("HEAD"), "ref: refs/heads/.invalid\n")?;
            config.push_str("\trefstorage = reftable\n");
        }
    }
    fs::write(dir.join("config"), config)?;
    if let Some(objects) = alternate {
        let mut line = objects.as_os_str().as_bytes().to_vec();
        line.push(b'\n');
        fs::write(dir.join("objects/info/alternates"), line)?;
    }
    Ok(())
}

/// Writes the pack of commits and annotated tags, and returns their ids.
///
/// # Errors
/// When a file cannot be written.
pub(crate) fn write_pack(dir: &Path) -> io::Result<(Vec<ObjectId>, Vec<ObjectId>)> {
    let mut pack = Pack::new(&dir.join("objects/pack"), 1 + COMMITS + TAGS)?;
    let commits = pack.add_commits(COMMITS)?;
    let mut tags = Vec::with_capacity(TAGS);
    for (at, commit) in commits.iter().cycle().take(TAGS).enumerate() {
        tags.push(pack.add_tag(*commit, at)?);
    }
    pack.store()?;
    Ok((commits, tags))
}

/// Writes a pack with an object for each of so many refs, and returns the ids: each commit has the one before it for
/// its parent, and what stands at `first_tag` and after it is a tag of the commit of that number.
///
/// # Errors
/// When a file cannot be written.
pub(crate) fn write_own_pack(
    dir: &Path,
    refs: usize,
    first_tag: usize,
) -> io::Result<Vec<ObjectId>> {
    let objects = 1 + refs + (refs - first_tag);
    let mut pack = Pack::new(&dir.join("objects/pack"), objects)?;
    let mut own = pack.add_commits(refs)?;
    for (at, oid) in own.iter_mut().enumerate().skip(first_tag) {
        *oid = pack.add_tag(*oid, at)?;
    }
    pack.store()?;
    Ok(own)
}

/// A pack as it is written, with what its index will say. All ids are SHA-1.
struct Pack {
    folder: PathBuf,
    out: BufWriter<File>,
    hasher: gix_hash::Hasher,
    len: u64,
    /// Id, checksum of the entry, offset.
    entries: Vec<(ObjectId, u32, u32)>,
}

impl Pack {
    /// Begins a pack of so many objects in a folder.
    fn new(folder: &Path, objects: usize) -> io::Result<Self> {
        let mut pack = Pack {
            folder: folder.to_owned(),
            out: BufWriter::new(File::create(folder.join(UNFINISHED))?),
            hasher: gix_hash::hasher(gix_hash::Kind::Sha1),
            len: 0,
            entries: Vec::with_capacity(objects),
        };
        let count = u32::try_from(objects).map_err(io::Error::other)?;
        pack.write(b"PACK\0\0\0\x02")?;
        pack.write(&count.to_be_bytes())?;
        Ok(pack)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.hasher.update(bytes);
        self.len += bytes.len() as u64;
        self.out.write_all(bytes)
    }

    /// Adds so many commits, each the child of the one before, and their tree.
    fn add_commits(&mut self, count: usize) -> io::Result<Vec<ObjectId>> {
        let tree = self.add(gix_object::Kind::Tree, b"")?;
        let mut commits: Vec<ObjectId> = Vec::with_capacity(count);
        for at in 0..count {
            let parent = commits.last().map(|parent| format!("parent {parent}\n"));
            let time = TIME + at * STEP;
            let text = format!(
                "tree {tree}\n{}author A U Thor <author@example.com> {time} +0000\n\
                 committer A U Thor <author@example.com> {time} +0000\n\ncommit {at}\n",
                parent.unwrap_or_default()
            );
            commits.push(self.add(gix_object::Kind::Commit, text.as_bytes())?);
        }
        Ok(commits)
    }

    fn add_tag(&mut self, commit: ObjectId, at: usize) -> io::Result<ObjectId> {
        let text = format!(
            "object {commit}\ntype commit\ntag v{at}\n\
             tagger A U Thor <author@example.com> {} +0000\n\ntag {at}\n",
            TIME + at
        );
        self.add(gix_object::Kind::Tag, text.as_bytes())
    }

    fn add(&mut self, kind: gix_object::Kind, data: &[u8]) -> io::Result<ObjectId> {
        let number = match kind {
            gix_object::Kind::Commit => 1,
            gix_object::Kind::Tree => 2,
            gix_object::Kind::Blob => 3,
            gix_object::Kind::Tag => 4,
        };
        let mut entry = Vec::new();
        // The size: four bits beside the kind, then seven in each byte, the lowest first.
        let [low, ..] = data.len().to_le_bytes();
        let (mut byte, mut rest) = (number << 4 | low & 15, data.len() >> 4);
        while rest > 0 {
            entry.push(byte | 0x80);
            let [low, ..] = rest.to_le_bytes();
            (byte, rest) = (low & 0x7f, rest >> 7);
        }
        entry.push(byte);
        let mut deflate = ZlibEncoder::new(&mut entry, Compression::default());
        deflate.write_all(data)?;
        deflate.finish()?;
        let oid =
            gix_object::compute_hash(gix_hash::Kind::Sha1, kind, data).map_err(io::Error::other)?;
        let oid = ObjectId::from_bytes(oid.as_bytes()).expect("it has the length of a hash");
        let mut checksum = Crc::new();
        checksum.update(&entry);
        // What begins later stands in another table of an index.
        let offset = i32::try_from(self.len)
            .ok()
            .and_then(|offset| u32::try_from(offset).ok());
        let offset =
            offset.ok_or_else(|| io::Error::other("so many objects need more than 2 GiB"))?;
        self.write(&entry)?;
        self.entries.push((oid, checksum.sum(), offset));
        Ok(oid)
    }

    /// Finishes the pack, and writes its index (version 2).
    fn store(mut self) -> io::Result<()> {
        let trailer = self.hasher.try_finalize().map_err(io::Error::other)?;
        let trailer = trailer.as_bytes();
        self.out.write_all(trailer)?;
        self.out.flush()?;
        self.entries.sort_unstable();
        let mut index = b"\xfftOc\0\0\0\x02".to_vec();
        for first in 0..=u8::MAX {
            let upto = |(oid, ..): &(ObjectId, u32, u32)| {
                oid.as_bytes().first().is_some_and(|byte| *byte <= first)
            };
            let count = self.entries.partition_point(upto);
            let count = u32::try_from(count).map_err(io::Error::other)?;
            index.extend(count.to_be_bytes());
        }
        for (oid, ..) in &self.entries {
            index.extend(oid.as_bytes());
        }
        for (_, checksum, _) in &self.entries {
            index.extend(checksum.to_be_bytes());
        }
        for (.., offset) in &self.entries {
            index.extend(offset.to_be_bytes());
        }
        index.extend(trailer);
        let own = digest(&index)?;
        index.extend(&own);
        let name = ObjectId::from_bytes(trailer).expect("it has the length of a hash");
        let path = |ext| self.folder.join(format!("pack-{name}.{ext}"));
        fs::rename(self.folder.join(UNFINISHED), path("pack"))?;
        fs::write(path("idx"), &index)
    }
}

fn digest(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut hasher = gix_hash::hasher(gix_hash::Kind::Sha1);
    hasher.update(bytes);
    let digest = hasher.try_finalize().map_err(io::Error::other)?;
    Ok(digest.as_bytes().to_vec())
}

/// Copies a repository; packs are linked.
///
/// # Errors
/// When a file cannot be read or written.
pub(crate) fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else if from.ends_with("objects/pack") {
            fs::hard_link(entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}
