/* The metadata of a GGUF file of a model (github.com/ggml-org/ggml, docs/gguf.md). All lengths are checked against the
 * file's; what is cut off dies with the file's name. */
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
extern const uint8_t gguf_sizes[GGUF_TYPES]; /* bytes; 0: of any */

struct gguf_meta {
    const char *file, *from, *at, *end;
};
struct gguf_value {
    uint32_t type; /* of an array: its items' */
    bool array;
    uint64_t n;
    const char *at; /* NULL: the file has no such key */
};
struct gguf_bytes {
    const char *s;
    size_t n;
};

/* Maps the file until the process ends, as its metadata's strings lie there. False: it is no GGUF file. */
bool gguf_map(const char *path, struct gguf_meta *g);
struct gguf_value gguf_find(const struct gguf_meta *g, const char *key);
struct gguf_bytes gguf_string_at(struct gguf_meta *g); /* the next string of an array that g->at is in */
/* The value of a key; dies when it is there and something else. */
const char *gguf_string(const struct gguf_meta *g, const char *key); /* a name: at most 100 bytes; NULL: none */
/* A number of any type, or a boolean; otherwise: there is none. */
double gguf_number(const struct gguf_meta *g, const char *key, double otherwise);
#endif
