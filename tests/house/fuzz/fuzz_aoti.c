/* The functions that PyTorch's compiled graphs import (runtime/units/aoti*.c), called in any order with any arguments.
 * A byte string is a graph: each byte names a function, and the bytes after it are its arguments. Whatever they are,
 * the graph works or ends with an error. It touches no memory but its tensors', and a function changes no tensor but
 * its result.
 *
 * Each tensor's memory lies between memory that nobody may touch. After it is a page without access, since libxsmm's
 * kernels are made at run time and so are not sanitized. */
#include "fuzz.h"
#include "units/aoti_state.h"
#include <sanitizer/asan_interface.h>
#include <setjmp.h>
#include <sys/mman.h>

/* Declares them as PyTorch does, in torch/csrc/inductor/aoti_torch/c/shim.h and generated/c_shim_cpu.h there. */
int32_t aoti_torch_empty_strided(int64_t, const int64_t *, const int64_t *, int32_t, int32_t, int32_t, handle *);
int32_t aoti_torch__reinterpret_tensor(handle, int64_t, const int64_t *, const int64_t *, int64_t, handle *);
int32_t aoti_torch_new_tensor_handle(handle, handle *);
int32_t aoti_torch_delete_tensor_object(handle);
int32_t aoti_torch_clone(handle, handle *);
int32_t aoti_torch_clone_preserve_strides(handle, handle *);
int32_t aoti_torch_copy_(handle, handle, int32_t);
int32_t aoti_torch_get_data_ptr(handle, void **);
int32_t aoti_torch_get_dim(handle, int64_t *);
int32_t aoti_torch_get_numel(handle, int64_t *);
int32_t aoti_torch_get_size(handle, int64_t, int64_t *);
int32_t aoti_torch_get_stride(handle, int64_t, int64_t *);
int32_t aoti_torch_get_sizes(handle, int64_t **);
int32_t aoti_torch_get_strides(handle, int64_t **);
int32_t aoti_torch_get_storage_offset(handle, int64_t *);
int32_t aoti_torch_get_storage_size(handle, int64_t *);
int32_t aoti_torch_get_dtype(handle, int32_t *);
int32_t aoti_torch_get_device_type(handle, int32_t *);
int32_t aoti_torch_get_device_index(handle, int32_t *);
int32_t aoti_torch_cpu_mm_out(handle, handle, handle);
int32_t aoti_torch_cpu_bmm_out(handle, handle, handle);
int32_t aoti_torch_cpu_addmm_out(handle, handle, handle, handle, double, double);
int32_t aoti_torch_cpu_baddbmm_out(handle, handle, handle, handle, double, double);
int32_t aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu(handle, handle, handle, double, int32_t, handle *,
                                                                   double *, handle *, handle *);
int32_t aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu_backward(handle, handle, handle, handle, handle,
                                                                            handle, double, int32_t, handle *, double *,
                                                                            handle *, handle *, handle *);
void aoti_torch_check(bool, const char *, const char *, uint32_t, const char *);

enum { TENSORS = 32, BLOCKS = 32, MOST_BYTES = 1 << 13, GUARD = 1 << 12, MOST_ELEMENTS = 4096, MOST_CALLS = 200 };

/* ---- memory ---- */

/* A block of memory ends at a page without access. at: NULL while no tensor is in it. */
static struct {
    char *pages, *at;
    int64_t bytes;
    char before[MOST_BYTES]; /* its content before a call */
} block[BLOCKS];

static void open_blocks(void) {
    for (int i = 0; i < BLOCKS; i++) {
        if (!block[i].pages) {
            block[i].pages = mmap(NULL, MOST_BYTES + GUARD, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (block[i].pages == MAP_FAILED || mprotect(block[i].pages + MOST_BYTES, GUARD, PROT_NONE) != 0)
                abort();
        }
        block[i].at = NULL;
        ASAN_POISON_MEMORY_REGION(block[i].pages, MOST_BYTES);
    }
}

static char *take_block(int64_t bytes) {
    for (int i = 0; i < BLOCKS && bytes >= 0 && bytes <= MOST_BYTES; i++)
        if (!block[i].at) {
            block[i].bytes = bytes;
            block[i].at = block[i].pages + MOST_BYTES - bytes;
            ASAN_UNPOISON_MEMORY_REGION(block[i].at, (size_t)bytes);
            for (int64_t k = 0; k < bytes; k++)
                block[i].at[k] = (char)(k % 4 == 3 ? 0x3e : k * 7 + i); /* fp32: numbers about 1/8 */
            block[i].before[0] = 0;
            return block[i].at;
        }
    aoti_fail("it needs too much memory");
}

/* Frees the block of an allocation, or of all operands and allocations. */
static void drop_block(int i) {
    block[i].at = NULL;
    ASAN_POISON_MEMORY_REGION(block[i].pages, MOST_BYTES);
}

/* The blocks of allocations, by number. */
static int block_of[1 << 12];

static char *place(struct aoti_state *state, int64_t bytes) {
    if ((size_t)state->allocations == sizeof block_of / sizeof *block_of)
        aoti_fail("it makes too many allocations");
    char *at = take_block(bytes);
    for (int i = 0; i < BLOCKS; i++)
        if (block[i].at == at)
            block_of[state->allocations] = i;
    return at;
}
static void drop(struct aoti_state *state, int32_t allocation) {
    (void)state;
    drop_block(block_of[allocation]);
}

/* ---- errors ---- */

static jmp_buf after_error;

/* Ends the graph: an error would end the process after this. */
void fault_tell(const char *message) {
    if (!*message)
        abort();
    longjmp(after_error, 1);
}

/* ---- arguments ---- */

static struct {
    const uint8_t *at, *end;
    handle tensor[TENSORS];
    int tensors;
    bool none; /* an argument is no tensor of the graph, so the call must fail */
    bool huge; /* an argument has more elements than a call should visit, so there is none */
    char *pool;
} graph;

static int draw_byte(void) { return graph.at < graph.end ? *graph.at++ : 0; }

static int64_t draw_number(void) {
    static const int64_t odd[] = {-1,        16,       64, 65, 100, 1 << 20, INT32_MAX, (int64_t)1 << 32, INT64_MAX / 4,
                                  INT64_MAX, INT64_MIN};
    const int b = draw_byte();
    return b < 240 ? b % 12 : odd[(size_t)b % (sizeof odd / sizeof *odd)];
}

static bool is_held(const struct aoti_tensor *t) {
    for (int i = 0; i < graph.tensors; i++)
        if (graph.tensor[i] == t)
            return true;
    return false;
}

/* Returns a tensor, or seldom a pointer that is none, or no more. */
static handle draw_tensor(void) {
    const int b = draw_byte();
    handle t = graph.tensors > 0 ? graph.tensor[b % graph.tensors] : NULL;
    if (b >= 224) {
        const int64_t record = draw_byte() % (TENSORS + 1) * AOTI_RECORD + (b % 4 == 1 ? 8 : 0);
        t = b % 4 == 0 ? NULL : (handle)(void *)(graph.pool + record);
    }
    graph.none = graph.none || !is_held(t);
    graph.huge = graph.huge || (is_held(t) && aoti_elements(t) > MOST_ELEMENTS);
    return t;
}

struct shape {
    int64_t dims, size[AOTI_DIMS + 4], stride[AOTI_DIMS + 4];
};

/* Draws a shape: dense, dense and transposed, or with any strides. */
static struct shape draw_shape(void) {
    const int b = draw_byte();
    struct shape s = {.dims = b < 250 ? b % 5 : b % 5 == 0 ? -1 : b % 16};
    int64_t next = 1;
    const int order = draw_byte() % 4;
    for (int d = 0; d < AOTI_DIMS + 4; d++)
        s.size[d] = draw_number();
    for (int64_t d = s.dims - 1; d >= 0 && s.dims <= AOTI_DIMS; d--) {
        s.stride[d] = order == 3 ? draw_number() : next;
        if (s.size[d] < 0 || __builtin_mul_overflow(next, s.size[d], &next))
            next = 1;
    }
    if (order == 1 && s.dims >= 2 && s.dims <= AOTI_DIMS) {
        const int64_t i = s.dims - 1, j = s.dims - 2, stride = s.stride[i], size = s.size[i];
        s.stride[i] = s.stride[j], s.stride[j] = stride;
        s.size[i] = s.size[j], s.size[j] = size;
    }
    return s;
}

static int32_t draw_dtype(void) {
    const int b = draw_byte();
    return b < 200 ? FLOAT32 : b % 17;
}

/* ---- judges ---- */

/* Aborts unless a tensor lies in one block. */
static void check_inside(handle t) {
    int64_t dims, *size, *stride, last = 0, count = 1;
    void *data;
    aoti_torch_get_dim(t, &dims);
    aoti_torch_get_sizes(t, &size);
    aoti_torch_get_strides(t, &stride);
    aoti_torch_get_data_ptr(t, &data);
    for (int64_t d = 0; d < dims; d++) {
        last += size[d] > 0 ? (size[d] - 1) * stride[d] : 0;
        count = size[d] == 0 ? 0 : count;
    }
    const char *at = data, *end = count == 0 ? at : at + (last + 1) * aoti_element_bytes(t->dtype);
    for (int i = 0; i < BLOCKS; i++)
        if (block[i].at && at >= block[i].at && end <= block[i].at + block[i].bytes)
            return;
    abort();
}

static void keep_blocks(void) {
    for (int i = 0; i < BLOCKS; i++)
        if (block[i].at)
            memcpy(block[i].before, block[i].at, (size_t)block[i].bytes);
}

/* Aborts if a block has changed that was there before the call, and does not hold the result. */
static void check_blocks(char *const was[BLOCKS], handle result) {
    for (int i = 0; i < BLOCKS; i++) {
        const bool same = block[i].at && block[i].at == was[i];
        if (same && !(result && result->owner->data == block[i].at) &&
            memcmp(block[i].before, block[i].at, (size_t)block[i].bytes) != 0)
            abort();
    }
}

/* ---- calls ---- */

static void add_tensor(handle t) {
    check_inside(t);
    graph.tensor[graph.tensors++] = t;
}

static void delete_tensor(handle t) {
    aoti_torch_delete_tensor_object(t);
    for (int i = 0; i < graph.tensors; i++)
        if (graph.tensor[i] == t)
            graph.tensor[i--] = graph.tensor[--graph.tensors];
}

static void get(handle t) {
    int64_t n, *all;
    int32_t one;
    const int64_t d = draw_number();
    aoti_torch_get_numel(t, &n);
    aoti_torch_get_storage_offset(t, &n);
    aoti_torch_get_storage_size(t, &n);
    aoti_torch_get_dtype(t, &one);
    aoti_torch_get_device_type(t, &one);
    aoti_torch_get_device_index(t, &one);
    aoti_torch_get_sizes(t, &all);
    aoti_torch_get_size(t, d, &n);
    if (n != all[d])
        abort();
    aoti_torch_get_strides(t, &all);
    aoti_torch_get_stride(t, d, &n);
    if (n != all[d])
        abort();
}

static void attend(bool backward) {
    handle out[3], of[6], mask = NULL;
    double scale = 0.5;
    const int how = draw_byte(), n = backward ? 6 : 3;
    for (int i = 0; i < n; i++)
        of[i] = draw_tensor();
    if (how & 2)
        mask = draw_tensor();
    handle *const masks = how & 2 ? &mask : NULL;
    double *const scales = how & 4 ? &scale : NULL;
    const double dropout = how >= 240;
    if (graph.huge)
        return;
    if (backward)
        aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu_backward(
            of[0], of[1], of[2], of[3], of[4], of[5], dropout, how & 1, masks, scales, &out[0], &out[1], &out[2]);
    else
        aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu(of[0], of[1], of[2], dropout, how & 1, masks, scales,
                                                                   &out[0], &out[1]);
    for (int i = 0; i < (backward ? 3 : 2); i++)
        add_tensor(out[i]);
}

/* Calls a function that changes its first argument. Returns that. */
static handle call_in_place(int which) {
    handle to = draw_tensor(), a = draw_tensor(), b = which > 0 ? draw_tensor() : NULL;
    handle c = which > 2 ? draw_tensor() : NULL;
    const double beta = draw_byte() % 3, alpha = draw_byte() % 3;
    if (graph.huge)
        return NULL;
    switch (which) {
    case 0: aoti_torch_copy_(to, a, 0); break;
    case 1: aoti_torch_cpu_mm_out(to, a, b); break;
    case 2: aoti_torch_cpu_bmm_out(to, a, b); break;
    case 3: aoti_torch_cpu_addmm_out(to, c, a, b, beta, alpha); break;
    default: aoti_torch_cpu_baddbmm_out(to, c, a, b, beta, alpha);
    }
    return to;
}

/* Calls a function that makes a tensor. */
static void call_maker(int which) {
    handle t = which == 0 ? NULL : draw_tensor(), new;
    struct shape s;
    if (graph.huge && which >= 3)
        return;
    switch (which) {
    case 0:
        s = draw_shape();
        aoti_torch_empty_strided(s.dims, s.size, s.stride, draw_dtype(), 0, 0, &new);
        break;
    case 1:
        s = draw_shape();
        aoti_torch__reinterpret_tensor(t, s.dims, s.size, s.stride, draw_number(), &new);
        break;
    case 2: aoti_torch_new_tensor_handle(t, &new); break;
    case 3: aoti_torch_clone(t, &new); break;
    default: aoti_torch_clone_preserve_strides(t, &new);
    }
    add_tensor(new);
}

static handle call(void) {
    const int which = draw_byte() % 16;
    graph.huge = graph.none = false;
    if (which < 5)
        return call_in_place(which);
    if (which < 10)
        call_maker(which - 5);
    else if (which == 10)
        delete_tensor(draw_tensor());
    else if (which == 11)
        get(draw_tensor());
    else if (which == 12)
        aoti_torch_check(draw_byte() < 250, "f", "file", 1, "no");
    else if (which < 15)
        attend(which == 14);
    else
        call_maker(0);
    return NULL;
}

/* Runs the graph, whose operands are two tensors. */
static void run(struct aoti_state *state) {
    aoti_begin(state, graph.pool, TENSORS);
    for (int i = 0; i < 2; i++) {
        const struct shape s = draw_shape();
        struct aoti_input in = {.dtype = FLOAT32, .dims = (int32_t)(s.dims < 0 ? 0 : s.dims % 5)};
        memcpy(in.size, s.size, sizeof in.size);
        memcpy(in.stride, s.stride, sizeof in.stride);
        handle t = aoti_operand(NULL, &in);
        t->data = take_block(t->bytes);
        add_tensor(t);
    }
    for (int calls = 0; graph.at < graph.end && calls < MOST_CALLS; calls++) {
        char *was[BLOCKS];
        for (int i = 0; i < BLOCKS; i++)
            was[i] = block[i].at;
        keep_blocks();
        handle result = call();
        if (graph.none && !graph.huge)
            abort();
        check_blocks(was, result);
    }
    while (graph.tensors > 0)
        delete_tensor(graph.tensor[0]);
    if (state->in_use != 0)
        abort();
    inputs_read++;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct aoti_state state = {.name = "fuzzed", .place = place, .drop = drop};
    graph.pool = malloc(TENSORS * AOTI_RECORD);
    graph.at = data, graph.end = data + size;
    graph.tensors = 0;
    open_blocks();
    if (setjmp(after_error) == 0)
        run(&state);
    aoti_end();
    free(graph.pool);
    return 0;
}
