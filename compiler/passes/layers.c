/* The layers, one row each; what a number or a word cannot express is a function above the rows. */
#include "layers.h"
#include <assert.h>
#include <math.h>

#define X(name, ...) #name,
const char *const layer_name[NLAYERS] = {LAYERS(X)};
#undef X

/* ---- columns out ---- */

/* Counts layers as the user wrote them, without fork and join. */
static const char *where(const struct model *m, int i) {
    int n = 1;
    for (int j = 0; j < i; j++)
        n += row_of(m->layer[j].kind)->block == 0;
    return format("layer %d (%s)", n, layer_name[m->layer[i].kind]);
}

static int given_out(const struct model *m, int i, int in, int forked) {
    (void)in, (void)forked;
    return m->layer[i].out;
}

static int attention_out(const struct model *m, int i, int in, int forked) {
    (void)forked;
    int heads = m->layer[i].heads;
    if (in % (3 * heads) != 0)
        die("%s: its input has %d columns, which is not 3 x heads x something; with heads = %d the layer before it "
            "needs a width that %d divides",
            where(m, i), in, heads, 3 * heads);
    return in / 3;
}

static int join_out(const struct model *m, int i, int in, int forked) {
    if (in != forked)
        die("the residual block that ends with %s: it is entered with %d columns and left with %d, and the two are "
            "added; let its last layer have width = %d",
            where(m, i - 1), forked, in, forked);
    return in;
}

static int loss_out(const struct model *m, int i, int in, int forked) {
    (void)forked;
    bool tokens = m->rt.input == INPUT_TOKENS;
    int need = tokens ? m->rt.vocab : m->rt.features;
    if (in != need)
        die("%s: its input has %d columns, but %s = %d; give the last linear layer that width", where(m, i), in,
            tokens ? "vocab" : "features", need);
    return in;
}

static int unembedding_out(const struct model *m, int i, int in, int forked) {
    (void)forked;
    if (in != m->layer[0].out)
        die("%s: its input has %d columns, but it shares the table of an embedding with width = %d; let its input have "
            "that width",
            where(m, i), in, m->layer[0].out);
    return m->rt.vocab;
}

/* ---- FLOP ---- */

static struct flop product_flop(const struct rt_layer *l) {
    double rows = l->rows, product = 2 * rows * l->in * l->out;
    double bias = (double)l->nparam > (double)l->in * l->out ? rows * l->out : 0;
    return (struct flop){product + bias, product, product + bias};
}

static struct flop attention_flop(const struct rt_layer *l) {
    double rows = l->rows, n = rows * l->out;
    double tiles = rows * (l->context + fmin(l->context, 64)) / 2; /* multiplied: attention_host.c's, 64 rows each */
    double half = rows * (l->context + 1.0) / 2 * l->heads;        /* exponentiated */
    return (struct flop){4 * tiles * l->out + 22 * half, 10 * tiles * l->out + 24 * half + 2 * n, 0};
}

struct flop flop_of(const struct rt_layer *l) {
    const struct layer_row *row = row_of(l->kind);
    double n = (double)l->rows * l->out;
    assert(row->flop || row->each.f + row->each.i + row->each.w > 0); /* a layer without a count */
    return row->flop ? row->flop(l) : (struct flop){row->each.f * n, row->each.i * n, row->each.w * n};
}

/* ---- bytes ---- */

static int64_t two_of_row(const struct rt_layer *l, int64_t element) { /* mean and scale */
    (void)element;
    return 4 * 2 * (int64_t)l->rows;
}

static int64_t of_scores(const struct rt_layer *l) { return 4 * (int64_t)l->rows * l->heads; }

static int64_t log_sum_exp(const struct rt_layer *l, int64_t element) { /* of a row of scores */
    (void)element;
    return of_scores(l);
}

static int64_t gradient(const struct rt_layer *l, int64_t element) { return element * l->rows * l->in; }

/* Each row's loss, for a device that adds them up in a second pass. */
static int64_t losses(const struct rt_layer *l) { return 8 * (int64_t)l->rows; }

const struct layer_row layer_rows[NLAYERS] = {
    [LAYER_embedding] = {.field = {{"width", FIELD_SIZE, NAN}},
                         .first = true,
                         .input = INPUT_TOKENS,
                         .out = given_out,
                         .sequences = true,
                         .each = {1, 0, 2}},
    [LAYER_linear] = {.field = {{"width", FIELD_SIZE, NAN}, {"bias", FIELD_TRUE, true}},
                      .out = given_out,
                      .flop = product_flop,
                      .keeps_x = true},
    [LAYER_relu] = {.each = {1, 1, 0}, .keeps_y = true},
    [LAYER_gelu] = {.each = {26, 36, 0}, .keeps_x = true},
    [LAYER_layernorm] = {.each = {8, 10, 5}, .keeps_x = true, .aux = two_of_row},
    [LAYER_attention] = {.field = {{"heads", FIELD_SIZE, NAN}},
                         .input = INPUT_TOKENS,
                         .because = ", which has a context",
                         .out = attention_out,
                         .sequences = true,
                         .flop = attention_flop,
                         .keeps_x = true,
                         .keeps_y = true,
                         .aux = log_sum_exp,
                         .input_work = of_scores},
    [LAYER_fork] = {.block = 1, .each = {0, 1, 0}},
    [LAYER_join] = {.block = -1, .out = join_out, .each = {1, 0, 0}},
    [LAYER_unembedding] = {.input = INPUT_TOKENS,
                           .because = ": it shares the embedding's table",
                           .out = unembedding_out,
                           .shares = true,
                           .flop = product_flop,
                           .keeps_x = true},
    [LAYER_cross_entropy] = {.loss = true,
                             .input = INPUT_TOKENS,
                             .because = "; integers go with mse",
                             .out = loss_out,
                             .each = {25, 0, 0},
                             .aux = gradient,
                             .forward_work = losses},
    [LAYER_mse] = {.loss = true,
                   .input = INPUT_INTEGERS,
                   .because = "; tokens go with cross_entropy",
                   .out = loss_out,
                   .each = {5, 0, 0},
                   .aux = gradient,
                   .forward_work = losses},
};
