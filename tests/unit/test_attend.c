/* Attention in slices of a sequence, and the angles of rope. For any cut, each slice attends to all slices up to
 * itself, and the results equal the whole's, forward and backward. The whole is compared with the formula in double. */
#include "handmade.h"
#include "layers/attend.h"
#include <criterion/criterion.h>
#include <math.h>

enum { SEQUENCES = 2, ROWS = 150, HEADS = 4, DIM = 6, MOST = 16 };
enum { WIDTH = HEADS * DIM, N = SEQUENCES * ROWS };

static uint64_t state = 5;
static float uniform(void) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (float)(state >> 40) / 4194304 - 2; /* [-2, 2) */
}

static float *numbers(int64_t n) {
    float *p = fresh(4 * n);
    for (int64_t i = 0; i < n; i++)
        p[i] = uniform();
    return p;
}

/* A whole case: the rows of both sequences, in one piece or cut into slices. */
struct whole {
    int kv_heads;
    float *q, *k, *v, *dy;         /* rows of all sequences; k and v have kv_heads heads */
    float *y, *lse, *dq, *dk, *dv; /* results */
};

static struct whole whole_of(int kv_heads) {
    int64_t of_kv = (int64_t)N * kv_heads * DIM;
    return (struct whole){kv_heads,           numbers(N * WIDTH),   numbers(of_kv),       numbers(of_kv),
                          numbers(N * WIDTH), fresh(4 * N * WIDTH), fresh(4 * N * HEADS), fresh(4 * N * WIDTH),
                          fresh(4 * of_kv),   fresh(4 * of_kv)};
}

/* Copies rows from .. from + n - 1 of each sequence to rows with a stride. */
static void cut_out(float *to, int stride, const float *of, int columns, int from, int n) {
    for (int r = 0; r < SEQUENCES * n; r++)
        memcpy(to + (int64_t)r * stride, of + (int64_t)(r / n * ROWS + from + r % n) * columns, 4 * (size_t)columns);
}
static void put_back(float *to, const float *of, int stride, int columns, int from, int n) {
    for (int r = 0; r < SEQUENCES * n; r++)
        memcpy(to + (int64_t)(r / n * ROWS + from + r % n) * columns, of + (int64_t)r * stride, 4 * (size_t)columns);
}

/* Runs slices; slice i is rows cut[i] .. cut[i + 1]. Every tensor has its own memory and its own strides. */
static void in_slices(struct whole *w, int n, const int *cut) {
    struct segment segment[MOST];
    struct attend a[MOST];
    int kv = w->kv_heads * DIM;
    float *k[MOST], *v[MOST], *dk[MOST], *dv[MOST], *q[MOST], *dy[MOST];
    for (int i = 0; i < n; i++) {
        int rows = cut[i + 1] - cut[i], all = SEQUENCES * rows, stride = kv + 3 * i, q_stride = WIDTH + i;
        k[i] = fresh(4 * (int64_t)all * stride), v[i] = fresh(4 * (int64_t)all * stride);
        dk[i] = fresh(4 * (int64_t)all * (kv + i)), dv[i] = fresh(4 * (int64_t)all * (kv + i));
        q[i] = fresh(4 * (int64_t)all * q_stride), dy[i] = fresh(4 * (int64_t)all * (WIDTH + 1));
        cut_out(k[i], stride, w->k, kv, cut[i], rows);
        cut_out(v[i], stride, w->v, kv, cut[i], rows);
        cut_out(q[i], q_stride, w->q, WIDTH, cut[i], rows);
        cut_out(dy[i], WIDTH + 1, w->dy, WIDTH, cut[i], rows);
        segment[i] = (struct segment){.k = k[i], .v = v[i], .dk = dk[i], .dv = dv[i], .stride = stride};
        segment[i].dstride = kv + i, segment[i].first = cut[i], segment[i].rows = rows;
        a[i] = (struct attend){.q = q[i], .dy = dy[i], .y = fresh(4 * (int64_t)all * (WIDTH + 1))};
        a[i].lse = fresh(4 * (int64_t)all * HEADS), a[i].d = fresh(4 * (int64_t)all * HEADS);
        a[i].q_stride = q_stride, a[i].y_stride = WIDTH + 1, a[i].dq_stride = WIDTH + 2 * i;
        a[i].sequences = SEQUENCES, a[i].first = cut[i], a[i].rows = rows;
        a[i].heads = HEADS, a[i].kv_heads = w->kv_heads, a[i].dim = DIM;
        a[i].nsegments = i + 1, a[i].segment = segment;
        host_attend(&a[i]);
        a[i].dq = fresh(4 * (int64_t)all * a[i].dq_stride);
    }
    for (int i = n - 1; i >= 0; i--) {
        for (int s = 0; s <= i; s++)
            segment[s].add = i < n - 1;
        host_attend_backward(&a[i]);
    }
    for (int i = 0; i < n; i++) {
        int rows = cut[i + 1] - cut[i];
        put_back(w->y, a[i].y, WIDTH + 1, WIDTH, cut[i], rows);
        put_back(w->lse, a[i].lse, HEADS, HEADS, cut[i], rows);
        put_back(w->dq, a[i].dq, a[i].dq_stride, WIDTH, cut[i], rows);
        put_back(w->dk, dk[i], kv + i, kv, cut[i], rows);
        put_back(w->dv, dv[i], kv + i, kv, cut[i], rows);
    }
}

static void near(const char *what, const float *got, const double *want, int64_t n, double tolerance) {
    double largest = 0;
    for (int64_t i = 0; i < n; i++)
        largest = fmax(largest, fabs(want[i]));
    for (int64_t i = 0; i < n; i++)
        cr_assert(fabs((double)got[i] - want[i]) <= tolerance * largest, "%s[%d]: %g, should be %g", what, (int)i,
                  (double)got[i], want[i]);
}
static void near_floats(const char *what, const float *got, const float *want, int64_t n) {
    double *wide = NEW(double, n);
    for (int64_t i = 0; i < n; i++)
        wide[i] = (double)want[i];
    near(what, got, wide, n, 1e-6);
}

/* Computes the formula row by row: with p = softmax(q k / sqrt(dim)) over the keys up to the row, y = p v; and the
 * gradients of sum(dy y). */
static void formula(const struct whole *w, double *y, double *dq, double *dk, double *dv) {
    int group = HEADS / w->kv_heads, kv = w->kv_heads * DIM;
    for (int r = 0; r < N; r++)
        for (int h = 0; h < HEADS; h++) {
            double p[ROWS], dp[ROWS], total = 0, mean = 0, scale = 1 / sqrt(DIM);
            int64_t at = (int64_t)r * WIDTH + h * DIM, first = (int64_t)(r / ROWS * ROWS) * kv + h / group * DIM;
            int n = r % ROWS + 1;
            for (int j = 0; j < n; j++) {
                double dot = 0;
                for (int i = 0; i < DIM; i++)
                    dot += (double)w->q[at + i] * (double)w->k[first + j * kv + i];
                total += p[j] = exp(dot * scale);
            }
            for (int j = 0; j < n; j++) {
                p[j] /= total;
                dp[j] = 0;
                for (int i = 0; i < DIM; i++) {
                    y[at + i] += p[j] * (double)w->v[first + j * kv + i];
                    dp[j] += (double)w->dy[at + i] * (double)w->v[first + j * kv + i];
                    dv[first + j * kv + i] += p[j] * (double)w->dy[at + i];
                }
                mean += p[j] * dp[j];
            }
            for (int j = 0; j < n; j++)
                for (int i = 0; i < DIM; i++) {
                    dq[at + i] += scale * p[j] * (dp[j] - mean) * (double)w->k[first + j * kv + i];
                    dk[first + j * kv + i] += scale * p[j] * (dp[j] - mean) * (double)w->q[at + i];
                }
        }
}

static void check_cuts(int kv_heads) {
    static const int cuts[][MOST] = {{0, ROWS},
                                     {0, 1, ROWS},
                                     {0, ROWS - 1, ROWS},
                                     {0, 64, 128, ROWS},
                                     {0, 50, 100, ROWS},
                                     {0, 3, 70, 71, 100, 140, ROWS},
                                     {0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110, 120, 130, ROWS}};
    struct whole first = whole_of(kv_heads);
    int64_t of_kv = (int64_t)N * kv_heads * DIM;
    double *y = NEW(double, N *WIDTH), *dq = NEW(double, N *WIDTH), *dk = NEW(double, of_kv), *dv = NEW(double, of_kv);
    in_slices(&first, 1, cuts[0]);
    formula(&first, y, dq, dk, dv);
    near("y", first.y, y, N * WIDTH, 2e-6);
    near("dq", first.dq, dq, N * WIDTH, 2e-6);
    near("dk", first.dk, dk, of_kv, 2e-6);
    near("dv", first.dv, dv, of_kv, 2e-6);
    for (int c = 1; c < 7; c++) {
        struct whole w = first;
        int n = 0;
        while (cuts[c][n] < ROWS)
            n++;
        w.y = fresh(4 * N * WIDTH), w.dq = fresh(4 * N * WIDTH), w.lse = fresh(4 * N * HEADS);
        w.dk = fresh(4 * of_kv), w.dv = fresh(4 * of_kv);
        in_slices(&w, n, cuts[c]);
        near_floats("y in slices", w.y, first.y, N * WIDTH);
        near_floats("lse in slices", w.lse, first.lse, N * HEADS);
        near_floats("dq in slices", w.dq, first.dq, N * WIDTH);
        near_floats("dk in slices", w.dk, first.dk, of_kv);
        near_floats("dv in slices", w.dv, first.dv, of_kv);
    }
}

Test(attend, any_cut_gives_the_whole) { check_cuts(HEADS); }
Test(attend, any_cut_gives_the_whole_with_grouped_queries) {
    check_cuts(2);
    check_cuts(1);
}

/* Keys after all queries are not used. Their gradients are 0 where gradients are written, and stay where they are
 * added. */
Test(attend, keys_behind_the_queries) {
    enum { QUERIES = 3, KEYS = 70 };
    for (int add = 0; add < 2; add++) {
        float *k = numbers(KEYS * DIM), *v = numbers(KEYS * DIM), *q = numbers(QUERIES * DIM), y[2][QUERIES * DIM];
        float *dk = numbers(KEYS * DIM), *dv = numbers(KEYS * DIM), was = dk[KEYS * DIM - 1], d[QUERIES];
        float lse[QUERIES], dq[QUERIES * DIM];
        struct segment s = {.k = k, .v = v, .dk = dk, .dv = dv, .stride = DIM, .dstride = DIM, .add = add};
        struct attend a = {.q = q, .dy = q, .dq = dq, .lse = lse, .d = d, .nsegments = 1, .segment = &s};
        a.q_stride = a.y_stride = a.dq_stride = a.dim = DIM;
        a.sequences = a.heads = a.kv_heads = 1, a.rows = QUERIES;
        for (int i = 0; i < 2; i++) {
            s.rows = i == 0 ? KEYS : QUERIES;
            a.y = y[i];
            host_attend(&a);
        }
        cr_assert(!memcmp(y[0], y[1], sizeof y[0]));
        s.rows = KEYS;
        host_attend_backward(&a);
        for (int i = QUERIES * DIM; i < KEYS * DIM && !add; i++)
            cr_assert(dk[i] == 0 && dv[i] == 0, "%d", i);
        cr_assert_eq(dk[KEYS * DIM - 1], add ? was : 0);
    }
}

Test(attend, rope_far_away) { /* at the last possible position, with any base */
    for (int i = 0; i < 40; i++)
        for (int p = 1; p < 1 << 20; p = 3 * p + 1) {
            int base = i % 2 ? 10000 : 1 << 30;
            struct rotation by =
                rope_rotation(p * rope_turns(&(struct rt_layer){.config.attention.rope = base}, i, 80));
            long double angle = p * powl(base, -2.0L * i / 80);
            cr_assert_float_eq(by.cosine, (double)cosl(angle), 2e-7, "pair %d at %d", i, p);
            cr_assert_float_eq(by.sine, (double)sinl(angle), 2e-7, "pair %d at %d", i, p);
        }
}
