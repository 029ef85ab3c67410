#include "cuda_library.h"
#include "base/base.h"
#include "base/path.h"
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The library is in the program's folder, or in lib/ under its prefix; PIANOLA_CUDA overrides both. */
cuda_train_function *cuda_library(void) {
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = 0;
    char *slash = strrchr(self, '/'), *dir = format("%.*s", slash ? (int)(slash - self) : 0, self);
    const char *named = getenv("PIANOLA_CUDA"), *beside = format("%s/libpianola-cuda.so", dir);
    const char *path = named ? named : access(beside, F_OK) == 0 ? beside : format("%s/../lib/libpianola-cuda.so", dir);
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL), *train = library ? dlsym(library, "cuda_train") : NULL;
    if (!train)
        die("--device cuda needs its own library: %s; `make gpu` builds it if nvcc is installed", dlerror());
    return (cuda_train_function *)(uintptr_t)train;
}
