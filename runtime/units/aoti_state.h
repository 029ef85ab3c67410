/* The state of a running graph, shared by aoti.c, which replays it, and the exporter, which records its tape. */
#ifndef PIANOLA_AOTI_STATE_H
#define PIANOLA_AOTI_STATE_H
#include "aoti.h"

/* A tensor, also the handle that graphs know. Tensors of one storage count in its owner, the first of them. */
struct aoti_tensor {
    char *data;
    struct aoti_tensor *owner, *next; /* next: of the free ones */
    int64_t bytes;                    /* of the storage */
    int32_t uses;                     /* of an owner: its tensors, itself included until it is deleted */
    int32_t allocation;               /* of an owner: its number on the tape; -1: an operand of the call */
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
    void *self; /* of those functions */
};

/* Makes the calling thread run a graph, whose tensors come from a pool of n records. */
void aoti_begin(struct aoti_state *state, void *pool, int32_t n);
void aoti_end(void);
/* Returns a tensor in memory of the caller. */
struct aoti_tensor *aoti_operand(void *data, const struct aoti_input *shape);
_Noreturn void aoti_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
#endif
