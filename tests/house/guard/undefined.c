/* Must be reported as failed by the sanitized build: a sum overflows an int. */
#include <criterion/criterion.h>
#include <limits.h>

Test(guard_proof, overflows_an_int) {
    volatile int most = INT_MAX;
    most = most + 1;
}
