/* A mixture of experts against itself in double precision, token by token, differentiated numerically; and tokens for
 * which there is no room. */
#include "layers/host.h"
#include "layers/product.h"
#include "handmade.h"
#include "passes/cost.h"
#include <criterion/criterion.h>
#include <math.h>

struct shape {
    int context, sequences, width, inner, experts, top, gated;
    double capacity, balance;
};

enum { BATCHES = 3, VOCAB = 11 };

/* embedding | moe | linear, cross_entropy */
static struct model *model_of(const struct shape *is) {
    struct model *m = model_tokens(is->context * is->sequences, is->context, VOCAB, BATCHES);
    const int kind[] = {LAYER_route, LAYER_experts, is->gated ? LAYER_swiglu : LAYER_gelu, LAYER_experts,
                        LAYER_combine};
    add(m, LAYER_embedding, is->width);
    for (int i = 0; i < 5; i++) {
        m->layer[m->nlayers] = (struct model_layer){.kind = kind[i], .item = m->nitems, .in_moe = true};
        m->layer[m->nlayers].config.moe.experts = is->experts;
        m->layer[m->nlayers].config.moe.top = is->top;
        m->layer[m->nlayers].config.moe.capacity = is->capacity;
        m->layer[m->nlayers].config.moe.balance = is->balance;
        m->layer[m->nlayers++].out = i == 1 ? is->inner * (1 + is->gated) : 0;
    }
    m->nitems++;
    add(m, LAYER_linear, VOCAB);
    add(m, LAYER_cross_entropy, 0);
    m->cut = NEW(int, 2);
    m->cut[0] = 1;
    m->cut[1] = 2;
    m->ncut = 2;
    return m;
}

/* ---- the reference ---- */

struct reference {
    const struct shape *is;
    double *router, *up, *down; /* width x experts; per expert width x inner (1 + gated), inner x width */
    double *x, *dy, *y;
    int dropped;
};

/* Returns the number of experts before e in the token's order: larger probability, or equal and a lower number. e is
 * chosen if there are fewer than top. */
static int rank_of(const struct shape *is, const double *p, int e) {
    int n = 0;
    for (int i = 0; i < is->experts; i++)
        n += p[i] > p[e] || (p[i] == p[e] && i < e);
    return n;
}

static void probabilities(const struct reference *f, int t, double *p) {
    const struct shape *is = f->is;
    double sum = 0;
    for (int e = 0; e < is->experts; e++) {
        p[e] = 0;
        for (int i = 0; i < is->width; i++)
            p[e] += f->x[t * is->width + i] * f->router[i * is->experts + e];
        sum += p[e] = exp(p[e]);
    }
    for (int e = 0; e < is->experts; e++)
        p[e] /= sum;
}

/* y += weight * expert e of x */
static void expert(const struct reference *f, int e, double weight, const double *x, double *y) {
    const struct shape *is = f->is;
    int columns = is->inner * (1 + is->gated);
    const double *up = f->up + e * is->width * columns, *down = f->down + e * is->inner * is->width;
    double h[64] = {0}, z[64];
    for (int j = 0; j < columns; j++)
        for (int i = 0; i < is->width; i++)
            h[j] += x[i] * up[i * columns + j];
    for (int j = 0; j < is->inner; j++) {
        double u = 0.7978845608028654 * (h[j] + 0.044715 * pow(h[j], 3));
        z[j] = is->gated ? h[j] / (1 + exp(-h[j])) * h[is->inner + j] : 0.5 * h[j] * (1 + tanh(u));
    }
    for (int j = 0; j < is->inner; j++)
        for (int i = 0; i < is->width; i++)
            y[i] += weight * z[j] * down[j * is->width + i];
}

/* Counts the choices of expert e that come before token t's rank-th choice: by lower ranks, and by earlier tokens. */
static int before(const struct reference *f, double p[][16], int t, int e, int rank) {
    int first = t / f->is->context * f->is->context, n = 0;
    for (int i = first; i < first + f->is->context; i++) {
        int other = rank_of(f->is, p[i], e);
        n += other < rank || (other == rank && i < t);
    }
    return n;
}

/* Returns sum(dy y) plus the balancing loss, a mean over sequences and the step's microbatches, with a constant f. */
static double objective(struct reference *f) {
    static double p[64][16];
    const struct shape *is = f->is;
    int tokens = is->context * is->sequences, room = (int)ceil(is->capacity * is->top * is->context / is->experts);
    double sum = 0;
    f->dropped = 0;
    memset(f->y, 0, sizeof *f->y * (size_t)(tokens * is->width));
    for (int t = 0; t < tokens; t++)
        probabilities(f, t, p[t]);
    for (int t = 0; t < tokens; t++)
        for (int e = 0; e < is->experts; e++) {
            int rank = rank_of(is, p[t], e), first = t / is->context * is->context, chosen = 0;
            double all = 0;
            for (int i = 0; i < is->experts; i++)
                all += rank_of(is, p[t], i) < is->top ? p[t][i] : 0;
            for (int i = first; i < first + is->context; i++)
                chosen += rank_of(is, p[i], e) < is->top;
            sum += is->balance / BATCHES / is->sequences * is->experts * chosen / (is->context * is->top) * p[t][e] /
                   is->context;
            if (rank >= is->top)
                continue;
            if (before(f, p, t, e, rank) < room)
                expert(f, e, is->top > 1 ? p[t][e] / all : p[t][e], f->x + t * is->width, f->y + t * is->width);
            else
                f->dropped++;
        }
    for (int i = 0; i < tokens * is->width; i++)
        sum += f->dy[i] * f->y[i];
    return sum;
}

/* ---- the comparison ---- */

static uint64_t state = 7;
static float uniform(void) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (float)(state >> 40) / 8388608 - 1; /* [-1, 1) */
}

static double *twice(float *at, int64_t n) {
    double *d = NEW(double, n);
    for (int64_t i = 0; i < n; i++)
        d[i] = (double)(at[i] = uniform());
    return d;
}

/* As in test_layers_host.c: some hundred roundings of the largest value. */
static void compare(const char *what, const float *got, const double *want, int64_t n) {
    double largest = 1e-3;
    for (int64_t i = 0; i < n; i++)
        largest = fabs(want[i]) > largest ? fabs(want[i]) : largest;
    for (int64_t i = 0; i < n; i++)
        cr_assert(fabs((double)got[i] - want[i]) <= 2e-5 * largest, "%s[%d]: %g, should be %g", what, (int)i,
                  (double)got[i], want[i]);
}

static double *derivative(struct reference *f, double *at, int64_t n) {
    double *d = NEW(double, n);
    for (int64_t i = 0; i < n; i++) {
        double was = at[i];
        at[i] = was + 1e-5;
        double up = objective(f);
        at[i] = was - 1e-5;
        d[i] = (up - objective(f)) / 2e-5;
        at[i] = was;
    }
    return d;
}

static float *parameter(const struct rt_stage *s, int layer, float *w) { return w + s->layer[layer].param / 4; }

/* Runs it on random weights, inputs and output gradients. Returns the number of dropped choices. */
static int check(struct shape is) {
    struct model *m = model_of(&is);
    struct stage *st = cost_stages(spec_of(m, 3)) + 1;
    const struct rt_stage *s = &st->rt;
    struct rt_routed routed = {0, 0};
    struct rt_bind *at = bench_of(st, 1, NULL).at;
    int64_t n = (int64_t)is.context * is.sequences * is.width, inner = is.inner * (1 + is.gated);
    struct reference f = {.is = &is, .y = NEW(double, n)};
    at->routed = &routed;
    at->at[SP_X] = fresh(s->input);
    at->at[SP_DY] = fresh(s->act);
    memset(at->w, 0, (size_t)s->weight);
    f.router = twice(parameter(s, 0, at->w), is.width * is.experts);
    f.up = twice(parameter(s, 1, at->w), is.experts * is.width * inner);
    f.down = twice(parameter(s, 3, at->w), is.experts * is.inner * is.width);
    f.x = twice((float *)(void *)at->at[SP_X], n);
    f.dy = twice((float *)(void *)at->at[SP_DY], n);
    host_forward(&m->rt, s, at);
    memset(at->at[SP_X], 0xff, (size_t)s->input);
    objective(&f);
    int dropped = f.dropped;
    compare("y", (float *)(void *)at->at[SP_Y], f.y, n);
    cr_expect_eq(routed.pairs, is.context * is.sequences * is.top);
    cr_expect(routed.dropped == dropped, "%d, should be %d", (int)routed.dropped, dropped);
    memset(at->at[SP_Y], 0xff, (size_t)s->act);
    host_backward(&m->rt, s, at, true, false); /* I */
    memset(at->at[SP_DY], 0xff, (size_t)s->act);
    memset(at->at[SP_WORK], 0xff, (size_t)s->work);
    host_backward(&m->rt, s, at, false, true); /* W, from the stash alone; then once more */
    at->first = false;
    host_backward(&m->rt, s, at, false, true);
    for (int64_t i = 0; i < s->weight / 4; i++)
        at->dw[i] /= 2;
    compare("dx", (float *)(void *)at->at[SP_DX], derivative(&f, f.x, n), n);
    compare("router", parameter(s, 0, at->dw), derivative(&f, f.router, is.width * is.experts), is.width * is.experts);
    compare("up", parameter(s, 1, at->dw), derivative(&f, f.up, is.experts * is.width * inner),
            is.experts * is.width * inner);
    compare("down", parameter(s, 3, at->dw), derivative(&f, f.down, is.experts * is.inner * is.width),
            is.experts * is.inner * is.width);
    return dropped;
}

Test(moe_host, one_expert_of_each_token) {
    check((struct shape){6, 1, 5, 7, 4, 1, 0, 4, 0});
    check((struct shape){6, 2, 5, 7, 4, 1, 0, 4, 0.5});
}
Test(moe_host, several) {
    check((struct shape){6, 2, 5, 7, 4, 2, 0, 2, 0});
    check((struct shape){6, 2, 5, 7, 5, 3, 1, 2, 0.25});
    check((struct shape){6, 1, 5, 7, 3, 3, 1, 1, 0.25}); /* room for all: each expert has all tokens */
}
Test(moe_host, no_room) {
    cr_expect_gt(check((struct shape){8, 2, 5, 6, 4, 1, 0, 1, 0.5}), 0);
    cr_expect_gt(check((struct shape){8, 2, 5, 6, 4, 2, 1, 1, 0.5}), 0);
    cr_expect_gt(check((struct shape){8, 1, 5, 6, 5, 2, 0, 0.5, 0.5}), 0);
    cr_expect_gt(check((struct shape){8, 2, 5, 6, 5, 3, 1, 0.01, 1}), 8); /* one place each */
}

/* Among equal probabilities, lower numbers are chosen. First choices take places before second ones, each in row order.
 */
Test(moe_host, ties_and_places) {
    struct shape is = {6, 2, 4, 3, 3, 2, 0, 0.5, 0}; /* room for 2 */
    struct model *m = model_of(&is);
    struct stage *st = cost_stages(spec_of(m, 3)) + 1;
    const struct rt_stage *s = &st->rt;
    struct rt_bind *at = bench_of(st, 1, NULL).at;
    float *x = (float *)(at->at[SP_X] = fresh(s->input));
    memset(at->w, 0, (size_t)s->weight);
    for (int e = 0; e < 3; e++) /* in expert e, inner column e is 10 x's column e; its gelu comes out in column e */
        for (int i = 0; i < 3; i++) {
            parameter(s, 1, at->w)[e * 12 + i * 3 + i] = 10;
            parameter(s, 3, at->w)[e * 12 + i * 4 + e] = 1;
        }
    for (int i = 0; i < 12 * 4; i++)
        x[i] = 1;
    /* Token 1 chooses expert 1 first, then expert 0. For the others all are equal, so they choose 0, then 1. */
    parameter(s, 0, at->w)[3 * 3 + 1] = 1;
    for (int t = 0; t < 12; t++)
        x[t * 4 + 3] = t % 6 == 1;
    host_forward(&m->rt, s, at);
    const float *y = (float *)(void *)at->at[SP_Y];
    for (int t = 0; t < 12; t++) {
        bool at0 = t % 6 == 0 || t % 6 == 2, at1 = t % 6 == 1 || t % 6 == 0;
        cr_expect((y[t * 4] > 0) == at0 && (y[t * 4 + 1] > 0) == at1 && y[t * 4 + 2] == 0, "token %d: %g %g %g", t,
                  (double)y[t * 4], (double)y[t * 4 + 1], (double)y[t * 4 + 2]);
    }
}

/* ---- a team that divides the experts ---- */

enum { MOST_MEMBERS = 4 };

/* Returns member i of t of a whole moe: it computes all layers for its sequences, and its experts for all tokens. */
static struct rt_stage *member_of(const struct rt_stage *whole, int i, int t) {
    struct rt_stage *s = NEW(struct rt_stage, 1);
    struct rt_layer *l = NEW(struct rt_layer, 7);
    static const int from[] = {0, 0, 1, 2, 3, 4, 4};
    for (int k = 0; k < 7; k++) {
        l[k] = whole->layer[from[k]];
        l[k].rows /= t;
        l[k].out_rows /= t;
        if (k == 0 || k == 1 || k >= 5)
            l[k].part = (struct rt_rows){.member = i, .members = t};
        if (l[k].kind == LAYER_experts) {
            l[k].share = (struct rt_share){SPLIT_ROWS, i, t, {0}};
            l[k].config.moe.experts /= t;
            l[k].nparam /= t;
        }
    }
    for (int k = 1; k < 6; k += 4) { /* between places */
        l[k] = (struct rt_layer){.kind = k == 1 ? LAYER_to_experts : LAYER_to_tokens, .part = l[k].part};
        l[k].rows = l[0].out_rows;
        l[k].in = l[k].out = l[0].in;
        l[k].config.moe.experts = l[0].config.moe.experts;
    }
    *s = (struct rt_stage){.layer = l, .nlayers = 7, .place = i, .members = t};
    layout_stage(s, l, 1, 1, FP32, 0);
    return s;
}

/* Runs all members' part p of the three of a forward or backward, and then their exchange. */
static void run_parts(const struct rt_model *m, struct rt_stage *const *s, struct rt_bind *at, int t, bool forward,
                      int p, char *const *give, char *const *got, int64_t bytes) {
    static const int cut[] = {0, 1, 5, 7};
    for (int i = 0; i < t; i++) {
        at[i].at[SP_GIVE] = p < 2 ? give[i] : NULL;
        at[i].at[SP_GOT] = p > 0 ? got[i] : NULL;
        if (forward)
            host_forward_part(m, s[i], &at[i], cut[p], p < 2 ? cut[p + 1] + 1 : 7);
        else
            host_backward_part(
                m, s[i], &at[i],
                (struct rt_sweep){true, true, SWEEP_ALL, p < 2 ? cut[2 - p] : 0, p > 0 ? cut[3 - p] + 1 : 7});
    }
    for (int i = 0; i < t && p < 2; i++)
        for (int j = 0; j < t; j++)
            memcpy(got[i] + j * bytes / t, give[j] + i * bytes / t, (size_t)(bytes / t));
}

/* Compares bit for bit if libxsmm makes the products; a BLAS may sum a row in another order if there are fewer rows. */
static void same(const char *what, const void *got, const void *want, int64_t bytes) {
    int64_t n = bytes / 4;
    double *near = NEW(double, n);
    for (int64_t i = 0; i < n; i++)
        near[i] = (double)((const float *)want)[i];
    if (product_kernels())
        cr_expect_arr_eq(got, want, (size_t)bytes, "%s", what);
    else
        compare(what, got, near, n);
}

/* Checks that a team computes what one rank does; each member has only a part of the router's gradient. */
static void check_team(struct shape is, int t) {
    struct model *m = model_of(&is);
    struct stage *st = cost_stages(spec_of(m, 3)) + 1;
    const struct rt_stage *whole = &st->rt;
    struct rt_bind *at = bench_of(st, 1, NULL).at, own[MOST_MEMBERS] = {0};
    struct rt_stage *s[MOST_MEMBERS];
    char *give[MOST_MEMBERS], *got[MOST_MEMBERS];
    int64_t bytes = 4 * (int64_t)whole->layer[0].out_rows / t * is.width;
    at->at[SP_X] = fresh(whole->input);
    at->at[SP_DY] = fresh(whole->act);
    twice(at->w, whole->weight / 4);
    twice((float *)(void *)at->at[SP_X], whole->input / 4);
    twice((float *)(void *)at->at[SP_DY], whole->act / 4);
    host_forward(&m->rt, whole, at);
    host_backward(&m->rt, whole, at, true, true);
    for (int i = 0; i < t; i++) {
        s[i] = member_of(whole, i, t);
        own[i] = (struct rt_bind){.first = true, .w = fresh(s[i]->weight), .dw = fresh(s[i]->weight)};
        own[i].at[SP_X] = at->at[SP_X] + i * whole->input / t;
        own[i].at[SP_DY] = at->at[SP_DY] + i * whole->act / t;
        own[i].at[SP_Y] = fresh(whole->act / t);
        own[i].at[SP_DX] = fresh(whole->input / t);
        own[i].at[SP_STASH] = fresh(s[i]->stash);
        own[i].at[SP_EXT] = fresh(s[i]->ext);
        own[i].at[SP_WORK] = fresh(s[i]->work);
        give[i] = fresh(bytes);
        got[i] = fresh(bytes);
        for (int k = 0; k < 3; k++) { /* router, up, down */
            const struct rt_layer *mine = &s[i]->layer[k == 0 ? 0 : 2 * k],
                                  *all = &whole->layer[k == 0 ? 0 : 2 * k - 1];
            memcpy(own[i].w + mine->param / 4, at->w + all->param / 4 + (k ? i * mine->nparam : 0),
                   4 * (size_t)mine->nparam);
        }
    }
    for (int p = 0; p < 3; p++)
        run_parts(&m->rt, s, own, t, true, p, give, got, bytes);
    for (int p = 0; p < 3; p++)
        run_parts(&m->rt, s, own, t, false, p, give, got, bytes);
    double *router = NEW(double, is.width *is.experts);
    for (int i = 0; i < t; i++) {
        same("y", own[i].at[SP_Y], at->at[SP_Y] + i * whole->act / t, whole->act / t);
        same("dx", own[i].at[SP_DX], at->at[SP_DX] + i * whole->input / t, whole->input / t);
        for (int k = 1; k < 3; k++) {
            const struct rt_layer *mine = &s[i]->layer[2 * k], *all = &whole->layer[2 * k - 1];
            same("expert weights", own[i].dw + mine->param / 4, at->dw + all->param / 4 + i * mine->nparam,
                 4 * mine->nparam);
        }
        for (int j = 0; j < is.width * is.experts; j++)
            router[j] += (double)own[i].dw[s[i]->layer[0].param / 4 + j];
    }
    compare("router", at->dw + whole->layer[0].param / 4, router, is.width * is.experts);
}

Test(moe_host, teams) {
    check_team((struct shape){6, 2, 5, 7, 4, 2, 0, 1, 0.5}, 2);
    check_team((struct shape){6, 4, 5, 7, 4, 1, 1, 2, 0.5}, 2);
    check_team((struct shape){5, 4, 3, 4, 8, 3, 1, 1.25, 0.5}, 4);
    check_team((struct shape){5, 3, 3, 4, 6, 2, 0, 1.25, 0.5}, 3);
}
