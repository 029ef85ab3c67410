/* Shared by the host layers: a tensor's address, the functions of each kind of layer, and arithmetic in a fixed order.
 *
 * No sum is reordered, and the only libm function that reaches weights or gradients is sqrtf, which IEEE 754 fixes to
 * the bit. (A reported loss takes one log per row.) So apart from BLAS, whose kernels differ between processors, a
 * layer gives the same bits everywhere, at any optimisation that keeps IEEE arithmetic. */
#ifndef PIANOLA_HOST_H
#define PIANOLA_HOST_H
#include "store/hash.h"
#include "rt.h"

/* Compiles a function of loops over floats for AVX-512 and AVX2 too; the right version is chosen at load time. Products
 * and sums are not contracted, so all versions give the same bits (tests/training/levels). LANES_8 is for loops whose
 * sums have eight strands, which do not fit wider registers. Off with sanitizers, which start up only after the choice,
 * and with clang. */
#ifdef WIDE
#define LANES_8 WIDE /* the test's, one level for all */
#elif defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) &&             \
    !defined(__SANITIZE_THREAD__)
#define WIDE    __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#define LANES_8 __attribute__((target_clones("arch=x86-64-v3", "default")))
#else
#define WIDE
#define LANES_8
#endif

/* One layer of one job. Each kind fills in a forward, an input gradient and a weight gradient; NULL: nothing to do. */
struct host_call {
    const struct rt_model *m;
    const struct rt_layer *l;
    const struct rt_bind *at;
};
struct host_layer {
    void (*forward)(const struct host_call *c);
    void (*input)(const struct host_call *c);
    void (*weight)(const struct host_call *c);
};

/* The functions of a layer in the middle of which a team exchanges something other than its input or its output's
 * gradient. give makes the data to send and get uses the received data; give_back and get_back do so in a backward.
 * NULL: nothing to do.
 */
struct host_halves {
    void (*give)(const struct host_call *c);
    void (*get)(const struct host_call *c);
    void (*give_back)(const struct host_call *c);
    void (*get_back)(const struct host_call *c);
};
extern const struct host_halves host_cross_entropy_halves; /* loss_host.c */
extern const struct host_halves host_gather_kv_halves, host_again_kv_halves, host_to_heads_halves,
    host_to_rows_halves;                                                       /* team_attention_host.c */
extern const struct host_halves host_to_experts_halves, host_to_tokens_halves; /* moe_host.c */

/* attention_host.c: rotates q and k of a layer's rows, which lie side by side in x, or rotates their gradients back.
 * Does nothing without rope. */
void host_rotate(const struct rt_layer *l, float *x, bool back);
/* team_attention_host.c: attention from the layer's rows to all members' rows */
void host_attend_to_team(const struct host_call *c, bool backward);

/* Each is defined at the end of the file that has its functions. */
#define X(name, ...) extern const struct host_layer host_##name;
LAYERS(X)
#undef X

static inline int host_least(int a, int b) { return a < b ? a : b; }
static inline float *host_at(const struct host_call *c, struct slot slot) {
    char *base = c->at->at[slot.space];
    return base ? (float *)(void *)(base + slot.off) : NULL;
}

/* Returns the layer's input. The first stage's input is the batch itself, which is not kept because it can be read
 * again.
 */
static inline const float *host_x(const struct host_call *c) {
    return c->l->x.space == SP_NONE ? c->at->batch->x : host_at(c, c->l->x);
}

/* Return the layer's parameters, and their gradient. */
static inline float *host_w(const struct host_call *c) { return layer_weights(c->at, c->l) + c->l->param / 4; }
static inline float *host_dw(const struct host_call *c) { return layer_gradient(c->at, c->l) + c->l->param / 4; }
static inline bool host_first(const struct host_call *c) { return writes_gradient(c->at, c->l); }

/* Returns e^x within 2 ulp, with x clamped to +-60: Cephes' polynomial, in a form that compilers vectorise. The layers
 * add e^x to something near 1 or above, where e^-60 is negligible. Beyond the clamp, products would be subnormal and a
 * hundred times slower. */
static inline float host_exp(float x) {
    x = x < -60.0f ? -60.0f : x;
    x = x > 60.0f ? 60.0f : x;
    union {
        float f;
        int32_t i;
    } shifted = {x * 1.44269504f + 12582912.0f}, power; /* 1.5 * 2^23: the sum's last bits are the rounded integer */
    float n = shifted.f - 12582912.0f;
    float r = x - n * 0.693359375f + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    power.i = (int32_t)(((uint32_t)shifted.i + 127) << 23); /* arbitrary for a NaN: the product stays a NaN */
    return (p * r * r + r + 1.0f) * power.f;
}

/* Sum a, and a*b, in eight strands: vectorisable, in one fixed order. */
static inline float host_fold(const float *s) {
    return ((s[0] + s[4]) + (s[1] + s[5])) + ((s[2] + s[6]) + (s[3] + s[7]));
}
static inline float host_sum(const float *a, int n) {
    float s[8] = {0};
    int i = 0;
    for (; i + 8 <= n; i += 8)
        for (int k = 0; k < 8; k++)
            s[k] += a[i + k];
    for (int k = 0; i < n; i++, k++)
        s[k] += a[i];
    return host_fold(s);
}
static inline float host_dot(const float *a, const float *b, int n) {
    float s[8] = {0};
    int i = 0;
    for (; i + 8 <= n; i += 8)
        for (int k = 0; k < 8; k++)
            s[k] += a[i + k] * b[i + k];
    for (int k = 0; i < n; i++, k++)
        s[k] += a[i] * b[i];
    return host_fold(s);
}
/* parameters.c: adds rows of others, n floats each, to the rows of c. A stride of 0 adds the same row each time. */
void host_add_rows(const float *others, int others_stride, int rows, int n, float *c, int stride);
/* NAME_host.c for each of MATRIX_OPTIMIZERS: steps the whole matrix p, which begins `at` elements into the piece. r:
 * the matrix's rate and its gradient's scale. */
struct update_rates;
typedef void host_matrix_step(const struct rt_update *u, const struct rt_parameter *p, int64_t at,
                              const struct update_rates *r);
#define X(NAME, name, ...) host_matrix_step name##_host_step;
MATRIX_OPTIMIZERS(X)
#undef X
#endif
