/* The interface of a unit: a layer whose code is not ours. Write three functions in C or CUDA, name them in a model
 * script with unit { … } (schedules/units.md), and Pianola schedules, proves and trains them like its own layers.
 *
 * A unit called NAME has
 *
 *     void NAME_forward(const struct pianola_unit_call *call);   y and stash, from x and w
 *     void NAME_input(const struct pianola_unit_call *call);     dx, and extra, from dy and what was kept
 *     void NAME_weight(const struct pianola_unit_call *call);    dw, from dy and what was kept
 *
 * and for GPUs NAME_forward_cuda, NAME_input_cuda and NAME_weight_cuda, with C linkage, whose pointers are device
 * memory. These only enqueue work on `stream`, because a training step is captured into a graph. A full backward calls
 * NAME_input, then NAME_weight. A unit that trains no parameters needs no NAME_weight.
 *
 * The functions are deterministic. They write only what the call says they write, and everything that it says. They
 * may leave padding of stash, extra and work unwritten. They keep no state, allocate nothing and start no threads.
 * Several threads may call them at once. Before training, Pianola tests this on random data. */
#ifndef PIANOLA_UNIT_H
#define PIANOLA_UNIT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One operation on a microbatch. A pointer that an operation does not have is NULL. Tensors are dense, row after row,
 * in fp32, and begin at multiples of 64 bytes, except tokens, targets, inputs and the x of a model's first layer. */
struct pianola_unit_call {
    int32_t rows, out_rows; /* of x, and of y */
    int32_t in, out;        /* columns of x, and of y */
    const void *x;          /* rows x in: in the forward, and later if the script's `keeps` names x */
    void *y;                /* out_rows x out: the forward writes it; later it is read, if `keeps` names y */
    void *stash;            /* the forward writes it for input and weight */
    void *extra;            /* input writes it for weight */
    void *work;             /* scratch of this call, undefined at its beginning */
    const void *w;          /* the trained parameters, one after the other, in the script's order */
    const void *frozen;     /* the frozen ones, likewise */
    void *dw;               /* weight writes the gradients of w, in the same order, always fp32 */
    bool add;               /* weight adds to dw instead of overwriting it */
    const void *dy;         /* out_rows x out: for input and weight */
    void *dx;               /* rows x in: input writes it; NULL if nobody needs it, but extra is needed */
    /* The script's `side` says which of these the unit has. targets: in a model with labels, -1 does not count. seed:
     * one random number, different for each layer, step and microbatch, equal in all operations on it; in device memory
     * on a GPU. NULL in validations, which draw nothing. */
    const int32_t *tokens, *targets;
    const uint64_t *seed;
    const void *inputs[8]; /* the model's inputs that `side` names, in that order: rows x their columns */
    void *stream;          /* CUDA: the cudaStream_t to enqueue on; host: NULL */
    const void *config;    /* for generated units; NULL in handwritten ones */
};
typedef void pianola_unit_function(const struct pianola_unit_call *call);
#endif
