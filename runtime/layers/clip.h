/* Clipping by the norm of all gradients (Pascanu 2013), as PyTorch's clip_grad_norm_: an update scales its gradient by
 * min(1, clip / (norm + 1e-6)), where norm is the square root of the sum of the squares of all parameters' gradients.
 *
 * That sum is exact, so its bits do not depend on the order of the sum or on the number of ranks. A gradient is an
 * integer m of 24 bits times a power of two; its square is m * m, of 48 bits, times another power. A norm is the sum as
 * an integer of many words, in units of 2^-298, the square of the least float above 0: word i counts 2^(32 i) units. A
 * rank's words are below 2^32 and have room for 2^64, so ranks add theirs word by word, without carries. Two more words
 * count infinities and NaNs. norm_value rounds the sum once, to the nearest double. */
#ifndef PIANOLA_CLIP_H
#define PIANOLA_CLIP_H
#include "both.h"
#include "rt.h"
#include <math.h>
#include <string.h>

enum { NORM_INF = NORM_WORDS - 2, NORM_NAN, NORM_LIMBS = NORM_INF, NORM_LEAST = -298 };
#define NORM_EPS 1e-6

/* Adds squares of gradients m * 2^(e - 150), which all have the same e, from 1 to 254, to words that are `stride`
 * apart. squares: the sum of m * m; adds at most 2^32 - 1 to each word. */
ON_BOTH void norm_add(uint64_t *word, int stride, uint64_t squares, uint32_t e) {
    uint32_t at = 2 * e - 2, limb = at / 32, shift = at % 32;
    uint64_t low = squares << shift, high = shift > 0 ? squares >> (64 - shift) : 0;
    word[limb * (uint32_t)stride] += low & 0xffffffff;
    word[(limb + 1) * (uint32_t)stride] += low >> 32;
    word[(limb + 2) * (uint32_t)stride] += high;
}

/* Carries until all words are below 2^32; the sum stays the same. */
ON_BOTH void norm_carry(uint64_t *word) {
    for (int i = 0; i < NORM_LIMBS - 1; i++) {
        word[i + 1] += word[i] >> 32;
        word[i] &= 0xffffffff;
    }
}

/* Returns the norm itself: the square root of the sum rounded to the nearest double. */
ON_BOTH double norm_value(const uint64_t *norm) {
    uint64_t carry = 0, word[3] = {0, 0, 0}, lower = 0;      /* the last three words and what is below them, */
    uint64_t top = 0, next = 0, below = 0, bits, half, rest; /* and the same three values at the highest nonzero word */
    int high = -1, shift = 0;
    double power;
    for (int i = 0; i < NORM_LIMBS; i++) {
        carry += norm[i];
        lower |= word[2];
        word[2] = word[1];
        word[1] = word[0];
        word[0] = carry & 0xffffffff;
        carry >>= 32;
        if (word[0] == 0)
            continue;
        top = word[0] << 32 | word[1];
        next = word[2];
        below = lower;
        high = i;
    }
    if (norm[NORM_NAN] > 0)
        return (double)NAN;
    if (norm[NORM_INF] > 0)
        return (double)INFINITY;
    if (high < 0)
        return 0;
    for (; top >> 63 == 0; shift++)
        top = top << 1 | (next >> (31 - shift) & 1);
    below |= next << shift & 0xffffffff;
    half = 1 << 10; /* half a unit in the last of 53 bits */
    rest = top & (2 * half - 1);
    top = (top >> 11) + (rest > half || (rest == half && (below > 0 || (top & 2 * half))));
    bits = (uint64_t)(1023 + NORM_LEAST + 32 * (high - 1) - shift + 11) << 52;
    memcpy(&power, &bits, sizeof power);
    return sqrt((double)top * power);
}

/* Returns the factor that an update multiplies its gradient by. A NaN stays NaN, as in PyTorch. */
ON_BOTH float clip_scale(float clip, const uint64_t *norm) {
    double scale = (double)clip / (norm_value(norm) + NORM_EPS);
    return scale >= 1 ? 1 : (float)scale;
}
#endif
