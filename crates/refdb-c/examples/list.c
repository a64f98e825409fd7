/* Lists refs, 1,024 in one call, with the object that each leads to: list REPOSITORY PREFIX [EXCLUDED...] */
#include "show.h"

int main(int argc, char **argv) {
  static refdb_ref records[1024];
  refdb_store *store;
  refdb_refs *refs;
  size_t count;

  if (argc < 3) {
    return 2;
  }
  check(refdb_open(argv[1], 0, NULL, 0, &store));
  refdb_bytes *excluded = calloc((size_t)argc, sizeof *excluded);
  refdb_selection selection = {text(argv[2]), text(""), excluded, (size_t)argc - 3};
  for (int i = 3; i < argc; i++) {
    excluded[i - 3] = text(argv[i]);
  }
  check(refdb_refs_open(store, &selection, &refs));
  free(excluded);
  do {
    check(refdb_refs_next(refs, records, 1024, &count));
    for (size_t i = 0; i < count; i++) {
      refdb_ref *end = NULL;
      if (records[i].symref.len > 0) {
        check(refdb_resolve(store, records[i].name, &end));
        if (end == NULL) {
          continue; /* It leads nowhere. */
        }
      }
      print_id(end ? &end->oid : &records[i].oid);
      printf(" %.*s\n", (int)records[i].name.len, (const char *)records[i].name.data);
      refdb_ref_free(end);
    }
  } while (count > 0);
  refdb_refs_free(refs);
  refdb_close(store);
  return 0;
}
