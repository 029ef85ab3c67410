/* Macros for sources that C on hosts and CUDA on devices both compile, to the same bits. */
#ifndef PIANOLA_BOTH_H
#define PIANOLA_BOTH_H

#ifdef __cplusplus
#define ON_BOTH static inline __host__ __device__
#else
#define ON_BOTH static inline
#endif

/* Products rounded on their own: nvcc would contract a product and the sum that it goes into. C11 does not. */
#ifdef __CUDA_ARCH__
ON_BOTH float times(float a, float b) { return __fmul_rn(a, b); }
ON_BOTH double times_double(double a, double b) { return __dmul_rn(a, b); }
#else
ON_BOTH float times(float a, float b) { return a * b; }
ON_BOTH double times_double(double a, double b) { return a * b; }
#endif
#endif
