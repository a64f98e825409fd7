/* What a caller can do wrong gets an answer, and what it does right, too: misuse REPOSITORY ID
 * The repository has refs/heads/main at ID. */
#include <assert.h>

#include "../examples/show.h"

static void nulls(void) {
  refdb_store *store = (refdb_store *)1;
  size_t count = 7;
  refdb_ref record;
  assert(refdb_open(NULL, 0, NULL, 0, &store) == REFDB_MISUSE && store == NULL);
  assert(refdb_open("/", 0, NULL, 0, NULL) == REFDB_MISUSE);
  assert(refdb_open("/", 0, NULL, 3, &store) == REFDB_MISUSE);
  assert(refdb_open("/nowhere", 0, NULL, 0, &store) == REFDB_REPOSITORY && store == NULL);
  assert(refdb_last_error()->status == REFDB_REPOSITORY);
  assert(strlen(refdb_last_error()->message) > 0);
  assert(refdb_format(NULL, NULL, NULL) == REFDB_MISUSE);
  assert(refdb_refs_next(NULL, &record, 1, &count) == REFDB_MISUSE);
  assert(refdb_transaction_commit(NULL, NULL) == REFDB_MISUSE);
  assert(refdb_log_entries(NULL, &count) == NULL && refdb_names_get(NULL, &count) == NULL);
  assert(refdb_outcome_rejections(NULL, &count) == NULL);
  assert(refdb_outcome_warnings(NULL, &count) == NULL && count == 7);
  refdb_close(NULL);
  refdb_ref_free(NULL);
  refdb_refs_free(NULL);
  refdb_log_free(NULL);
  refdb_names_free(NULL);
  refdb_transaction_free(NULL);
  refdb_outcome_free(NULL);
}

static void reads(refdb_store *store, const refdb_oid *id) {
  refdb_ref *found;
  refdb_refs *refs;
  refdb_names *names;
  refdb_log *log;
  refdb_ref records[2];
  size_t count;
  refdb_ref_format format;
  uint8_t len;
  refdb_bytes bad = {NULL, 3};
  check(refdb_format(store, &format, &len));
  assert((format == REFDB_FORMAT_FILES || format == REFDB_FORMAT_REFTABLE) && len == id->len);
  assert(refdb_read(store, bad, &found) == REFDB_MISUSE && found == NULL);
  assert(refdb_read(store, text("../config"), &found) == REFDB_INVALID_NAME && found == NULL);
  assert(refdb_read(store, text("refs/heads/no"), &found) == REFDB_MISSING && found == NULL);
  assert(refdb_resolve(store, text("refs/heads/no"), &found) == REFDB_MISSING && found == NULL);
  check(refdb_read(store, text("HEAD"), &found));
  assert(found->symref.len == strlen("refs/heads/main") && found->oid.len == 0);
  assert(memcmp(found->name.data, "HEAD", 4) == 0);
  refdb_ref_free(found);
  check(refdb_resolve(store, text("HEAD"), &found));
  assert(memcmp(found->oid.bytes, id->bytes, id->len) == 0 && found->symref.len == 0);
  refdb_ref_free(found);
  check(refdb_points_at(store, id, &refs));
  check(refdb_refs_next(refs, records, 2, &count));
  assert(count >= 1);
  assert(refdb_refs_next(refs, records, 0, &count) == REFDB_MISUSE && count == 0);
  refdb_refs_free(refs);
  assert(refdb_log_read(store, text("refs/heads/no"), true, &log) == REFDB_MISSING && log == NULL);
  check(refdb_log_create(store, text("refs/other/log")));
  check(refdb_log_names(store, &names));
  assert(refdb_names_get(names, &count) != NULL && count >= 1);
  refdb_names_free(names);
  check(refdb_log_delete(store, text("refs/other/log")));
  check(refdb_optimize(store, true));
}

/* A listing shows one moment, and outlives its store. */
static void listing_lives_on(const char *path) {
  refdb_store *store;
  refdb_refs *refs;
  refdb_ref record;
  size_t count, all = 0;
  check(refdb_open(path, 0, NULL, 0, &store));
  check(refdb_refs_open(store, NULL, &refs));
  refdb_close(store);
  do {
    check(refdb_refs_next(refs, &record, 1, &count));
    all += count;
  } while (count > 0);
  assert(all > 1);
  refdb_refs_free(refs);
}

static void transactions(refdb_store *store, const refdb_oid *id) {
  refdb_transaction *transaction, *other;
  refdb_outcome *outcome;
  refdb_edit edits[2];
  size_t count;
  const refdb_rejection *rejection;
  memset(edits, 0, sizeof edits);
  assert(refdb_transaction_begin(store, 99, NULL, text(""), &transaction) == REFDB_MISUSE);
  /* Zones have four digits. */
  for (int at = 0; at < 4; at++) {
    const int16_t zones[] = {10000, -10000, INT16_MAX, INT16_MIN};
    refdb_signature who = {text("A"), text("a@e"), 1600000000, zones[at]};
    assert(refdb_transaction_begin(store, 0, &who, text(""), &transaction) == REFDB_MISUSE);
  }
  check(refdb_transaction_begin(store, 0, NULL, text(""), &transaction));
  /* All zero is no edit. */
  assert(refdb_transaction_add(transaction, edits, 1, &count) == REFDB_MISUSE && count == 0);
  edits[0].change = edits[1].change = REFDB_UPDATE;
  edits[0].name = text("refs/heads/one");
  edits[1].name = text("refs/heads/bad..name");
  edits[0].new_id = edits[1].new_id = *id;
  assert(refdb_transaction_add(transaction, edits, 2, &count) == REFDB_INVALID_NAME && count == 1);
  edits[1].name = text("refs/heads/main");
  edits[1].expected = REFDB_EXPECT_MISSING;
  check(refdb_transaction_add(transaction, &edits[1], 1, NULL));
  /* All or nothing: the refusal is data, too. */
  assert(refdb_transaction_commit(transaction, &outcome) == REFDB_REJECTED && outcome != NULL);
  rejection = refdb_outcome_rejections(outcome, &count);
  assert(count == 1 && rejection->index == 1 && rejection->reason == REFDB_REASON_EXISTS);
  assert(memcmp(rejection->name.data, "refs/heads/main", rejection->name.len) == 0);
  refdb_outcome_free(outcome);
  assert(refdb_transaction_commit(transaction, &outcome) == REFDB_MISUSE && outcome == NULL);
  assert(refdb_transaction_add(transaction, edits, 1, NULL) == REFDB_MISUSE);
  refdb_transaction_free(transaction);
  /* In two steps; the locks are held between them, and given back when it is freed. */
  check(refdb_transaction_begin(store, 0, NULL, text("two steps"), &transaction));
  check(refdb_transaction_add(transaction, edits, 1, NULL));
  check(refdb_transaction_prepare(transaction, NULL));
  check(refdb_transaction_begin(store, 0, NULL, text(""), &other));
  check(refdb_transaction_add(other, edits, 1, NULL));
  assert(refdb_transaction_commit(other, &outcome) == REFDB_LOCKED);
  if (outcome != NULL) { /* Where each ref has a lock of its own, it says which. */
    rejection = refdb_outcome_rejections(outcome, &count);
    assert(count == 1 && rejection->reason == REFDB_REASON_LOCKED);
    refdb_outcome_free(outcome);
  }
  refdb_transaction_free(other);
  refdb_transaction_free(transaction);
  check(refdb_transaction_begin(store, 0, NULL, text("two steps"), &transaction));
  check(refdb_transaction_add(transaction, edits, 1, NULL));
  check(refdb_transaction_prepare(transaction, NULL));
  check(refdb_transaction_commit(transaction, &outcome));
  assert(refdb_outcome_rejections(outcome, &count) != NULL && count == 0);
  assert(refdb_outcome_warnings(outcome, &count) != NULL && count == 0);
  refdb_outcome_free(outcome);
  refdb_transaction_free(transaction);
  check(refdb_rename(store, text("refs/heads/one"), text("refs/heads/two"), text("why"), false, false));
  assert(refdb_rename(store, text("refs/heads/one"), text("refs/heads/three"), text(""), false,
                      true) == REFDB_REJECTED);
}

int main(int argc, char **argv) {
  refdb_store *store;
  if (argc < 3) {
    return 2;
  }
  refdb_oid id = read_id(argv[2]);
  assert(refdb_abi_version() == 1);
  assert(refdb_last_error() == NULL);
  nulls();
  const char *config[] = {"core.filesRefLockTimeout=0", "reftable.lockTimeout=0"};
  check(refdb_open(argv[1], 0, config, 2, &store));
  reads(store, &id);
  transactions(store, &id);
  refdb_close(store);
  check(refdb_open(argv[1], REFDB_OPEN_DISCOVER, NULL, 0, &store));
  refdb_close(store);
  listing_lives_on(argv[1]);
  printf("answered\n");
  return 0;
}
