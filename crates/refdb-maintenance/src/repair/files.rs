//! Repair of the `files` format: loose refs, packed-refs, reflogs.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use bstr::ByteSlice;
use refdb::internals::{PACKED_HEADER, Tree, bytes_to_path, is_space, parse_log_line, parse_loose};
use refdb::name::{FormatOptions, is_well_formed};
use refdb::objects::{ObjectKind, Peeled};
use refdb::system::FileKind;
use refdb::{Error, ObjectId, Result, Target};

use super::head::Entry;
use super::{NAMELESS, Plan, Step, content};
use crate::verify::{Damage, Repair, condition, is_of_one, no_file};

/// Refs with their values.
type Packed = BTreeMap<Vec<u8>, ObjectId>;

/// Refs with the values that are lost, and those that they get for them.
type Lost = BTreeMap<Vec<u8>, (Option<ObjectId>, Option<ObjectId>)>;

/// A good line of packed-refs: there may be millions, so that the digits of the id stay where they are.
struct Line<'l> {
    name: &'l [u8],
    hex: &'l [u8],
}

/// What becomes of a loose ref.
struct Loose {
    name: Vec<u8>,
    before: Option<Target>,
    after: Option<Target>,
    from_log: bool,
}

/// Returns whether a failure says that no path leads there.
fn is_nowhere(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidFilename, NotADirectory};
    matches!(error.kind(), InvalidFilename | NotADirectory)
}

impl Plan<'_> {
    /// Plans the repair of the files in `dir`; `main` says whether packed-refs is there.
    pub(super) fn files_of(
        &mut self,
        dir: &Path,
        prefix: &[u8],
        main: bool,
        found: &[Damage],
    ) -> Result<()> {
        let (packed_path, logs) = (dir.join("packed-refs"), dir.join("logs"));
        let inside: Vec<&Damage> = found
            .iter()
            .filter(|damage| damage.file.starts_with(dir))
            .filter(|damage| !main || !damage.file.starts_with(dir.join("worktrees")))
            .collect();
        let on = |damage: &&&Damage, repairs: &[Repair]| repairs.contains(&damage.repair);
        let log_files: BTreeSet<&Path> = inside
            .iter()
            .filter(|damage| on(damage, &[Repair::RewriteLog]))
            .map(|damage| damage.file.as_path())
            .collect();
        for path in log_files {
            self.log(dir, path)?;
        }
        let loose: BTreeSet<&Path> = inside
            .iter()
            .filter(|damage| on(damage, &[Repair::RewriteRef, Repair::FromReflog]))
            .map(|damage| damage.file.as_path())
            .filter(|file| *file != packed_path && !file.starts_with(&logs))
            .collect();
        let bad_packed = main
            && inside.iter().any(|damage| {
                let by_hand = damage.repair.is_for_others();
                damage.file == packed_path && !by_hand
            });
        let before = self.steps.len();
        let mut mended = Vec::new();
        for path in loose {
            mended.push(self.loose(dir, path)?);
        }
        // A packed ref comes to light where a loose one goes: it is mended before.
        let steps = self.steps.split_off(before);
        let gone = mended.iter().filter(|it| it.after.is_none());
        let goes: BTreeSet<Vec<u8>> = gone.map(|it| it.name.clone()).collect();
        let mut packed = Packed::new();
        if !goes.is_empty() {
            let content = self.content(&packed_path)?.unwrap_or_default();
            let lines = self.good_lines(&content);
            let of = |name: &Vec<u8>| Some((name.clone(), value_of(&lines, name)?));
            packed = goes.iter().filter_map(of).collect();
        }
        let mut is_bad = bad_packed;
        for (name, oid) in &packed {
            is_bad |= main && !self.may_hold(name, *oid)?;
        }
        if is_bad {
            packed = self.packed(dir, &packed_path, &goes)?;
        }
        self.steps.extend(steps);
        for ref_ in mended {
            let shown = ref_
                .after
                .or_else(|| packed.get(&ref_.name).copied().map(Target::Direct));
            let as_map = |value: Option<Target>| -> BTreeMap<Vec<u8>, Target> {
                value
                    .map(|value| (ref_.name.clone(), value))
                    .into_iter()
                    .collect()
            };
            let names: Vec<Vec<u8>> = ref_
                .from_log
                .then(|| ref_.name.clone())
                .into_iter()
                .collect();
            self.compare(prefix, &as_map(ref_.before), &as_map(shown), &names);
        }
        Ok(())
    }

    /// Plans a reflog of a directory without its bad lines; one behind zeros is taken.
    fn log(&mut self, dir: &Path, path: &Path) -> Result<()> {
        let stat = self.repository.system().lstat(path);
        if stat.is_ok_and(|stat| stat.kind == FileKind::Symlink) {
            self.note(
                path,
                "it is a link: a person has to see to what it leads to",
            );
            return Ok(());
        }
        if let Ok(name) = path.strip_prefix(dir.join("logs")) {
            self.guards.insert(path.to_owned(), dir.join(name));
        }
        let Some(old) = self.content(path)? else {
            let system = self.repository.system().as_ref();
            if no_file(system, path) == Some(FileKind::Other) {
                self.note_loss(path, "it was no file: no entry is left");
                self.replace(path, None, Vec::new());
            }
            return Ok(());
        };
        let format = self.repository.object_format();
        let (mut new, mut lost, mut zeros) = (Vec::new(), 0, false);
        for line in old.split_inclusive(|&byte| byte == b'\n') {
            let start = line.iter().position(|byte| *byte != 0);
            zeros |= start != Some(0);
            let text = line.get(start.unwrap_or(line.len())..).unwrap_or_default();
            let entry = text.strip_suffix(b"\n");
            if entry.is_some_and(|entry| parse_log_line(entry, format).is_some()) {
                new.extend_from_slice(text);
            } else if !text.is_empty() {
                lost += 1;
            }
        }
        if lost > 0 {
            self.note_loss(path, &format!("{lost} entries are lost"));
        }
        if zeros {
            let what =
                "the entries are lost that stood where zeros are now; nobody can say how many";
            self.note_loss(path, what);
        }
        self.replace(path, Some(old), new);
        Ok(())
    }

    fn replace(&mut self, path: &Path, old: Option<Vec<u8>>, new: Vec<u8>) {
        if old.as_ref() != Some(&new) {
            self.steps.push(Step::Replace {
                path: path.to_owned(),
                old,
                new,
            });
        }
    }

    /// Returns the values that a reflog gives, oldest first.
    fn logged(&self, dir: &Path, name: &[u8]) -> Result<Vec<ObjectId>> {
        let entries = self.log_entries(dir, name)?;
        Ok(entries.into_iter().map(|entry| entry.new).collect())
    }

    /// Returns what a reflog says, oldest entry first.
    fn log_entries(&self, dir: &Path, name: &[u8]) -> Result<Vec<Entry>> {
        let path = dir.join("logs").join(bytes_to_path(name));
        let content = match content(self.repository.system().as_ref(), &path) {
            Ok(content) => content.unwrap_or_default(),
            // Below a file, or where no path leads, there is no reflog. One that cannot be read is not taken for none:
            // what only it says would be lost.
            Err(error) if is_nowhere(&error) => return Ok(Vec::new()),
            Err(error) => return Err(Error::io("unable to read", &path, error)),
        };
        let format = self.repository.object_format();
        let lines = content.lines().filter_map(|line| {
            let start = line.iter().position(|byte| *byte != 0)?;
            parse_log_line(line.get(start..)?, format)
        });
        let entries = lines.map(|entry| Entry {
            new: entry.new,
            message: entry.message,
        });
        Ok(entries.collect())
    }

    /// Returns what the `HEAD` of a directory was, by its reflog.
    fn head(&mut self, dir: &Path) -> Result<Option<Target>> {
        let base = self.repository.refs_base();
        let packed = self.content(&base.join("packed-refs"))?;
        let packed = packed.unwrap_or_default();
        let packed = self.good_lines(&packed);
        let (repository, format) = (self.repository, self.repository.object_format());
        let value = |name: &[u8]| {
            let loose = repository.system().read(&base.join(bytes_to_path(name)));
            match loose.ok().and_then(|loose| parse_loose(&loose, format)) {
                Some(Target::Direct(oid)) => Some(oid),
                _ => value_of(&packed, name),
            }
        };
        let entries = self.log_entries(dir, b"HEAD")?;
        self.head_was(&entries, &value)
    }

    /// Returns the branch on which a `HEAD` was, by its reflog, of which only the beginning is left.
    fn head_before_cut(&mut self, dir: &Path, line: &[u8], left: &[u8]) -> Result<Option<Target>> {
        if line.ends_with(b"\n") {
            return Ok(None);
        }
        Ok(self.head(dir)?.filter(|found| match found {
            Target::Symbolic(to) => to.as_bytes().starts_with(left) && to.as_bytes() != left,
            Target::Direct(_) => false,
        }))
    }

    /// Returns the value that a damaged loose ref gets, and whether it is that of its reflog.
    fn mended(&mut self, dir: &Path, name: &[u8], line: &[u8]) -> Result<(Option<Target>, bool)> {
        let before = parse_loose(line, self.repository.object_format());
        let usable = match &before {
            Some(Target::Direct(oid)) => self.may_hold(name, *oid)?,
            Some(Target::Symbolic(to)) if name == b"HEAD" => {
                if let Some(found) = self.head_before_cut(dir, line, to.as_bytes())? {
                    self.note_head(&dir.join("HEAD"), Some(&found));
                    return Ok((Some(found), true));
                }
                to.as_name().is_well_formed() && may_lead_to(line, to.as_bytes())
            }
            Some(Target::Symbolic(to)) => to.as_name().is_well_formed(),
            None => false,
        };
        if usable {
            return Ok((before, false));
        }
        if name == b"HEAD" {
            let found = self.head(dir)?;
            self.note_head(&dir.join("HEAD"), found.as_ref());
            let is_found = found.is_some();
            return Ok((found, is_found));
        }
        // The reflog of a symref has the values of other refs, but hardly any branch is one.
        let is_symref = matches!(before, Some(Target::Symbolic(_)));
        if is_symref && !name.starts_with(b"refs/heads/") {
            return Ok((None, false));
        }
        let logged = self.newest(name, &self.logged(dir, name)?)?;
        Ok((logged.map(Target::Direct), logged.is_some()))
    }

    /// Plans a loose ref: its own value in Git's words, the last one of its reflog, or none.
    fn loose(&mut self, dir: &Path, path: &Path) -> Result<Loose> {
        let name = path.strip_prefix(dir).unwrap_or(path);
        let name = name.as_os_str().as_bytes().to_vec();
        let kind = match self.repository.system().lstat(path) {
            Ok(stat) => Some(stat.kind),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(Error::io("unable to read", path, error)),
        };
        let old = self.content(path)?;
        let line = old.as_deref().unwrap_or_default();
        let before = parse_loose(line, self.repository.object_format());
        let (after, from_log) = self.mended(dir, &name, line)?;
        match &after {
            Some(value) => {
                let content = match value {
                    Target::Direct(oid) => format!("{oid}\n").into_bytes(),
                    Target::Symbolic(name) => [b"ref: ", name.as_bytes(), b"\n"].concat(),
                };
                // A link or a pipe goes when the file gets its name.
                let is_other = kind != Some(FileKind::File);
                if is_other || old.as_ref() != Some(&content) {
                    let path = path.to_owned();
                    let new = content;
                    self.steps.push(Step::Replace { path, old, new });
                }
            }
            None if name == b"HEAD" => {}
            None => {
                let what = match before {
                    Some(Target::Symbolic(_)) => {
                        "the symref leads to no name of a ref: it is taken away"
                    }
                    _ => "the value is lost: no reflog has one that exists",
                };
                self.note(path, what);
                self.steps.push(Step::Remove(path.to_owned()));
            }
        }
        Ok(Loose {
            name,
            before,
            after,
            from_log,
        })
    }

    /// Returns whether a loose ref, whole or not, stands before a packed one. Git leaves empty directories where refs
    /// were.
    fn is_loose(&self, dir: &Path, name: &[u8]) -> bool {
        let stat = self
            .repository
            .system()
            .lstat(&dir.join(bytes_to_path(name)));
        stat.is_ok_and(|stat| stat.kind != FileKind::Directory)
    }

    /// Returns the good lines of packed-refs, sorted by their names: of those of one name the first counts.
    fn good_lines<'l>(&self, content: &'l [u8]) -> Vec<Line<'l>> {
        let lines = content.split_inclusive(|&byte| byte == b'\n');
        let mut lines: Vec<Line<'l>> = lines.filter_map(|line| self.ref_on(line)).collect();
        lines.sort_by_key(|line| line.name);
        lines
    }

    /// Returns the ref on a line of packed-refs, which ends with a line feed unless it was cut off. An editor may have
    /// put blanks around its two words, of which neither has one.
    fn ref_on<'l>(&self, line: &'l [u8]) -> Option<Line<'l>> {
        let line = line.strip_suffix(b"\n")?;
        let words = line.split(|byte| is_space(*byte));
        let mut words = words.filter(|word| !word.is_empty());
        let (hex, name) = (words.next()?, words.next()?);
        let oid = ObjectId::from_hex(hex).filter(|_| words.next().is_none())?;
        let is_ref = oid.format() == self.repository.object_format()
            && name.starts_with(b"refs/")
            && is_well_formed(name, FormatOptions::FULL);
        is_ref.then_some(Line { name, hex })
    }

    /// Returns how many lines of packed-refs ought to have a ref, and have none that can be read.
    fn count_bad_lines(&self, content: &[u8]) -> usize {
        let lines = content.split_inclusive(|&byte| byte == b'\n');
        let has_ref = |line: &&[u8]| !matches!(line.trim_ascii().first(), None | Some(b'#' | b'^'));
        let bad = lines.filter(|line| has_ref(line) && self.ref_on(line).is_none());
        bad.count()
    }

    /// Plans packed-refs: its good lines, sorted, with true peeled values; refs whose line is lost
    /// get the last value of their reflog. Loose refs go that `goes` names; returns what is packed of these.
    fn packed(&mut self, dir: &Path, path: &Path, goes: &BTreeSet<Vec<u8>>) -> Result<Packed> {
        let old = self.content(path)?;
        let is_hidden = |name: &[u8]| !goes.contains(name) && self.is_loose(dir, name);
        let lines = self.good_lines(old.as_deref().unwrap_or_default());
        let mut lost = Lost::new();
        let mut from_log = Vec::new();
        for lines in lines.chunk_by(|a, b| a.name == b.name) {
            let oids: Vec<ObjectId> = lines.iter().rev().filter_map(Line::oid).collect();
            let (Some(name), Some(first)) = (lines.first().map(|it| it.name), oids.last()) else {
                continue;
            };
            if self.may_hold(name, *first)? || is_hidden(name) {
                continue;
            }
            let mut found = self.newest(name, &self.logged(dir, name)?)?;
            from_log.extend(found.map(|_| name.to_vec()));
            if found.is_none() {
                found = self.newest(name, &oids)?;
            }
            lost.insert(name.to_vec(), (Some(*first), found));
        }
        let nothing_left = match old.as_deref() {
            None => Some("it was no file"),
            Some(old) => condition(old),
        };
        let bad = self.count_bad_lines(old.as_deref().unwrap_or_default());
        // A reflog without a ref may be one whose line is lost; else it is no reason for a ref.
        let names = match bad > 0 || nothing_left.is_some() {
            true => self.logged_names(dir)?,
            false => Vec::new(),
        };
        for name in names {
            let has_value = match lost.get(&name) {
                Some((_, found)) => found.is_some(),
                None => value_of(&lines, &name).is_some(),
            };
            if has_value || is_hidden(&name) {
                continue;
            }
            let values = self.logged(dir, &name)?;
            if values.last().is_none_or(ObjectId::is_null) {
                continue;
            }
            if let Some(found) = self.newest(&name, &values)? {
                lost.entry(name.clone()).or_insert((None, None)).1 = Some(found);
                from_log.push(name);
            }
        }
        let new = self.packed_content(&lines, &lost)?;
        let packed = |name: &Vec<u8>| {
            let kept = lost
                .get(name)
                .map_or_else(|| value_of(&lines, name), |it| it.1);
            Some((name.clone(), kept?))
        };
        let packed = goes.iter().filter_map(packed).collect();
        // What a loose ref hid was not to be read.
        let changed = lost.iter().filter(|(name, _)| !goes.contains(*name));
        let (mut before, mut after) = (BTreeMap::new(), BTreeMap::new());
        for (name, (old, new)) in changed {
            before.extend(old.map(|oid| (name.clone(), Target::Direct(oid))));
            after.extend(new.map(|oid| (name.clone(), Target::Direct(oid))));
        }
        self.compare(b"", &before, &after, &from_log);
        match nothing_left {
            Some(what) => self.note_loss(path, &format!("{what}: its content {NAMELESS}")),
            None if bad > 0 => self.note_loss(path, &format!("{bad} lines {NAMELESS}")),
            None => {}
        }
        self.replace(path, old, new);
        Ok(packed)
    }

    /// Returns the refs that have a reflog.
    fn logged_names(&self, dir: &Path) -> Result<Vec<Vec<u8>>> {
        let (system, logs) = (self.repository.system().as_ref(), dir.join("logs/refs"));
        let mut names = Vec::new();
        for leaf in Tree::new(system, &logs, b"refs/") {
            let leaf = match leaf {
                // That is told.
                Err((_, error)) if is_of_one(&error) => continue,
                leaf => leaf.map_err(|(dir, error)| Error::io("unable to read", &dir, error))?,
            };
            if is_well_formed(&leaf.name, FormatOptions::FULL) {
                names.push(leaf.name);
            }
        }
        Ok(names)
    }

    /// Returns the content of packed-refs with these lines, and what has another value or none now.
    fn packed_content(&self, lines: &[Line<'_>], lost: &Lost) -> Result<Vec<u8>> {
        let mut new = self.packed_header();
        let mut others = lost.iter().peekable();
        for line in lines.chunk_by(|a, b| a.name == b.name) {
            let Some(line) = line.first() else { continue };
            while let Some((name, (_, found))) = others.next_if(|it| it.0.as_slice() < line.name) {
                self.add_packed(&mut new, name, *found)?;
            }
            let value = match others.next_if(|it| it.0.as_slice() == line.name) {
                Some((_, (_, found))) => *found,
                None => line.oid(),
            };
            self.add_packed(&mut new, line.name, value)?;
        }
        for (name, (_, found)) in others {
            self.add_packed(&mut new, name, *found)?;
        }
        Ok(new)
    }

    fn packed_header(&self) -> Vec<u8> {
        // Nobody may take a tag that cannot be looked at for one that was peeled.
        let traits = match self.may_be_elsewhere {
            true => "sorted \n",
            false => "peeled fully-peeled sorted \n",
        };
        [PACKED_HEADER, traits.as_bytes()].concat()
    }

    /// Adds the lines of a ref to the content of packed-refs, if it has a value.
    fn add_packed(&self, content: &mut Vec<u8>, name: &[u8], oid: Option<ObjectId>) -> Result<()> {
        let Some(oid) = oid else {
            return Ok(());
        };
        content.extend_from_slice(format!("{oid} ").as_bytes());
        content.extend_from_slice(name);
        content.push(b'\n');
        if self.kind(oid)? == Some(ObjectKind::Tag)
            && let Peeled::To(peeled) = self.objects().peel(oid)?
        {
            content.extend_from_slice(format!("^{peeled}\n").as_bytes());
        }
        Ok(())
    }
}

impl Line<'_> {
    fn oid(&self) -> Option<ObjectId> {
        ObjectId::from_hex(self.hex)
    }
}

/// Returns the value that sorted lines give a ref.
fn value_of(lines: &[Line<'_>], name: &[u8]) -> Option<ObjectId> {
    let at = lines.partition_point(|line| line.name < name);
    lines.get(at).filter(|line| line.name == name)?.oid()
}

/// Returns whether `HEAD` with this content can lead to a ref. Without its end the name may be the beginning of
/// another one, and is that of a branch or none.
fn may_lead_to(head: &[u8], name: &[u8]) -> bool {
    name.starts_with(match head.ends_with(b"\n") {
        true => b"refs/",
        false => b"refs/heads/",
    })
}
