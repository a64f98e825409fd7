//! What a push asks of refs, and what becomes of it, ref by ref.

use refdb::{
    Edit, Error, ErrorKind, Expected, ObjectId, Outcome, RefNameBuf, Rejection, Result, Signature,
    Store, Transaction,
};

/// The reason that reflogs record.
const MESSAGE: &[u8] = b"push";

/// What a push asks of one ref.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The ref.
    pub name: RefNameBuf,
    /// What it is expected to be; null for a ref that is not there.
    pub old: ObjectId,
    /// What it is to be; null for one that is to be deleted.
    pub new: ObjectId,
}

/// What a push asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Push {
    /// Each ref once.
    pub refs: Vec<Wanted>,
    /// Whether all of it is to happen, or nothing.
    pub atomic: bool,
    /// Who pushes; the store's committer if that is `None`.
    pub who: Option<Signature>,
}

/// What became of what was asked of one ref.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is so.
    Done,
    /// It was refused.
    Refused {
        /// Why, in the words that the pushing Git shows beside the ref.
        reason: String,
        /// Why, in full; once for what is refused as a whole.
        message: Option<String>,
    },
}

impl Fate {
    /// Refuses something without more words.
    pub fn refused(reason: impl Into<String>) -> Fate {
        Fate::Refused {
            reason: reason.into(),
            message: None,
        }
    }

    /// Refuses something that failed as a whole.
    pub(super) fn failed(error: &Error) -> Fate {
        Fate::Refused {
            reason: reason_of(error, false).to_owned(),
            message: Some(error.to_string()),
        }
    }

    fn of(rejection: &Rejection) -> Fate {
        Fate::Refused {
            reason: rejection.reason.as_str().to_owned(),
            message: Some(rejection.message.to_string()),
        }
    }
}

/// Returns why everything of a push fails, in few words.
fn reason_of(error: &Error, atomic: bool) -> &'static str {
    match error.kind() {
        ErrorKind::Unknown => "it is not known whether it was committed",
        _ if atomic => "atomic transaction failed",
        _ => "failed to update refs",
    }
}

/// A push on its way: what of it is in a transaction, and what was refused already.
pub(super) struct Pending {
    atomic: bool,
    /// Which ref each edit is of.
    places: Vec<usize>,
    fates: Vec<Option<Fate>>,
}

impl Pending {
    /// Puts a push into a transaction; there is none where all of it was refused already.
    pub(super) fn begin<'s>(store: &'s Store, push: &Push) -> (Pending, Option<Transaction<'s>>) {
        let mut pending = Pending {
            atomic: push.atomic,
            places: Vec::new(),
            fates: vec![None; push.refs.len()],
        };
        let filled = pending.fill(store, push);
        let transaction = match filled {
            Ok(transaction) if !pending.places.is_empty() => Some(transaction),
            Ok(_) => None,
            Err(error) => {
                pending.fail(&error);
                None
            }
        };
        (pending, transaction)
    }

    fn fill<'s>(&mut self, store: &'s Store, push: &Push) -> Result<Transaction<'s>> {
        let mut transaction = store.transaction().message(MESSAGE);
        if let Some(who) = &push.who {
            transaction = transaction.committer(who.clone())?;
        }
        if !push.atomic {
            transaction = transaction.batch();
        }
        for (at, wanted) in push.refs.iter().enumerate() {
            let name = wanted.name.as_name();
            let expected = match wanted.old.is_null() {
                true => Expected::Missing,
                false => Expected::Oid(wanted.old),
            };
            let edit = match (wanted.new.is_null(), wanted.old.is_null()) {
                (false, _) => Edit::update(name, wanted.new).expecting(expected),
                (true, false) => Edit::delete(name).expecting(expected),
                // Nothing is there, as far as the pusher knows, and nothing is to be.
                (true, true) => Edit::verify(name, expected),
            };
            match (transaction.add(edit), self.fates.get_mut(at)) {
                (Ok(()), _) => self.places.push(at),
                (Err(error), Some(fate)) if !push.atomic && error.rejection().is_some() => {
                    *fate = error.rejection().map(Fate::of);
                }
                (Err(error), _) => return Err(error),
            }
        }
        Ok(transaction)
    }

    /// Returns what becomes of each ref of a push that failed as a whole.
    pub(super) fn all_failed(push: &Push, error: &Error) -> Vec<Fate> {
        let pending = Pending {
            atomic: push.atomic,
            places: Vec::new(),
            fates: vec![None; push.refs.len()],
        };
        pending.end(Err(error.clone()))
    }

    /// Refuses what was not refused yet.
    fn fail(&mut self, error: &Error) {
        let reason = reason_of(error, self.atomic);
        let mut message = Some(error.to_string());
        for fate in self.fates.iter_mut().filter(|fate| fate.is_none()) {
            *fate = Some(Fate::Refused {
                reason: reason.to_owned(),
                message: message.take(),
            });
        }
    }

    /// Returns what becomes of each ref if these are refused, and all else is done.
    pub(super) fn fates_with(&self, rejections: &[Rejection]) -> Vec<Fate> {
        let mut fates = self.fates.clone();
        for rejection in rejections {
            let place = self.places.get(rejection.index);
            if let Some(fate) = place.and_then(|place| fates.get_mut(*place)) {
                *fate = Some(Fate::of(rejection));
            }
        }
        let fates = fates.into_iter();
        fates.map(|fate| fate.unwrap_or(Fate::Done)).collect()
    }

    /// Returns what became of each ref.
    pub(super) fn end(mut self, done: Result<Outcome>) -> Vec<Fate> {
        match done {
            Ok(outcome) => self.fates_with(&outcome.rejections),
            Err(error) => {
                self.fail(&error);
                self.fates_with(&[])
            }
        }
    }
}

/// Commits a push; returns what became of each of its refs.
pub(super) fn commit_push(store: &Store, push: &Push) -> Vec<Fate> {
    let (pending, transaction) = Pending::begin(store, push);
    match transaction {
        Some(transaction) => pending.end(transaction.commit()),
        None => pending.fates_with(&[]),
    }
}
