/* Records the tape of a compiled graph: the exporter builds it and calls it. For CPUs it is built with aoti.c. For
 * GPUs, with RECORDS_CUDA, it is linked with libpianola-cuda.so, and graphs run on the device. */
#include "aoti_state.h"
#include "layers/product.h"
#include "store/fault.h"
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what aoti.c needs of the runtime ---- */

static jmp_buf *after_fault;
static char fault[512];

/* Ends the recording: an error of the runtime would end the process after this. */
void fault_tell(const char *message) {
    snprintf(fault, sizeof fault, "%s", message);
    if (after_fault)
        longjmp(*after_fault, 1);
}
const char *record_fault(void) { return fault; }

#ifndef RECORDS_CUDA
void host_product(struct product p) {
    for (int i = 0; i < p.m; i++)
        for (int j = 0; j < p.n; j++) {
            float sum = 0, *c = &p.c[(int64_t)i * p.stride + j];
            for (int k = 0; k < p.k; k++)
                sum += (p.a.turned ? p.a.at[(int64_t)k * p.a.stride + i] : p.a.at[(int64_t)i * p.a.stride + k]) *
                       (p.b.turned ? p.b.at[(int64_t)j * p.b.stride + k] : p.b.at[(int64_t)k * p.b.stride + j]);
            *c = sum + (p.add ? *c : p.bias ? p.bias[j] : 0);
        }
}
#endif

/* ---- the graph's memory ---- */

enum { ALIGNED = 64 };

#ifdef RECORDS_CUDA
/* Declared as in cuda_runtime_api.h, which a machine that exports need not have. */
int cudaMalloc(void **at, size_t bytes);
int cudaFree(void *at);
int cudaMemcpy(void *to, const void *from, size_t bytes, int kind);
int cudaMemset(void *at, int byte, size_t bytes);
int cudaDeviceSynchronize(void);
enum { TO_DEVICE = 1, TO_HOST = 2 };

static void must(int status, const char *call) {
    if (status != 0)
        aoti_fail("%s returns error %d of CUDA", call, status);
}
static char *take(size_t bytes) {
    void *at = NULL;
    must(cudaMalloc(&at, bytes), "cudaMalloc");
    must(cudaMemset(at, 0xff, bytes), "cudaMemset");
    return at;
}
static void give_back(char *at) { must(cudaFree(at), "cudaFree"); }
static void await_device(void) { must(cudaDeviceSynchronize(), "cudaDeviceSynchronize"); }
void record_read(void *to, const void *from, size_t bytes) { must(cudaMemcpy(to, from, bytes, TO_HOST), "cudaMemcpy"); }

/* Returns an input's place on the device, as far from a multiple of ALIGNED as it will be in a training. */
static char *enter(const char *data, int64_t bytes, int64_t offset, char **taken) {
    *taken = take((size_t)bytes + 2 * ALIGNED);
    if (bytes > 0)
        must(cudaMemcpy(*taken + offset % ALIGNED, data, (size_t)bytes, TO_DEVICE), "cudaMemcpy");
    return *taken + offset % ALIGNED;
}

static void begin(struct aoti_state *state) { aoti_begin_cuda(state, state->name, NULL); }
/* Loads a unit's kernels and constants. */
void record_load(struct aoti_code *code, const char *machine) { aoti_load(code, machine); }
#else
static char *take(size_t bytes) {
    const size_t room = (bytes + ALIGNED - 1) / ALIGNED * ALIGNED;
    char *at = aligned_alloc(ALIGNED, room);
    memset(at, 0xff, room);
    return at;
}
static void give_back(char *at) { free(at); }
static void await_device(void) {}
void record_read(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }
static char *enter(char *data, int64_t bytes, int64_t offset, char **taken) {
    (void)bytes, (void)offset;
    *taken = NULL;
    return data;
}
static void begin(struct aoti_state *state) { (void)state; }
#endif

/* ---- recording ---- */

/* An allocation: when it was made and deleted, on a clock that counts both, and how many products made its content. */
struct recorded {
    int64_t bytes, born, died, products;
    char *at;
};
struct recording {
    struct recorded *made;
    int64_t n, capacity, clock;
};

static char *record_place(struct aoti_state *state, int64_t bytes) {
    struct recording *r = state->self;
    if (r->n == r->capacity)
        aoti_fail("it makes more than %lld allocations", (long long)r->capacity);
    struct recorded *made = &r->made[r->n++];
    *made = (struct recorded){bytes, r->clock++, INT64_MAX, 0, take((size_t)bytes + ALIGNED)};
    return made->at;
}

static void record_drop(struct aoti_state *state, int32_t allocation) {
    struct recording *r = state->self;
    r->made[allocation].died = r->clock++;
}

static bool record_product(struct aoti_state *state, int32_t allocation) {
    struct recording *r = state->self;
    r->made[allocation].products++;
    return false;
}

/* An output: its allocation, or -1; its place there; its shape. */
struct recorded_output {
    int64_t allocation, offset, dtype, dims, size[AOTI_DIMS], stride[AOTI_DIMS];
    char *data;
};

/* Runs a graph and records its allocations, which it leaves for the caller to read and to free. Returns their number,
 * or -1 if the runtime refuses what the graph does. most: is set to the most tensors at once. */
int64_t record(const char *name, aoti_function *run, int64_t inputs, char **data, const struct aoti_input *shape,
               int64_t outputs, struct recorded_output *output, struct recorded *made, int64_t capacity,
               int64_t *most) {
    enum { POOL = 65536 };
    struct recording r = {.made = made, .capacity = capacity};
    struct aoti_state state = {
        .name = name, .place = record_place, .drop = record_drop, .adds = record_product, .self = &r};
    struct aoti_tensor **handle = calloc((size_t)(inputs + outputs + 1), sizeof *handle);
    char **taken = calloc((size_t)(inputs + 1), sizeof *taken);
    char *pool = aligned_alloc(ALIGNED, (size_t)POOL * AOTI_RECORD);
    jmp_buf here;
    begin(&state);
    after_fault = &here;
    if (setjmp(here)) {
        after_fault = NULL;
        aoti_end();
        free(pool);
        free(handle);
        free(taken);
        return -1;
    }
    aoti_begin(&state, pool, POOL);
    for (int64_t i = 0; i < inputs; i++) {
        handle[i] = aoti_operand(NULL, &shape[i]);
        handle[i]->data = enter(data[i], handle[i]->bytes, shape[i].place.offset, &taken[i]);
    }
    if (run(handle, handle + inputs) != 0)
        aoti_fail("it failed");
    await_device();
    for (int64_t i = 0; i < outputs; i++) {
        const struct aoti_tensor *t = handle[inputs + i];
        output[i] = (struct recorded_output){.allocation = t->owner->allocation,
                                             .offset = t->data - t->owner->data,
                                             .dtype = t->dtype,
                                             .dims = t->dims,
                                             .data = t->data};
        memcpy(output[i].size, t->size, sizeof t->size);
        memcpy(output[i].stride, t->stride, sizeof t->stride);
    }
    *most = state.most;
    aoti_end();
    after_fault = NULL;
    for (int64_t i = 0; i < inputs; i++)
        if (taken[i])
            give_back(taken[i]);
    free(pool);
    free(handle);
    free(taken);
    return r.n;
}

void record_free(struct recorded *made, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        give_back(made[i].at);
}
