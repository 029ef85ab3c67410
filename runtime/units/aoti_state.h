/* The state of a running graph, shared by aoti.c, which replays it, and the exporter, which records its tape. */
#ifndef PIANOLA_AOTI_STATE_H
#define PIANOLA_AOTI_STATE_H
#include "aoti.h"
#include <assert.h>

/* GPUs access up to this many bytes at once, so what a graph allocates there begins at multiples of it. */
enum { AOTI_AT_ONCE = 16 };
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
    bool held; /* the graph has made it and not deleted it */
    int64_t size[AOTI_DIMS], stride[AOTI_DIMS];
};
static_assert(sizeof(struct aoti_tensor) <= AOTI_RECORD, "a record holds a tensor");

struct aoti_state {
    const char *name;
    struct aoti_tensor *free;
    const char *pool; /* the records of all tensors */
    int32_t records;
    int32_t in_use, most; /* tensors */
    int32_t allocations;  /* so far */
    /* Returns memory for the next allocation, or fails. */
    char *(*place)(struct aoti_state *state, int64_t bytes);
    /* Called when the last tensor of an allocation is deleted; NULL: nobody wants to know. */
    void (*drop)(struct aoti_state *state, int32_t allocation);
    /* Called when a product makes an allocation: returns whether it is added to what is there. NULL: never. */
    bool (*adds)(struct aoti_state *state, int32_t allocation);
    /* Copies elements between tensors of the same sizes and dtype. NULL: both are on the host. */
    void (*copy)(struct aoti_state *state, struct aoti_tensor *to, const struct aoti_tensor *from);
    void *self;          /* data of these functions */
    int32_t device_type; /* PyTorch's number: 0 for CPUs, 1 for CUDA */
    void *stream;        /* CUDA: to enqueue on */
};

/* Begins a graph on the calling thread. Its tensors come from a pool of n records. */
void aoti_begin(struct aoti_state *state, void *pool, int32_t n);
void aoti_end(void);
/* Returns what the calling thread runs. */
struct aoti_state *aoti_current(void);

/* A graph's run on a call. */
struct aoti_replay {
    const struct aoti_graph *graph;
    const struct pianola_unit_call *call;
    const void *constants; /* where the graph reads them */
};
/* Runs a graph. state: says how to copy, and on which device. pool: memory on the host for the tensors' records. */
void aoti_replay(const struct aoti_replay *replay, struct aoti_state *state, void *pool);
/* Returns the first allocation from `from` on that is a gradient in work, which belongs in dw, and sets its two places;
 * NULL: there is none. */
const struct aoti_allocation *aoti_spare_gradient(const struct aoti_replay *replay, const struct aoti_allocation *from,
                                                  float **dw, const float **more);

/* Returns a tensor in memory of the caller. */
struct aoti_tensor *aoti_operand(void *data, const struct aoti_input *shape);
typedef struct aoti_tensor *handle;
/* Returns whether a product is added to what is in its output. */
bool aoti_adds(const struct aoti_tensor *out);
/* Returns a new tensor, in the next allocation's place. */
handle aoti_allocate(int32_t dtype, int64_t dims, const int64_t *size, const int64_t *stride);
void aoti_delete(handle t);
/* Ends the graph with an error unless t is a tensor that the graph has. */
void aoti_must_have(const struct aoti_tensor *t);
/* Returns a new tensor whose elements lie in the order of t's strides, as PyTorch's empty_like does. */
handle aoti_tensor_like(const struct aoti_tensor *t);
/* Returns a new tensor with t's sizes, batches x heads x rows x columns, in fp32, whose rows have their heads side by
 * side. */
handle aoti_rows_like(const struct aoti_tensor *t);
/* Copies elements, between tensors of the same sizes and dtype. */
void aoti_copy(handle to, const struct aoti_tensor *from);
/* Return the bytes of an element, and the number of elements. */
int64_t aoti_element_bytes(int32_t dtype);
int64_t aoti_elements(const struct aoti_tensor *t);
/* Returns t with the sizes of `like`, repeated along dimensions that it lacks or in which it has size 1. */
struct aoti_tensor aoti_broadcast(const struct aoti_tensor *t, const struct aoti_tensor *like);
__attribute__((noreturn, format(printf, 1, 2))) void aoti_fail(const char *fmt, ...);
/* A matrix in memory: element (i, j) is at[i * down + j * right]. */
struct grid {
    float *at;
    int64_t down, right;
};
static inline struct grid transposed_grid(struct grid g) {
    const struct grid turned = {g.at, g.right, g.down};
    return turned;
}
/* Returns the matrix of a batch that the last two dimensions of a tensor are. */
static inline struct grid aoti_grid(const struct aoti_tensor *t, int64_t batch) {
    const int32_t d = t->dims - 2;
    const struct grid grid = {(float *)(void *)t->data + (d > 0 ? batch * t->stride[0] : 0), t->stride[d],
                              t->stride[d + 1]};
    return grid;
}
/* Returns whether a row's elements lie side by side. A dimension of size 1 may have any stride. */
static inline bool aoti_has_rows(struct grid g, int64_t rows, int64_t columns) {
    return (g.right == 1 || columns == 1) && (g.down >= columns || rows == 1);
}
/* The rest of a sum: a product is added to the old values, or a row is added to the product, or neither. */
struct plus {
    bool old;
    const float *bias;
};
/* Computes c = a b, plus the rest. size: rows of c, columns of c, columns of a. */
void aoti_multiply(struct grid c, struct grid a, struct grid b, const int64_t size[3], struct plus plus);

/* aoti_cuda.cu: loads a unit's kernels and constants, unless they are loaded. machine: for which they are compiled. */
void aoti_load(struct aoti_code *code, const char *machine);
/* aoti_cuda.cu: makes a state's graph run on the device. name: the graph's, for errors. */
void aoti_begin_cuda(struct aoti_state *state, const char *name, void *stream);

/* The result of functions that graphs import. There is no other, since errors end the process. */
enum { OK = 0 };
#endif
