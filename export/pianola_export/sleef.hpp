// The vector functions of Sleef that PyTorch's code calls, and which otherwise are in PyTorch's library. All but exp
// compute one element after the other.
#pragma once
#include <cmath>
#include <initializer_list>

#ifdef __AVX2__
#include <immintrin.h>

// Exponentials within an ulp, vector by vector, since activations are full of them: e^x = 2^q e^s, where q is x / ln 2
// rounded, and a polynomial of degree 7 for e^s (Shibata & Petrogalli 2020, "SLEEF"). 2^q is made in two steps, so that
// results near the largest float and below the least normal one are right.
#define EXP(n, type, whole, p, cast, select)                                                                           \
    extern "C" __attribute__((visibility("hidden"))) type Sleef_expf##n##_u10(type x) {                                \
        const auto of = [](float c) { return p##_set1_ps(c); };                                                        \
        const type magic = of(12582912.0f); /* 1.5 * 2^23: the sum's last bits are the rounded integer */              \
        const type shifted = p##_fmadd_ps(x, of(1.442695040888963407f), magic), q = p##_sub_ps(shifted, magic);        \
        type s = p##_fmadd_ps(q, of(-0.693145751953125f), x), u = of(0.000198527617612853646278381f);                  \
        s = p##_fmadd_ps(q, of(-1.428606765330187045e-06f), s);                                                        \
        for (float c : {0.00139304355252534151077271f, 0.00833336077630519866943359f, 0.0416664853692054748535156f,    \
                        0.166666671633720397949219f, 0.5f})                                                            \
            u = p##_fmadd_ps(u, s, of(c));                                                                             \
        u = p##_add_ps(of(1), p##_fmadd_ps(p##_mul_ps(s, s), u, s));                                                   \
        const whole k = p##_cvtps_epi32(q), half = p##_srai_epi32(k, 1), bias = p##_set1_epi32(127);                   \
        const whole rest = p##_sub_epi32(k, half);                                                                     \
        u = p##_mul_ps(u, cast(p##_slli_epi32(p##_add_epi32(half, bias), 23)));                                        \
        u = p##_mul_ps(u, cast(p##_slli_epi32(p##_add_epi32(rest, bias), 23)));                                        \
        u = select(x, of(-104), _CMP_LT_OQ, of(0), u);                                                                 \
        return select(x, of(104), _CMP_GT_OQ, of(INFINITY), u);                                                        \
    }
#define EACH(n, load, store, call)                                                                                     \
    {                                                                                                                  \
        float v[n];                                                                                                    \
        store(v, x);                                                                                                   \
        for (float &e : v)                                                                                             \
            e = call;                                                                                                  \
        return load(v);                                                                                                \
    }
#define ONE_8(name, f)                                                                                                 \
    extern "C" __attribute__((visibility("hidden"))) __m256 Sleef_##name(__m256 x)                                     \
        EACH(8, _mm256_loadu_ps, _mm256_storeu_ps, f(e))
#ifdef __AVX512F__
#define ONE_16(name, f)                                                                                                \
    extern "C" __attribute__((visibility("hidden"))) __m512 Sleef_##name(__m512 x)                                     \
        EACH(16, _mm512_loadu_ps, _mm512_storeu_ps, f(e))
#else
#define ONE_16(name, f)
#endif
#define SLEEF(f, end)                ONE_8(f##f8_##end, std::f) ONE_16(f##f16_##end, std::f)
#define SELECT_8(x, y, how, yes, no) _mm256_blendv_ps(no, yes, _mm256_cmp_ps(x, y, how))
EXP(8, __m256, __m256i, _mm256, _mm256_castsi256_ps, SELECT_8)
#ifdef __AVX512F__
#define SELECT_16(x, y, how, yes, no) _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, y, how), no, yes)
EXP(16, __m512, __m512i, _mm512, _mm512_castsi512_ps, SELECT_16)
#endif
SLEEF(expm1, u10)
SLEEF(exp2, u10)
SLEEF(log, u10)
SLEEF(log1p, u10)
SLEEF(log2, u10)
SLEEF(log10, u10)
SLEEF(tanh, u10)
SLEEF(sinh, u10)
SLEEF(cosh, u10)
SLEEF(erf, u10)
SLEEF(erfc, u15)
SLEEF(sin, u35)
SLEEF(cos, u35)
SLEEF(sin, u10)
SLEEF(cos, u10)
SLEEF(tan, u10)
SLEEF(atan, u10)
SLEEF(asin, u10)
SLEEF(acos, u10)
#define POW(n, type, load, store)                                                                                      \
    extern "C" __attribute__((visibility("hidden"))) type Sleef_powf##n##_u10(type x, type y) {                        \
        float a[n], b[n];                                                                                              \
        store(a, x);                                                                                                   \
        store(b, y);                                                                                                   \
        for (int i = 0; i < n; i++)                                                                                    \
            a[i] = std::pow(a[i], b[i]);                                                                               \
        return load(a);                                                                                                \
    }
POW(8, __m256, _mm256_loadu_ps, _mm256_storeu_ps)
#ifdef __AVX512F__
POW(16, __m512, _mm512_loadu_ps, _mm512_storeu_ps)
#endif
#endif
