/* Chooses the library that multiplies matrices on this processor: libxsmm (product_host.c), or OpenBLAS where libxsmm
 * has no kernels and for products with a vector.
 *
 * OpenBLAS chooses its kernels when it is loaded, by a table of processor models. A processor newer than the library
 * falls back to the kernels for Prescott (2004), which are 5 to 8 times slower. OPENBLAS_CORETYPE overrides the choice
 * but is read at load time, before main. So we set it by the processor's features, not its name, and have the library
 * choose again. Its builds for many processors export both functions; in other builds, which have nothing to choose,
 * they are absent (weak, hence NULL).
 *
 * At load time it also starts a thread per additional core. These spin for a while before they sleep, which doubles the
 * processor time of a command that trains nothing. A rank computes its products on one thread, so the others are ended.
 */
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

/* Returns the level of x86-64 (4: AVX-512, 3: AVX2 and FMA, 2: less) of a processor that either library has kernels
 * for. */
static int core_level(const char *core) {
    static const char *const wide[] = {"SkylakeX", "Cooperlake", "Sapphirerapids", "skx", "clx", "cpx"},
                             *const half[] = {"Haswell", "Zen", "hsw"};
    for (int i = 0; i < 6; i++)
        if (strcasecmp(core, wide[i]) == 0)
            return 4;
    for (int i = 0; i < 3; i++)
        if (strcasecmp(core, half[i]) == 0)
            return 3;
    return 2;
}

/* Reports a variable that limits the library that computes the products; its setting is respected. */
static void report_held(const char *variable, const char *said, const char *kernels) {
    const char *core = best_core();
    if (core && said && core_level(kernels) < core_level(core))
        fprintf(stderr, "pianola: %s=%s limits matrix products: their kernels are for %s, not for %s\n", variable, said,
                kernels, core);
}

/* Reports LIBXSMM_TARGET if libxsmm has no kernels for the processor that it names: the results then change as well. */
static void report_change(const char *said) {
    if (best_core() && said)
        fprintf(stderr,
                "pianola: with LIBXSMM_TARGET=%s libxsmm cannot compute matrix products: OpenBLAS does, and their bits "
                "depend on its kernels for %s\n",
                said, openblas_get_corename());
}

const char *host_blas(void) {
    static char line[64];
    const char *core = best_core(), *kernels = product_kernels();
    const char *target = getenv("LIBXSMM_TARGET"), *type = getenv("OPENBLAS_CORETYPE");
    bool lost = strcmp(openblas_get_corename(), "Prescott") == 0;
    if (core && lost && !type && gotoblas_dynamic_init && gotoblas_dynamic_quit) {
        setenv("OPENBLAS_CORETYPE", core, 1);
        gotoblas_dynamic_quit();
        gotoblas_dynamic_init();
        unsetenv("OPENBLAS_CORETYPE");
    }
    if (kernels) {
        report_held("LIBXSMM_TARGET", target, kernels);
    } else {
        report_change(target);
        report_held("OPENBLAS_CORETYPE", type, openblas_get_corename());
    }
    openblas_set_num_threads(1);
    end_threads(); /* setting their number starts them again */
    snprintf(line, sizeof line, "%s for %s", kernels ? "libxsmm" : "OpenBLAS",
             kernels ? kernels : openblas_get_corename());
    return line;
}
