/* Must be reported as failed by the sanitized build: one byte is written past a buffer. */
#include <criterion/criterion.h>
#include <stdlib.h>

Test(guard_proof, overflows) {
    volatile size_t end = 77;
    volatile char *p = malloc(77);
    p[end] = 1;
    free((void *)p);
}
