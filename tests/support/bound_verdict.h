/* What check-bound says of a certificate. */
#ifndef BOUND_VERDICT_H
#define BOUND_VERDICT_H
#include "search/bound/bound.h"

/* 1: accepted; 0: refuted; -1: unreadable. */
static inline int verdict(const char *src) {
    static const char *why, *by;
    jmp_buf trap;
    diag_trap = &trap;
    int result = -1;
    if (!setjmp(trap)) {
        struct bound *b = read_bound("tiny.bound", src);
        why = check_bound(b, &by);
        result = !why;
    }
    diag_trap = NULL;
    return result;
}
#endif
