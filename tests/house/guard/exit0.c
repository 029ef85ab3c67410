/* Must be reported as failed: the assertion below exit(0) is never reached. */
#include <criterion/criterion.h>
#include <stdlib.h>

Test(guard_proof, calls_exit) {
    exit(0);
    cr_assert_fail("not reached");
}

Test(guard_proof, calls_underscore_exit) { _Exit(0); }
