/* Tensors by name, from files of weights that other programs wrote: safetensors, alone or in parts with an index, and
 * GGUF. Files are mapped, so tensors that are not requested are not read. */
#ifndef PIANOLA_NAMED_H
#define PIANOLA_NAMED_H
#include "values.h"
#include <stddef.h>

enum { NAMED_DIMS = 4 };
struct named {
    const char *name; /* nname bytes, not NUL-terminated */
    size_t nname;
    int32_t ndims;
    int64_t dim[NAMED_DIMS]; /* elements of the last dimension are adjacent */
    enum values type;
    const char *unread; /* its type, if values of that type cannot be read; else NULL */
    const uint8_t *data;
    int64_t bytes;
    bool used; /* set by the readers */
};
struct named_list {
    struct named *at;
    size_t n, cap;
};
/* A file's information on its model besides tensors: the base and scaling of its rope, the epsilon of norms, the
 * columns of a head, and the number of positions that it has learned. NAN: not in the file. scaling: "none", "linear",
 * "llama3" or another; "": not in the file. */
struct named_said {
    double rope, factor, low, high, context, eps, head, positions;
    char scaling[16];
};
extern const struct named_said nothing_said;

/* Adds a tensor. Returns false if there is no memory. */
bool named_add(struct named_list *list, const struct named *tensor);

struct named_file;
/* Opens a file, or the index of several in the same folder, *.safetensors.index.json. Returns NULL and sets why on
 * failure. */
struct named_file *named_open(const char *path, char *why, size_t nwhy);
const char *named_path(const struct named_file *file);
bool named_is_gguf(const struct named_file *file);
struct named *named_find(struct named_file *file, const char *name); /* NULL: not there */
struct named_list *named_all(struct named_file *file);               /* sorted by name */
/* Returns whether two tensors have the same shape and values. */
bool named_equal(const struct named *a, const struct named *b);
const struct named_said *named_said(const struct named_file *file); /* from GGUF's metadata */
/* Returns a hash of all names, types and shapes, and of a few bytes of each tensor. It distinguishes two models, or two
 * trainings of one model, without reading all of either. */
uint64_t named_hash(const struct named_file *file);
void named_close(struct named_file *file);
#endif
