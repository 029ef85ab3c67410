/* Counts what passed and failed, and prints where it failed. */
#ifndef TESTS_CHECK_H
#define TESTS_CHECK_H
#include <stdio.h>

static int passed, failed;
static void check(bool fine, const char *what, const char *where) {
    passed += fine;
    failed += !fine;
    if (!fine)
        printf("    %s: %s FAILED\n", where, what);
}
#endif
