/* bf16 for the stand-in's own arithmetic, rounded to nearest even. For tests only. */
#ifndef STANDIN_BF16_H
#define STANDIN_BF16_H
#include <cmath>
#include <cstdint>
#include <cstring>

static inline float bf16_widen(uint16_t h) {
    uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}
static inline uint16_t bf16_narrow(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    if (std::isnan(f))
        return 0x7fff;
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
#endif
