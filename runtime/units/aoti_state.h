/* The state of a running graph, shared by aoti.c, which replays it, and the exporter, which records its tape. */
#ifndef PIANOLA_AOTI_STATE_H
#define PIANOLA_AOTI_STATE_H
#include "aoti.h"

enum aoti_dtype { UINT8 = 0, INT8, INT16, INT32, INT64, FLOAT16, FLOAT32, FLOAT64, BOOL = 11, BFLOAT16 = 15 };

/* A tensor. Graphs have pointers to it, as handles. The first tensor in a piece of memory is its owner, and counts all
 * tensors there. */
struct aoti_tensor {
    char *data;
    struct aoti_tensor *owner, *next; /* next: the next free record */
    int64_t bytes;                    /* owners: size of the memory */
    int32_t uses;                     /* owners: tensors in the memory, the owner included until it is deleted */
    int32_t allocation;               /* owners: number of the allocation on the tape; -1: an operand of the call */
    int32_t dtype, dims;
    int64_t size[AOTI_DIMS], stride[AOTI_DIMS];
};
_Static_assert(sizeof(struct aoti_tensor) <= AOTI_RECORD, "a record holds a tensor");

struct aoti_state {
    const char *name;
    struct aoti_tensor *free;
    int32_t in_use, most; /* tensors */
    int32_t allocations;  /* so far */
    /* Returns memory for the next allocation, or fails. */
    char *(*place)(struct aoti_state *state, int64_t bytes);
    /* Called when the last tensor of an allocation is deleted; NULL: nobody wants to know. */
    void (*drop)(struct aoti_state *state, int32_t allocation);
    /* Called when a product makes an allocation: returns whether it is added to what is there. NULL: never. */
    bool (*adds)(struct aoti_state *state, int32_t allocation);
    void *self; /* data of these functions */
};

/* Begins a graph on the calling thread. Its tensors come from a pool of n records. */
void aoti_begin(struct aoti_state *state, void *pool, int32_t n);
void aoti_end(void);
/* Returns a tensor in memory of the caller. */
struct aoti_tensor *aoti_operand(void *data, const struct aoti_input *shape);
typedef struct aoti_tensor *handle;
/* Returns whether a product is added to what is in its output. */
bool aoti_adds(const struct aoti_tensor *out);
/* Returns a new tensor, in the next allocation's place. */
handle aoti_allocate(int32_t dtype, int64_t dims, const int64_t *size, const int64_t *stride);
void aoti_delete(handle t);
/* Copies elements, between tensors of the same sizes and dtype. */
void aoti_copy(handle to, const struct aoti_tensor *from);
/* Returns t with the sizes of `like`, repeated along dimensions that it lacks or in which it has size 1. */
struct aoti_tensor aoti_broadcast(const struct aoti_tensor *t, const struct aoti_tensor *like);
_Noreturn void aoti_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* A matrix in memory: element (i, j) is at[i * down + j * right]. */
struct grid {
    float *at;
    int64_t down, right;
};
static inline struct grid transposed_grid(struct grid g) { return (struct grid){g.at, g.right, g.down}; }
/* The rest of a sum: a product is added to the old values, or a row is added to the product, or neither. */
struct plus {
    bool old;
    const float *bias;
};
/* Computes c = a b, plus the rest. size: rows of c, columns of c, columns of a. */
void aoti_multiply(struct grid c, struct grid a, struct grid b, const int64_t size[3], struct plus plus);

/* The result of functions that graphs import. There is no other, since errors end the process. */
enum { OK = 0 };
#endif
