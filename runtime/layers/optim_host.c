/* Updates on the host, fp32: parameter by parameter, leaving the gaps between alone. Weights, gradients and moments do
 * not overlap, and a loop reads everything else before it starts, so loops are vectorised. */
#include "clip.h"
#include "host.h"
#include "optim.h"
#include "store/parameter_walk.h"
#include <string.h>

/* Values shared by all weights in the update of a parameter. */
struct update {
    const struct rt_model *m;
    struct update_rates rates;
    float decay;
};

/* An optimizer's step for n weights. moment: the first of their arrays, in the order in which OPTIMIZERS names them;
 * each next one is `stride` floats after it. */
typedef void optimizer_steps(const struct update *u, int64_t n, float *restrict w, const float *restrict dw,
                             float *moment, int64_t stride);
#define X(NAME, name, moments, ...)                                                                                    \
    static WIDE void name##_steps(const struct update *u, int64_t n, float *restrict w, const float *restrict dw,      \
                                  float *moment, int64_t stride) {                                                     \
        enum { COUNT = sizeof moments - 1 };                                                                           \
        const struct rt_model m = *u->m;                                                                               \
        const struct update_rates r = u->rates;                                                                        \
        const float decay = u->decay;                                                                                  \
        float *restrict first = moment, *restrict second = COUNT > 1 ? moment + stride : NULL;                         \
        _Static_assert((int)COUNT <= MOST_MOMENTS, "two arrays");                                                      \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            float mine[MOST_MOMENTS] = {COUNT > 0 ? first[i] : 0, COUNT > 1 ? second[i] : 0};                          \
            name##_step(&m, &r, decay, times(r.scale, dw[i]), &w[i], mine);                                            \
            if (COUNT > 0)                                                                                             \
                first[i] = mine[0];                                                                                    \
            if (COUNT > 1)                                                                                             \
                second[i] = mine[1];                                                                                   \
        }                                                                                                              \
    }
OPTIMIZERS(X)
#undef X
#define X(NAME, name, ...) name##_steps,
static optimizer_steps *const steps[NOPTIMIZERS] = {NULL, OPTIMIZERS(X)};
#undef X
#define X(NAME, name, ...) [OPT_##NAME] = name##_host_step,
static host_matrix_step *const matrix_steps[NOPTIMIZERS] = {MATRIX_OPTIMIZERS(X)};
#undef X

/* Returns the bits of the largest magnitude; infinity's or more if a value is not finite. */
static WIDE uint32_t largest(const float *w, int64_t n) {
    uint32_t most = 0, bits;
    for (int64_t i = 0; i < n; i++) {
        memcpy(&bits, &w[i], sizeof bits);
        bits &= 0x7fffffff;
        most = bits > most ? bits : most;
    }
    return most;
}

/* Works in pieces that stay in the first-level cache, so that the check costs nothing measurable. */
static uint32_t step_pieces(const struct update *u, int64_t n, float *w, const float *dw, float *moment,
                            int64_t stride) {
    enum { PIECE = 1024 };
    uint32_t most = 0;
    for (int64_t at = 0; at < n; at += PIECE) {
        int64_t size = at + PIECE < n ? PIECE : n - at;
        steps[u->m->optimizer](u, size, w + at, dw + at, moment ? moment + at : NULL, stride);
        uint32_t here = largest(w + at, size);
        most = here > most ? here : most;
    }
    return most;
}

/* Updates a piece. Each moment is laid out like the weights; step 1 starts them at zero. */
bool host_update(const struct rt_update *u) {
    const uint32_t infinite = 0x7f800000;
    const struct rt_model *m = u->piece.m;
    uint32_t most = 0, here = 0;
    int64_t moments = count_moments(m->optimizer) * u->piece.n;
    float scale = update_scale(m, u->piece.s) * (u->norm ? clip_scale(m->clip, u->norm) : 1);
    struct update all = {.m = m, .rates = rates_of_update(m, scale, u->number, u->of)};
    struct update_rates of_matrices = all.rates;
    of_matrices.lr = rate_at(m, u->number, u->of);
    if (u->number == 1 && moments > 0)
        memset(u->opt, 0, (size_t)moments * sizeof *u->opt);
    for (struct parameter_walk walk = walk_parameters(u->piece); steps[m->optimizer] && next_parameter(&walk);) {
        int64_t at = walk.from - u->piece.first, count = walk.to - walk.from;
        float *w = (float *)u->w + at;
        all.decay = decays(walk.p) ? m->decay : 0;
        if (matrix_work(m, walk.l, walk.p) > 0) {
            matrix_steps[m->optimizer](u, walk.p, at, &of_matrices);
            here = largest(w, count);
        } else
            here = step_pieces(&all, count, w, u->dw + at, moments > 0 ? u->opt + at : NULL, u->piece.n);
        most = here > most ? here : most;
    }
    return most < infinite;
}
