/* Moves branches in one batch, says what was refused, and shows a reflog:
 * update REPOSITORY BRANCH=OLD:NEW... where OLD may be empty for a new branch. */
#include "show.h"

static refdb_edit edit(char *argument) {
  refdb_edit edit;
  memset(&edit, 0, sizeof edit);
  char *old_id = strchr(argument, '=');
  char *new_id = strchr(argument, ':');
  *old_id++ = *new_id++ = '\0';
  edit.change = REFDB_UPDATE;
  edit.name = text(argument);
  edit.new_id = read_id(new_id);
  edit.expected = *old_id ? REFDB_EXPECT_OID : REFDB_EXPECT_MISSING;
  edit.old_id = read_id(old_id);
  return edit;
}

static void show_log(refdb_store *store, refdb_bytes name) {
  refdb_log *log;
  size_t count;
  refdb_status status = refdb_log_read(store, name, true, &log);
  check(status);
  if (status == REFDB_MISSING) {
    printf("no reflog\n");
    return;
  }
  const refdb_log_entry *entries = refdb_log_entries(log, &count);
  for (size_t i = 0; i < count; i++) {
    print_id(&entries[i].new_id);
    printf(" %.*s\n", (int)entries[i].message.len, (const char *)entries[i].message.data);
  }
  refdb_log_free(log);
}

int main(int argc, char **argv) {
  refdb_store *store;
  refdb_transaction *transaction;
  refdb_outcome *outcome;
  size_t refused;
  refdb_signature ann = {text("Ann"), text("ann@example.org"), 1700000000, 130};

  if (argc < 3) {
    return 2;
  }
  check(refdb_open(argv[1], 0, NULL, 0, &store));
  check(refdb_transaction_begin(store, REFDB_BATCH, &ann, text("moved in C"), &transaction));
  for (int i = 2; i < argc; i++) {
    refdb_edit one = edit(argv[i]);
    check(refdb_transaction_add(transaction, &one, 1, NULL));
  }
  check(refdb_transaction_commit(transaction, &outcome));
  const refdb_rejection *rejections = refdb_outcome_rejections(outcome, &refused);
  for (size_t i = 0; i < refused; i++) {
    printf("edit %zu refused (%d): %s\n", rejections[i].index, rejections[i].reason,
           rejections[i].message);
  }
  refdb_outcome_free(outcome);
  refdb_transaction_free(transaction);
  show_log(store, text(argv[2]));
  refdb_close(store);
  return 0;
}
