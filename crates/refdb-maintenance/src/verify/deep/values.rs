//! What refs point at: objects, peeled values, other refs, and names that get in each other's way.

use std::collections::{HashMap, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use bstr::{BString, ByteSlice};
use refdb::name::{FormatOptions, SYMREF_DEPTH_MAX, is_per_worktree, is_root_ref, is_well_formed};
use refdb::objects::{ObjectKind, Peeled};
use refdb::{Error, ErrorKind, ObjectId, RefNameBuf, Result};
use refdb_git::objects::Absent;

use super::{Advice, AllSeen, Damage, Deep, MessageId, Repair, Seen, Severity, Source, Value};
use crate::progress::Progress;

/// How far it is, is told after so many objects.
const CHECKED_STEP: usize = 256;

/// Of so many objects it is remembered what they are: many refs may name one, and hardly ever far from each other.
pub(crate) const KINDS_MAX: usize = 1 << 18;

impl Deep<'_> {
    /// Checks everything that needs all refs at once.
    pub(super) fn values(&mut self) -> Result<()> {
        let seen = std::mem::take(&mut self.seen);
        let mut kinds: HashMap<ObjectId, Option<ObjectKind>> = HashMap::new();
        // A loose ref hides the packed one of its name, whose object may be gone by right.
        let loose: HashSet<&[u8]> = seen
            .iter()
            .filter(|seen| matches!(seen.source, Source::Loose) && seen.dir == 0)
            .map(|seen| seen.name)
            .collect();
        let is_hidden =
            |seen: &Seen<'_>| matches!(seen.source, Source::Packed(_)) && loose.contains(seen.name);
        let total = u64::try_from(seen.len()).ok();
        for (at, seen) in seen.iter().enumerate() {
            if at % CHECKED_STEP == 0 {
                (self.progress)(Progress {
                    what: "Checking objects",
                    count: u64::try_from(at).unwrap_or(u64::MAX),
                    total,
                });
            }
            if is_hidden(&seen) {
                continue;
            }
            if let Value::Oid { oid, peeled } = seen.value {
                self.object(&seen, oid, peeled, &mut kinds)?;
            }
        }
        self.perhaps_there();
        self.symrefs(&seen);
        self.conflicts(&seen);
        Ok(())
    }

    fn absent(&mut self) -> Result<&Absent> {
        let absent = match self.absent.take() {
            Some(absent) => absent,
            None => self.repository.odb().absent()?,
        };
        Ok(self.absent.insert(absent))
    }

    /// Reports what objects may be in that are missing: it may come back, and they with it.
    fn perhaps_there(&mut self) {
        let (Some(absent), [first, more @ ..]) = (&self.absent, &self.perhaps_there[..]) else {
            return;
        };
        let refs = match more.len() {
            0 => format!("{first} names an object that is missing"),
            count => format!("{first} and {count} other refs name objects that are missing"),
        };
        let folders = absent.folders.iter().map(|folder| {
            let (dir, list) = (&folder.dir, folder.list.as_ref());
            let what = format!(
                "'{}' is not there, and may have objects: {refs}",
                dir.display()
            );
            let named_in = list.map_or("GIT_ALTERNATE_OBJECT_DIRECTORIES".into(), |list| {
                format!("'{}'", list.display())
            });
            let words = format!("put it back, or take it out of {named_in} to give its objects up");
            (list.unwrap_or(dir).clone(), what, words)
        });
        let packs = absent.packs.iter().map(|pack| {
            let what = format!("the pack cannot be used, and may have objects: {refs}");
            let words = "index it with 'git index-pack', put back what belongs there, or move it away to give \
                         its objects up";
            (pack.clone(), what, words.to_owned())
        });
        let found: Vec<_> = folders.chain(packs).collect();
        for (file, what, words) in found {
            self.put_back(&file, what, words);
        }
    }

    fn object(
        &mut self,
        seen: &Seen<'_>,
        oid: ObjectId,
        peeled: Option<ObjectId>,
        kinds: &mut HashMap<ObjectId, Option<ObjectKind>>,
    ) -> Result<()> {
        if oid.is_null() {
            self.of_ref(seen, "the ref holds the null id", Repair::FromReflog);
            return Ok(());
        }
        let objects = self.repository.store().objects();
        let kind = match kinds.get(&oid) {
            Some(kind) => *kind,
            None => {
                let kind = match objects.kind(oid) {
                    Err(error) => return self.without_object(seen, error),
                    Ok(kind) => kind,
                };
                if kinds.len() >= KINDS_MAX {
                    kinds.clear();
                }
                kinds.insert(oid, kind);
                kind
            }
        };
        let needs_commit = seen.name.starts_with(b"refs/heads/") || seen.name == b"HEAD";
        match kind {
            None if self.absent()?.is_empty() => {
                let what = format!("the object {oid} is missing");
                self.of_ref(seen, &what, Repair::FromReflog);
                return Ok(());
            }
            None => {
                let name = self.full_name(seen);
                self.perhaps_there.push(name);
                return Ok(());
            }
            Some(kind) if needs_commit && kind != ObjectKind::Commit => {
                let kind = kind.as_str();
                let what = format!("the object {oid} is a {kind}, where a commit belongs");
                self.of_ref(seen, &what, Repair::FromReflog);
            }
            Some(_) => {}
        }
        let Some(stated) = peeled else {
            return Ok(());
        };
        let peels = match kind {
            Some(ObjectKind::Tag) => objects.peel(oid),
            _ => Ok(Peeled::Itself),
        };
        let peels = match peels {
            Err(error) => return self.without_object(seen, error),
            Ok(peels) => peels,
        };
        if peels != Peeled::To(stated) {
            let repair = match seen.source {
                Source::Packed(_) => Repair::RewritePackedRefs,
                _ => Repair::RewriteRef,
            };
            let what = format!("the object {oid} does not peel to {stated}, as is said beside it");
            self.of_ref(seen, &what, repair);
        }
        Ok(())
    }

    /// Reports that nobody can say what an object is: the other refs are checked all the same. What keeps all objects from
    /// being read is said once.
    ///
    /// # Errors
    /// The failure itself, if it says nothing of objects.
    fn without_object(&mut self, seen: &Seen<'_>, error: Error) -> Result<()> {
        if !matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Io) {
            return Err(error);
        }
        let what = error.to_string();
        if self.unread.as_ref() != Some(&what) {
            self.of_ref(seen, &what, Repair::ByHand);
            self.unread = Some(what);
        }
        Ok(())
    }

    /// Reports damage to a ref at the place where it stands.
    fn of_ref(&mut self, seen: &Seen<'_>, what: &str, repair: Repair) {
        self.of_ref_with(Severity::Error, seen, what, repair, None);
    }

    /// Reports damage to a ref that a person has to mend, and says how that can be done.
    fn by_hand(&mut self, seen: &Seen<'_>, what: &str, advice: Advice) {
        self.of_ref_with(Severity::Error, seen, what, Repair::ByHand, Some(advice));
    }

    fn of_ref_with(
        &mut self,
        severity: Severity,
        seen: &Seen<'_>,
        what: &str,
        repair: Repair,
        advice: Option<Advice>,
    ) {
        let (file, offset) = self.place(seen);
        self.tell(&Damage {
            severity,
            file,
            offset,
            name: Some(BString::from(seen.name)),
            what: format!("{}: {what}", seen.name.as_bstr()),
            repair,
            advice,
        });
    }

    /// Returns the name by which a ref is known in every worktree.
    fn full_name(&self, seen: &Seen<'_>) -> BString {
        let dir = self.dir(seen.dir);
        let id = dir.file_name().filter(|_| seen.dir > 0);
        match id {
            Some(id) => [b"worktrees/", id.as_bytes(), b"/", seen.name]
                .concat()
                .into(),
            None => seen.name.into(),
        }
    }

    fn place(&self, seen: &Seen<'_>) -> (PathBuf, Option<u64>) {
        let dir = self.dir(seen.dir);
        match seen.source {
            Source::Loose => (
                dir.join(refdb::internals::bytes_to_path(seen.name)),
                Some(0),
            ),
            Source::Packed(at) => (dir.join("packed-refs"), Some(at)),
            Source::Table => self.place_in_stack(&dir, seen.name),
        }
    }

    /// Follows every symref, and reports what is no name and what ends in a circle.
    fn symrefs(&mut self, seen: &AllSeen) {
        let mut targets: HashMap<(usize, &[u8]), &[u8]> = HashMap::new();
        for seen in seen.iter() {
            if let Value::Symref(target) = seen.value {
                targets.insert((seen.dir, seen.name), target);
            }
        }
        for start in seen.iter() {
            let Value::Symref(first) = start.value else {
                continue;
            };
            // In the other format the file HEAD was looked at before.
            let is_head = start.name == b"HEAD" && matches!(start.source, Source::Table);
            if is_head && !first.starts_with(b"refs/") {
                let what = format!("HEAD leads to '{}', no branch", first.as_bstr());
                self.of_ref(&start, &what, Repair::FromReflog);
                continue;
            }
            let leads_astray = first.starts_with(b"refs/") && !first.starts_with(b"refs/heads/");
            if start.name == b"HEAD" && leads_astray {
                let what = format!("HEAD leads to '{}', no branch", first.as_bstr());
                self.of_ref(&start, &what, Repair::ByHand);
                continue;
            }
            if !is_root_ref(first) && !is_well_formed(first, FormatOptions::ONE_LEVEL) {
                let what = format!(
                    "the symref points to '{}', no name of a ref",
                    first.as_bstr()
                );
                let repair = match start.source {
                    Source::Table => Repair::RebuildTable,
                    Source::Loose | Source::Packed(_) => Repair::RewriteRef,
                };
                self.of_ref(&start, &what, repair);
                continue;
            }
            self.outside(&start, first);
            let mut name = first;
            let mut depth = 1;
            loop {
                let own = if is_per_worktree(name) { start.dir } else { 0 };
                match targets.get(&(own, name)) {
                    Some(next) if depth < SYMREF_DEPTH_MAX => name = next,
                    Some(_) => {
                        let what = "the symref leads in a circle, or further than anybody follows";
                        let name = self.full_name(&start);
                        self.by_hand(&start, what, Advice::PointElsewhere(name));
                        break;
                    }
                    None => break,
                }
                depth += 1;
            }
        }
    }

    /// Reports a symref that leads out of `refs/`, to what readers follow, and nobody lists.
    fn outside(&mut self, symref: &Seen<'_>, target: &[u8]) {
        let is_ref = is_root_ref(target)
            || target.starts_with(b"refs/")
            || target.starts_with(b"worktrees/");
        // Of HEAD it was told before.
        if is_ref || symref.name == b"HEAD" {
            return;
        }
        let Some(severity) = self.severities.of(MessageId::SymrefTargetIsNotARef) else {
            return;
        };
        let target = target.as_bstr();
        let what = format!("the symref points to '{target}', which is not below refs/");
        let advice = Advice::PointElsewhere(self.full_name(symref));
        self.of_ref_with(severity, symref, &what, Repair::ByHand, Some(advice));
    }

    /// Reports a link in the place of a ref: Git means to follow such symrefs no longer.
    pub(super) fn link(&mut self, index: usize, name: &[u8], target: Option<&RefNameBuf>) {
        let Some(severity) = self.severities.of(MessageId::SymlinkRef) else {
            return;
        };
        let seen = Seen {
            name,
            value: Value::Symref(b""),
            dir: index,
            source: Source::Loose,
        };
        let advice = target.map(|target| {
            let name = self.full_name(&seen);
            let words = format!("write it as a file, 'refdb symbolic-ref {name} {target}'");
            Advice::PutBack(words)
        });
        let what = "a symbolic link in the place of a ref, which Git calls deprecated";
        self.of_ref_with(severity, &seen, what, Repair::ByHand, advice);
    }

    /// Reports names that cannot both exist: `a` and `a/b`.
    fn conflicts(&mut self, seen: &AllSeen) {
        let mut order: Vec<usize> = (0..seen.len()).collect();
        order.sort_by_key(|at| seen.name(*at));
        let mut found = Vec::new();
        let mut before = (0, &b""[..]);
        // Where the parents of the name before end, and whether they are refs.
        let mut parents: Vec<(usize, bool)> = Vec::new();
        for at in &order {
            let (dir, name) = seen.name(*at);
            let mut both = name.iter().zip(before.1);
            let common = both.position(|(a, b)| a != b);
            let common = common.unwrap_or(name.len().min(before.1.len()));
            let common = if dir == before.0 { common } else { 0 };
            parents.retain(|(end, _)| *end < common);
            for end in name.find_iter(b"/").filter(|end| *end >= common) {
                let parent = (dir, name.get(..end).unwrap_or_default());
                let is_ref = order.binary_search_by_key(&parent, |at| seen.name(*at));
                parents.push((end, is_ref.is_ok()));
            }
            let refs = parents.iter().filter(|(_, is_ref)| *is_ref);
            found.extend(refs.map(|(end, _)| (*at, *end)));
            before = (dir, name);
        }
        found.sort_unstable();
        for (at, end) in found {
            let Some(child) = seen.get(at) else { continue };
            let parent = child.name.get(..end).unwrap_or_default();
            let what = format!("the ref cannot exist beside '{}'", parent.as_bstr());
            let child_name = self.full_name(&child);
            let prefix = child_name.len() - child.name.len();
            let parent = [&child_name[..prefix], parent].concat();
            let both = [child_name, parent.into()];
            self.by_hand(&child, &what, Advice::DeleteOneOf(both));
        }
    }
}
