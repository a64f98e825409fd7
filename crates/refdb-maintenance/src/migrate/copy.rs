//! Copying one store after the other.

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use refdb::error::Remedy;
use refdb::internals::{Bulk, BulkOptions, LogMark, Mark, NewValue, each_ref, maintained};
use refdb::objects::{Objects, Peeled};
use refdb::{
    Error, ErrorKind, ObjectId, RefFormat, RefName, RefNameBuf, RefRecord, Result, Store, TargetRef,
};

use super::changes::note_loose;
use super::names::Names;
use super::place::Place;
use super::{LostLines, Migration, Problem, Report, misuse, strays};
use crate::progress::Progress;

/// Up to so many bytes of refs every object is looked up of which it is not known whether it is a
/// tag; of larger stores only those below `refs/tags/`.
const PEEL_ALL_MAX: u64 = 1 << 20;

/// How many entries may be added to the longest reflog while it is read.
const ENTRIES_SPARE: u64 = 16;

/// How many problems an error names.
const PROBLEMS_SHOWN: usize = 100;

/// How many refs are named that are left behind.
const UNLISTED_SHOWN: usize = 20;

/// After so many refs or reflogs progress is told.
const PROGRESS_STEP: u64 = 4096;

/// Copies of all stores.
pub(super) struct Copied {
    pub(super) places: Vec<CopiedPlace>,
    pub(super) problems: Vec<Problem>,
    pub(super) refs: u64,
    pub(super) logs: u64,
    /// Lines of the reflogs that are no entries.
    pub(super) lost_lines: Vec<LostLines>,
    /// Whether others were seen to write meanwhile.
    pub(super) is_live: bool,
}

/// A store and its copy.
pub(super) struct CopiedPlace {
    pub(super) place: Place,
    pub(super) source: Store,
    pub(super) copy: Store,
    /// The copy's directory.
    dir: PathBuf,
    /// The reflogs as they were when they were copied.
    pub(super) marks: Vec<LogMark>,
    /// The source as it was when its refs were copied.
    pub(super) mark: Mark,
    /// The refs that were seen each in its own file at any time: whichever of them is gone now may be in the copy.
    pub(super) loose: BTreeSet<RefNameBuf>,
    /// The refs that are left behind.
    pub(super) left: HashSet<Vec<u8>>,
    /// The reflogs that are left behind for their names.
    left_logs: HashSet<Vec<u8>>,
}

impl Copied {
    pub(super) fn report(&self) -> Report {
        Report {
            refs: self.refs,
            logs: self.logs,
            skipped: self.problems.clone(),
            lost_lines: self.lost_lines.clone(),
            ..Report::default()
        }
    }

    /// Returns whether anything of the old stores is not in the copies.
    pub(super) fn leaves_behind(&self, migration: &Migration<'_>) -> Result<bool> {
        let (system, logs) = (migration.followed.as_ref(), migration.logs);
        let mut leaves = !self.problems.is_empty() || !self.lost_lines.is_empty();
        for one in &self.places {
            leaves = leaves || strays::has_any(system, one, logs)?;
        }
        Ok(leaves)
    }

    /// Tells of refs that no listing shows, which are left behind, as by Git.
    pub(super) fn unlisted(&self) -> Result<Option<String>> {
        let mut names = Vec::new();
        for one in &self.places {
            let found = maintained(&one.source).unlisted(UNLISTED_SHOWN)?;
            let prefix = &one.place.prefix;
            names.extend(
                found
                    .iter()
                    .map(|name| format!("{prefix}{}", name.as_name())),
            );
        }
        let more = if names.len() >= UNLISTED_SHOWN {
            ", and perhaps more"
        } else {
            ""
        };
        let names_shown = names.join(", ");
        let message = format!(
            "refs outside of refs/ that no listing shows are not migrated: {names_shown}{more}"
        );
        Ok((!names.is_empty()).then_some(message))
    }

    /// Finds out which lines of the old reflogs are no entries, and so have no place in the copies.
    pub(super) fn find_lost_lines(&mut self) -> Result<()> {
        self.lost_lines.clear();
        for one in &self.places {
            let lost = maintained(&one.source).lost_log_lines()?;
            let lost = lost.into_iter();
            let lost = lost.map(|(file, lines)| LostLines { file, lines });
            self.lost_lines.extend(lost);
        }
        Ok(())
    }

    /// Returns the directories of the copies.
    pub(super) fn stores(&self) -> Vec<PathBuf> {
        self.places
            .iter()
            .map(|copied| copied.dir.clone())
            .collect()
    }

    /// Fails if something cannot be migrated and shall not be left behind.
    pub(super) fn check(&self, skip: bool) -> Result<()> {
        if skip || self.problems.is_empty() {
            return Ok(());
        }
        let mut message = String::from("these refs cannot be migrated:");
        for Problem { name, why } in self.problems.iter().take(PROBLEMS_SHOWN) {
            message.push_str(&format!("\n  {name}: {why}"));
        }
        if let Some(more) = self.problems.len().checked_sub(PROBLEMS_SHOWN + 1) {
            message.push_str(&format!("\n  and {} more", more + 1));
        }
        message.push_str(
            "\nnothing was changed; mend or delete them, or leave them behind (--skip-broken)",
        );
        Err(misuse(message))
    }
}

impl Migration<'_> {
    /// Copies every store to its place below `folder`.
    pub(super) fn copy(&self, places: &[Place], folder: &Path, to: RefFormat) -> Result<Copied> {
        let context = self.context().synced_later();
        let mut copied = Copied {
            places: Vec::new(),
            problems: Vec::new(),
            refs: 0,
            logs: 0,
            lost_lines: Vec::new(),
            is_live: false,
        };
        let ignore_case = self.options.ignore_case || ignores_case(&context, folder)?;
        for place in places {
            let dir = folder.join(&place.below);
            if !place.is_common() {
                for dir in [dir.parent().unwrap_or(folder), &dir] {
                    match context.system.create_dir(dir) {
                        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                        made => made
                            .and_then(|()| {
                                let shared = self.options.shared_repository;
                                shared.adjust(context.system.as_ref(), dir)
                            })
                            .map_err(|error| Error::io("unable to create", dir, error))?,
                    }
                }
            }
            let source = context.source(&place.dir, self.from)?;
            let mut one = CopiedPlace {
                place: place.clone(),
                // Before anything is read: what changes later is seen to have changed.
                mark: maintained(&source).mark()?,
                source,
                copy: context.store(&dir, to)?,
                dir,
                marks: Vec::new(),
                loose: BTreeSet::new(),
                left: HashSet::new(),
                left_logs: HashSet::new(),
            };
            let names = || Names::new(to, ignore_case);
            self.copy_one(&mut one, names(), names(), &mut copied)?;
            copied.places.push(one);
        }
        copied.check(self.skip_broken)?;
        Ok(copied)
    }

    fn copy_one(
        &self,
        one: &mut CopiedPlace,
        ref_names: Names,
        log_names: Names,
        all: &mut Copied,
    ) -> Result<()> {
        if self.logs {
            one.marks = maintained(&one.source).log_marks()?;
            one.keep_good_logs(&mut all.problems)?;
            one.marks.sort_by(|low, high| low.name.cmp(&high.name));
        }
        let source = maintained(&one.source);
        let longest = one.marks.iter().map(|mark| mark.entries_max).max();
        let fully_peeled = source.is_fully_peeled()? || source.refs_len()? <= PEEL_ALL_MAX;
        let mut bulk = maintained(&one.copy).bulk(BulkOptions {
            entries_max: longest.unwrap_or(1).saturating_add(match longest {
                Some(_) => ENTRIES_SPARE,
                None => 0,
            }),
            fully_peeled,
            packed: one.place.is_common(),
        })?;
        self.copy_refs(one, bulk.as_mut(), ref_names, all)?;
        self.copy_logs(one, bulk.as_mut(), log_names, all)?;
        bulk.finish()
    }

    fn copy_refs(
        &self,
        one: &mut CopiedPlace,
        bulk: &mut dyn Bulk,
        mut names: Names,
        all: &mut Copied,
    ) -> Result<()> {
        let peeler = Peeler::of(&one.source)?;
        let mut refs = one.source.refs()?;
        each_ref(&mut refs, &mut |record| {
            let name = record.name.as_bytes();
            if !one.place.keeps(name) {
                return Ok(true);
            }
            // One of both is gone if somebody renamed it meanwhile. What it is now is caught up with.
            if let Some(above) = names.above(name).and_then(|above| RefName::new(above).ok())
                && (one.source.read(record.name)?.is_none() || one.source.read(above)?.is_none())
            {
                return Ok(true);
            }
            note_loose(&one.mark, &mut one.loose, &record);
            let why = broken(&record).or_else(|| names.add(name));
            let added = match why {
                Some(why) => Err(why),
                None => match peeler.add_to(bulk, &record) {
                    Err(error) if error.kind() == ErrorKind::Misuse => Err(error.to_string()),
                    added => Ok(added?),
                },
            };
            match added {
                Ok(()) => all.refs += 1,
                Err(why) => {
                    one.left.insert(name.to_vec());
                    let why = with_file(&one.source, record.name, false, why, &all.problems)?;
                    all.problems.push(Problem {
                        name: format!("{}{}", one.place.prefix, record.name),
                        why,
                    });
                }
            }
            if all.refs.is_multiple_of(PROGRESS_STEP) {
                self.options.interrupt.check()?;
                (self.progress)(Progress {
                    what: "Migrating refs",
                    count: all.refs,
                    total: None,
                });
            }
            Ok(true)
        })?;
        Ok(())
    }

    fn copy_logs(
        &self,
        one: &mut CopiedPlace,
        bulk: &mut dyn Bulk,
        mut names: Names,
        all: &mut Copied,
    ) -> Result<()> {
        let order = bulk.log_order();
        let mut renamed = HashSet::new();
        for mark in &one.marks {
            self.options.interrupt.check()?;
            let name = mark.name.as_name();
            if let Some(above) = names
                .above(name.as_bytes())
                .and_then(|above| RefName::new(above).ok())
                && !(one.source.log_exists(name)? && one.source.log_exists(above)?)
            {
                renamed.insert(mark.name.clone());
                continue;
            }
            let mut failed = names.add(name.as_bytes());
            if failed.is_none() {
                let added = bulk.begin_log(name).and_then(|()| {
                    let source = &one.source;
                    source.for_each_log_entry(name, order, |entry| {
                        bulk.add_entry(&entry)?;
                        Ok(true)
                    })
                });
                match added {
                    Err(error) if error.kind() == ErrorKind::Misuse => {
                        failed = Some(error.to_string());
                    }
                    added => {
                        added?;
                        all.logs += 1;
                    }
                }
            }
            if let Some(why) = failed {
                all.problems.push(Problem {
                    name: format!("reflog of {}{name}", one.place.prefix),
                    why,
                });
            }
            if all.logs.is_multiple_of(PROGRESS_STEP) {
                (self.progress)(Progress {
                    what: "Migrating reflogs",
                    count: all.logs,
                    total: None,
                });
            }
        }
        // They are new when it is looked at what changed.
        one.marks.retain(|mark| !renamed.contains(&mark.name));
        Ok(())
    }
}

impl CopiedPlace {
    /// Leaves out the reflogs that are kept elsewhere, and those of a bad name, which are problems.
    pub(super) fn keep_good_logs(&mut self, problems: &mut Vec<Problem>) -> Result<()> {
        let place = &self.place;
        self.marks.retain(|mark| place.keeps(mark.name.as_bytes()));
        let is_bad = |mark: &LogMark| !mark.name.as_name().is_well_formed();
        for mark in self.marks.iter().filter(|mark| is_bad(mark)) {
            if self.left_logs.insert(mark.name.as_bytes().to_vec()) {
                let (log, why) = (mark.name.as_name(), BAD_NAME.to_owned());
                let why = with_file(&self.source, log, true, why, problems)?;
                let name = format!("reflog of {}{log}", self.place.prefix);
                problems.push(Problem { name, why });
            }
        }
        self.marks.retain(|mark| !is_bad(mark));
        Ok(())
    }
}

/// Adds to what is wrong with a name in which file it stands, if the name does not tell.
fn with_file(
    source: &Store,
    name: RefName<'_>,
    is_log: bool,
    why: String,
    problems: &[Problem],
) -> Result<String> {
    // Nobody is shown more of them.
    if problems.len() >= PROBLEMS_SHOWN {
        return Ok(why);
    }
    let file = maintained(source).file_of(name, is_log)?;
    Ok(match file {
        Some(file) => format!("{why} (in {})", file.display()),
        None => why,
    })
}

const BAD_NAME: &str = "the name is not well-formed";

/// Returns what is wrong with a ref, if it is broken.
pub(super) fn broken(record: &RefRecord<'_>) -> Option<String> {
    match (record.has_bad_name(), record.broken, &record.target) {
        (true, ..) => Some(BAD_NAME.to_owned()),
        (false, true, _) => Some("the ref is broken".to_owned()),
        (false, false, TargetRef::Symbolic(target)) if !target.is_well_formed() => {
            Some(format!("the symref points to '{target}', no name of a ref"))
        }
        // Of files alone this would be no repository, and Git would look for one around it.
        (false, false, TargetRef::Symbolic(target))
            if record.name.is_head() && !target.as_bytes().starts_with(b"refs/") =>
        {
            Some(format!(
                "HEAD points to '{target}', which is not below refs/"
            ))
        }
        _ => None,
    }
}

/// Returns whether the file system takes names that differ only in case for one.
fn ignores_case(context: &super::Context, folder: &Path) -> Result<bool> {
    let probe = folder.join("refdb-case");
    context.write(&probe, b"")?;
    let found = context.system.lstat(&folder.join("REFDB-CASE")).is_ok();
    super::folder::remove_if_there(context.system.as_ref(), &probe)?;
    Ok(found)
}

/// Finds out what values peel to, as far as the source does not say.
struct Peeler<'s> {
    objects: &'s dyn Objects,
    packed_are_known: bool,
    all: bool,
}

impl<'s> Peeler<'s> {
    fn of(source: &'s Store) -> Result<Peeler<'s>> {
        let store = maintained(source);
        Ok(Peeler {
            objects: source.objects().as_ref(),
            packed_are_known: store.is_fully_peeled()?,
            all: store.refs_len()? <= PEEL_ALL_MAX,
        })
    }

    fn add_to(&self, bulk: &mut dyn Bulk, record: &RefRecord<'_>) -> Result<()> {
        let oid = match &record.target {
            TargetRef::Symbolic(target) => {
                return bulk.add_ref(record.name, NewValue::Symbolic(*target));
            }
            TargetRef::Direct(oid) => oid,
        };
        let found = match record.peeled {
            None if self.is_asked_for(record) => self.peel(*oid)?,
            _ => None,
        };
        let peeled = record.peeled.as_ref().or(found.as_ref());
        bulk.add_ref(record.name, NewValue::Direct { oid, peeled })
    }

    fn is_asked_for(&self, record: &RefRecord<'_>) -> bool {
        let name = record.name.as_bytes();
        if record.packed && self.packed_are_known {
            return false;
        }
        // Branches are commits. What worktrees have for themselves is stored without peeled values.
        name.starts_with(b"refs/tags/")
            || self.all && name.starts_with(b"refs/") && !name.starts_with(b"refs/heads/")
    }

    fn peel(&self, oid: ObjectId) -> Result<Option<ObjectId>> {
        let peeled = match self.objects.peel(oid) {
            // Nobody can say what it leads to, before the circle is ended or after it: it is no value to be stored.
            Err(error) if error.message().remedy() == Some(Remedy::EndReplacement) => {
                Peeled::Nowhere
            }
            peeled => peeled?,
        };
        Ok(match peeled {
            Peeled::To(peeled) => Some(peeled),
            Peeled::Itself | Peeled::Nowhere | Peeled::Missing => None,
        })
    }
}
