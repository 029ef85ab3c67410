/* The kinds of layers. Functions above the rows express what a number cannot. */
#include "kinds.h"
#include <assert.h>
#include <math.h>

#define X(name, ...) #name,
const char *const layer_name[NLAYERS] = {LAYERS(X)};
#undef X

/* ---- operands ---- */

static int32_t x_again(const struct rt_layer *l) {
    (void)l;
    return UNIT_KEEPS_X;
}
/* Only the weight gradient reads x. */
static int32_t x_for_weights(const struct rt_layer *l) { return has_weight_gradient(l) ? UNIT_KEEPS_X : 0; }
static int32_t y_again(const struct rt_layer *l) {
    (void)l;
    return UNIT_KEEPS_Y;
}
static int32_t both_again(const struct rt_layer *l) {
    (void)l;
    return UNIT_KEEPS_X | UNIT_KEEPS_Y;
}

static int32_t tokens(const struct rt_layer *l) {
    (void)l;
    return UNIT_READS_TOKENS;
}
static int32_t targets(const struct rt_layer *l) {
    (void)l;
    return UNIT_READS_TARGETS;
}
static int32_t seed(const struct rt_layer *l) {
    (void)l;
    return UNIT_READS_SEED;
}

/* ---- FLOP ---- */

/* Counts the additions of positions; without positions, tokens are only copied. */
static struct flop embedding_flop(const struct rt_layer *l) {
    double n = (double)l->rows * l->out;
    return l->context > 0 ? (struct flop){n, 0, 2 * n} : (struct flop){0, 0, n};
}

static struct flop product_flop(const struct rt_layer *l) {
    double rows = l->rows, product = 2 * rows * l->in * l->out;
    double bias = (double)l->nparam > (double)l->in * l->out ? rows * l->out : 0;
    return (struct flop){product + bias, product, product + bias};
}

/* Returns the number of heads of queries and keys. */
static int normed_heads(const struct rt_layer *l) { return l->config.attention.heads + l->config.attention.kv_heads; }

/* Counts like an rmsnorm of queries and keys. */
static struct flop headnorm_flop(const struct rt_layer *l) {
    double n = (double)l->rows * head_columns(l) * normed_heads(l);
    return (struct flop){4 * n, 7 * n, 3 * n};
}

static struct flop experts_flop(const struct rt_layer *l) {
    double product = 2.0 * l->rows * l->in * l->out;
    return (struct flop){product, product, product};
}

/* Counts logits, their softmax, and comparisons for each choice; the gradients of choices are added up at their
 * tokens. */
static struct flop route_flop(const struct rt_layer *l) {
    double rows = l->rows, logits = rows * l->config.moe.experts, product = 2 * logits * l->in;
    int top = l->config.moe.top;
    return (struct flop){product + (24.0 + top) * logits, product + 6 * logits + rows * top * l->in, product};
}

static struct flop combine_flop(const struct rt_layer *l) {
    double sums = 2.0 * l->out_rows * l->config.moe.top * l->out;
    return (struct flop){sums, sums + (double)l->rows * l->in, 0};
}

/* Returns the FLOP of rope on all queries and keys of a layer. */
static struct flop turning_flop(const struct rt_layer *l) {
    const struct attention_config *a = &l->config.attention;
    double dim = l->in / (a->heads + 2.0 * a->kv_heads);
    double turned = a->rope > 0 ? l->rows * dim * (11 + 3 * normed_heads(l)) : 0;
    return (struct flop){turned, turned, 0};
}

/* Counts rows in runs of `length` neighbours, which follow `before` rows of their sequence. A team's member may have
 * two chunks of each sequence, as far from its beginning as from its end: these are as much work as two chunks in the
 * middle. */
static struct flop attention_flop(const struct rt_layer *l) {
    double rows = l->rows, n = rows * l->out, chunks = 2.0 * l->part.members;
    bool by_rows = l->part.members > 0;
    double length = by_rows ? l->context / chunks : sequence_length(l),
           before = by_rows ? (l->context - length) / 2 : l->first;
    double tiles = rows * (before + (length + fmin(length, 64)) / 2); /* multiplied, in attention_host.c's tiles of 64
                                                                       * rows */
    double half = rows * (before + (length + 1) / 2) * l->config.attention.heads; /* exponentiated */
    double turned = by_rows ? 0 : turning_flop(l).f;
    return (struct flop){4 * tiles * l->out + 22 * half + turned, 10 * tiles * l->out + 24 * half + 2 * n + turned, 0};
}

/* ---- bytes ---- */

static int64_t two_of_row(const struct rt_layer *l, int64_t element) { /* mean and scale */
    (void)element;
    return 4 * 2 * (int64_t)l->rows;
}

static int64_t one_of_row(const struct rt_layer *l, int64_t element) { /* scale */
    (void)element;
    return 4 * (int64_t)l->rows;
}

static int64_t one_of_head(const struct rt_layer *l, int64_t element) { /* scale */
    (void)element;
    return 4 * (int64_t)l->rows * normed_heads(l);
}

/* Returns the bytes of a number per row and head, for the input gradient. */
static int64_t of_scores(const struct rt_layer *l, enum unit_operation op) {
    return op == UNIT_INPUT ? 4 * (int64_t)l->rows * l->config.attention.heads : 0;
}

/* Returns the bytes of the log-sum-exp of each row of scores, and of the queries if they are kept with it. */
static int64_t log_sum_exp(const struct rt_layer *l, int64_t element) {
    return lse_bytes(l) + (keeps_queries(l) ? element * l->rows * l->out : 0);
}

static int64_t routing(const struct rt_layer *l, int64_t element) {
    (void)element;
    return routing_bytes(l);
}

static int64_t of_logits(const struct rt_layer *l) { return 4 * (int64_t)l->rows * l->config.moe.experts; }

static int64_t gradient(const struct rt_layer *l, int64_t element) { return element * l->rows * l->in; }

/* Returns the bytes of each row's loss, for a device that adds the losses up in a second pass. */
static int64_t losses(const struct rt_layer *l, enum unit_operation op) {
    return op == UNIT_FORWARD ? 8 * (int64_t)l->rows : 0;
}

/* ---- units: what their scripts say ---- */

static int32_t unit_keeps(const struct rt_layer *l) { return l->unit->keeps; }
static int32_t unit_reads(const struct rt_layer *l) {
    return l->unit->side | (l->unit->ninputs > 0 ? UNIT_READS_INPUTS : 0);
}
static int64_t unit_stash(const struct rt_layer *l, int64_t element) {
    (void)element;
    return l->unit->stash;
}
static int64_t unit_extra(const struct rt_layer *l) { return l->unit->extra; }
static int64_t unit_work(const struct rt_layer *l, enum unit_operation op) {
    return unit_seed_bytes(l->unit) + l->unit->work[op];
}
static const char *unit_data(const struct rt_layer *l) { return l->unit->data; }
static const char *unit_name(const struct rt_layer *l) { return l->unit->name; }

/* Counts what the script says; else a product of each row with each matrix, twice in a backward, or once if the matrix
 * is frozen, and the columns of its output. */
static struct flop unit_flop(const struct rt_layer *l) {
    const double *said = l->unit->flop;
    double all = 0, trained = 0, n = (double)rows_out(l) * l->out;
    for (int i = 0; i < l->unit->nparameters; i++) {
        const struct rt_unit_parameter *p = &l->unit->parameter[i];
        double flop = p->ndims == 2 ? 2.0 * l->rows * (double)p->dim[0] * (double)p->dim[1] : 0;
        all += flop;
        trained += p->frozen ? 0 : flop;
    }
    if (said[UNIT_FORWARD] > 0 || said[UNIT_INPUT] > 0 || said[UNIT_WEIGHT] > 0)
        return (struct flop){said[UNIT_FORWARD], said[UNIT_INPUT], l->nparam > 0 ? said[UNIT_WEIGHT] : 0};
    return (struct flop){all + n, all + n, trained};
}

/* ---- the rows ---- */

const struct rt_kind rt_kinds[NLAYERS] = {
    [LAYER_embedding] = {.flop = embedding_flop, .reads = tokens, .table = true, .init = init_embedding},
    [LAYER_linear] = {.flop = product_flop, .keeps = x_for_weights, .init = init_linear},
    [LAYER_relu] = {.each = {1, 1, 0}, .keeps = y_again},
    [LAYER_gelu] = {.each = {26, 36, 0}, .keeps = x_again},
    [LAYER_silu] = {.each = {22, 27, 0}, .keeps = x_again},
    [LAYER_swiglu] = {.each = {23, 29, 0}, .keeps = x_again},
    [LAYER_geglu] = {.each = {27, 38, 0}, .keeps = x_again},
    [LAYER_dropout] = {.each = {18, 18, 0}, .reads = seed},
    [LAYER_layernorm] = {.each = {8, 10, 5}, .keeps = x_again, .stash = two_of_row, .init = init_scale},
    [LAYER_rmsnorm] = {.each = {4, 7, 3}, .keeps = x_again, .stash = one_of_row, .init = init_scale},
    [LAYER_headnorm] = {.flop = headnorm_flop, .keeps = x_again, .stash = one_of_head, .init = init_scale},
    [LAYER_attention] = {.flop = attention_flop, .keeps = both_again, .stash = log_sum_exp, .work = of_scores},
    [LAYER_route] = {.flop = route_flop,
                     .keeps = x_again,
                     .stash = routing,
                     .extra = of_logits,
                     .begun = true,
                     .init = init_experts},
    [LAYER_experts] = {.flop = experts_flop, .keeps = x_again, .init = init_experts},
    [LAYER_combine] = {.flop = combine_flop, .keeps = x_again},
    [LAYER_fork] = {.each = {0, 1, 0}},
    [LAYER_join] = {.each = {1, 0, 0}},
    [LAYER_bias] = {.each = {1, 0, 1}},
    [LAYER_gather] = {.keeps = x_again},
    [LAYER_gather_kv] = {.flop = turning_flop},
    [LAYER_unit] = {.flop = unit_flop,
                    .keeps = unit_keeps,
                    .reads = unit_reads,
                    .stash = unit_stash,
                    .extra = unit_extra,
                    .work = unit_work,
                    .one_work = true,
                    .own_names = true,
                    .data = unit_data,
                    .whole = true,
                    .brought = true,
                    .name = unit_name,
                    .init = init_declared},
    [LAYER_unembedding] = {.flop = product_flop, .keeps = x_for_weights, .table = true},
    [LAYER_cross_entropy] = {.each = {25, 0, 0}, .reads = targets, .stash = gradient, .work = losses},
    [LAYER_mse] = {.each = {5, 0, 0}, .reads = targets, .stash = gradient, .work = losses},
    [LAYER_mean_loss] = {.each = {2, 0, 0}, .reads = targets, .stash = gradient, .work = losses},
};

struct flop flop_of(const struct rt_layer *l) {
    const struct rt_kind *kind = rt_kind_of(l);
    double n = (double)l->rows * l->out;
    struct flop flop = kind->flop ? kind->flop(l) : (struct flop){kind->each.f * n, kind->each.i * n, kind->each.w * n};
    flop.w = l->set == SET_FROZEN ? 0 : flop.w;
    return flop;
}
