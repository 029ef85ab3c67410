/* The BLAS kernel for this processor.
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

/* Bits of the registers that a kernel uses. */
static int bits_of(const char *core) {
    static const char *const wide[] = {"SkylakeX", "Cooperlake", "Sapphirerapids"}, *const half[] = {"Haswell", "Zen"};
    for (int i = 0; i < 3; i++)
        if (strcasecmp(core, wide[i]) == 0)
            return 512;
    return strcasecmp(core, half[0]) == 0 || strcasecmp(core, half[1]) == 0 ? 256 : 128;
}

const char *host_blas(void) {
    const char *core = best_core(), *said = getenv("OPENBLAS_CORETYPE");
    bool lost = strcmp(openblas_get_corename(), "Prescott") == 0;
    if (core && lost && !getenv("OPENBLAS_CORETYPE") && gotoblas_dynamic_init && gotoblas_dynamic_quit) {
        setenv("OPENBLAS_CORETYPE", core, 1);
        gotoblas_dynamic_quit();
        gotoblas_dynamic_init();
    }
    if (core && said && bits_of(openblas_get_corename()) < bits_of(core))
        fprintf(
            stderr,
            "pianola: OPENBLAS_CORETYPE=%s holds matrix products back: this processor has kernels of %d bits (%s), not "
            "%d\n",
            said, bits_of(core), core, bits_of(openblas_get_corename()));
    openblas_set_num_threads(1);
    end_threads(); /* it starts them anew, to set their number */
    return openblas_get_corename();
}
