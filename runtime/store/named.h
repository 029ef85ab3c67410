/* Tensors by their names, from files of weights that others wrote: safetensors, alone or in parts with an index, and
 * GGUF. Files are mapped: what is not asked for is not read. */
#ifndef PIANOLA_NAMED_H
#define PIANOLA_NAMED_H
#include "values.h"
#include <stddef.h>

enum { NAMED_DIMS = 4 };
struct named {
    const char *name; /* not ended by a zero: */
    size_t nname;
    int32_t ndims;
    int64_t dim[NAMED_DIMS]; /* the last one's elements are next to each other */
    enum values type;
    const char *unread; /* its type, if that is none whose values are read; or NULL */
    const uint8_t *data;
    int64_t bytes;
    bool used; /* for its readers to set */
};
struct named_list {
    struct named *at;
    size_t n, cap;
};
/* What a file says of its model besides tensors: the base of its rope, how that is scaled, what norms add to a
 * variance, the columns of a head, and how many positions it has learned. NAN: nothing. scaling: "none", "linear",
 * "llama3" or another; "": not said. */
struct named_said {
    double rope, factor, low, high, context, eps, head, positions;
    char scaling[16];
};
extern const struct named_said nothing_said;

/* False: no memory. */
bool named_add(struct named_list *list, const struct named *tensor);

struct named_file;
/* path: a file, or the index of several, *.safetensors.index.json, which lie beside it. NULL: why says what is wrong.
 */
struct named_file *named_open(const char *path, char *why, size_t nwhy);
const char *named_path(const struct named_file *file);
bool named_is_gguf(const struct named_file *file);
struct named *named_find(struct named_file *file, const char *name); /* NULL: not there */
struct named_list *named_all(struct named_file *file);               /* sorted by name */
/* Have they the same shape and values? */
bool named_equal(const struct named *a, const struct named *b);
const struct named_said *named_said(const struct named_file *file); /* by GGUF's metadata */
/* Of all names, types and shapes, and of a few bytes of each tensor: tells two models apart, or two trainings of one,
 * without reading all of either. */
uint64_t named_hash(const struct named_file *file);
void named_close(struct named_file *file);
#endif
