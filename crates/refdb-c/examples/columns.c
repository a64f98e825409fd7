/* Takes all refs as Arrow columns and prints names and whether they have an id: columns REPOSITORY */
#include "show.h"

int main(int argc, char **argv) {
  refdb_store *store;
  struct ArrowArrayStream stream;
  struct ArrowSchema schema;
  struct ArrowArray batch;

  if (argc < 2) {
    return 2;
  }
  check(refdb_open(argv[1], 0, NULL, 0, &store));
  check(refdb_arrow_stream(store, NULL, &stream));
  refdb_close(store);
  if (stream.get_schema(&stream, &schema) != 0) {
    return 1;
  }
  for (int64_t i = 0; i < schema.n_children; i++) {
    fprintf(stderr, "%s %s\n", schema.children[i]->name, schema.children[i]->format);
  }
  schema.release(&schema);
  while (stream.get_next(&stream, &batch) == 0 && batch.release != NULL) {
    /* A column may be moved out of its batch, and lives on when that is released. */
    struct ArrowArray ids = *batch.children[1];
    batch.children[1]->release = NULL;
    const int32_t *offsets = batch.children[0]->buffers[1];
    const char *names = batch.children[0]->buffers[2];
    const uint8_t *valid = ids.buffers[0];
    for (int64_t i = 0; i < batch.length; i++) {
      printf("%.*s %s\n", offsets[i + 1] - offsets[i], names + offsets[i],
             valid[i / 8] >> (i % 8) & 1 ? "object" : "symref");
    }
    batch.release(&batch);
    ids.release(&ids);
  }
  stream.release(&stream);
  return 0;
}
