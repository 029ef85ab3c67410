/* Numbers in files of weights: see values.h. */
#include "values.h"
#include <string.h>

static const struct {
    const char *name;
    int32_t n, bytes;
} rows[NVALUES] = {
#define X(name, n, bytes) {#name, n, bytes},
    VALUES(X)
#undef X
};
enum { MOST_OF_BLOCK = 32 };

const char *values_name(enum values type) { return rows[type].name; }

int64_t values_bytes(enum values type, int64_t n) {
    int64_t bytes;
    if (n < 0 || n % rows[type].n != 0 || __builtin_mul_overflow(n / rows[type].n, rows[type].bytes, &bytes))
        return -1;
    return bytes;
}

static float as_float(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* IEEE 754 binary16: one sign bit, five of the exponent, ten of the fraction. */
static float half(const uint8_t *at) {
    uint32_t bits = (uint32_t)at[0] | (uint32_t)at[1] << 8;
    uint32_t sign = (bits & 0x8000) << 16, exponent = bits >> 10 & 31, fraction = bits & 1023;
    if (exponent == 31)
        return as_float(sign | 0x7f800000 | fraction << 13);
    if (exponent == 0)
        return (sign ? -1.0f : 1.0f) * (float)fraction * 0x1p-24f;
    return as_float(sign | (exponent + 112) << 23 | fraction << 13);
}

/* Reads a block's values. Values of four bits are in pairs: the first sixteen are the low halves of the bytes, the rest
 * the high halves. */
static void read_block(enum values type, const uint8_t *block, float *out) {
    switch (type) {
    case VALUES_F32: memcpy(out, block, sizeof *out); return;
    case VALUES_F16: *out = half(block); return;
    case VALUES_BF16: *out = as_float((uint32_t)block[0] << 16 | (uint32_t)block[1] << 24); return;
    case VALUES_Q8_0:
        for (int i = 0; i < 32; i++)
            out[i] = (float)(int8_t)block[2 + i] * half(block);
        return;
    case VALUES_Q4_0:
        for (int i = 0; i < 32; i++)
            out[i] = (float)((block[2 + i % 16] >> 4 * (i / 16) & 15) - 8) * half(block);
        return;
    case VALUES_Q4_1:
        for (int i = 0; i < 32; i++)
            out[i] = (float)(block[4 + i % 16] >> 4 * (i / 16) & 15) * half(block) + half(block + 2);
        return;
    case NVALUES: return;
    }
}

void values_read(enum values type, const uint8_t *data, int64_t first, int64_t n, float *out) {
    int32_t each = rows[type].n;
    for (int64_t at = first; at < first + n;) {
        float block[MOST_OF_BLOCK];
        int64_t begin = at % each, here = each - begin < first + n - at ? each - begin : first + n - at;
        read_block(type, data + at / each * rows[type].bytes, block);
        memcpy(out, block + begin, (size_t)here * sizeof *out);
        out += here;
        at += here;
    }
}
