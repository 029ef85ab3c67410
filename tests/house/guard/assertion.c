/* Must be reported as failed, one of two. */
#include <criterion/criterion.h>

Test(guard_proof, holds) { cr_assert_eq(1, 1); }
Test(guard_proof, fails) { cr_assert_eq(1, 2); }
