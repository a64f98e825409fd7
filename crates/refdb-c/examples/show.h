/* What the examples share: showing ids and errors. */
#ifndef SHOW_H
#define SHOW_H

#include <refdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline refdb_bytes text(const char *text) {
  refdb_bytes bytes = {(const uint8_t *)text, strlen(text)};
  return bytes;
}

/* Ends the program with what the last call said, unless it succeeded. */
static inline void check(refdb_status status) {
  if (status < 0) {
    const refdb_error *error = refdb_last_error();
    fprintf(stderr, "error %d: %s\n", error->status, error->message);
    exit(1);
  }
}

static inline void print_id(const refdb_oid *id) {
  for (int i = 0; i < id->len; i++) {
    printf("%02x", id->bytes[i]);
  }
}

static inline refdb_oid read_id(const char *hex) {
  refdb_oid id = {{0}, (uint8_t)(strlen(hex) / 2)};
  for (int i = 0; i < id.len && i < 32; i++) {
    unsigned byte = 0;
    sscanf(hex + 2 * i, "%2x", &byte);
    id.bytes[i] = (uint8_t)byte;
  }
  return id;
}

#endif
