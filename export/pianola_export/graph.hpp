// The code around AOTInductor's graphs: a class for their run functions, a C function to call each, and their
// constants.
#include <cstdio>
#include <torch/csrc/inductor/aoti_include/cpu.h>
#include <torch/csrc/inductor/cpp_prefix.h>

#define EXPORTED extern "C" __attribute__((visibility("default")))

#ifdef FOR_CUDA
// What the host's part of graphs on GPUs uses of CUDA and PyTorch. A kernel's handle is its row in the unit's table.
#include "aoti.h"
#include <optional>
#include <string>
typedef unsigned long long CUdeviceptr;
typedef const aoti_kernel *CUfunction;
typedef void *cudaStream_t;
namespace torch::aot_inductor {
struct AOTICudaGuard {
    explicit AOTICudaGuard(int32_t) {}
};
struct AOTICudaStreamGuard {
    AOTICudaStreamGuard(cudaStream_t, int32_t) {}
};
inline CUfunction find_kernel(const aoti_kernel *kernel, int n, const std::string &name) {
    for (int i = 0; i < n; i++)
        if (name == kernel[i].name)
            return &kernel[i];
    throw std::runtime_error("it has no kernel " + name);
}
// overlaps: whether the next kernel may begin before this one ends, which it need not.
inline void launchKernel(CUfunction kernel, uint32_t x, uint32_t y, uint32_t z, uint32_t warps, uint32_t, void **arguments,
                         cudaStream_t, bool overlaps = false) {
    (void)overlaps;
    const uint32_t grid[] = {x, y, z};
    aoti_launch(kernel, grid, warps, arguments);
}
} // namespace torch::aot_inductor
#define loadKernel(file, name, ...) find_kernel(KERNELS, KERNEL_COUNT, name)
#define STREAM aoti_current_stream()
// PyTorch declares these in generated/c_shim_cuda.h, which includes CUDA's headers.
typedef AtenTensorHandle Tensor;
extern "C" {
AOTITorchError aoti_torch_cuda_mm_out(Tensor out, Tensor a, Tensor b);
AOTITorchError aoti_torch_cuda_bmm_out(Tensor out, Tensor a, Tensor b);
AOTITorchError aoti_torch_cuda_addmm_out(Tensor out, Tensor c, Tensor a, Tensor b, double beta, double alpha);
AOTITorchError aoti_torch_cuda_baddbmm_out(Tensor out, Tensor c, Tensor a, Tensor b, double beta, double alpha);
AOTITorchError aoti_torch_cuda__scaled_dot_product_flash_attention_for_cpu(Tensor q, Tensor k, Tensor v, double dropout,
                                                                           int32_t causal, Tensor *mask, double *scale,
                                                                           Tensor *out, Tensor *lse);
AOTITorchError aoti_torch_cuda__scaled_dot_product_flash_attention_for_cpu_backward(
    Tensor dout, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, double dropout, int32_t causal, Tensor *mask,
    double *scale, Tensor *dq, Tensor *dk, Tensor *dv);
}
#else
#define STREAM nullptr
#endif

#define MODEL                                                                                                          \
    struct Model {                                                                                                     \
        int32_t device_idx_ = 0;                                                                                       \
        std::optional<std::string> cubin_dir_;                                                                         \
        static constexpr bool _check_aoti_runtime_check_inputs_env() { return false; }                                 \
        void run_impl(AtenTensorHandle *, AtenTensorHandle *, DeviceStreamType, AOTIProxyExecutorHandle);              \
    };

#define GRAPH(name)                                                                                                    \
    EXPORTED int name##_graph(AtenTensorHandle *in, AtenTensorHandle *out) {                                           \
        try {                                                                                                          \
            torch::aot_inductor::name::Model().run_impl(in, out, STREAM, nullptr);                                     \
            return 0;                                                                                                  \
        } catch (const std::exception &e) {                                                                            \
            std::fprintf(stderr, "%s: %s\n", #name, e.what());                                                         \
            return 1;                                                                                                  \
        }                                                                                                              \
    }

#define CONSTANTS(name, file)                                                                                          \
    __asm__(".section .rodata\n.balign 64\n.globl " #name "\n.type " #name ", @object\n" #name ":\n.incbin \"" file    \
            "\"\n.byte 0\n.size " #name ", . - " #name "\n.previous\n");

#include "sleef.hpp"
