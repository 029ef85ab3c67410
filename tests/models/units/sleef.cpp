// Compares the exporter's exponential with double precision, over all floats that it may get: every 97th one.
#include "../../../export/pianola_export/sleef.hpp"
#include <cstdint>
#include <cstdio>
#include <cstring>

static double worst;

static void compare(float x, float got) {
    const double wanted = std::exp((double)x);
    const float rounded = (float)wanted;
    if (std::isnan(x) ? std::isnan(got) : got == rounded)
        return;
    const double ulp = (double)std::nextafter(rounded, INFINITY) - (double)rounded; // of the results below it, too
    const double error = std::fabs((double)got - wanted) / ulp;
    worst = error > worst || std::isnan(error) ? error : worst;
}

int main() {
    for (uint64_t i = 0; i <= UINT32_MAX; i += 97 * 16) {
        float x[16], y[16];
        for (int k = 0; k < 16; k++) {
            const uint32_t bits = (uint32_t)(i + 97 * (uint64_t)k);
            std::memcpy(&x[k], &bits, 4);
        }
        for (int k = 0; k < 16; k += 8)
            _mm256_storeu_ps(y + k, Sleef_expf8_u10(_mm256_loadu_ps(x + k)));
        for (int k = 0; k < 16; k++)
            compare(x[k], y[k]);
#ifdef __AVX512F__
        _mm512_storeu_ps(y, Sleef_expf16_u10(_mm512_loadu_ps(x)));
        for (int k = 0; k < 16; k++)
            compare(x[k], y[k]);
#endif
    }
    std::puts(worst <= 1 ? "within an ulp" : "beyond an ulp");
    std::fprintf(stderr, "%g ulp\n", worst);
}
