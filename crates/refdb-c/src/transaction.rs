//! Transactions: edits that happen together, with what was refused as data.

use std::borrow::Cow;
use std::ffi::{CString, c_char};
use std::mem::take;
use std::sync::Arc;

use bstr::BStr;
use refdb::{Edit, Expected, Outcome, Prepared, Reason, Rejection, Signature, Transaction};
use refdb_git::Repository;

use crate::border::Failure;
use crate::log::refdb_signature;
use crate::store::refdb_store;
use crate::types::{many, place, refdb_bytes, refdb_oid, refdb_status, shared, take_back, unique};

/// What an edit does.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub enum refdb_change {
    /// The ref is to name the object `new_id`; all zero deletes.
    REFDB_UPDATE = 1,
    /// The ref is to be a symref to `target`.
    REFDB_SYMBOLIC = 2,
    /// The ref and its reflog are to go.
    REFDB_DELETE = 3,
    /// Nothing changes: what is expected is checked.
    REFDB_VERIFY = 4,
    /// An entry from `old_id` to `new_id` is added to the reflog; the ref stays as it is.
    REFDB_LOG = 5,
}

/// What a ref is expected to hold when it is locked.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub enum refdb_expected {
    /// Anything or nothing.
    REFDB_EXPECT_ANY = 0,
    /// The ref does not exist.
    REFDB_EXPECT_MISSING = 1,
    /// The ref exists, whatever it holds.
    REFDB_EXPECT_EXISTS = 2,
    /// The ref leads to the object `old_id`.
    REFDB_EXPECT_OID = 3,
    /// The ref is a symref to exactly `old_target`.
    REFDB_EXPECT_SYMBOLIC = 4,
}

/// How an edit is done: flags, added up.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub enum refdb_edit_flags {
    /// Change a symref itself and not the ref at its end.
    REFDB_NO_DEREF = 1,
    /// Make a reflog even where the configuration asks for none.
    REFDB_CREATE_LOG = 2,
    /// Add no entry to any reflog.
    REFDB_SKIP_LOG = 4,
    /// Take the new value without looking for its object.
    REFDB_SKIP_OBJECT_CHECK = 8,
}

/// How a transaction is done: flags, added up.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub enum refdb_transaction_flags {
    /// Single edits may be refused while the others go on; without it all happen, or none.
    REFDB_BATCH = 1,
}

/// One edit. What `change` and `expected` do not ask for is not looked at, and may be zero.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct refdb_edit {
    /// Of `refdb_change`.
    pub change: u32,
    /// Of `refdb_expected`.
    pub expected: u32,
    /// Of `refdb_edit_flags`.
    pub flags: u32,
    /// The full name of the ref.
    pub name: refdb_bytes,
    /// What a symref is to name.
    pub target: refdb_bytes,
    /// What a symref is expected to name.
    pub old_target: refdb_bytes,
    /// Why, for the reflog; the transaction's message if empty.
    pub message: refdb_bytes,
    /// The object that the ref is to name.
    pub new_id: refdb_oid,
    /// The object that it is expected to name.
    pub old_id: refdb_oid,
}

/// Why an edit was refused.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum refdb_reason {
    /// For a reason that has no number: see the message.
    REFDB_REASON_OTHER = 0,
    /// The name and that of another ref cannot both exist.
    REFDB_REASON_NAME_CONFLICT = 1,
    /// The ref was expected not to exist.
    REFDB_REASON_EXISTS = 2,
    /// The ref was expected to exist.
    REFDB_REASON_MISSING = 3,
    /// The ref holds something else than what was expected.
    REFDB_REASON_OLD_VALUE = 4,
    /// The new value is no object, or no commit where one is needed.
    REFDB_REASON_NEW_VALUE = 5,
    /// The ref was expected to be a symref.
    REFDB_REASON_NO_SYMREF = 6,
    /// The name differs only in case from another, where the file system cannot tell them apart.
    REFDB_REASON_CASE = 7,
    /// Somebody else holds the lock of the ref: try again later.
    REFDB_REASON_LOCKED = 8,
}

/// One refused edit.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct refdb_rejection {
    /// The position of the edit in its transaction, from 0.
    pub index: usize,
    /// Why, as a number.
    pub reason: refdb_reason,
    /// The ref that it is about: the edit's, or the one that its symref leads to.
    pub name: refdb_bytes,
    /// Why, for a person; ends with a zero byte.
    pub message: *const c_char,
}

/// What a transaction came to. `refdb_outcome_free` frees it. Any number of threads may read one.
pub struct refdb_outcome {
    // What is shown points to these.
    _rejections: Vec<Rejection>,
    _texts: Vec<CString>,
    shown: Vec<refdb_rejection>,
    warnings: Vec<*const c_char>,
}

/// Edits that happen together.
///
/// For one thread at a time; another one may go on with it. `refdb_transaction_free` frees it, and
/// gives up what was not committed; the store may be closed before.
pub struct refdb_transaction {
    // Borrows from the repository, and so stands before it: fields are dropped in this order.
    state: State,
    _repository: Arc<Repository>,
    /// Whoever began it: a child after `fork` neither commits it nor gives its locks back.
    process: u32,
}

impl refdb_transaction {
    fn is_of_this_process(&self) -> bool {
        self.process == std::process::id()
    }

    /// Takes what it is, to go on from there.
    fn take(&mut self) -> Result<State, Failure> {
        match self.is_of_this_process() {
            true => Ok(take(&mut self.state)),
            false => Err(Failure::Argument("the transaction is of another process")),
        }
    }
}

#[derive(Default)]
#[expect(
    clippy::large_enum_variant,
    reason = "it is in a box of its own already"
)]
enum State {
    Open(Transaction<'static>),
    Prepared(Prepared<'static>),
    /// Committed, given up, or failed.
    #[default]
    Over,
}

const fn assert_send<T: Send>() {}
const _: () = assert_send::<State>();

/// Begins a transaction. Nothing is read or locked yet.
///
/// `flags` are of `refdb_transaction_flags`. `committer` is who is named in reflogs, with the moment;
/// null for whom Git would name, now. `message` is the reason that reflogs record where an edit has none.
///
/// Ownership: `*out` is the caller's, who frees it by `refdb_transaction_free`; null after a failure.
/// Threads: any.
///
/// # Safety
/// `store` is open, what is given can be read, and `out` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refdb_transaction_begin(
    store: *const refdb_store,
    flags: u32,
    committer: *const refdb_signature,
    message: refdb_bytes,
    out: *mut *mut refdb_transaction,
) -> refdb_status {
    border! {
        // SAFETY: as this function's.
        let (store, out, message) = unsafe { (shared(store)?, place(out)?, message.get()?) };
        if flags & !(refdb_transaction_flags::REFDB_BATCH as u32) != 0 {
            return Err(Failure::Argument("there is no such flag for a transaction"));
        }
        let repository = Arc::clone(&store.0);
        // SAFETY: the store lies in the repository, which does not move, is not changed, and lives as
        // long as the transaction, since both are in one struct that drops the transaction first.
        let kept: &'static refdb::Store = unsafe { &*std::ptr::from_ref(repository.store()) };
        let mut transaction = kept.transaction().message(message);
        if flags != 0 {
            transaction = transaction.batch();
        }
        // SAFETY: as this function's.
        if let Some(committer) = unsafe { committer.as_ref() } {
            // SAFETY: as this function's.
            let who: Signature = unsafe { committer.get()? };
            transaction = transaction.committer(who)?;
        }
        let state = State::Open(transaction);
        let process = std::process::id();
        let made = refdb_transaction { state, _repository: repository, process };
        *out = Box::into_raw(Box::new(made));
        Ok(refdb_status::REFDB_OK)
    }
}

/// Adds edits, `len` of them, until one makes no sense: a name that is none, an object that is not
/// there. Those before it are added then, and `*added`, which may be null, says how many.
///
/// Ownership: `edits` and what they point to is not needed afterwards. Threads: one at a time.
///
/// # Safety
/// `transaction` is not freed, what is given can be read, and `added` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refdb_transaction_add(
    transaction: *mut refdb_transaction,
    edits: *const refdb_edit,
    len: usize,
    added: *mut usize,
) -> refdb_status {
    border! {
        // SAFETY: as this function's.
        let (transaction, edits) = unsafe { (unique(transaction)?, many(edits, len)?) };
        let mut place = 0;
        // SAFETY: as this function's.
        let added = unsafe { added.as_mut() }.unwrap_or(&mut place);
        *added = 0;
        let State::Open(transaction) = &mut transaction.state else {
            return Err(Failure::Argument("the transaction takes no more edits"));
        };
        for edit in edits {
            // SAFETY: as this function's.
            transaction.add(unsafe { edit_of(edit)? })?;
            *added += 1;
        }
        Ok(refdb_status::REFDB_OK)
    }
}

/// Returns the edit that a caller describes.
unsafe fn edit_of(given: &refdb_edit) -> Result<Edit<'_>, Failure> {
    // SAFETY: the caller says that its bytes can be read.
    let (name, target, old_target, message) = unsafe {
        let (name, target) = (given.name.get()?, given.target.get()?);
        (name, target, given.old_target.get()?, given.message.get()?)
    };
    let bytes = |bytes| Cow::Borrowed(BStr::new(bytes));
    let name = bytes(name);
    let mut edit = match given.change {
        1 => Edit::update(name, given.new_id.get()?),
        2 => Edit::symbolic(name, bytes(target)),
        3 => Edit::delete(name),
        4 => Edit::verify(name, Expected::Any),
        5 => Edit::log(name, given.old_id.get()?, given.new_id.get()?),
        _ => return Err(Failure::Argument("there is no such change")),
    };
    edit = edit.expecting(match given.expected {
        0 => Expected::Any,
        1 => Expected::Missing,
        2 => Expected::Exists,
        3 => Expected::Oid(given.old_id.get()?),
        4 => Expected::Symbolic(bytes(old_target)),
        _ => return Err(Failure::Argument("there is no such expectation")),
    });
    if !message.is_empty() {
        edit = edit.message(message);
    }
    let has = |flag: refdb_edit_flags| given.flags & flag as u32 != 0;
    if has(refdb_edit_flags::REFDB_NO_DEREF) {
        edit = edit.no_deref();
    }
    if has(refdb_edit_flags::REFDB_CREATE_LOG) {
        edit = edit.create_log();
    }
    if has(refdb_edit_flags::REFDB_SKIP_LOG) {
        edit = edit.skip_log();
    }
    if has(refdb_edit_flags::REFDB_SKIP_OBJECT_CHECK) {
        edit = edit.skip_object_check();
    }
    match given.flags & !0xf {
        0 => Ok(edit),
        _ => Err(Failure::Argument("there is no such flag for an edit")),
    }
}

/// Locks the refs and checks every edit; only publishing is left then. `REFDB_REJECTED` when an edit was
/// refused and this is no batch, `REFDB_LOCKED` when that is because somebody else holds its lock.
///
/// Ownership: `outcome` may be null. Else `*outcome` is the caller's, who frees it by
/// `refdb_outcome_free`, and says what was refused; null after another failure. After a failure the
/// transaction is over. Threads: one at a time.
///
/// # Safety
/// `transaction` is not freed, and `outcome` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refdb_transaction_prepare(
    transaction: *mut refdb_transaction,
    outcome: *mut *mut refdb_outcome,
) -> refdb_status {
    border! {
        // SAFETY: as this function's.
        let (transaction, out) = unsafe { (unique(transaction)?, optional_place(outcome)?) };
        let out = &mut { out };
        let State::Open(open) = transaction.take()? else {
            return Err(Failure::Argument("the transaction is not open"));
        };
        let prepared = refused_as_data(open.prepare(), out)?;
        give_out(out, prepared.rejections().to_vec(), &[]);
        transaction.state = State::Prepared(prepared);
        Ok(refdb_status::REFDB_OK)
    }
}

/// Commits: every edit is visible and durable when it returns `REFDB_OK`. What is not prepared yet is
/// prepared.
///
/// Ownership and threads: as for `refdb_transaction_prepare`. The transaction is over in any case, and
/// still to be freed.
///
/// # Safety
/// As for `refdb_transaction_prepare`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refdb_transaction_commit(
    transaction: *mut refdb_transaction,
    outcome: *mut *mut refdb_outcome,
) -> refdb_status {
    border! {
        // SAFETY: as this function's.
        let (transaction, out) = unsafe { (unique(transaction)?, optional_place(outcome)?) };
        let out = &mut { out };
        let committed = match transaction.take()? {
            State::Open(open) => open.commit(),
            State::Prepared(prepared) => prepared.commit(),
            State::Over => return Err(Failure::Argument("the transaction is over")),
        };
        let Outcome { rejections, afterwards } = refused_as_data(committed, out)?;
        give_out(out, rejections, &afterwards);
        Ok(refdb_status::REFDB_OK)
    }
}

/// Frees a transaction; null is fine. What was not committed is given up, and its locks are given back. In a child
/// after fork nothing happens: they are the parent's.
///
/// Ownership: `transaction` is gone. Threads: none may use it any more.
///
/// # Safety
/// `transaction` was not freed yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refdb_transaction_free(transaction: *mut refdb_transaction) {
    // SAFETY: as this function's.
    if unsafe { transaction.as_ref() }.is_some_and(refdb_transaction::is_of_this_process) {
        // SAFETY: as this function's.
        unsafe { take_back(transaction) }
    }
}

/// Returns the place for an outcome, if the caller wants one.
unsafe fn optional_place<'a>(
    out: *mut *mut refdb_outcome,
) -> Result<Option<&'a mut *mut refdb_outcome>, Failure> {
    match out.is_null() {
        true => Ok(None),
        // SAFETY: the caller says that it can be written.
        false => Ok(Some(unsafe { place(out)? })),
    }
}

/// Gives out the refused edit of a transaction that is no batch; it fails all the same.
fn refused_as_data<T>(
    done: refdb::Result<T>,
    out: &mut Option<&mut *mut refdb_outcome>,
) -> Result<T, Failure> {
    done.map_err(|error| {
        if let Some(rejection) = error.rejection() {
            give_out(out, vec![rejection.clone()], &[]);
        }
        error.into()
    })
}

fn give_out(
    out: &mut Option<&mut *mut refdb_outcome>,
    rejections: Vec<Rejection>,
    afterwards: &[refdb::Error],
) {
    let Some(out) = out else {
        return;
    };
    let text = |text: &str| CString::new(text.replace('\0', "\\0")).unwrap_or_default();
    let refused = rejections.iter().map(|rejection| text(&rejection.message));
    let warnings = afterwards.iter().map(|error| text(&error.to_string()));
    let texts: Vec<CString> = refused.chain(warnings).collect();
    let (refused, warnings) = texts.split_at(rejections.len());
    let shown = rejections
        .iter()
        .zip(refused)
        .map(|(rejection, text)| refdb_rejection {
            index: rejection.index,
            reason: reason_of(rejection),
            name: refdb_bytes::of(rejection.name.as_bytes()),
            message: text.as_ptr(),
        });
    let outcome = refdb_outcome {
        shown: shown.collect(),
        warnings: warnings.iter().map(|text| text.as_ptr()).collect(),
        _rejections: rejections,
        _texts: texts,
    };
    **out = Box::into_raw(Box::new(outcome));
}

fn reason_of(rejection: &Rejection) -> refdb_reason {
    match rejection.reason {
        _ if rejection.message.is_held() => refdb_reason::REFDB_REASON_LOCKED,
        Reason::NameConflict => refdb_reason::REFDB_REASON_NAME_CONFLICT,
        Reason::CreateExists => refdb_reason::REFDB_REASON_EXISTS,
        Reason::NonexistentRef => refdb_reason::REFDB_REASON_MISSING,
        Reason::IncorrectOldValue => refdb_reason::REFDB_REASON_OLD_VALUE,
        Reason::InvalidNewValue => refdb_reason::REFDB_REASON_NEW_VALUE,
        Reason::ExpectedSymref => refdb_reason::REFDB_REASON_NO_SYMREF,
        Reason::CaseConflict => refdb_reason::REFDB_REASON_CASE,
        _ => refdb_reason::REFDB_REASON_OTHER,
    }
}

/// Returns the refused edits, `*count` of them.
///
/// Ownership: they belong to `outcome`. Threads: any. Null, and nothing in `*count`, for a null pointer.
///
/// # Safety
/// `outcome` is not freed, and `count` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refdb_outcome_rejections(
    outcome: *const refdb_outcome,
    count: *mut usize,
) -> *const refdb_rejection {
    // SAFETY: as this function's.
    match unsafe { (shared(outcome), unique(count)) } {
        (Ok(outcome), Ok(count)) => {
            *count = outcome.shown.len();
            outcome.shown.as_ptr()
        }
        _ => std::ptr::null(),
    }
}

/// Returns what failed after the refs were in place, as `*count` texts that end with a zero byte.
///
/// Ownership: they belong to `outcome`. Threads: any. Null, and nothing in `*count`, for a null pointer.
///
/// # Safety
/// `outcome` is not freed, and `count` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refdb_outcome_warnings(
    outcome: *const refdb_outcome,
    count: *mut usize,
) -> *const *const c_char {
    // SAFETY: as this function's.
    match unsafe { (shared(outcome), unique(count)) } {
        (Ok(outcome), Ok(count)) => {
            *count = outcome.warnings.len();
            outcome.warnings.as_ptr()
        }
        _ => std::ptr::null(),
    }
}

/// Frees an outcome; null is fine.
///
/// # Safety
/// `outcome` was not freed yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refdb_outcome_free(outcome: *mut refdb_outcome) {
    // SAFETY: as this function's.
    unsafe { take_back(outcome) }
}
