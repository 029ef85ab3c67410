/* The metadata of a GGUF model file (github.com/ggml-org/ggml, docs/gguf.md). Lengths are checked against the file's; a
 * truncated file is an error that names it. */
#ifndef PIANOLA_GGUF_META_H
#define PIANOLA_GGUF_META_H
#include "base.h"

enum gguf_type {
    GGUF_UINT8,
    GGUF_INT8,
    GGUF_UINT16,
    GGUF_INT16,
    GGUF_UINT32,
    GGUF_INT32,
    GGUF_FLOAT32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_UINT64,
    GGUF_INT64,
    GGUF_FLOAT64,
    GGUF_TYPES
};
extern const uint8_t gguf_sizes[GGUF_TYPES]; /* bytes per value; 0: variable */

struct gguf_meta {
    const char *file, *from, *at, *end;
};
struct gguf_value {
    uint32_t type; /* an array's is its items' type */
    bool array;
    uint64_t n;
    const char *at; /* NULL: the file has no such key */
};
struct gguf_bytes {
    const char *s;
    size_t n;
};

/* Maps the file until the process ends, since the metadata's strings point into it. Returns false if it is no GGUF
 * file. */
bool gguf_map(const char *path, struct gguf_meta *g);
struct gguf_value gguf_find(const struct gguf_meta *g, const char *key);
struct gguf_bytes gguf_string_at(struct gguf_meta *g); /* reads the next string of the array that g->at is in */
/* Return the value of a key. Die if the key has another type. */
const char *gguf_string(const struct gguf_meta *g, const char *key); /* at most 100 bytes; NULL: no such key */
/* Returns a number of any type, or a boolean; `otherwise` if there is no such key. */
double gguf_number(const struct gguf_meta *g, const char *key, double otherwise);
#endif
