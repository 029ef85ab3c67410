/* What the fuzz targets share. A target gets bytes, as a file would hold them, and must neither crash nor leak nor
 * hang; that it refuses nearly all of them, with an error of the user, is as it should be. */
#ifndef PIANOLA_FUZZ_H
#define PIANOLA_FUZZ_H
#include "compiler.h"
#include <stdlib.h>
#include <string.h>

/* A request that no machine can meet is an error of the user too: calloc returns NULL, and base.c says so. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "allocator_may_return_null=1:detect_stack_use_after_return=0"; }

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Runs what(with); false when it died with an error of the user. Memory stays until free_all. */
static inline bool lives(void (*what)(void *), void *with) {
    bool lived = try(what, with);
    if (!lived && !strstr(diag_text, "error: "))
        abort();
    return lived;
}

/* The bytes as a string to the byte, so that reading past its end shows; NULL when a zero byte ends it early. */
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
