/* The functions that PyTorch's graphs import, on the device, against the host's: products, alone, in batches and added
 * to something, and attention with its gradients, in each layout that graphs use; copies. */
#include "cuda_runtime.h"
extern "C" {
#include "units/aoti_state.h"
}
#include "store/hash.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vector>

extern "C" {
typedef int32_t product(handle, handle, handle);
typedef int32_t product_plus(handle, handle, handle, handle, double, double);
typedef int32_t attends(handle, handle, handle, double, int32_t, handle *, double *, handle *, handle *);
typedef int32_t attends_back(handle, handle, handle, handle, handle, handle, double, int32_t, handle *, double *,
                             handle *, handle *, handle *);
product aoti_torch_cpu_mm_out, aoti_torch_cuda_mm_out, aoti_torch_cpu_bmm_out, aoti_torch_cuda_bmm_out;
product_plus aoti_torch_cpu_addmm_out, aoti_torch_cuda_addmm_out, aoti_torch_cpu_baddbmm_out,
    aoti_torch_cuda_baddbmm_out;
attends aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu,
    aoti_torch_cuda__scaled_dot_product_flash_attention_for_cpu;
attends_back aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu_backward,
    aoti_torch_cuda__scaled_dot_product_flash_attention_for_cpu_backward;
int32_t aoti_torch_clone_preserve_strides(handle, handle *);
int32_t aoti_torch_delete_tensor_object(handle);
int32_t aoti_torch_device_type_cuda(void);
int32_t aoti_torch_get_device_type(handle, int32_t *);
void aoti_torch_warn(const char *, const char *, uint32_t, const char *);
}

static bool on_device;
static int passed, failed;
static cudaStream_t stream;
#define ON(call) (on_device ? aoti_torch_cuda_##call : aoti_torch_cpu_##call)

static char *host_place(struct aoti_state *, int64_t bytes) {
    return (char *)aligned_alloc(64, (size_t)bytes / 64 * 64 + 64);
}
static char *device_place(struct aoti_state *, int64_t bytes) {
    char *at = nullptr;
    return cudaMalloc((void **)&at, (size_t)bytes + 64) == cudaSuccess ? at : nullptr;
}

/* Returns a tensor of numbers from -1 to 1, with these strides. */
static handle drawn(uint64_t key, std::vector<int64_t> size, std::vector<int64_t> stride) {
    handle t = aoti_allocate(FLOAT32, (int64_t)size.size(), size.data(), stride.data());
    std::vector<float> value((size_t)t->bytes / 4);
    for (size_t i = 0; i < value.size(); i++)
        value[i] = (float)(host_hash(key, i) % 2001) / 1000 - 1;
    if (on_device)
        cudaMemcpy(t->data, value.data(), (size_t)t->bytes, cudaMemcpyHostToDevice), cudaDeviceSynchronize();
    else
        memcpy(t->data, value.data(), (size_t)t->bytes);
    return t;
}

/* Appends a tensor's elements, in order. */
static void read(std::vector<float> &out, handle t) {
    std::vector<float> value((size_t)t->bytes / 4);
    cudaStreamSynchronize(stream);
    if (on_device)
        cudaMemcpy(value.data(), t->data, (size_t)t->bytes, cudaMemcpyDeviceToHost);
    else
        memcpy(value.data(), t->data, (size_t)t->bytes);
    int64_t at[AOTI_DIMS] = {0}, n = aoti_elements(t);
    for (int64_t k = 0; k < n; k++) {
        int64_t i = 0;
        for (int32_t d = 0; d < t->dims; d++)
            i += at[d] * t->stride[d];
        out.push_back(value[(size_t)i]);
        for (int32_t d = t->dims - 1; d >= 0 && ++at[d] == t->size[d]; d--)
            at[d] = 0;
    }
}

static std::vector<float> run(std::vector<float> (*f)(int), int n, bool device) {
    static char pool[256 * AOTI_RECORD] __attribute__((aligned(64)));
    struct aoti_state state = {};
    on_device = device;
    state.place = device ? device_place : host_place;
    if (device)
        aoti_begin_cuda(&state, "a test", stream);
    state.name = "a test";
    aoti_begin(&state, pool, 256);
    std::vector<float> out = f(n);
    aoti_end();
    return out;
}

/* Compares a function's results on the device with the host's. */
static void compare(const char *what, std::vector<float> (*f)(int), int n) {
    const std::vector<float> must = run(f, n, false), got = run(f, n, true);
    float most = 0, error = 0;
    for (size_t i = 0; i < must.size() && i < got.size(); i++) {
        most = fmaxf(most, fabsf(must[i]));
        error = !(fabsf(must[i] - got[i]) <= error) ? fabsf(must[i] - got[i]) : error;
    }
    const bool good = must.size() == got.size() && must.size() > 0 && error < 1e-5f * most;
    good ? passed++ : failed++;
    if (!good)
        printf("%s, case %d: off by %g of %g\n", what, n, (double)error, (double)most);
}

/* ---- products ---- */

enum { M = 7, K = 10, N = 12, BATCH = 3 };
/* Layouts of a matrix: rows, columns, rows that are longer, neither rows nor columns. */
static std::vector<int64_t> layout(int which, int64_t rows, int64_t columns) {
    switch (which) {
    case 0: return {columns, 1};
    case 1: return {1, rows};
    case 2: return {columns + 5, 1};
    default: return {2 * columns + 1, 2};
    }
}
static std::vector<float> mm(int n) {
    handle a = drawn(1, {M, K}, layout(n % 4, M, K)), b = drawn(2, {K, N}, layout(n / 4 % 4, K, N));
    handle c = drawn(3, {M, N}, layout(n / 16, M, N));
    std::vector<float> out;
    ON(mm_out)(c, a, b);
    read(out, c);
    return out;
}
static std::vector<float> addmm(int n) {
    static const double factor[][2] = {{1, 1}, {0.5, 2}, {0, 1}};
    handle a = drawn(1, {M, K}, {K, 1}), b = drawn(2, {K, N}, {1, K}), c = drawn(3, {M, N}, {N, 1});
    handle plus = n % 3 == 0 ? drawn(4, {N}, {1}) : n % 3 == 1 ? drawn(4, {M, N}, {1, M}) : c;
    std::vector<float> out;
    ON(addmm_out)(c, plus, a, b, factor[n / 3][0], factor[n / 3][1]);
    read(out, c);
    return out;
}
/* n & 1: b is one matrix for all; n & 2: a's batches are apart by an odd number */
static std::vector<float> batches(int n) {
    handle a = drawn(1, {BATCH, M, K}, {M * K + (n & 2 ? 1 : 0), K, 1});
    handle b = drawn(2, {BATCH, K, N}, {n & 1 ? 0 : K * N, 1, K}), c = drawn(3, {BATCH, M, N}, {M * N, N, 1});
    std::vector<float> out;
    if (n < 4)
        ON(bmm_out)(c, a, b);
    else
        ON(baddbmm_out)(c, drawn(4, {BATCH, 1, N}, {N, N, 1}), a, b, 1, 0.5);
    read(out, c);
    return out;
}

/* ---- attention ---- */

enum { SEQUENCES = 2, HEADS = 4, ROWS = 70, COLUMNS = 12 };
/* Returns batches x heads x rows x columns. by: 0 a row's heads lie side by side; 1 a head's rows do; 2 as 0, with
 * something else between the rows; 3 as 0, with the sequences' first rows before all second ones. */
static handle heads(uint64_t key, int64_t n, int by) {
    const int64_t row = n * COLUMNS * (by == 2 ? 3 : by == 3 ? SEQUENCES : 1);
    if (by == 1)
        return drawn(key, {SEQUENCES, n, ROWS, COLUMNS}, {n * ROWS * COLUMNS, ROWS * COLUMNS, COLUMNS, 1});
    return drawn(key, {SEQUENCES, n, ROWS, COLUMNS}, {by == 3 ? n * COLUMNS : ROWS * row, COLUMNS, row, 1});
}
static std::vector<float> attention(int n) {
    const int64_t keys = n / 16 ? 2 : HEADS;
    handle q = heads(1, HEADS, n % 4), k = heads(2, keys, n / 4 % 4), v = heads(3, keys, n % 4);
    handle dout = heads(4, HEADS, n / 4 % 4), y, lse, dq, dk, dv;
    double scale = 1 / sqrt((double)COLUMNS);
    std::vector<float> out;
    ON(_scaled_dot_product_flash_attention_for_cpu)(q, k, v, 0, 1, nullptr, n % 2 ? &scale : nullptr, &y, &lse);
    ON(_scaled_dot_product_flash_attention_for_cpu_backward)
    (dout, q, k, v, y, lse, 0, 1, nullptr, n % 2 ? &scale : nullptr, &dq, &dk, &dv);
    for (handle t : {y, lse, dq, dk, dv})
        read(out, t);
    return out;
}

static std::vector<float> copies(int) {
    handle t = drawn(1, {M, N}, {1, M + 3}), copy;
    std::vector<float> out;
    int32_t device = 0;
    aoti_torch_clone_preserve_strides(t, &copy);
    aoti_torch_warn("here", "", 1, "nothing happens");
    aoti_torch_get_device_type(copy, &device);
    const bool right = device == (on_device ? aoti_torch_device_type_cuda() : 0) &&
                       (!on_device || aoti_current_stream() == (void *)stream);
    out.push_back(right ? 1.0f : NAN);
    read(out, copy);
    aoti_torch_delete_tensor_object(copy);
    return out;
}

int main(void) {
    cudaSetDevice(0);
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    for (int n = 0; n < 48; n++)
        compare("mm", mm, n);
    for (int n = 0; n < 9; n++)
        compare("addmm", addmm, n);
    for (int n = 0; n < 8; n++)
        compare("batches", batches, n);
    for (int n = 0; n < 32; n++)
        compare("attention", attention, n);
    compare("copies", copies, 0);
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0;
}
