/* Must be reported as failed: a program whose tests were lost proves nothing. */
#include <criterion/criterion.h>
