/* Shared by the fuzz targets. A target gets bytes as from a file, and must not crash, leak or hang. It
 * refuses nearly all of them with a user error, as it should. */
#ifndef PIANOLA_FUZZ_H
#define PIANOLA_FUZZ_H
#include "compiler.h"
#include <stdlib.h>
#include <string.h>

/* A request that no machine can meet is a user error too: calloc returns NULL, and base.c reports it. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) {
    return "allocator_may_return_null=1:detect_stack_use_after_return=0:hard_rss_limit_mb=2048";
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int inputs_read; /* how many were no user error: mutants.c checks that the corpus is not refused as a whole */

/* Runs what(with); returns false if it died with a user error. Memory stays until free_all. */
static inline bool lives(void (*what)(void *), void *with) {
    bool lived = try(what, with);
    if (!lived && !strstr(diag_text, "error: "))
        abort();
    inputs_read += lived;
    return lived;
}

/* Returns the bytes as a string of exact size, so that an overrun shows; NULL if a zero byte ends it early. */
static inline char *string_of(const uint8_t *data, size_t size) {
    if (memchr(data, 0, size))
        return NULL;
    char *s = malloc(size + 1);
    if (!s)
        abort();
    memcpy(s, data, size);
    s[size] = 0;
    return s;
}
#endif
