#include "rt.h"
#include <criterion/criterion.h>
#include <stdlib.h>

void gotoblas_dynamic_init(void);
void gotoblas_dynamic_quit(void);
const char *openblas_get_corename(void);

/* The library falls back to Prescott on a processor that it does not know, unless asked for another kernel. */
Test(blas_host, kernel_of_an_unknown_processor) {
    if (!__builtin_cpu_supports("avx2"))
        return; /* Prescott is right there */
    setenv("OPENBLAS_CORETYPE", "Prescott", 1);
    gotoblas_dynamic_quit();
    gotoblas_dynamic_init();
    cr_assert_str_eq(openblas_get_corename(), "Prescott");
    host_blas();
    cr_assert_str_eq(openblas_get_corename(), "Prescott", "what the user asks for is respected");
    unsetenv("OPENBLAS_CORETYPE");
    host_blas();
    cr_assert_str_neq(openblas_get_corename(), "Prescott");
}
