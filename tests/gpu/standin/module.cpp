/* Modules of the CUDA driver. No machine code fits this device, so a program must also offer PTX, for which
 * STANDIN_PTX=COMMAND is the compiler: COMMAND FILE writes the path of a library to stdout (tests/gpu/ptx/to_cpp.py).
 * STANDIN_LAUNCHES=FILE gets a line for each launch: name, blocks, threads, stream. */
#include "cuda.h"
#include "grid.h"
#include "standin.h"
#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <elf.h>
#include <unistd.h>

struct CUmod_st {
    void *library;
};
struct CUfunc_st {
    string name;
    const grid_kernel *kernel;
    int shared = 48 << 10; /* bytes that it may have */
};

/* Returns what a command writes, or ends the process. */
static string output_of(const string &command) {
    char line[4096] = "";
    FILE *pipe = popen(command.c_str(), "r");
    bool read = pipe && fgets(line, sizeof line, pipe);
    if (!pipe || pclose(pipe) != 0 || !read)
        broken("MODULE", "the command %s fails", command.c_str());
    return string(line, strcspn(line, "\n"));
}

static string compile(const char *ptx) {
    const char *compiler = getenv("STANDIN_PTX"), *temporary = getenv("TMPDIR");
    if (!compiler)
        broken("MODULE", "PTX is loaded: name its compiler in STANDIN_PTX, such as tests/gpu/ptx/to_cpp.py");
    string path = text("%s/standin-XXXXXX", temporary ? temporary : "/tmp");
    int fd = mkstemp(path.data());
    if (fd < 0 || write(fd, ptx, strlen(ptx)) != (ssize_t)strlen(ptx))
        broken("MODULE", "%s cannot be written", path.c_str());
    close(fd);
    string library = output_of(string(compiler) + " " + path);
    unlink(path.c_str());
    return library;
}

extern "C" {

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    enum { MACHINE_CUDA = 190 };
    entered here("cuModuleLoadData");
    check_creation(call);
    check_not_capturing(call);
    if (memcmp(image, ELFMAG, SELFMAG) == 0) {
        if (((const Elf64_Ehdr *)image)->e_machine != MACHINE_CUDA)
            broken("MODULE", "an ELF file for machine %d is loaded, which is none of NVIDIA's",
                   ((const Elf64_Ehdr *)image)->e_machine);
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    if (!strstr((const char *)image, ".version"))
        return CUDA_ERROR_INVALID_IMAGE;
    string path = compile((const char *)image);
    void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library)
        broken("MODULE", "%s", dlerror());
    *module = new CUmod_st{library};
    return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    entered here("cuModuleGetFunction");
    void *kernel = dlsym(module->library, name);
    if (!kernel)
        return CUDA_ERROR_NOT_FOUND;
    *function = new CUfunc_st{name, (const grid_kernel *)kernel};
    return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
    entered here("cuFuncSetAttribute");
    if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value > 227 << 10)
        return CUDA_ERROR_INVALID_VALUE;
    function->shared = value;
    return CUDA_SUCCESS;
}

static void note_launch(const CUfunc_st *f, dim3 grid, unsigned threads, const CUstream_st *stream) {
    const char *path = getenv("STANDIN_LAUNCHES");
    FILE *file = path ? fopen(path, "a") : nullptr;
    if (!file)
        return;
    fprintf(file, "%s\t%u %u %u\t%u\t%s\n", f->name.c_str(), grid.x, grid.y, grid.z, threads,
            stream_name(stream).c_str());
    fclose(file);
}

/* Copies the parameters, as CUDA does when a launch is enqueued. Those that are declared
 * as pointers must lie in an allocation, or be 0. */
CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned x, unsigned y, unsigned z,
                        unsigned shared, CUstream stream, void **given, void **extra) {
    const grid_kernel *k = f->kernel;
    const dim3 grid(gx, gy, gz), threads(x, y, z);
    std::vector<const void *> pointers;
    {
        entered here("cuLaunchKernel");
        if (extra || gx * gy * gz == 0 || x * y * z == 0 || x * y * z > 1024 || (int)shared > f->shared)
            return CUDA_ERROR_INVALID_VALUE;
        if (k->threads > 0 && k->threads != x * y * z)
            broken("MODULE", "%s is launched with %u threads, but is compiled for %u", f->name.c_str(), x * y * z,
                   k->threads);
        note_launch(f, grid, x * y * z, stream_of(stream, f->name.c_str()));
    }
    unsigned size = k->params > 0 ? k->offset[k->params - 1] + k->bytes[k->params - 1] : 0;
    std::vector<char> params(size + 1);
    for (unsigned i = 0; i < k->params; i++) {
        memcpy(&params[k->offset[i]], given[i], k->bytes[i]);
        if (k->pointer[i])
            pointers.push_back(*(void **)given[i]);
    }
    const char *name = f->name.c_str();
    auto run = [=] {
        auto body = [&] { k->run(params.data(), (char *)grid_shared(), shared); };
        grid_run(
            name, grid, threads, shared, +[](void *b) { (*static_cast<decltype(body) *>(b))(); }, &body);
    };
    standin_enqueue(stream, name, run, pointers);
    return CUDA_SUCCESS;
}
}
