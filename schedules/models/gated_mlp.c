/* A fused gated MLP, y = (silu(x G) * (x U)) D, as a unit: see gated_mlp.lua, and schedules/units.md for how to write
 * one. Its parameters are gate_up, the columns of G and then of U, in x 2 inner, and down, inner x out.
 *
 * The forward keeps x G and x U side by side in the stash; silu and the product with them are computed again where they
 * are needed. The input gradient leaves the gradients of x G and x U for the weight gradient, in `extra`. */
#include <math.h>
#include <pianola/unit.h>
#include <string.h>

/* Columns between the two products. The stash holds two rows of them for each row of x. */
enum { INNER = 128 };

static float logistic(float x) { return 1 / (1 + expf(-x)); }

/* c = or += a b, for a of rows x inner and b of inner x columns. */
static void product(float *c, const float *a, const float *b, int rows, int inner, int columns, bool add) {
    if (!add)
        memset(c, 0, sizeof *c * (size_t)rows * (size_t)columns);
    for (int r = 0; r < rows; r++)
        for (int k = 0; k < inner; k++)
            for (int j = 0; j < columns; j++)
                c[r * columns + j] += a[r * inner + k] * b[k * columns + j];
}

/* The sum of a[i] b[i], in eight strands: compilers can vectorise it, and its order is fixed. */
static float dot(const float *a, const float *b, int n) {
    float sum[8] = {0}, rest = 0;
    for (int i = 0; i + 8 <= n; i += 8)
        for (int k = 0; k < 8; k++)
            sum[k] += a[i + k] * b[i + k];
    for (int i = n / 8 * 8; i < n; i++)
        rest += a[i] * b[i];
    for (int k = 0; k < 8; k++)
        rest += sum[k];
    return rest;
}

/* c = a bT, for a of rows x columns and b of inner x columns. */
static void product_turned(float *c, const float *a, const float *b, int rows, int inner, int columns) {
    for (int r = 0; r < rows; r++)
        for (int k = 0; k < inner; k++)
            c[r * inner + k] = dot(&a[r * columns], &b[k * columns], columns);
}

/* c = or += aT b, for a of rows x inner and b of rows x columns. The sum over rows is made first, and then added: so
 * gradients of several microbatches add up as in other layers. */
static void turned_product(float *c, const float *a, const float *b, int rows, int inner, int columns, bool add) {
    enum { BLOCK = 64 };
    for (int k = 0; k < inner; k++)
        for (int begin = 0; begin < columns; begin += BLOCK) {
            int n = columns - begin < BLOCK ? columns - begin : BLOCK;
            float sum[BLOCK] = {0}, *to = &c[k * columns + begin];
            for (int r = 0; r < rows; r++)
                for (int j = 0; j < n; j++)
                    sum[j] += a[r * inner + k] * b[r * columns + begin + j];
            for (int j = 0; j < n; j++)
                to[j] = add ? to[j] + sum[j] : sum[j];
        }
}

/* h = silu(x G) * (x U), from the stash. */
static void gated(float *h, const float *stash, int rows) {
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < INNER; j++) {
            float gate = stash[r * 2 * INNER + j], up = stash[r * 2 * INNER + INNER + j];
            h[r * INNER + j] = gate * logistic(gate) * up;
        }
}

void gated_mlp_forward(const struct pianola_unit_call *c) {
    const float *gate_up = c->w, *down = gate_up + (size_t)c->in * 2 * INNER;
    float *h = c->work;
    product(c->stash, c->x, gate_up, c->rows, c->in, 2 * INNER, false);
    gated(h, c->stash, c->rows);
    product(c->y, h, down, c->rows, INNER, c->out, false);
}

void gated_mlp_input(const struct pianola_unit_call *c) {
    const float *gate_up = c->w, *down = gate_up + (size_t)c->in * 2 * INNER, *stash = c->stash;
    float *d = c->extra, *dh = c->work;
    product_turned(dh, c->dy, down, c->rows, INNER, c->out);
    for (int r = 0; r < c->rows; r++)
        for (int j = 0; j < INNER; j++) {
            float gate = stash[r * 2 * INNER + j], up = stash[r * 2 * INNER + INNER + j], s = logistic(gate);
            d[r * 2 * INNER + j] = dh[r * INNER + j] * up * (s + gate * s * (1 - s));
            d[r * 2 * INNER + INNER + j] = dh[r * INNER + j] * gate * s;
        }
    if (c->dx)
        product_turned(c->dx, d, gate_up, c->rows, c->in, 2 * INNER);
}

void gated_mlp_weight(const struct pianola_unit_call *c) {
    float *gate_up = c->dw, *down = gate_up + (size_t)c->in * 2 * INNER, *h = c->work;
    turned_product(gate_up, c->x, c->extra, c->rows, c->in, 2 * INNER, c->add);
    gated(h, c->stash, c->rows);
    turned_product(down, h, c->dy, c->rows, INNER, c->out, c->add);
}
