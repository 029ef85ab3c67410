/* Must be reported as failed by the sanitized build, though every assertion holds. */
#include <criterion/criterion.h>
#include <stdlib.h>

Test(guard_proof, leaks) {
    volatile char *lost = malloc(77);
    lost[0] = 1;
    cr_assert_eq(lost[0], 1);
    lost = NULL;
}
