/* The refs of Git repositories, for C. docs/c.md has the whole of it.
 *
 * Made from crates/refdb-c by `scripts/c-library --header`: change it there.
 *
 * Rules that hold everywhere:
 * - Names and ids are bytes. What is shown by a pointer belongs to the thing that it came from; what is
 *   given out by an `out` parameter is the caller's, who frees it once, by the function that its type
 *   names. The functions that free take null.
 * - A store can be used by any number of threads at the same time. A listing and a transaction are for
 *   one thread at a time. Nothing is tied to the thread that made it.
 * - After fork a child opens a store of its own. It may use its parent's if no other thread was in a call with that
 *   just then: what such a thread held nobody gives back in the child. A transaction or listing of its parent it
 *   neither uses nor commits; to free it does no harm.
 * - Every function returns; none ends the process, none throws.
 */

#ifndef REFDB_H
#define REFDB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
/* Arrow's C data interface: its layout and its guards are the same everywhere. */
#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE
#define ARROW_FLAG_DICTIONARY_ORDERED 1
#define ARROW_FLAG_NULLABLE 2
#define ARROW_FLAG_MAP_KEYS_SORTED 4
struct ArrowSchema {
  const char *format;
  const char *name;
  const char *metadata;
  int64_t flags;
  int64_t n_children;
  struct ArrowSchema **children;
  struct ArrowSchema *dictionary;
  void (*release)(struct ArrowSchema *);
  void *private_data;
};
struct ArrowArray {
  int64_t length;
  int64_t null_count;
  int64_t offset;
  int64_t n_buffers;
  int64_t n_children;
  const void **buffers;
  struct ArrowArray **children;
  struct ArrowArray *dictionary;
  void (*release)(struct ArrowArray *);
  void *private_data;
};
#endif
#ifndef ARROW_C_STREAM_INTERFACE
#define ARROW_C_STREAM_INTERFACE
struct ArrowArrayStream {
  int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *out);
  int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *out);
  const char *(*get_last_error)(struct ArrowArrayStream *);
  void (*release)(struct ArrowArrayStream *);
  void *private_data;
};
#endif
typedef struct ArrowArrayStream refdb_arrow_array_stream;


// Whether a call succeeded, and if not, what can be done. Failures are negative.
typedef enum {
  // It did.
  REFDB_OK = 0,
  // There is no such thing. This is an answer and no failure.
  REFDB_MISSING = 1,
  // The system refused a file operation: look at the message; a retry may help.
  REFDB_IO = -1,
  // Another process holds a lock: try again later.
  REFDB_LOCKED = -2,
  // A file of the ref store, or an object, is damaged or missing: look at the remedy.
  REFDB_CORRUPT = -3,
  // A single ref is unreadable: delete or rewrite it.
  REFDB_BROKEN_REF = -4,
  // A name breaks Git's rules: choose another.
  REFDB_INVALID_NAME = -5,
  // An edit was refused: see the outcome; read again and decide anew.
  REFDB_REJECTED = -6,
  // The repository needs something that this version cannot do.
  REFDB_UNSUPPORTED = -7,
  // A configuration value, or a date in the environment, is invalid: mend it.
  REFDB_CONFIG = -8,
  // There is no repository at the path, or it may not be opened: check path and owner.
  REFDB_REPOSITORY = -9,
  // A hook refused the transaction, or could not be called.
  REFDB_HOOK = -10,
  // The caller asked for something that makes no sense: mend the caller.
  REFDB_MISUSE = -11,
  // The refs were moved into the other format since the store was opened: open it again.
  REFDB_MOVED = -12,
  // A failure that has no code of its own: look at the message.
  REFDB_UNKNOWN = -13,
  // A fault in refdb itself. The thing that was used is to be freed and not to be used again.
  REFDB_PANIC = -14,
} refdb_status;

// What can be done about an error beside what its code says.
typedef enum {
  // Nothing in particular.
  REFDB_REMEDY_NONE = 0,
  // The refs are damaged: `refdb refs verify --deep` tells all that is wrong, `refdb refs repair`
  // mends what can be mended.
  REFDB_REMEDY_REPAIR = 1,
  // A lock was made by a process of which nobody can tell whether it runs: if it does not,
  // `refdb refs repair --remove-locks` finishes what it began.
  REFDB_REMEDY_REMOVE_LOCKS = 2,
  // A transaction that was committed cannot be finished: remove what is in its way, or let
  // `refdb refs repair --give-up` do what can be done of it.
  REFDB_REMEDY_GIVE_UP = 3,
} refdb_remedy;

// How refs are kept.
typedef enum {
  // As loose files and packed-refs.
  REFDB_FORMAT_FILES = 1,
  // As tables.
  REFDB_FORMAT_REFTABLE = 2,
} refdb_ref_format;

// Why an edit was refused.
typedef enum {
  // For a reason that has no number: see the message.
  REFDB_REASON_OTHER = 0,
  // The name and that of another ref cannot both exist.
  REFDB_REASON_NAME_CONFLICT = 1,
  // The ref was expected not to exist.
  REFDB_REASON_EXISTS = 2,
  // The ref was expected to exist.
  REFDB_REASON_MISSING = 3,
  // The ref holds something else than what was expected.
  REFDB_REASON_OLD_VALUE = 4,
  // The new value is no object, or no commit where one is needed.
  REFDB_REASON_NEW_VALUE = 5,
  // The ref was expected to be a symref.
  REFDB_REASON_NO_SYMREF = 6,
  // The name differs only in case from another, where the file system cannot tell them apart.
  REFDB_REASON_CASE = 7,
  // Somebody else holds the lock of the ref: try again later.
  REFDB_REASON_LOCKED = 8,
} refdb_reason;

// What an edit does.
typedef enum {
  // The ref is to name the object `new_id`; all zero deletes.
  REFDB_UPDATE = 1,
  // The ref is to be a symref to `target`.
  REFDB_SYMBOLIC = 2,
  // The ref and its reflog are to go.
  REFDB_DELETE = 3,
  // Nothing changes: what is expected is checked.
  REFDB_VERIFY = 4,
  // An entry from `old_id` to `new_id` is added to the reflog; the ref stays as it is.
  REFDB_LOG = 5,
} refdb_change;

// What a ref is expected to hold when it is locked.
typedef enum {
  // Anything or nothing.
  REFDB_EXPECT_ANY = 0,
  // The ref does not exist.
  REFDB_EXPECT_MISSING = 1,
  // The ref exists, whatever it holds.
  REFDB_EXPECT_EXISTS = 2,
  // The ref leads to the object `old_id`.
  REFDB_EXPECT_OID = 3,
  // The ref is a symref to exactly `old_target`.
  REFDB_EXPECT_SYMBOLIC = 4,
} refdb_expected;

// How an edit is done: flags, added up.
typedef enum {
  // Change a symref itself and not the ref at its end.
  REFDB_NO_DEREF = 1,
  // Make a reflog even where the configuration asks for none.
  REFDB_CREATE_LOG = 2,
  // Add no entry to any reflog.
  REFDB_SKIP_LOG = 4,
  // Take the new value without looking for its object.
  REFDB_SKIP_OBJECT_CHECK = 8,
} refdb_edit_flags;

// How a transaction is done: flags, added up.
typedef enum {
  // Single edits may be refused while the others go on; without it all happen, or none.
  REFDB_BATCH = 1,
} refdb_transaction_flags;

// How `refdb_open` opens: flags, added up.
typedef enum {
  // Search for the repository that the path is in, as Git does, `GIT_DIR` included. Without it the
  // path is the repository itself, or the top of its work tree.
  REFDB_OPEN_DISCOVER = 1,
} refdb_open_flags;

// What is said of a ref: flags, added up.
typedef enum {
  // The value comes from packed-refs.
  REFDB_REF_PACKED = 1,
  // The value could not be read, or is the null id: it has no id then.
  REFDB_REF_BROKEN = 2,
  // The name is not well-formed: the ref can be read and deleted.
  REFDB_REF_BAD_NAME = 4,
} refdb_ref_flags;

// The entries of a reflog, as they were at one moment. `refdb_log_free` frees it.
//
// Any number of threads may read one at the same time.
typedef struct refdb_log refdb_log;

// Names. `refdb_names_free` frees them. Any number of threads may read them at the same time.
typedef struct refdb_names refdb_names;

// What a transaction came to. `refdb_outcome_free` frees it. Any number of threads may read one.
typedef struct refdb_outcome refdb_outcome;

// Refs in the order of their names, as they were at one moment.
//
// For one thread at a time. `refdb_refs_free` frees it; the store may be closed before.
typedef struct refdb_refs refdb_refs;

// The refs of a repository, as one of its worktrees sees them. It sees what other processes write.
//
// Any number of threads may use one at the same time. `refdb_close` frees it.
typedef struct refdb_store refdb_store;

// Edits that happen together.
//
// For one thread at a time; another one may go on with it. `refdb_transaction_free` frees it, and
// gives up what was not committed; the store may be closed before.
typedef struct refdb_transaction refdb_transaction;

// Bytes of any value, a name for example; no zero byte ends them. Null is fine where `len` is 0.
typedef struct {
  // The first one.
  const uint8_t *data;
  // How many there are.
  size_t len;
} refdb_bytes;

// What the last failing call of this thread said.
typedef struct {
  // The code that the call returned.
  refdb_status status;
  // What can be done, beside what the code says.
  refdb_remedy remedy;
  // What is wrong, for a person: ends with a zero byte, never null.
  const char *message;
  // The file or directory that it is about; empty if it is about none.
  refdb_bytes path;
  // The line of that file that is damaged, from 1; 0 if none is known.
  size_t line;
} refdb_error;

// The id of an object, of either hash.
typedef struct {
  // The raw bytes, of which the first `len` count.
  uint8_t bytes[32];
  // How many there are: 20 for SHA-1, 32 for SHA-256, 0 for no id at all.
  uint8_t len;
} refdb_oid;

// A person and a moment.
typedef struct {
  // The name.
  refdb_bytes name;
  // The email address, without angle brackets.
  refdb_bytes email;
  // Seconds since 1970-01-01 UTC.
  uint64_t time;
  // The time zone as the decimal number `HHMM` with its sign: -530 is half past five west. More than four
  // digits are `REFDB_MISUSE`.
  int16_t zone;
} refdb_signature;

// One entry of a reflog.
typedef struct {
  // The value before; all zero when the ref came into being.
  refdb_oid old_id;
  // The value after; all zero when the ref was deleted.
  refdb_oid new_id;
  // Who did it, and when.
  refdb_signature who;
  // Why, without a line feed.
  refdb_bytes message;
} refdb_log_entry;

// Which refs are listed. All zero stands for all of them.
typedef struct {
  // What the names start with (no regard for `/`).
  refdb_bytes prefix;
  // The name behind which they begin; empty for the first one.
  refdb_bytes start_after;
  // What the names do not start with: `exclude_len` of them.
  const refdb_bytes *exclude;
  // How many there are.
  size_t exclude_len;
} refdb_selection;

// One ref.
typedef struct {
  // The full name.
  refdb_bytes name;
  // The name that a symref names; empty for any other ref.
  refdb_bytes symref;
  // The object; none for a symref and a broken ref.
  refdb_oid oid;
  // What an annotated tag peels to, where that is stored.
  refdb_oid peeled;
  // Of `refdb_ref_flags`.
  uint32_t flags;
} refdb_ref;

// One edit. What `change` and `expected` do not ask for is not looked at, and may be zero.
typedef struct {
  // Of `refdb_change`.
  uint32_t change;
  // Of `refdb_expected`.
  uint32_t expected;
  // Of `refdb_edit_flags`.
  uint32_t flags;
  // The full name of the ref.
  refdb_bytes name;
  // What a symref is to name.
  refdb_bytes target;
  // What a symref is expected to name.
  refdb_bytes old_target;
  // Why, for the reflog; the transaction's message if empty.
  refdb_bytes message;
  // The object that the ref is to name.
  refdb_oid new_id;
  // The object that it is expected to name.
  refdb_oid old_id;
} refdb_edit;

// One refused edit.
typedef struct {
  // The position of the edit in its transaction, from 0.
  size_t index;
  // Why, as a number.
  refdb_reason reason;
  // The ref that it is about: the edit's, or the one that its symref leads to.
  refdb_bytes name;
  // Why, for a person; ends with a zero byte.
  const char *message;
} refdb_rejection;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Returns what the last failing call of this thread said; null if none has failed.
//
// Ownership: it belongs to the library, and stays as it is until another call of this thread fails.
// Threads: each has its own.
const refdb_error *refdb_last_error(void);

// Reads a reflog; `REFDB_MISSING` if there is none.
//
// Ownership: `*out` is the caller's, who frees it by `refdb_log_free`; null unless `REFDB_OK`.
// Threads: any.
//
// # Safety
// `store` is open, `name` can be read, and `out` can be written.
refdb_status refdb_log_read(const refdb_store *store,
                            refdb_bytes name,
                            bool newest_first,
                            refdb_log **out);

// Returns the entries of a reflog, `*count` of them.
//
// Ownership: they belong to `log`. Threads: any. Null, and nothing in `*count`, for a null pointer.
//
// # Safety
// `log` is not freed, and `count` can be written.
const refdb_log_entry *refdb_log_entries(const refdb_log *log, size_t *count);

// Frees a reflog that was read; null is fine.
//
// # Safety
// `log` was not freed yet.
void refdb_log_free(refdb_log *log);

// Lists the names that have a reflog.
//
// Ownership: `*out` is the caller's, who frees it by `refdb_names_free`; null after a failure.
// Threads: any.
//
// # Safety
// `store` is open, and `out` can be written.
refdb_status refdb_log_names(const refdb_store *store, refdb_names **out);

// Returns the names, `*count` of them.
//
// Ownership: they belong to `names`. Threads: any. Null, and nothing in `*count`, for a null pointer.
//
// # Safety
// `names` is not freed, and `count` can be written.
const refdb_bytes *refdb_names_get(const refdb_names *names,
                                   size_t *count);

// Frees names; null is fine.
//
// # Safety
// `names` was not freed yet.
void refdb_names_free(refdb_names *names);

// Makes a reflog without entries, unless there is one.
//
// Threads: any.
//
// # Safety
// `store` is open, and `name` can be read.
refdb_status refdb_log_create(const refdb_store *store, refdb_bytes name);

// Removes a reflog; its ref stays. One that is not there is fine.
//
// Threads: any.
//
// # Safety
// `store` is open, and `name` can be read.
refdb_status refdb_log_delete(const refdb_store *store, refdb_bytes name);

// Begins to list refs, root refs such as `HEAD` included. `selected` says which; null stands for all.
//
// Ownership: `*out` is the caller's, who frees it by `refdb_refs_free`; null after a failure.
// `selected` is not needed afterwards. Threads: any.
//
// # Safety
// `store` is open, `selected` can be read, and `out` can be written.
refdb_status refdb_refs_open(const refdb_store *store,
                             const refdb_selection *selected,
                             refdb_refs **out);

// Lists the refs whose value, or peeled value where that is stored, is `oid`.
//
// Ownership and threads: as for `refdb_refs_open`.
//
// # Safety
// `store` is open, `oid` can be read, and `out` can be written.
refdb_status refdb_points_at(const refdb_store *store, const refdb_oid *oid, refdb_refs **out);

// Shows the next refs: at most `capacity` of them are written to `records`, and how many to `*count`,
// which is 0 behind the last one. 1,024 at a time is a good number.
//
// Ownership: the texts of the records belong to `refs`, and stay until the next call with it. After a
// failure nothing more is to be had from it. Threads: one at a time.
//
// # Safety
// `refs` is not freed; `records` has room for `capacity` records, and `count` can be written.
refdb_status refdb_refs_next(refdb_refs *refs,
                             refdb_ref *records,
                             size_t capacity,
                             size_t *count);

// Frees a listing; null is fine.
//
// Ownership: `refs` is gone, and the texts that it showed. Threads: none may use it any more.
//
// # Safety
// `refs` was not freed yet.
void refdb_refs_free(refdb_refs *refs);

// Opens a repository.
//
// `path` ends with a zero byte. `flags` are of `refdb_open_flags`. `config` are `config_len` values of
// the configuration, each `section.key=value` and a zero byte, which go before those of files; null is
// fine for none. Configuration and environment are read as Git reads them, now and not again. The hook
// `reference-transaction` is not run.
//
// Ownership: `*out` is the caller's, who frees it by `refdb_close`; null after a failure.
// Threads: any.
//
// # Safety
// The pointers point to what is said above.
refdb_status refdb_open(const char *path,
                        uint32_t flags,
                        const char *const *config,
                        size_t config_len,
                        refdb_store **out);

// Frees a store; null is fine.
//
// Ownership: `store` is gone. What was made from it lives on. Threads: none may use it any more.
//
// # Safety
// `store` is from `refdb_open` and was not closed yet.
void refdb_close(refdb_store *store);

// Tells how the refs are kept, and how long the raw ids are (20 or 32). Either place may be null.
//
// Threads: any.
//
// # Safety
// `store` is open; the others are null or can be written.
refdb_status refdb_format(const refdb_store *store, refdb_ref_format *ref_format, uint8_t *id_len);

// Reads one ref as it is stored: a symref is not followed. `REFDB_MISSING` if there is none.
//
// Ownership: `*out` is the caller's, who frees it by `refdb_ref_free`; null unless `REFDB_OK`.
// Threads: any.
//
// # Safety
// `store` is open, `name` can be read, and `out` can be written.
refdb_status refdb_read(const refdb_store *store, refdb_bytes name, refdb_ref **out);

// Follows symrefs to an object: `*out` is the ref at the end, which has an id. `REFDB_MISSING` if the
// name, or one that it leads to, does not exist.
//
// Ownership and threads: as for `refdb_read`.
//
// # Safety
// As for `refdb_read`.
refdb_status refdb_resolve(const refdb_store *store,
                           refdb_bytes name,
                           refdb_ref **out);

// Frees what `refdb_read` or `refdb_resolve` gave out; null is fine. Refs of other functions belong
// to what they came from.
//
// Threads: any.
//
// # Safety
// `found` is from one of these and was not freed yet.
void refdb_ref_free(refdb_ref *found);

// Gives a ref and its reflog another name. With `copies` the old one stays; with `replaces` a ref that
// has the new name is replaced. `REFDB_REJECTED` when there is no such ref, or another one is in the way.
//
// Threads: any.
//
// # Safety
// `store` is open, and the bytes can be read.
refdb_status refdb_rename(const refdb_store *store,
                          refdb_bytes from,
                          refdb_bytes to,
                          refdb_bytes message,
                          bool copies,
                          bool replaces);

// Packs loose refs, or compacts tables. With `only_if_worth_it` little is left as it is.
//
// Threads: any.
//
// # Safety
// `store` is open.
refdb_status refdb_optimize(const refdb_store *store, bool only_if_worth_it);

// Reads refs into columns, by Arrow's C data interface: `name` (binary), `oid` (fixed-size binary),
// `symref` (binary), `peeled` (fixed-size binary), `broken` (boolean), in batches of some thousand
// rows. `selected` says which refs; null stands for all.
//
// Ownership: `*out`, which holds nothing before, is the caller's; its own `release` frees it.
// Threads: any; the stream, and what comes out of it, is for one thread at a time.
//
// # Safety
// `store` is open, `selected` can be read, and `out` can be written.
refdb_status refdb_arrow_stream(const refdb_store *store,
                                const refdb_selection *selected,
                                refdb_arrow_array_stream *out);

// Returns the version of this interface: a library that says the same number can take the place of
// the one that a program was compiled for.
uint32_t refdb_abi_version(void);

// Begins a transaction. Nothing is read or locked yet.
//
// `flags` are of `refdb_transaction_flags`. `committer` is who is named in reflogs, with the moment;
// null for whom Git would name, now. `message` is the reason that reflogs record where an edit has none.
//
// Ownership: `*out` is the caller's, who frees it by `refdb_transaction_free`; null after a failure.
// Threads: any.
//
// # Safety
// `store` is open, what is given can be read, and `out` can be written.
refdb_status refdb_transaction_begin(const refdb_store *store,
                                     uint32_t flags,
                                     const refdb_signature *committer,
                                     refdb_bytes message,
                                     refdb_transaction **out);

// Adds edits, `len` of them, until one makes no sense: a name that is none, an object that is not
// there. Those before it are added then, and `*added`, which may be null, says how many.
//
// Ownership: `edits` and what they point to is not needed afterwards. Threads: one at a time.
//
// # Safety
// `transaction` is not freed, what is given can be read, and `added` is null or can be written.
refdb_status refdb_transaction_add(refdb_transaction *transaction,
                                   const refdb_edit *edits,
                                   size_t len,
                                   size_t *added);

// Locks the refs and checks every edit; only publishing is left then. `REFDB_REJECTED` when an edit was
// refused and this is no batch, `REFDB_LOCKED` when that is because somebody else holds its lock.
//
// Ownership: `outcome` may be null. Else `*outcome` is the caller's, who frees it by
// `refdb_outcome_free`, and says what was refused; null after another failure. After a failure the
// transaction is over. Threads: one at a time.
//
// # Safety
// `transaction` is not freed, and `outcome` is null or can be written.
refdb_status refdb_transaction_prepare(refdb_transaction *transaction,
                                       refdb_outcome **outcome);

// Commits: every edit is visible and durable when it returns `REFDB_OK`. What is not prepared yet is
// prepared.
//
// Ownership and threads: as for `refdb_transaction_prepare`. The transaction is over in any case, and
// still to be freed.
//
// # Safety
// As for `refdb_transaction_prepare`.
refdb_status refdb_transaction_commit(refdb_transaction *transaction,
                                      refdb_outcome **outcome);

// Frees a transaction; null is fine. What was not committed is given up, and its locks are given back. In a child
// after fork nothing happens: they are the parent's.
//
// Ownership: `transaction` is gone. Threads: none may use it any more.
//
// # Safety
// `transaction` was not freed yet.
void refdb_transaction_free(refdb_transaction *transaction);

// Returns the refused edits, `*count` of them.
//
// Ownership: they belong to `outcome`. Threads: any. Null, and nothing in `*count`, for a null pointer.
//
// # Safety
// `outcome` is not freed, and `count` can be written.
const refdb_rejection *refdb_outcome_rejections(const refdb_outcome *outcome,
                                                size_t *count);

// Returns what failed after the refs were in place, as `*count` texts that end with a zero byte.
//
// Ownership: they belong to `outcome`. Threads: any. Null, and nothing in `*count`, for a null pointer.
//
// # Safety
// `outcome` is not freed, and `count` can be written.
const char *const *refdb_outcome_warnings(const refdb_outcome *outcome,
                                          size_t *count);

// Frees an outcome; null is fine.
//
// # Safety
// `outcome` was not freed yet.
void refdb_outcome_free(refdb_outcome *outcome);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* REFDB_H */
