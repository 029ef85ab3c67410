/* The functions that AOTInductor's graphs import, without PyTorch. PyTorch declares them in
 * torch/csrc/inductor/aoti_torch/c/shim.h and torch/csrc/inductor/aoti_torch/generated/c_shim_cpu.h.
 *
 * Errors end the process, as a graph could only pass them on: they mean that the library is not the one for which the
 * tape was recorded, or that this runtime cannot do what the graph wants. */
#include "aoti_state.h"
#include "store/fault.h"
#include "store/hash.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static _Thread_local struct aoti_state *current;

void aoti_fail(const char *fmt, ...) {
    char why[512];
    va_list ap;
    int n = snprintf(why, sizeof why, "unit function %s: ", current ? current->name : "?");
    va_start(ap, fmt);
    vsnprintf(why + n, sizeof why - (size_t)n, fmt, ap);
    va_end(ap);
    fault_tell(why);
    fprintf(stderr, "pianola: error: %s\n", why);
    _exit(2);
}

/* ---- tensors ---- */

int64_t aoti_element_bytes(int32_t dtype) {
    switch (dtype) {
    case UINT8:
    case INT8:
    case BOOL: return 1;
    case INT16:
    case FLOAT16:
    case BFLOAT16: return 2;
    case INT32:
    case FLOAT32: return 4;
    case INT64:
    case FLOAT64: return 8;
    default: aoti_fail("it makes a tensor of PyTorch's dtype number %d, which is not supported", dtype);
    }
}

int64_t aoti_elements(const struct aoti_tensor *t) {
    int64_t n = 1;
    for (int32_t i = 0; i < t->dims; i++)
        n *= t->size[i];
    return n;
}

/* Returns the bytes from a tensor's first element to the end of its last. */
static int64_t span_bytes(const struct aoti_tensor *t) {
    int64_t last = 0;
    for (int32_t i = 0; i < t->dims; i++) {
        if (t->size[i] == 0)
            return 0;
        last += (t->size[i] - 1) * t->stride[i];
    }
    return (last + 1) * aoti_element_bytes(t->dtype);
}

void aoti_begin(struct aoti_state *state, void *pool, int32_t n) {
    state->free = NULL;
    state->pool = pool;
    state->records = n;
    for (char *at = (char *)pool + (int64_t)n * AOTI_RECORD; n > 0; n--) {
        struct aoti_tensor *t = (void *)(at -= AOTI_RECORD);
        t->held = false;
        t->next = state->free;
        state->free = t;
    }
    state->in_use = state->most = state->allocations = 0;
    current = state;
}

void aoti_end(void) { current = NULL; }
struct aoti_state *aoti_current(void) {
    return current;
}

void aoti_must_have(const struct aoti_tensor *t) {
    const uint64_t at = (uint64_t)((uintptr_t)t - (uintptr_t)current->pool);
    if (at >= (uint64_t)current->records * AOTI_RECORD || at % AOTI_RECORD != 0 || !t->held)
        aoti_fail("it uses a tensor that it has not made, or has deleted");
}

/* Fails unless all elements of a tensor can be counted and addressed. */
static void check_shape(int32_t dtype, int64_t dims, const int64_t *size, const int64_t *stride) {
    int64_t count = aoti_element_bytes(dtype), last = count, step;
    bool fits = true;
    for (int64_t i = 0; i < dims && fits; i++)
        fits = size[i] >= 0 && stride[i] >= 0 && !__builtin_mul_overflow(count, size[i] > 0 ? size[i] : 1, &count) &&
               !__builtin_mul_overflow(size[i] > 0 ? size[i] - 1 : 0, stride[i], &step) &&
               !__builtin_mul_overflow(step, (int64_t)sizeof(int64_t), &step) &&
               !__builtin_add_overflow(last, step, &last);
    if (!fits)
        aoti_fail("it makes a tensor with a negative size or stride, or a too large one");
}

/* Returns a new tensor without memory. */
static handle take_tensor(int32_t dtype, int64_t dims, const int64_t *size, const int64_t *stride) {
    handle t = current->free;
    if (!t)
        aoti_fail("it makes more tensors than when it was exported; export the model again");
    if (dims < 0 || dims > AOTI_DIMS)
        aoti_fail("it makes a tensor of %lld dimensions; at most %d are supported", (long long)dims, AOTI_DIMS);
    check_shape(dtype, dims, size, stride);
    current->free = t->next;
    current->in_use++;
    current->most = current->in_use > current->most ? current->in_use : current->most;
    *t = (struct aoti_tensor){
        .owner = t, .uses = 1, .allocation = -1, .dtype = dtype, .dims = (int32_t)dims, .held = true};
    for (int64_t i = 0; i < dims; i++) {
        t->size[i] = size[i];
        t->stride[i] = stride[i];
    }
    return t;
}

/* Returns another tensor in the same storage, `offset` bytes after t. */
static handle view(handle t, int64_t offset, int32_t dtype, int64_t dims, const int64_t *size, const int64_t *stride) {
    handle new = take_tensor(dtype, dims, size, stride);
    const int64_t before = t->data - t->owner->data, bytes = t->owner->bytes;
    if (offset < -before || offset > bytes - before || span_bytes(new) > bytes - before - offset)
        aoti_fail("it makes a view beyond the end of a tensor of %lld bytes", (long long)bytes);
    new->owner = t->owner;
    new->owner->uses++;
    new->data = t->data + offset;
    return new;
}

handle aoti_operand(void *data, const struct aoti_input *shape) {
    handle t = take_tensor(shape->dtype, shape->dims, shape->size, shape->stride);
    t->data = data;
    t->bytes = span_bytes(t);
    return t;
}

handle aoti_allocate(int32_t dtype, int64_t dims, const int64_t *size, const int64_t *stride) {
    handle t = take_tensor(dtype, dims, size, stride);
    t->bytes = span_bytes(t);
    t->data = current->place(current, t->bytes);
    t->allocation = current->allocations++;
    return t;
}

handle aoti_tensor_like(const struct aoti_tensor *t) {
    int64_t stride[AOTI_DIMS], next = 1;
    bool done[AOTI_DIMS] = {false};
    for (int32_t k = 0; k < t->dims; k++) {
        int32_t least = -1;
        for (int32_t d = t->dims - 1; d >= 0; d--)
            if (!done[d] && (least < 0 || t->stride[d] < t->stride[least]))
                least = d;
        done[least] = true;
        stride[least] = next;
        next *= t->size[least];
    }
    return aoti_allocate(t->dtype, t->dims, t->size, stride);
}

handle aoti_rows_like(const struct aoti_tensor *t) {
    const int64_t heads = t->size[1], rows = t->size[2], columns = t->size[3];
    const int64_t stride[] = {rows * heads * columns, columns, heads * columns, 1};
    return aoti_allocate(FLOAT32, 4, t->size, stride);
}

static void put_back(handle t) {
    t->held = false;
    t->next = current->free;
    current->free = t;
    current->in_use--;
}

void aoti_delete(handle t) {
    handle owner = t->owner;
    t->held = false;
    if (t != owner)
        put_back(t);
    if (--owner->uses > 0)
        return;
    if (owner->allocation >= 0 && current->drop)
        current->drop(current, owner->allocation);
    put_back(owner);
}

/* ---- replay ---- */

static char *place_in_call(const struct aoti_replay *replay, struct aoti_place place) {
    const struct pianola_unit_call *c = replay->call;
    if (place.space >= AOTI_INPUT)
        return (char *)(uintptr_t)c->inputs[place.space - AOTI_INPUT] + place.offset;
    /* clang-format off */
    const void *base[] = {
        [AOTI_X] = c->x, [AOTI_Y] = c->y, [AOTI_STASH] = c->stash, [AOTI_EXTRA] = c->extra, [AOTI_WORK] = c->work,
        [AOTI_W] = c->w, [AOTI_FROZEN] = c->frozen, [AOTI_DW] = c->dw, [AOTI_DY] = c->dy, [AOTI_DX] = c->dx,
        [AOTI_CONSTANT] = replay->constants, [AOTI_TOKENS] = c->tokens,
    };
    /* clang-format on */
    return (char *)(uintptr_t)base[place.space] + place.offset;
}

/* Returns whether a gradient of a parameter is computed in work: it is added to dw afterwards, or its place in dw does
 * not suit a GPU. */
static bool is_spare_gradient(const struct aoti_replay *replay, const struct aoti_allocation *a) {
    const bool suits = !replay->graph->code || a->place.offset % AOTI_AT_ONCE == 0;
    return a->place.space == AOTI_DW && a->spare >= 0 && (replay->call->add || !suits);
}

/* Returns whether an allocation lies in work although its place is elsewhere; the call may have no dx for it. */
static bool is_spare(const struct aoti_replay *replay, const struct aoti_allocation *a) {
    return (a->place.space == AOTI_DX && !replay->call->dx) || is_spare_gradient(replay, a);
}

static char *allocation_in_call(const struct aoti_replay *replay, int32_t i) {
    const struct aoti_allocation *a = &replay->graph->tape[i];
    return is_spare(replay, a) ? (char *)replay->call->work + a->spare : place_in_call(replay, a->place);
}

static bool replay_adds(struct aoti_state *state, int32_t allocation) {
    const struct aoti_replay *replay = state->self;
    const struct aoti_allocation *a = &replay->graph->tape[allocation];
    return a->place.space == AOTI_DW && replay->call->add && !is_spare(replay, a);
}

bool aoti_adds(const struct aoti_tensor *out) {
    const struct aoti_tensor *owner = out->owner;
    return current->adds && owner->allocation >= 0 && out->data == owner->data &&
           current->adds(current, owner->allocation);
}

/* Returns the planned place of the next allocation. */
static char *replay_place(struct aoti_state *state, int64_t bytes) {
    const struct aoti_replay *replay = state->self;
    const struct aoti_graph *graph = replay->graph;
    const int32_t i = state->allocations;
    if (i == graph->allocations || graph->tape[i].bytes != bytes)
        aoti_fail("allocation %d is %lld bytes, and was %lld when the model was exported; export it again", i,
                  (long long)bytes, (long long)(i < graph->allocations ? graph->tape[i].bytes : 0));
    return allocation_in_call(replay, i);
}

/* Returns whether this machine has the instructions of one of x86-64's levels. */
static bool has_level(const char *machine) {
#ifdef __x86_64__
    const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
    const bool v4 = v3 && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
                    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    return strcmp(machine, "x86-64") == 0 || (v3 && strcmp(machine, "x86-64-v3") == 0) ||
           (v4 && strcmp(machine, "x86-64-v4") == 0);
#else
    (void)machine;
    return false;
#endif
}

/* Draws the graph's random numbers, which are the same in every graph of the unit. */
static void draw_uniform(const struct aoti_graph *graph, const struct pianola_unit_call *call) {
    float *number = (float *)(void *)((char *)call->work + graph->random);
    if (graph->randoms > 0 && !call->seed)
        aoti_fail("it draws random numbers, but this call has no seed, because validation drops nothing; export the "
                  "model again");
    for (int64_t i = 0; i < graph->randoms; i++)
        number[i] = (float)(host_hash(*call->seed, (uint64_t)i) >> 40) * 0x1p-24f;
}

const struct aoti_allocation *aoti_spare_gradient(const struct aoti_replay *replay, const struct aoti_allocation *from,
                                                  float **dw, const float **more) {
    const struct aoti_graph *graph = replay->graph;
    for (const struct aoti_allocation *a = from; a < graph->tape + graph->allocations; a++)
        if (is_spare_gradient(replay, a)) {
            *dw = (void *)place_in_call(replay, a->place);
            *more = (const void *)((const char *)replay->call->work + a->spare);
            return a;
        }
    return NULL;
}

enum { MOST_INPUTS = 256, MOST_OUTPUTS = 128 };

void aoti_replay(const struct aoti_replay *replay, struct aoti_state *state, void *pool) {
    const struct aoti_graph *graph = replay->graph;
    handle in[MOST_INPUTS], out[MOST_OUTPUTS];
    state->name = graph->name;
    state->place = replay_place;
    state->adds = replay_adds;
    state->self = (void *)(uintptr_t)replay;
    aoti_begin(state, pool, graph->tensors);
    if (graph->inputs > MOST_INPUTS || graph->outputs > MOST_OUTPUTS)
        aoti_fail("it has %d inputs and %d outputs; at most %d and %d are supported", graph->inputs, graph->outputs,
                  MOST_INPUTS, MOST_OUTPUTS);
    for (int32_t i = 0; i < graph->inputs; i++)
        in[i] = aoti_operand(place_in_call(replay, graph->input[i].place), &graph->input[i]);
    if (graph->run(in, out) != 0)
        aoti_fail("it failed");
    if (state->allocations != graph->allocations)
        aoti_fail("it made %d allocations, and %d when the model was exported; export it again", state->allocations,
                  graph->allocations);
    for (int32_t i = 0; i < graph->outputs; i++)
        if (out[i]->data != allocation_in_call(replay, graph->output[i]))
            aoti_fail("output %d is not where it was when the model was exported; export it again", i);
    aoti_end();
}

void aoti_run(const struct aoti_graph *graph, const struct pianola_unit_call *call) {
    const struct aoti_replay replay = {graph, call, graph->constants};
    struct aoti_state state = {.name = graph->name};
    float *dw;
    const float *more;
    current = &state; /* for errors */
    if (!has_level(graph->machine))
        aoti_fail(
            "it is compiled for %s processors, and this one lacks their instructions; export the model again with "
            "another --machine",
            graph->machine);
    draw_uniform(graph, call);
    aoti_replay(&replay, &state, (char *)call->work + graph->pool);
    for (const struct aoti_allocation *a = graph->tape; (a = aoti_spare_gradient(&replay, a, &dw, &more)); a++)
        for (int64_t i = 0; i < a->bytes / 4; i++)
            dw[i] += more[i];
}

/* ---- what graphs import: constants and properties ---- */

#define CONSTANT(name, type, value)                                                                                    \
    type aoti_torch_##name(void);                                                                                      \
    type aoti_torch_##name(void) { return value; }
CONSTANT(device_type_cpu, int32_t, 0)
CONSTANT(device_type_cuda, int32_t, 1)
CONSTANT(dtype_uint8, int32_t, UINT8)
CONSTANT(dtype_int8, int32_t, INT8)
CONSTANT(dtype_int16, int32_t, INT16)
CONSTANT(dtype_int32, int32_t, INT32)
CONSTANT(dtype_int64, int32_t, INT64)
CONSTANT(dtype_float16, int32_t, FLOAT16)
CONSTANT(dtype_float32, int32_t, FLOAT32)
CONSTANT(dtype_float64, int32_t, FLOAT64)
CONSTANT(dtype_bool, int32_t, BOOL)
CONSTANT(dtype_bfloat16, int32_t, BFLOAT16)
CONSTANT(layout_strided, int32_t, 0)
CONSTANT(grad_mode_is_enabled, bool, false)

#define GETTER(name, type, value)                                                                                      \
    int32_t aoti_torch_get_##name(handle t, type *out);                                                                \
    int32_t aoti_torch_get_##name(handle t, type *out) {                                                               \
        aoti_must_have(t);                                                                                             \
        *out = value;                                                                                                  \
        return OK;                                                                                                     \
    }
GETTER(data_ptr, void *, t->data)
GETTER(storage_size, int64_t, t->owner->bytes)
GETTER(storage_offset, int64_t, (t->data - t->owner->data) / aoti_element_bytes(t->dtype))
GETTER(dim, int64_t, t->dims)
GETTER(numel, int64_t, aoti_elements(t))
GETTER(sizes, int64_t *, t->size)
GETTER(strides, int64_t *, t->stride)
GETTER(dtype, int32_t, t->dtype)
GETTER(device_type, int32_t, current->device_type)
GETTER(device_index, int32_t, 0)

static void must_have_dimension(const struct aoti_tensor *t, int64_t d) {
    aoti_must_have(t);
    if (d < 0 || d >= t->dims)
        aoti_fail("it asks for dimension %lld of a tensor that has %d", (long long)d, t->dims);
}
int32_t aoti_torch_get_size(handle t, int64_t d, int64_t *out) {
    must_have_dimension(t, d);
    *out = t->size[d];
    return OK;
}
int32_t aoti_torch_get_stride(handle t, int64_t d, int64_t *out) {
    must_have_dimension(t, d);
    *out = t->stride[d];
    return OK;
}
void aoti_torch_grad_mode_set_enabled(bool on) { (void)on; }
void aoti_torch_check(bool good, const char *function, const char *file, uint32_t line, const char *why) {
    (void)file;
    if (!good)
        aoti_fail("%s, line %u of its code: %s", function, line, why);
}
const char *aoti_torch_exception_get_what_without_backtrace(void) { return "it failed"; }

/* ---- what graphs import: tensors ---- */

int32_t aoti_torch_empty_strided(int64_t dims, const int64_t *size, const int64_t *stride, int32_t dtype,
                                 int32_t device, int32_t index, handle *out) {
    (void)device, (void)index;
    *out = aoti_allocate(dtype, dims, size, stride);
    return OK;
}
int32_t aoti_torch__reinterpret_tensor(handle t, int64_t dims, const int64_t *size, const int64_t *stride,
                                       int64_t offset, handle *out) {
    int64_t bytes;
    aoti_must_have(t);
    if (__builtin_mul_overflow(offset, aoti_element_bytes(t->dtype), &bytes))
        bytes = INT64_MAX;
    *out = view(t, bytes, t->dtype, dims, size, stride);
    return OK;
}
int32_t aoti_torch_new_tensor_handle(handle t, handle *out) {
    aoti_must_have(t);
    *out = view(t, 0, t->dtype, t->dims, t->size, t->stride);
    return OK;
}
int32_t aoti_torch_delete_tensor_object(handle t) {
    aoti_must_have(t);
    aoti_delete(t);
    return OK;
}

void aoti_copy(handle to, const struct aoti_tensor *from) {
    if (current->copy) {
        current->copy(current, to, from);
        return;
    }
    const int64_t n = aoti_elements(to), bytes = aoti_element_bytes(to->dtype);
    int64_t at[AOTI_DIMS] = {0}, run = 1; /* elements that lie side by side in both */
    int32_t outer = to->dims;
    for (; n > 0 && outer > 0; run *= to->size[--outer])
        if (to->size[outer - 1] > 1 && (to->stride[outer - 1] != run || from->stride[outer - 1] != run))
            break;
    for (int64_t k = 0; k < n; k += run) {
        int64_t i = 0, j = 0;
        for (int32_t d = 0; d < outer; d++) {
            i += at[d] * to->stride[d];
            j += at[d] * from->stride[d];
        }
        memmove(to->data + i * bytes, from->data + j * bytes, (size_t)(run * bytes));
        for (int32_t d = outer - 1; d >= 0 && ++at[d] == to->size[d]; d--)
            at[d] = 0;
    }
}

struct aoti_tensor aoti_broadcast(const struct aoti_tensor *t, const struct aoti_tensor *like) {
    struct aoti_tensor wide = *like;
    const int32_t lacks = like->dims - t->dims;
    wide.data = t->data;
    if (lacks < 0)
        aoti_fail("a tensor cannot be broadcast to another of fewer dimensions");
    for (int32_t d = 0; d < like->dims; d++) {
        const bool same = d >= lacks && t->size[d - lacks] == like->size[d];
        if (d >= lacks && !same && t->size[d - lacks] != 1)
            aoti_fail("a tensor cannot be broadcast to another's sizes");
        wide.stride[d] = same ? t->stride[d - lacks] : 0;
    }
    return wide;
}

int32_t aoti_torch_clone(handle t, handle *out) {
    aoti_must_have(t);
    *out = aoti_allocate(t->dtype, t->dims, t->size, t->stride);
    aoti_copy(*out, t);
    return OK;
}
int32_t aoti_torch_clone_preserve_strides(handle t, handle *out) { return aoti_torch_clone(t, out); }
void aoti_torch_warn(const char *function, const char *file, uint32_t line, const char *what) {
    (void)function, (void)file, (void)line, (void)what;
}
int32_t aoti_torch_copy_(handle to, handle from, int32_t non_blocking) {
    (void)non_blocking;
    aoti_must_have(to);
    aoti_must_have(from);
    if (to->dtype != from->dtype)
        aoti_fail("it copies between dtypes, which is not supported");
    const struct aoti_tensor wide = aoti_broadcast(from, to);
    aoti_copy(to, &wide);
    return OK;
}
