/* What multiplies matrices on this processor: libxsmm (product_host.c), or where it has no kernels, and for products
 * with a vector, OpenBLAS.
 *
 * OpenBLAS chooses its kernels when it is loaded, by a table of processor models. One that is newer than the library
 * falls through to Prescott, of 2004, and runs 5 to 8 times slower than it could. OPENBLAS_CORETYPE overrides the
 * choice but is read at load time, before main. So we set it by what the processor can do, not by its name, and have
 * the library choose again: both functions are exported by its builds for many processors, and absent (weak, hence
 * NULL) from the others, which have nothing to choose.
 *
 * It also starts a thread per further core when it is loaded, and these look for work for a while before they sleep:
 * twice the processor's time for a command that trains nothing. A rank makes its products on one thread, so they are
 * ended again. */
#include "product.h"
#include "rt.h"
#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

__attribute__((weak)) void gotoblas_dynamic_init(void);
__attribute__((weak)) void gotoblas_dynamic_quit(void);
__attribute__((weak)) int blas_thread_shutdown_(void);

__attribute__((constructor)) static void end_threads(void) {
    if (blas_thread_shutdown_)
        blas_thread_shutdown_();
}

static const char *best_core(void) {
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512bf16"))
        return "Cooperlake";
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
        return "SkylakeX";
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return "Haswell";
#endif
    return NULL;
}

/* Bits of the registers that kernels use, by the processor that either library names them for. */
static int bits_of(const char *core) {
    static const char *const wide[] = {"SkylakeX", "Cooperlake", "Sapphirerapids", "skx", "clx", "cpx"},
                             *const half[] = {"Haswell", "Zen", "hsw"};
    for (int i = 0; i < 6; i++)
        if (strcasecmp(core, wide[i]) == 0)
            return 512;
    for (int i = 0; i < 3; i++)
        if (strcasecmp(core, half[i]) == 0)
            return 256;
    return 128;
}

/* A variable that holds products back is respected, and said. */
static void say_held(const char *variable, const char *kernels) {
    const char *core = best_core(), *said = getenv(variable);
    if (core && said && bits_of(kernels) < bits_of(core))
        fprintf(stderr,
                "pianola: %s=%s holds matrix products back: this processor has kernels of %d bits (%s), not %d\n",
                variable, said, bits_of(core), core, bits_of(kernels));
}

const char *host_blas(void) {
    static char line[64];
    const char *core = best_core(), *kernels = product_kernels();
    bool lost = strcmp(openblas_get_corename(), "Prescott") == 0;
    if (core && lost && !getenv("OPENBLAS_CORETYPE") && gotoblas_dynamic_init && gotoblas_dynamic_quit) {
        setenv("OPENBLAS_CORETYPE", core, 1);
        gotoblas_dynamic_quit();
        gotoblas_dynamic_init();
    }
    say_held("LIBXSMM_TARGET", kernels ? kernels : "none");
    if (!kernels)
        say_held("OPENBLAS_CORETYPE", openblas_get_corename());
    openblas_set_num_threads(1);
    end_threads(); /* it starts them anew, to set their number */
    snprintf(line, sizeof line, "%s for %s", kernels ? "libxsmm" : "OpenBLAS",
             kernels ? kernels : openblas_get_corename());
    return line;
}
