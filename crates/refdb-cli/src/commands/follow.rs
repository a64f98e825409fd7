//! `refdb sync` and `refdb follow`: a copy of a shared store in this repository, which Git reads.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use refdb::objects::Objects;
use refdb::{Error, ErrorKind, ObjectId, Target};
use refdb_git::Repository;
use refdb_git::repository::config::Scope;
use refdb_git::repository::{Ending, Program, Programs};
use refdb_maintenance::shared::{Changes, Follower, Synced};

use crate::context::Context;
use crate::failure::{Failure, Result, say};
use crate::interrupt;
use crate::options::{Opt, Spec};
use crate::output::Output;
use crate::programs::Processes;

/// How often is looked, in seconds.
const EVERY: f64 = 1.0;

/// How long at most passes until a signal is noticed.
const STEP: Duration = Duration::from_millis(50);

pub(super) const SYNC: Spec<()> = Spec {
    name: "sync",
    forms: &["[--set-aside]"],
    options: &[Opt::flag(
        (),
        "set-aside",
        "keep refs that are here in refdb-aside/, and follow",
    )],
};

pub(super) const FOLLOW: Spec<()> = Spec {
    name: "follow",
    forms: &["[--interval=<seconds>]"],
    options: &[Opt::text(
        (),
        "interval",
        "seconds",
        "how long to wait between two looks (1)",
    )],
};

/// Runs `sync`.
pub(super) fn sync(context: &Context, out: &mut Output, args: &[Vec<u8>]) -> Result<()> {
    let mut set_aside = false;
    let operands = SYNC.parse(args, |(), value| {
        set_aside = value.is_set();
        Ok(())
    })?;
    if !operands.is_empty() {
        return Err(SYNC.misuse());
    }
    let repository = context.repository()?;
    let follower = follower(repository)?;
    let synced = follower.sync(set_aside, &mut |changes| bring(repository, changes))?;
    told(out, &synced)
}

/// Runs `follow`.
pub(super) fn follow(context: &Context, out: &mut Output, args: &[Vec<u8>]) -> Result<()> {
    let mut every = None;
    let operands = FOLLOW.parse(args, |(), value| {
        every = value.into_text();
        Ok(())
    })?;
    if !operands.is_empty() {
        return Err(FOLLOW.misuse());
    }
    let every = match every {
        None => EVERY,
        Some(text) => {
            let number = String::from_utf8_lossy(&text).parse().ok();
            let number = number.filter(|number: &f64| (0.0..=86400.0).contains(number));
            number.ok_or_else(|| {
                let text = "--interval takes a number of seconds, at most 86400";
                Failure::error(text, 129)
            })?
        }
    };
    let every = Duration::from_secs_f64(every);
    let repository = context.repository()?;
    let follower = follower(repository)?;
    let mut failed = String::new();
    loop {
        match follower.sync(false, &mut |changes| bring(repository, changes)) {
            Ok(synced) => {
                failed.clear();
                told(out, &synced)?;
                out.flush()?;
            }
            // It passes, and is told once; anything else ends the command.
            Err(error) if matches!(error.kind(), ErrorKind::Io | ErrorKind::Locked) => {
                let text = error.to_string();
                if text != failed {
                    say("warning", text.as_bytes());
                    failed = text;
                }
            }
            Err(error) => return Err(error.into()),
        }
        let mut waited = Duration::ZERO;
        while waited < every {
            if interrupt::came() {
                return Ok(());
            }
            let step = STEP.min(every.saturating_sub(waited));
            std::thread::sleep(step);
            waited += step;
        }
        if interrupt::came() {
            return Ok(());
        }
    }
}

/// Switches the copy to what the store is now; says only what is not as it should be.
pub(super) fn bring_up_to_date(repository: &Repository) -> refdb::Result<()> {
    let Some(register) = repository.register() else {
        return Ok(());
    };
    let follower = Follower::new(Arc::clone(register), repository);
    let synced = follower.sync(false, &mut |changes| bring(repository, changes))?;
    warn(&synced);
    Ok(())
}

pub(super) fn follower(repository: &Repository) -> Result<Follower> {
    let Some(register) = repository.register() else {
        return Err(Failure::fatal(
            "there is no store to follow: set refdb.store, or name one with --store=<url>",
        ));
    };
    // The format of the store is no matter here.
    let tables = repository.common_dir().join("reftable");
    if repository.system().lstat(&tables).is_err() {
        return Err(Failure::fatal(
            "a copy that Git reads needs a repository whose own refs are tables, not files: make one by git init \
             --bare --ref-format=reftable, or migrate this one by refdb -c refdb.store= refs migrate \
             --ref-format=reftable",
        ));
    }
    Ok(Follower::new(Arc::clone(register), repository))
}

fn warn(synced: &Synced) {
    if synced.lock_was_gone {
        say(
            "warning",
            b"somebody had removed the lock of this copy, and wrote nothing",
        );
    }
    if let Some(aside) = &synced.aside {
        let text = format!("what was written here is kept in '{}'", aside.display());
        say("warning", text.as_bytes());
    }
}

fn told(out: &mut Output, synced: &Synced) -> Result<()> {
    warn(synced);
    match synced.changed {
        Some(changed) => {
            let generation = synced.generation;
            out.put(format!("generation {generation}: {changed} refs changed\n"))
        }
        None => Ok(()),
    }
}

/// Brings the objects that refs name now.
fn bring(repository: &Repository, changes: &Changes) -> refdb::Result<()> {
    let missing = missing(repository, changes)?;
    if missing.is_empty() {
        return Ok(());
    }
    if let Some(program) = program(repository, "refdb.fetchobjects")? {
        let mut input = String::new();
        for (oid, name) in &missing {
            let _ = writeln!(input, "{oid} {name}");
        }
        let ending = Processes.run(&program, input.as_bytes());
        if ending != Ending::Well {
            let what = "refdb.fetchObjects failed: nothing was switched";
            return Err(Error::new(ErrorKind::Io, what));
        }
    }
    match self::missing(repository, changes)?.first() {
        None => Ok(()),
        Some((oid, name)) => {
            let what = format!(
                "object {oid} of '{name}' is not here: nothing was switched; a command in refdb.fetchObjects can \
                 fetch such objects, or they are borrowed (objects/info/alternates)"
            );
            Err(Error::new(ErrorKind::Io, what))
        }
    }
}

fn missing(repository: &Repository, changes: &Changes) -> refdb::Result<Vec<(ObjectId, String)>> {
    let mut missing = Vec::new();
    for change in &changes.changes {
        if let Some(Target::Direct(oid)) = &change.target
            && repository.odb().kind(*oid)?.is_none()
        {
            missing.push((*oid, change.name.to_string()));
        }
    }
    Ok(missing)
}

/// Returns the command that fetches objects, or makes them reachable. What a repository's own configuration says
/// counts where its store does: who may choose that may choose this.
pub(super) fn program(repository: &Repository, key: &str) -> refdb::Result<Option<Program>> {
    let config = repository.config();
    let Some(entry) = config.get(key) else {
        return Ok(None);
    };
    let is_own = |scope| matches!(scope, Scope::Local | Scope::Worktree);
    let store = config.get("refdb.store");
    if is_own(entry.scope()) && !store.is_some_and(|store| is_own(store.scope())) {
        let what =
            format!("{key} of the repository is not followed where refdb.store is another's");
        return Err(Error::new(ErrorKind::Config, what));
    }
    let Some(command) = config.string(key) else {
        return Ok(None);
    };
    Ok(Some(Program {
        command: command.to_owned(),
        for_shell: true,
        args: Vec::new(),
        dir: repository.git_dir().to_owned(),
        environment: Vec::new(),
    }))
}
