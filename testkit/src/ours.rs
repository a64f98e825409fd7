//! refdb under test: the model's transactions carried out by the library, and its store read back
//! in the model's terms.
//!
//! ```
//! use refdb_testkit::model::{Edit, Transaction};
//! use refdb_testkit::{Format, ours, repo::Repo};
//!
//! let repo = Repo::init(Format::REFTABLE_SHA1);
//! let commit = &repo.objects().commits[0];
//! let ours = ours::open(&repo.git_dir());
//! let create = Transaction::of([Edit::create("refs/heads/main", commit)]);
//! assert_eq!(ours::apply(ours.store(), &create).unwrap(), []);
//! assert_eq!(ours::state(ours.store()), repo.state());
//! ```

use std::path::Path;

use bstr::{BStr, BString, ByteSlice};
use refdb::options::{Committer, Identity, LockTimeout};
use refdb::{
    Edit, Expected, LogOrder, ObjectFormat, ObjectId, Options, RefName, Result, Store, TargetRef,
};
use refdb_git::Repository;
use refdb_git::repository::{Environment, OpenOptions};

use crate::model::{OldSymref, Reason, Transaction, Verb};
use crate::oracle;
use crate::state::{LogEntry, State, Target};

/// Edits of a batch that were rejected, and why.
pub type Rejected = Vec<(usize, Reason)>;

/// Returns options for a store on a simulated disk: the committer and the moment are always the same, and
/// locks are not waited for.
pub fn simulated(format: ObjectFormat) -> Options {
    let mut options = Options::new(format);
    options.committer = Committer::from(Identity {
        name: "A".into(),
        email: "a@b".into(),
        date: Some((1_700_000_000, 0)),
        ..Identity::default()
    });
    let at_once = LockTimeout::from_millis(0);
    options.files_ref_lock_timeout = at_once;
    options.packed_refs_timeout = at_once;
    options.reftable.lock_timeout = at_once;
    options
}

/// Opens a repository in the environment that Git gets. Nothing is synced, as in Git unless told:
/// thousands of transactions would wait for the disk.
///
/// # Panics
///
/// If it cannot be opened.
pub fn open(git_dir: &Path) -> Repository {
    let repository = options().open(git_dir);
    repository.expect("a repository that Git made")
}

/// Opens a repository whose `HEAD` may be damaged, as [`open`] does.
///
/// # Panics
///
/// If it cannot be opened.
pub fn open_damaged(git_dir: &Path) -> Repository {
    let repository = options().damaged(true).open(git_dir);
    repository.expect("a repository that Git made")
}

/// Returns the options with which [`open`] opens.
pub fn options() -> OpenOptions {
    OpenOptions::new()
        .environment(Environment::from_pairs(oracle::environment()))
        .config("core.fsync=none")
}

/// Carries out a transaction; returns which edits of a batch were rejected, and why, sorted.
///
/// # Errors
///
/// What refuses the whole transaction.
///
/// # Panics
///
/// If something goes wrong after the commit.
pub fn apply(store: &Store, transaction: &Transaction) -> Result<Vec<(usize, Reason)>> {
    let (rejected, afterwards) = apply_whatever_follows(store, transaction)?;
    assert!(afterwards.is_empty(), "after the commit: {afterwards:?}");
    Ok(rejected)
}

/// As [`apply`], where what goes wrong after the commit is expected, and returned.
///
/// # Errors
///
/// What refuses the whole transaction.
pub fn apply_whatever_follows(
    store: &Store,
    transaction: &Transaction,
) -> Result<(Rejected, Vec<refdb::Error>)> {
    let mut running = store.transaction();
    if transaction.batch {
        running = running.batch();
    }
    let mut rejected = Vec::new();
    let mut added = Vec::new();
    for (index, edit) in transaction.edits.iter().enumerate() {
        let mut ours = translate(edit)?.message(transaction.message.to_vec());
        let is_update = !matches!(
            edit.verb,
            Verb::Delete { .. }
                | Verb::Verify { .. }
                | Verb::SymrefDelete { .. }
                | Verb::SymrefVerify { .. }
        );
        if transaction.create_reflog && is_update {
            ours = ours.create_log();
        }
        match running.add(ours) {
            Ok(()) => added.push(index),
            Err(error) => match error.rejection() {
                Some(told) if transaction.batch => {
                    rejected.push((index, reason(told.reason.as_str())));
                }
                _ => return Err(error),
            },
        }
    }
    let outcome = running.commit()?;
    for told in &outcome.rejections {
        rejected.push((added[told.index], reason(told.reason.as_str())));
    }
    rejected.sort_unstable();
    Ok((rejected, outcome.afterwards))
}

fn reason(text: &str) -> Reason {
    let known = Reason::REJECTIONS
        .into_iter()
        .find(|reason| reason.text() == text);
    known.unwrap_or_else(|| panic!("no reason of a rejection: {text}"))
}

fn translate(edit: &crate::model::Edit) -> Result<Edit<'_>> {
    let name = name(edit.name())?;
    let is_zero = |hex: &str| hex.bytes().all(|byte| byte == b'0');
    let expected = |old: &Option<String>| match old.as_deref() {
        None => Expected::Any,
        Some(hex) if is_zero(hex) => Expected::Missing,
        Some(hex) => Expected::Oid(oid(hex)),
    };
    let symbolic = |target: &BString| {
        Expected::Symbolic(std::borrow::Cow::Owned(BString::from(target.as_slice())))
    };
    let ours = match &edit.verb {
        Verb::Update { new, old } => Edit::update(name, oid(new)).expecting(expected(old)),
        Verb::Create { new } => Edit::update(name, oid(new)).expecting(Expected::Missing),
        Verb::Delete { old } => Edit::delete(name).expecting(expected(old)),
        Verb::Verify { old: None } => Edit::verify(name, Expected::Missing),
        Verb::Verify { old } => Edit::verify(name, expected(old)),
        Verb::SymrefUpdate { target, old } => {
            let ours = Edit::symbolic(name, self::name(target.as_ref())?);
            match old {
                None => ours,
                Some(OldSymref::Target(old)) => ours.expecting(symbolic(old)),
                Some(OldSymref::Id(old)) => ours.expecting(expected(&Some(old.clone()))),
            }
        }
        Verb::SymrefCreate { target } => {
            Edit::symbolic(name, self::name(target.as_ref())?).expecting(Expected::Missing)
        }
        Verb::SymrefDelete { old } => {
            Edit::delete(name).expecting(old.as_ref().map_or(Expected::Any, symbolic))
        }
        Verb::SymrefVerify { old } => {
            Edit::verify(name, old.as_ref().map_or(Expected::Missing, symbolic))
        }
    };
    Ok(if edit.no_deref { ours.no_deref() } else { ours })
}

/// Takes a name as `update-ref --stdin` does.
fn name(name: &BStr) -> Result<RefName<'_>> {
    Ok(RefName::new(name)?)
}

fn oid(hex: &str) -> ObjectId {
    ObjectId::from_hex(hex.as_bytes()).expect("the generator writes full ids")
}

/// Reads everything that is stored, through the library.
///
/// # Panics
///
/// If it cannot be read.
pub fn state(store: &Store) -> State {
    let mut state = State::default();
    let mut refs = store.refs().expect("refs");
    while let Some(record) = refs.next().expect("a ref") {
        let target = match record.target {
            TargetRef::Direct(oid) => Target::Direct(oid.to_string()),
            TargetRef::Symbolic(name) => Target::Symbolic(BString::from(name.as_bytes())),
        };
        state
            .refs
            .insert(BString::from(record.name.as_bytes()), target);
    }
    for name in store.log_names().expect("reflogs") {
        let entries = store
            .log(name.as_name(), LogOrder::OldestFirst)
            .expect("a reflog");
        let entries = entries
            .expect("a listed reflog exists")
            .into_iter()
            .map(|entry| {
                let zone = format!("{:+05}", entry.who.zone);
                LogEntry {
                    old: entry.old.to_string(),
                    new: entry.new.to_string(),
                    committer: BString::from(
                        [
                            entry.who.name.as_bytes(),
                            b" <",
                            entry.who.email.as_bytes(),
                            b">",
                        ]
                        .concat(),
                    ),
                    time: entry.who.time,
                    zone,
                    message: entry.message,
                }
            });
        state
            .logs
            .insert(BString::from(name.as_bytes()), entries.collect());
    }
    state
}
