/* Numbers in files of weights, read as floats: plain ones, and ggml's blocks of 32 that share a scale
 * (github.com/ggml-org/ggml, src/ggml-common.h). */
#ifndef PIANOLA_VALUES_H
#define PIANOLA_VALUES_H
#include <stdbool.h>
#include <stdint.h>

/* X(name, values per block, bytes per block) */
#define VALUES(X)                                                                                                      \
    X(F32, 1, 4)                                                                                                       \
    X(F16, 1, 2)                                                                                                       \
    X(BF16, 1, 2)                                                                                                      \
    X(Q8_0, 32, 34)                                                                                                    \
    X(Q4_0, 32, 18)                                                                                                    \
    X(Q4_1, 32, 20)
#define X(name, ...) VALUES_##name,
enum values { VALUES(X) NVALUES };
#undef X

const char *values_name(enum values type);
/* Returns the bytes of n values, which must be whole blocks; -1: they are not, or are more than any file has. */
int64_t values_bytes(enum values type, int64_t n);
/* Reads values first .. first + n of the values at data. */
void values_read(enum values type, const uint8_t *data, int64_t first, int64_t n, float *out);
#endif
