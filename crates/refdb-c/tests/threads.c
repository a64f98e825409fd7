/* One store, several threads that write and read, and a child after fork: threads REPOSITORY ID */
#include <assert.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../examples/show.h"

enum { THREADS = 4, ROUNDS = 10 };

static refdb_store *store;
static refdb_oid id;

/* It stays reachable in a child, where freeing it does nothing. */
static refdb_transaction *prepared;

static refdb_transaction *begin(const char *name) {
  refdb_transaction *transaction;
  refdb_edit edit;
  memset(&edit, 0, sizeof edit);
  edit.change = REFDB_UPDATE;
  edit.expected = REFDB_EXPECT_MISSING;
  edit.name = text(name);
  edit.new_id = id;
  check(refdb_transaction_begin(store, 0, NULL, text("made"), &transaction));
  check(refdb_transaction_add(transaction, &edit, 1, NULL));
  return transaction;
}

static void make(const char *name) {
  refdb_transaction *transaction = begin(name);
  check(refdb_transaction_commit(transaction, NULL));
  refdb_transaction_free(transaction);
}

static void *work(void *argument) {
  char name[64];
  refdb_ref records[16];
  for (int round = 0; round < ROUNDS; round++) {
    refdb_refs *refs;
    refdb_ref *found;
    size_t count, all = 0;
    snprintf(name, sizeof name, "refs/heads/thread/%d/%d", *(int *)argument, round);
    make(name);
    /* What this thread wrote, it sees. */
    assert(refdb_resolve(store, text(name), &found) == REFDB_OK);
    refdb_ref_free(found);
    check(refdb_refs_open(store, NULL, &refs));
    do {
      check(refdb_refs_next(refs, records, 16, &count));
      all += count;
    } while (count > 0);
    refdb_refs_free(refs);
    assert(all > (size_t)round);
    /* Errors are each thread's own. */
    assert(refdb_read(store, text(name + 1), &found) == REFDB_MISSING);
    snprintf(name, sizeof name, "../%d", *(int *)argument);
    assert(refdb_read(store, text(name), &found) == REFDB_INVALID_NAME);
    assert(strstr(refdb_last_error()->message, name) != NULL);
  }
  return NULL;
}

static void wait_for(pid_t child) {
  int status;
  assert(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(int argc, char **argv) {
  pthread_t threads[THREADS];
  int numbers[THREADS];
  if (argc < 3) {
    return 2;
  }
  check(refdb_open(argv[1], 0, NULL, 0, &store));
  id = read_id(argv[2]);
  for (int i = 0; i < THREADS; i++) {
    numbers[i] = i;
    assert(pthread_create(&threads[i], NULL, work, &numbers[i]) == 0);
  }
  for (int i = 0; i < THREADS; i++) {
    assert(pthread_join(threads[i], NULL) == 0);
  }
  pid_t child = fork();
  if (child == 0) {
    make("refs/heads/child");
    refdb_close(store);
    return 0;
  }
  wait_for(child);
  prepared = begin("refs/heads/parent");
  check(refdb_transaction_prepare(prepared, NULL));
  child = fork();
  if (child == 0) {
    /* What the parent has locked stays its own. */
    assert(refdb_transaction_commit(prepared, NULL) == REFDB_MISUSE);
    refdb_transaction_free(prepared);
    refdb_close(store);
    return 0;
  }
  wait_for(child);
  check(refdb_transaction_commit(prepared, NULL));
  refdb_transaction_free(prepared);
  refdb_close(store);
  printf("%d\n", THREADS * ROUNDS + 2);
  return 0;
}
