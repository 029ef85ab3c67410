/* The graphs of a unit for GPUs, written by hand. They import what PyTorch's import, and launch kernels of kernels.ptx.
 * KERNELS: that file, as a string. WRONG_BYTES: an allocation is larger than the tape of scale.cu says. */
#include "units/aoti.h"

typedef struct aoti_tensor *handle;
extern "C" {
int32_t aoti_torch_empty_strided(int64_t, const int64_t *, const int64_t *, int32_t, int32_t, int32_t, handle *);
int32_t aoti_torch__reinterpret_tensor(handle, int64_t, const int64_t *, const int64_t *, int64_t, handle *);
int32_t aoti_torch_delete_tensor_object(handle);
int32_t aoti_torch_get_data_ptr(handle, void **);
int32_t aoti_torch_get_device_type(handle, int32_t *);
int32_t aoti_torch_cuda_mm_out(handle, handle, handle);
}
#define EXPORTED extern "C" __attribute__((visibility("default")))

extern "C" const char scale_ptx[];
__asm__(".section .rodata\nscale_ptx:\n.incbin \"" KERNELS "\"\n.byte 0\n.previous\n");
/* An ELF file for NVIDIA's machine 190 without content: no device takes it, so the driver falls back on PTX. */
static const unsigned char no_cubin[64] = {0x7f, 'E', 'L', 'F', 2, 1, 1, 0x33, 7, 0, 0, 0, 0, 0, 0, 0, 2, 0, 190, 0};
static aoti_kernel kernels[] = {{"scale_rows", no_cubin, scale_ptx, 0, nullptr},
                                {"sum_column", no_cubin, scale_ptx, 8, nullptr}};
EXPORTED aoti_code scale_code;
aoti_code scale_code = {"scale", kernels, nullptr, 2, 0, nullptr, false};

enum { FLOAT = 6, CUDA = 1, ROWS = 8, IN = 22, OUT = 20 };

static handle empty(int64_t rows, int64_t columns) {
    handle t = nullptr;
    const int64_t size[] = {rows, columns}, stride[] = {columns, 1};
    aoti_torch_empty_strided(2, size, stride, FLOAT, CUDA, 0, &t);
    return t;
}
static handle turned(handle t, int64_t rows, int64_t columns) {
    handle view = nullptr;
    const int64_t size[] = {rows, columns}, stride[] = {1, rows};
    aoti_torch__reinterpret_tensor(t, 2, size, stride, 0, &view);
    return view;
}
static void *address(handle t) {
    void *at = nullptr;
    aoti_torch_get_data_ptr(t, &at);
    return at;
}
static void multiply(handle out, handle a, handle b) { aoti_torch_cuda_mm_out(out, a, b); }
static void scale_rows(handle y, handle x, handle scale) {
    void *to = address(y), *from = address(x), *by = address(scale);
    int n = ROWS * IN, columns = IN;
    void *arguments[] = {&to, &from, &by, &n, &columns};
    const uint32_t grid[] = {(ROWS * IN + 63) / 64, 1, 1};
    aoti_launch(&kernels[0], grid, 2, arguments);
}

EXPORTED int scale_forward_graph(handle *in, handle *out) {
    int32_t device = 0;
    aoti_torch_get_device_type(in[0], &device);
    if (device != CUDA)
        return 1;
#ifdef WRONG_BYTES
    handle h = empty(ROWS + 1, IN);
#else
    handle h = empty(ROWS, IN);
#endif
    scale_rows(h, in[0], in[1]);
    out[0] = empty(ROWS, OUT);
    multiply(out[0], h, in[2]);
    out[1] = h;
    return 0;
}

EXPORTED int scale_input_graph(handle *in, handle *out) {
    handle w = turned(in[2], OUT, IN);
    out[1] = empty(ROWS, IN);
    multiply(out[1], in[0], w);
    aoti_torch_delete_tensor_object(w);
    out[0] = empty(ROWS, IN);
    scale_rows(out[0], out[1], in[1]);
    return 0;
}

EXPORTED int scale_weight_graph(handle *in, handle *out) {
    handle t = turned(in[1], IN, ROWS);
    out[1] = empty(IN, OUT);
    multiply(out[1], t, in[2]);
    aoti_torch_delete_tensor_object(t);
    out[0] = empty(1, IN);
    void *sum = address(out[0]), *a = address(in[3]), *b = address(in[0]);
    int rows = ROWS, columns = IN;
    void *arguments[] = {&sum, &a, &b, &rows, &columns};
    const uint32_t grid[] = {IN, 1, 1};
    aoti_launch(&kernels[1], grid, 2, arguments);
    return 0;
}
