//! Moving all refs of a repository, those of its worktrees included, to the other format while other
//! processes go on using it.
//!
//! The steps, and what they promise, are in docs/design.md, 11:
//!
//! 1. The refs and reflogs are copied into a folder of their own, and what changes meanwhile is
//!    copied again. The hook is asked about the copy.
//! 2. All locks of the old format are taken, what changed since is carried over, and the new store is
//!    put beside the old one.
//! 3. The configuration is replaced: one rename, before which the repository is wholly in the old
//!    format and after which it is wholly in the new one.
//! 4. The old store is put away, still locked, and removed.
//!
//! ```no_run
//! use refdb::RefFormat;
//! use refdb_git::Repository;
//! use refdb_maintenance::migrate::Migration;
//!
//! let repository = Repository::discover(".".as_ref())?;
//! let report = Migration::of(&repository).to(RefFormat::Reftable).run()?;
//! println!("{} refs and {} reflogs", report.refs, report.logs);
//! # Ok::<(), refdb::Error>(())
//! ```

mod announce;
mod changes;
mod context;
mod copy;
mod finish;
mod folder;
mod links;
mod locked;
mod moving;
mod names;
mod others;
mod place;
mod recover;
mod strays;
mod switch;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use context::Context;
use copy::Copied;
use folder::Folder;
use locked::Locked;
use place::Place;
use refdb::error::Message;
use refdb::internals::{Frozen, may_write, set_still_there};
use refdb::objects::Objects;
use refdb::options::{Committer, Identity};
use refdb::system::System;
use refdb::{Error, ErrorKind, Options, RefFormat, Result};
use refdb_git::Repository;

use crate::progress::Watch;

/// A pass over what changed that takes longer than this is worth another one before writers are kept
/// out.
const LONG_PASS: Duration = Duration::from_millis(300);

/// How many passes over what changed are made before writers are kept out.
const PASSES_MAX: usize = 8;

/// What a migration came to.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// How many refs were copied.
    pub refs: u64,
    /// How many reflogs were copied.
    pub logs: u64,
    /// What was left behind, because it is broken or the new format cannot hold it: a name, and why.
    pub skipped: Vec<Problem>,
    /// What was left behind of reflogs, because it is damaged.
    pub lost_lines: Vec<LostLines>,
    /// Where the copy is, after a dry run, or the old refs are, when they are kept.
    pub folder: Option<PathBuf>,
    /// What went wrong after the migration was complete, or was found left over from another one.
    pub warnings: Vec<Message>,
}

/// Lines of a reflog that are no entries: no reader shows them, and the new format has no place for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostLines {
    /// The file of the old reflog.
    pub file: PathBuf,
    /// The numbers of lines that follow each other, from 1 on.
    pub lines: Range<u64>,
}

/// A ref or a reflog that cannot be migrated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Its full name, behind `worktrees/<id>/` if it is a linked worktree's own.
    pub name: String,
    /// Why.
    pub why: String,
}

/// A migration that is being put together.
///
/// ```no_run
/// use refdb::RefFormat;
/// use refdb_git::Repository;
/// use refdb_maintenance::migrate::Migration;
///
/// let repository = Repository::discover(".".as_ref())?;
/// let report = Migration::of(&repository).to(RefFormat::Reftable).dry_run(true).run()?;
/// println!("{report:?}");
/// # Ok::<(), refdb::Error>(())
/// ```
pub struct Migration<'a> {
    system: Arc<dyn System>,
    /// The system that follows links, once `system` does not do so any more.
    followed: Arc<dyn System>,
    objects: Arc<dyn Objects>,
    options: Options,
    common_dir: PathBuf,
    base: PathBuf,
    from: RefFormat,
    to: Option<RefFormat>,
    dry_run: bool,
    logs: bool,
    keep: bool,
    skip_broken: bool,
    progress: &'a Watch<'a>,
}

impl Migration<'static> {
    /// Begins a migration of a repository and its worktrees.
    pub fn of(repository: &Repository) -> Self {
        // Which objects are replaced is asked of the refs, which nobody finds where they were once they are switched. What
        // fails here is asked, and told, again.
        let _ = repository.odb().has_replacements();
        let migration = Migration::new(
            Arc::clone(repository.system()),
            repository.common_dir(),
            repository.ref_format(),
            Arc::clone(repository.odb()) as _,
            repository.store().options().clone(),
        );
        match repository.refs_dir() {
            Some(dir) => migration.refs_in(dir),
            None => migration,
        }
    }

    /// Begins a migration of the repository whose worktrees share `common_dir`.
    pub fn new(
        system: Arc<dyn System>,
        common_dir: impl Into<PathBuf>,
        from: RefFormat,
        objects: Arc<dyn Objects>,
        mut options: Options,
    ) -> Self {
        // Nothing that is written here is anybody's doing but that of the entries' own committers.
        options.committer = Committer::from(Identity::default());
        let common_dir = common_dir.into();
        // Both formats are read, whatever the configuration says.
        set_still_there(&mut options, None);
        Migration {
            followed: Arc::clone(&system),
            system,
            objects,
            options,
            base: common_dir.clone(),
            common_dir,
            from,
            to: None,
            dry_run: false,
            logs: true,
            keep: false,
            skip_broken: false,
            progress: &|_| {},
        }
    }
}

impl<'a> Migration<'a> {
    /// Says in which directory the refs are kept, if `extensions.refStorage` names one.
    pub fn refs_in(mut self, dir: impl Into<PathBuf>) -> Self {
        let dir = dir.into();
        let system = self.system.as_ref();
        let real = |dir: &Path| refdb_git::internals::real_path(system, dir).ok();
        // It may be another name of the repository itself.
        if real(&dir) != real(&self.common_dir) {
            self.base = dir;
        }
        self
    }

    /// Says which format the refs are to have.
    pub fn to(mut self, format: RefFormat) -> Self {
        self.to = Some(format);
        self
    }

    /// Only makes the copy, and leaves it for inspection ([`Report::folder`]).
    pub fn dry_run(mut self, dry_run: bool) -> Self {
        self.dry_run = dry_run;
        self
    }

    /// Says whether reflogs are migrated as well; without them they are dropped.
    pub fn logs(mut self, logs: bool) -> Self {
        self.logs = logs;
        self
    }

    /// Keeps the old refs in a folder ([`Report::folder`]), so that [`Migration::undo`] is possible.
    pub fn keep(mut self, keep: bool) -> Self {
        self.keep = keep;
        self
    }

    /// Leaves behind what is broken or cannot be held, instead of refusing to migrate.
    pub fn skip_broken(mut self, skip: bool) -> Self {
        self.skip_broken = skip;
        self
    }

    /// Calls `progress` now and then.
    pub fn progress<'b>(self, progress: &'b Watch<'b>) -> Migration<'b>
    where
        'a: 'b,
    {
        Migration { progress, ..self }
    }

    /// Migrates.
    ///
    /// # Errors
    /// `Misuse` when the refs have that format already, or there are refs that cannot be migrated,
    /// with their names; `Locked` when another process keeps a lock; `Config` when the configuration
    /// cannot be changed; `Hook` when the hook refuses; `Corrupt` or `Io` for the files. The
    /// repository is as it was, unless the message says that it is migrated.
    pub fn run(mut self) -> Result<Report> {
        let to = match self.to {
            Some(to) => to,
            None => return Err(misuse("no format is given".to_owned())),
        };
        if to == self.from {
            self.clean_up()?;
            return Err(misuse(format!(
                "repository already uses '{}' format",
                to.name()
            )));
        }
        may_write(&self.options)?;
        switch::check_place(&self.context())?;
        links::check(&self.context(), &self.places()?)?;
        // There are no links that have to be followed, and one that somebody puts in the place of a
        // folder from here on is an error.
        self.system = self.context().beneath()?;
        if self.dry_run {
            return self.copy_only(to);
        }
        self.migrate(to)
    }

    /// Cleans up after a migration that was interrupted, if there was one.
    fn clean_up(&self) -> Result<()> {
        let _ = clear_up(&self.context())?;
        Ok(())
    }

    /// Goes back to the format that the repository had before a migration that kept the old refs: a
    /// migration of what the refs are now, so that nothing that happened meanwhile is lost. What was
    /// kept is removed then, unless it has more: broken refs, lines or reflogs that were left behind.
    ///
    /// # Errors
    /// `Misuse` when nothing is kept; else as for [`Migration::run`].
    pub fn undo(mut self) -> Result<Report> {
        let kept = folder::kept(self.system.as_ref(), &self.base)?;
        match kept {
            Some(journal) if journal.to == self.from => self.to = Some(journal.from),
            _ => {
                return Err(misuse(
                    "there is nothing to undo: no refs of an earlier format are kept".to_owned(),
                ));
            }
        }
        self.run()
    }

    /// Copies everything into a folder that stays.
    fn copy_only(&self, to: RefFormat) -> Result<Report> {
        let folder = folder::new_dry_run(self.system.as_ref(), &self.base)?;
        let copied = self.places().and_then(|places| {
            let mut copied = self.copy(&places, &folder, to)?;
            announce::announce(self.options.hook.as_deref(), &copied, to)?;
            let context = self.context();
            let has_stubs = to == RefFormat::Reftable && !context.is_elsewhere();
            for place in places.iter().filter(|_| has_stubs) {
                switch::write_stubs(&context, &folder.join(&place.below))?;
            }
            copied.find_lost_lines()?;
            Ok(copied)
        });
        let copied = match copied {
            Ok(copied) => copied,
            Err(error) => {
                // A copy that is not whole is of no use; should it stay, it is in nobody's way.
                let _ = folder::remove_tree(self.system.as_ref(), &folder);
                return Err(error);
            }
        };
        Ok(Report {
            folder: Some(folder),
            ..copied.report()
        })
    }

    fn migrate(&self, to: RefFormat) -> Result<Report> {
        self.options.interrupt.check()?;
        let context = self.context().unstoppable();
        // What is in the way of what is kept is told before anything is done.
        let _ = folder::free_kept(self.system.as_ref(), &self.base)?;
        let before = clear_up(&context)?;
        let folder = Folder::open(&context)?;
        let strict = context.strict()?;
        // Another one may have died since.
        let found = match folder.was_empty {
            true => recover::Found::Nothing,
            false => recover::recover(&strict, &folder)?,
        };
        let found = match found {
            recover::Found::Nothing => before.unwrap_or(recover::Found::Nothing),
            found => found,
        };
        let places = self.places()?;
        // As long as they are open, no other directory gets their numbers.
        let open = |place: &Place| self.system.beneath(&place.dir).ok();
        let _opened: Vec<_> = places.iter().filter_map(open).collect();
        let done = self.copy_and_switch(&context, &folder, &places, to);
        // Whatever fails for want of a worktree is told as what it is.
        let check = || place::check(self.system.as_ref(), &self.base, &places);
        let done = done.or_else(|error| check().and(Err(error)));
        let mut report = match done {
            Ok(report) => report,
            // Whatever was begun is ended in one way or the other; if that fails as well, by the
            // next migration.
            Err(error) => match recover::recover(&strict, &folder) {
                Ok(recover::Found::Finished(more)) => Report {
                    warnings: std::iter::once(error.message().clone())
                        .chain(more)
                        .collect(),
                    ..Report::default()
                },
                Ok(_) => {
                    folder.remove();
                    return Err(error);
                }
                Err(_) => return Err(error),
            },
        };
        report.warnings.splice(..0, found.warnings());
        Ok(report)
    }

    fn copy_and_switch(
        &self,
        context: &Context,
        folder: &Folder,
        places: &[Place],
        to: RefFormat,
    ) -> Result<Report> {
        let signs = folder::signs_of_git(context)?;
        // What Git takes away looks damaged until it is known that Git does so.
        let for_git = |error| check_alone(context, &signs, false).err().unwrap_or(error);
        let config = switch::NewConfig::prepare(context, folder, self.from, to)?;
        let begun = self.system.elapsed();
        let stage = folder.stage();
        context.create_dir(&stage)?;
        let mut made = switch::Made::new(context, &stage)?;
        let mut copied = self.copy(places, &stage, to).map_err(for_git)?;
        made.add(context, &copied.stores())?;
        announce::announce(self.options.hook.as_deref(), &copied, to)?;
        let (mut pass_begun, mut before) = (begun, Duration::MAX);
        for _ in 0..PASSES_MAX {
            let now = self.system.elapsed();
            let took = now.saturating_sub(pass_begun);
            // What a look takes where nothing changed, another one would take as well.
            if took < LONG_PASS || took > before / 2 {
                break;
            }
            (pass_begun, before) = (now, took);
            self.catch_up(places, &mut copied).map_err(for_git)?;
        }
        let mut journal = folder::Journal {
            from: self.from,
            to,
            keep: self.keep,
            is_swept: false,
            has_more: false,
        };
        // Locks would keep Git from removing the refs that it has copied.
        check_alone(context, &signs, copied.is_live)?;
        folder.write_journal(context, journal)?;
        let frozen = switch::freeze(self, &self.context(), places).map_err(for_git)?;
        place::check(self.system.as_ref(), &self.base, places)?;
        self.catch_up(places, &mut copied).map_err(for_git)?;
        check_alone(context, &signs, copied.is_live)?;
        copied.find_lost_lines()?;
        let unlisted = copied.unlisted()?;
        if journal.keep && (unlisted.is_some() || copied.leaves_behind(self)?) {
            folder.note_more(context, &mut journal)?;
        }
        let later = context.synced_later();
        Locked::write(&later, folder, places, &frozen, self.from)?;
        self.options.interrupt.check()?;
        made.check(context)?;
        let stores = copied.stores();
        switch::switch(context, folder, places, &stores, &frozen, config, to)?;
        let mut report = copied.report();
        report.warnings.extend(unlisted.map(Message::from));
        let warnings = &mut report.warnings;
        match close(
            context,
            folder,
            places,
            frozen,
            journal,
            copied.is_live,
            warnings,
        ) {
            Ok(kept) => report.folder = kept,
            Err(error) => {
                let what = "the refs are migrated, but the old ones could not be removed";
                report.warnings.push(error.context(what).message().clone());
            }
        }
        Ok(report)
    }

    fn context(&self) -> Context {
        Context {
            system: Arc::clone(&self.system),
            followed: Arc::clone(&self.followed),
            objects: Arc::clone(&self.objects),
            options: self.options.clone(),
            common_dir: self.common_dir.clone(),
            base: self.base.clone(),
        }
    }

    fn places(&self) -> Result<Vec<Place>> {
        place::list(self.system.as_ref(), &self.base)
    }

    fn catch_up(&self, places: &[Place], copied: &mut Copied) -> Result<()> {
        for at in 0..places.len() {
            changes::catch_up(self, copied, at)?;
        }
        copied.check(self.skip_broken)
    }
}

/// Puts the old refs away, after the switch. Returns where they are kept.
fn close(
    context: &Context,
    folder: &Folder,
    places: &[Place],
    mut frozen: Vec<Box<dyn Frozen>>,
    journal: folder::Journal,
    is_live: bool,
    warnings: &mut Vec<Message>,
) -> Result<Option<PathBuf>> {
    for frozen in &mut frozen {
        frozen.leave();
    }
    let (finished, others) = others::Others::beside(context, places, journal.from, || {
        finish::finish(context, folder, places, journal, true)
    });
    if finished.is_err() {
        // They keep writers out of the old stores until whoever goes on with it has put those away.
        frozen.iter_mut().for_each(|frozen| frozen.abandon());
    }
    warnings.extend(finished?);
    let there = place::list(context.system.as_ref(), &context.base)?;
    warnings.extend(finish::with_refs(context, there, journal.to)?.1);
    let late = finish::settle(context, places, journal.to, is_live, others)?;
    warnings.extend(late.map(Message::from));
    drop(frozen);
    recover::unlock_old(context, folder, places)?;
    let kept = folder.close(context)?;
    if kept.is_none() {
        warnings.extend(folder.kept_before().map(Message::from));
    }
    Ok(kept)
}

/// Makes sure that Git does not migrate the refs as well, which takes no locks: what it takes away would look as if
/// others had deleted it. `before` are the signs of it at the beginning; a folder of it may be left from earlier.
fn check_alone(context: &Context, before: &[Vec<u8>], is_live: bool) -> Result<()> {
    let now = folder::signs_of_git(context)?;
    let gits = now.iter().rfind(|name| folder::is_gits(name));
    if now == before && (gits.is_none() || !is_live) {
        return Ok(());
    }
    let name = gits.map_or("ref_migration.*".into(), |name| {
        String::from_utf8_lossy(name)
    });
    let way_out = match gits.is_some_and(|name| before.contains(name)) {
        // It was there before, and refs changed since.
        true => "; if no Git migrates, a dry run left that: move it away, and try again",
        false => "",
    };
    let message = format!(
        "Git seems to migrate the refs at the same time: nothing was changed here. It works in '{name}', where all \
         refs are if it fails{way_out}"
    );
    Err(Error::new(ErrorKind::Locked, message))
}

/// Clears up after a migration of this repository whose process ended before it was done, if there
/// was one: what came not so far as the switch is undone, what came to it is finished. Returns what
/// is to be told about it.
///
/// Whoever opens a repository does well to call this before anything is written: locks that such a
/// migration left are nobody else's to remove. Where there is nothing to do it costs one question to
/// the system, and a migration that runs is left alone.
///
/// ```no_run
/// use refdb_git::Repository;
///
/// let repository = Repository::discover(".".as_ref())?;
/// for told in refdb_maintenance::migrate::finish_interrupted(&repository)? {
///     eprintln!("{told}");
/// }
/// # Ok::<(), refdb::Error>(())
/// ```
///
/// # Errors
/// `Corrupt` when the refs that are to stay cannot be read, and nothing is removed then; `Io`. The
/// next call goes on where this one came to.
pub fn finish_interrupted(repository: &Repository) -> Result<Vec<Message>> {
    let found = clear_up(&Migration::of(repository).context())?;
    Ok(found.map_or(Vec::new(), recover::Found::warnings))
}

fn clear_up(context: &Context) -> Result<Option<recover::Found>> {
    if !folder::is_there(context)? {
        return Ok(None);
    }
    let context = &context.strict()?;
    let Some(folder) = Folder::left(context)? else {
        return Ok(None);
    };
    let found = recover::recover(context, &folder)?;
    folder.remove();
    Ok(Some(found))
}

fn misuse(message: String) -> Error {
    Error::new(ErrorKind::Misuse, message)
}
