/* Units that PyTorch's AOTInductor has compiled, replayed without PyTorch. schedules/pytorch.md tells how a model
 * becomes such units.
 *
 * A compiled graph calls about 30 functions whose names begin with aoti_torch_ to make tensors and multiply matrices.
 * aoti.c defines them. A tensor is a record in a pool, and an allocation takes its place from a tape: the list of all
 * allocations of the graph, which the exporter recorded and placed. So a run allocates nothing, and an allocation that
 * differs from the tape is an error. */
#ifndef PIANOLA_AOTI_H
#define PIANOLA_AOTI_H
#include "unit.h"

enum { AOTI_DIMS = 8 }; /* most dimensions of a tensor */

/* The operands of a call that hold a graph's tensors, and the graph's own constants. AOTI_INPUT + k: inputs[k]. */
enum aoti_space {
    AOTI_X,
    AOTI_Y,
    AOTI_STASH,
    AOTI_EXTRA,
    AOTI_WORK,
    AOTI_W,
    AOTI_FROZEN,
    AOTI_DW,
    AOTI_DY,
    AOTI_DX,
    AOTI_CONSTANT,
    AOTI_TOKENS,
    AOTI_INPUT
};
struct aoti_place {
    int32_t space;  /* enum aoti_space */
    int64_t offset; /* bytes */
};

/* An input of a graph. dtype: PyTorch's number, such as 6 for fp32. Sizes and strides count elements. */
struct aoti_input {
    struct aoti_place place;
    int32_t dtype, dims;
    int64_t size[AOTI_DIMS], stride[AOTI_DIMS];
};
/* An entry of the tape: the place and the size of an allocation. spare: for dx and dw, the offset of another place in
 * work, for calls without dx and calls that add to dw; -1: a matrix product makes it and adds to dw itself. */
struct aoti_allocation {
    struct aoti_place place;
    int64_t bytes, spare;
};

struct aoti_tensor;
/* A compiled graph: reads `in`, and sets `out` to new tensors. Returns 0, or another number if it fails. */
typedef int aoti_function(struct aoti_tensor **in, struct aoti_tensor **out);

struct aoti_code;
struct aoti_graph {
    const char *name;    /* the unit's function, for errors */
    const char *machine; /* the processors for which it is compiled: x86-64, x86-64-v3 or x86-64-v4; GPUs: sm_90 etc. */
    aoti_function *run;
    const char *constants;  /* on the host */
    struct aoti_code *code; /* GPUs: the unit's kernels */
    const struct aoti_input *input;
    const struct aoti_allocation *tape;
    const int32_t *output; /* the outputs' numbers on the tape */
    int32_t inputs, outputs, allocations;
    int32_t tensors;         /* most tensors that exist at once, inputs included */
    int64_t pool;            /* offset of their records in work: AOTI_RECORD bytes each */
    int64_t random, randoms; /* offset in work of uniform numbers from 0 to below 1, for dropout; their number */
};
enum { AOTI_RECORD = 192 };

/* A kernel that Triton has compiled. function: the driver's handle once it is loaded. */
struct aoti_kernel {
    const char *name;
    const void *cubin; /* machine code */
    const char *ptx;   /* the same for GPUs that the machine code does not fit */
    int32_t shared;    /* bytes of dynamic shared memory */
    void *function;
};
/* The code of a unit for GPUs. All its kernels and constants are loaded before the first of its functions runs. */
struct aoti_code {
    const char *unit;
    struct aoti_kernel *kernel;
    const char *constants;
    int64_t kernels, bytes; /* bytes: of the constants */
    void *on_device;        /* the constants there, once they are loaded */
    bool loaded;
};

/* Runs a graph on a call's operands. An error names the graph and ends the process. */
#ifdef __cplusplus
extern "C" {
#endif
void aoti_run(const struct aoti_graph *graph, const struct pianola_unit_call *call);
/* Does the same on a GPU: enqueues the graph's work on the call's stream. Only libpianola-cuda has it. */
void aoti_run_cuda(const struct aoti_graph *graph, const struct pianola_unit_call *call);

/* For the code of units on GPUs: the stream of the graph that runs; and a launch on it. warps: of a block. arguments:
 * the address of each, in order. */
void *aoti_current_stream(void);
void aoti_launch(const struct aoti_kernel *kernel, const uint32_t grid[3], uint32_t warps, void **arguments);
#ifdef __cplusplus
}
#endif
#endif
