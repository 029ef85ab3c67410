/* GGUF files: see gguf.h. A file has a magic number, a version and counts; metadata; a description of each tensor;
 * then, aligned, the tensors' data. */
#include "gguf.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { UINT8, INT8, UINT16, INT16, UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY, UINT64, INT64, FLOAT64, NTYPES };
static const uint8_t sizes[NTYPES] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8}; /* bytes of a value; 0: variable */
enum { ALIGNMENT = 32, MOST_ALIGNMENT = 1 << 20 };

struct reader {
    const char *path;
    const uint8_t *from, *at, *end;
    char *why;
    size_t nwhy;
    bool bad;
    uint64_t alignment;
};

static void fail(struct reader *r, const char *what) {
    if (!r->bad)
        snprintf(r->why, r->nwhy, "%s: byte %td: %s", r->path, r->at - r->from, what);
    r->bad = true;
}

static const uint8_t *take_bytes(struct reader *r, uint64_t n) {
    const uint8_t *at = r->at;
    if (r->bad || n > (uint64_t)(r->end - r->at)) {
        fail(r, "the file ends within its header: it was cut off");
        return NULL;
    }
    r->at += n;
    return at;
}

static uint64_t read_uint(struct reader *r, size_t width) {
    uint64_t x = 0;
    const uint8_t *at = take_bytes(r, width);
    if (at)
        memcpy(&x, at, width); /* this machine is little-endian, as the file is */
    return x;
}

static const char *read_string(struct reader *r, size_t *n) {
    uint64_t length = read_uint(r, 8);
    const char *s = (const char *)take_bytes(r, length);
    *n = s ? (size_t)length : 0;
    return s ? s : "";
}

static void skip_value(struct reader *r, uint32_t type) {
    uint64_t n = 1;
    size_t length;
    if (type == ARRAY) {
        type = (uint32_t)read_uint(r, 4);
        n = read_uint(r, 8);
    }
    if (type >= NTYPES || type == ARRAY)
        fail(r, "a value of unknown type");
    else if (type != STRING)
        take_bytes(r, n > (uint64_t)(r->end - r->from) ? UINT64_MAX : n * sizes[type]);
    for (uint64_t i = 0; type == STRING && i < n && !r->bad; i++)
        read_string(r, &length);
}

/* Reads a number of any type; returns NAN if the value is no number. */
static double read_scalar(struct reader *r, uint32_t type) {
    const uint8_t *at = r->at;
    float x;
    double y;
    skip_value(r, type);
    if (r->bad || type >= NTYPES || sizes[type] == 0)
        return NAN;
    uint64_t whole = 0;
    memcpy(&whole, at, sizes[type]);
    memcpy(&x, &whole, 4); /* this machine is little-endian, as the file is */
    memcpy(&y, &whole, 8);
    return type == FLOAT32 ? (double)x : type == FLOAT64 ? y : (double)whole;
}

/* Metadata that is kept, by the key after the architecture's name. */
struct kept {
    double rope, factor, old_factor, eps, heads, width, head, positions;
    char scaling[16];
};

static void read_said(struct reader *r, const char *key, size_t n, uint32_t type, struct kept *kept) {
    const struct {
        const char *key;
        double *number;
    } all[] = {{"rope.freq_base", &kept->rope},
               {"rope.scaling.factor", &kept->factor},
               {"rope.scale_linear", &kept->old_factor},
               {"attention.layer_norm_rms_epsilon", &kept->eps},
               {"attention.layer_norm_epsilon", &kept->eps},
               {"attention.head_count", &kept->heads},
               {"attention.key_length", &kept->head},
               {"context_length", &kept->positions},
               {"embedding_length", &kept->width}};
    static const char scaling[] = "rope.scaling.type";
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (n == strlen(all[i].key) && memcmp(key, all[i].key, n) == 0) {
            *all[i].number = read_scalar(r, type);
            return;
        }
    if (type != STRING || n != strlen(scaling) || memcmp(key, scaling, n) != 0) {
        skip_value(r, type);
        return;
    }
    const char *s = read_string(r, &n);
    snprintf(kept->scaling, sizeof kept->scaling, "%.*s", n < 15 ? (int)n : 15, s);
}

static void read_metadata(struct reader *r, struct kept *kept) {
    static const char key[] = "general.alignment";
    size_t n;
    const char *name = read_string(r, &n);
    uint32_t type = (uint32_t)read_uint(r, 4);
    if (n != strlen(key) || memcmp(name, key, n) != 0) {
        const char *dot = n ? memchr(name, '.', n) : NULL;
        read_said(r, dot ? dot + 1 : name, dot ? n - (size_t)(dot + 1 - name) : 0, type, kept);
        return;
    }
    r->alignment = type == UINT32 ? read_uint(r, 4) : 0;
    if (r->alignment == 0 || r->alignment > MOST_ALIGNMENT || (r->alignment & (r->alignment - 1)) != 0)
        fail(r, "general.alignment is not a power of two");
}

/* Returns the type with ggml's number. */
static enum values type_of(uint64_t type) {
    switch (type) {
    case 0: return VALUES_F32;
    case 1: return VALUES_F16;
    case 2: return VALUES_Q4_0;
    case 3: return VALUES_Q4_1;
    case 8: return VALUES_Q8_0;
    case 30: return VALUES_BF16;
    default: return NVALUES;
    }
}

/* Reads a tensor's description. For now, `bytes` holds its data's offset. The file lists the dimension with adjacent
 * elements first. */
static void read_tensor_info(struct reader *r, struct named *tensor) {
    int64_t count = 1;
    tensor->name = read_string(r, &tensor->nname);
    uint64_t ndims = read_uint(r, 4);
    if (ndims < 1 || ndims > NAMED_DIMS) {
        fail(r, "a tensor of no dimensions, or of more than 4");
        return;
    }
    tensor->ndims = (int32_t)ndims;
    for (int d = tensor->ndims - 1; d >= 0; d--) {
        tensor->dim[d] = (int64_t)read_uint(r, 8);
        if (tensor->dim[d] < 1 || __builtin_mul_overflow(count, tensor->dim[d], &count))
            fail(r, "a tensor whose shape is beyond any file");
    }
    tensor->type = type_of(read_uint(r, 4));
    if (!r->bad && tensor->type == NVALUES)
        fail(r, "a tensor of an unsupported type; F32, F16, BF16, Q8_0, Q4_0 and Q4_1 are supported");
    tensor->bytes = (int64_t)read_uint(r, 8);
    if (!r->bad && values_bytes(tensor->type, tensor->dim[tensor->ndims - 1]) < 0)
        fail(r, "a tensor whose rows are not whole blocks of its type");
    tensor->data = r->from;
    if (!r->bad && values_bytes(tensor->type, count) < 0)
        fail(r, "a tensor whose shape is beyond any file");
}

static int64_t tensor_size(const struct named *tensor) {
    int64_t count = 1;
    for (int d = 0; d < tensor->ndims; d++)
        count *= tensor->dim[d];
    return values_bytes(tensor->type, count);
}

/* Sets the place of a tensor's data, which follow all descriptions, once these have been read. */
static void place_tensor(struct reader *r, struct named *tensor) {
    uint64_t begin = ((uint64_t)(r->at - r->from) + r->alignment - 1) / r->alignment * r->alignment,
             size = (uint64_t)(r->end - r->from), offset = (uint64_t)tensor->bytes;
    tensor->bytes = tensor_size(tensor);
    if (begin > size || offset > size - begin || (uint64_t)tensor->bytes > size - begin - offset) {
        snprintf(r->why, r->nwhy, "%s: tensor %.*s lies beyond the end of the file: it was cut off", r->path,
                 tensor->nname < 100 ? (int)tensor->nname : 100, tensor->name);
        r->bad = true;
        return;
    }
    tensor->data = r->from + begin + offset;
}

/* Returns the file's information on its model. As in llama.cpp, a scaling without a type is linear, and an older key
 * holds its factor. */
static struct named_said said_by(const struct kept *kept) {
    struct named_said said = nothing_said;
    said.rope = kept->rope;
    said.eps = kept->eps;
    said.positions = kept->positions;
    said.factor = isnan(kept->factor) ? kept->old_factor : kept->factor;
    said.head = isnan(kept->head) ? kept->width / kept->heads : kept->head;
    if (kept->scaling[0])
        snprintf(said.scaling, sizeof said.scaling, "%s", kept->scaling);
    else if (!isnan(kept->rope) || !isnan(kept->heads))
        snprintf(said.scaling, sizeof said.scaling, "%s", said.factor > 0 && said.factor != 1 ? "linear" : "none");
    return said;
}

bool gguf_tensors(const char *path, const uint8_t *data, size_t size, struct named_list *list, struct named_said *said,
                  char *why, size_t nwhy) {
    struct kept kept = {NAN, NAN, NAN, NAN, NAN, NAN, NAN, NAN, ""};
    struct reader r = {path, data, data, data + size, why, nwhy, false, ALIGNMENT};
    size_t before = list->n;
    take_bytes(&r, 4); /* the magic number, GGUF */
    uint64_t version = read_uint(&r, 4), tensors = read_uint(&r, 8), values = read_uint(&r, 8);
    if (!r.bad && version != 2 && version != 3)
        fail(&r, "a GGUF version other than 2 or 3");
    for (uint64_t i = 0; i < values && !r.bad; i++)
        read_metadata(&r, &kept);
    *said = said_by(&kept);
    for (uint64_t i = 0; i < tensors && !r.bad; i++) {
        struct named tensor = {.name = NULL};
        read_tensor_info(&r, &tensor);
        if (!r.bad && !named_add(list, &tensor))
            fail(&r, "no memory");
    }
    for (size_t i = before; i < list->n && !r.bad; i++)
        place_tensor(&r, &list->at[i]);
    return !r.bad;
}
