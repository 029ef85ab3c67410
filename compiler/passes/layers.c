/* The layers, one row each. Functions above the rows express what a number or a word cannot. */
#include "layers.h"
#include <math.h>
#include <stdint.h>

/* ---- columns of the output ---- */

/* Returns whether the user did not write this layer: all layers of a moe except its first. */
static bool is_inside(const struct model *m, int i) { return m->layer[i].in_moe && m->layer[i].kind != LAYER_route; }

/* Counts layers as the user wrote them, without fork and join. */
const char *where_layer(const struct model *m, int i) {
    int n = 0;
    for (int j = 0; j <= i; j++)
        n += row_of(m->layer[j].kind)->block == 0 && !is_inside(m, j);
    const struct model_layer *layer = &m->layer[i];
    const char *name = layer->in_moe ? "moe" : layer_name[layer->kind];
    return format("layer %d (%s)", n, row_of(layer->kind)->title ? row_of(layer->kind)->title(layer) : name);
}

static void size_embedding(const struct model *m, int i, struct rt_layer *l) {
    l->context = m->layer[i].config.embedding.positions ? l->context : 0;
}

static int given_out(const struct model *m, int i, int in, int forked) {
    (void)in, (void)forked;
    return m->layer[i].out;
}

static int query_heads(const struct model_layer *layer) { return layer->config.attention.heads; }
static int kv_heads_of(const struct model_layer *layer) {
    return layer->config.attention.kv_heads > 0 ? layer->config.attention.kv_heads : query_heads(layer);
}

/* Returns the number of heads of queries, keys and values, which are side by side. */
static int all_heads_of(const struct model_layer *layer) { return query_heads(layer) + 2 * kv_heads_of(layer); }

/* Checks that rope can rotate q and k in place. They are in attention's input, which no other layer may then need. */
static void check_rope(const struct model *m, int i, int dim) {
    const struct layer_row *before = row_of(m->layer[i > 0 ? i - 1 : 0].kind);
    if (dim % 2 != 0)
        die("%s: rope rotates a head's columns in pairs, and its heads have %d; with heads = %d and kv_heads = %d the "
            "layer before it needs a width that %d divides",
            where_layer(m, i), dim, query_heads(&m->layer[i]), kv_heads_of(&m->layer[i]),
            2 * all_heads_of(&m->layer[i]));
    const struct rt_layer kept = {.kind = m->layer[i > 0 ? i - 1 : 0].kind, .unit = m->layer[i > 0 ? i - 1 : 0].unit};
    if (before->block > 0 || keeps_y(&kept))
        die("%s: rope rotates queries and keys in place, and %s needs them unrotated; put a linear layer before it",
            where_layer(m, i),
            before->block > 0 ? "the residual block that it opens"
                              : format("the %s before it", layer_name[m->layer[i - 1].kind]));
}

static void check_scaling(const struct model *m, int i) {
    const struct attention_config *a = &m->layer[i].config.attention;
    if (a->rope_factor == 0 && (a->rope_low > 0 || a->rope_high > 0 || a->rope_context > 0))
        die("%s: rope_low, rope_high and rope_context say which frequencies rope_factor lowers; give rope_factor, too",
            where_layer(m, i));
    if (a->rope_factor > 0 && a->rope == 0)
        die("%s: rope_factor scales a rope, and this layer has none; give its base, rope = 10000", where_layer(m, i));
    if (a->rope_factor > 0 && a->rope_factor < 1)
        die("%s: rope_factor = %g would raise frequencies; it must be at least 1", where_layer(m, i),
            (double)a->rope_factor);
    if (a->rope_context > 0 ? a->rope_low >= a->rope_high : a->rope_low > 0 || a->rope_high > 0)
        die("%s: rope_low = %g and rope_high = %g must ascend, and need rope_context, in which they count rotations",
            where_layer(m, i), (double)a->rope_low, (double)a->rope_high);
}

static int attention_out(const struct model *m, int i, int in, int forked) {
    (void)forked;
    const struct model_layer *layer = &m->layer[i];
    int heads = query_heads(layer), kv_heads = kv_heads_of(layer), all = all_heads_of(layer);
    if (heads % kv_heads != 0)
        die("%s: kv_heads = %d does not divide heads = %d; equally many heads must read each head of keys and values",
            where_layer(m, i), kv_heads, heads);
    if (in % all != 0 && kv_heads != heads)
        die("%s: its input has %d columns, which is not a multiple of heads + 2 kv_heads; with heads = %d and kv_heads "
            "= %d the layer before it needs a width that %d divides",
            where_layer(m, i), in, heads, kv_heads, all);
    if (in % all != 0)
        die("%s: its input has %d columns, which is not a multiple of 3 x heads; with heads = %d the layer before it "
            "needs a width that %d divides",
            where_layer(m, i), in, heads, all);
    check_scaling(m, i);
    if (layer->config.attention.rope > 0)
        check_rope(m, i, in / all);
    return in / all * heads;
}

static void size_attention(const struct model *m, int i, struct rt_layer *l) {
    l->config.attention.kv_heads = kv_heads_of(&m->layer[i]);
}

/* Checks a headnorm, which has the heads of the attention that follows it. */
static int headnorm_out(const struct model *m, int i, int in, int forked) {
    const struct model_layer *next = i + 1 < m->nlayers ? &m->layer[i + 1] : NULL;
    if (!next || next->kind != LAYER_attention || (m->from && next->item != m->layer[i].item))
        die("%s: it normalizes the heads of queries and keys of the attention after it; put attention { ... } after it",
            where_layer(m, i));
    attention_out(m, i + 1, in, forked);
    return in;
}

static void size_headnorm(const struct model *m, int i, struct rt_layer *l) {
    l->config.attention.heads = query_heads(&m->layer[i + 1]);
    l->config.attention.kv_heads = kv_heads_of(&m->layer[i + 1]);
}

static int gated_out(const struct model *m, int i, int in, int forked) {
    (void)forked;
    if (in % 2 != 0)
        die("%s: its input has %d columns, but gate and up need equally many; give the layer before it an even "
            "width",
            where_layer(m, i), in);
    return in / 2;
}

static int join_out(const struct model *m, int i, int in, int forked) {
    if (in != forked)
        die("the residual block that ends with %s: its input has %d columns and its output %d, and the two are added; "
            "give its last layer width = %d",
            where_layer(m, i - 1), forked, in, forked);
    return in;
}

static int loss_out(const struct model *m, int i, int in, int forked) {
    (void)forked;
    bool tokens = m->rt.input == INPUT_TOKENS;
    int need = tokens ? m->rt.vocab : m->rt.features;
    if (in != need)
        die("%s: its input has %d columns, but %s = %d; give the last linear layer that width", where_layer(m, i), in,
            tokens ? "vocab" : "features", need);
    return in;
}

static int mean_out(const struct model *m, int i, int in, int forked) {
    (void)forked;
    if (in != 1)
        die("%s: its input has %d columns, but it adds up one loss for each row; "
            "let the unit before it have width = 1, or end with cross_entropy",
            where_layer(m, i), in);
    return in;
}

static int unembedding_out(const struct model *m, int i, int in, int forked) {
    (void)forked;
    if (in != m->layer[0].out)
        die("%s: its input has %d columns, but it shares the table of an embedding with width = %d; give its input "
            "that width",
            where_layer(m, i), in, m->layer[0].out);
    return m->rt.vocab;
}

/* Returns the columns of experts; the last layer restores the width of the input. */
static int experts_out(const struct model *m, int i, int in, int forked) {
    (void)in;
    return m->layer[i].out > 0 ? m->layer[i].out : forked;
}

/* ---- experts ---- */

/* Sets how many tokens of a sequence an expert has room for, at most all. */
static void size_routing(const struct model *m, struct rt_layer *l) {
    struct moe_config *moe = &l->config.moe;
    double room = ceil(moe->capacity * moe->top * m->rt.context / moe->experts);
    moe->places = (int32_t)fmin(room, m->rt.context);
}

static void size_route(const struct model *m, int i, struct rt_layer *l) {
    const struct moe_config *moe = &l->config.moe;
    size_routing(m, l);
    int64_t places = (int64_t)l->rows / l->context * moe->experts * moe->places;
    if (places > INT32_MAX / 2)
        die("%s: experts = %d with room for %d tokens of each of %d sequences have %lld places, more than %d; use a "
            "smaller capacity, or fewer rows",
            where_layer(m, i), moe->experts, moe->places, l->rows / l->context, (long long)places, INT32_MAX / 2);
    l->out_rows = (int32_t)places;
}

static void size_combine(const struct model *m, int i, struct rt_layer *l) {
    (void)i;
    size_routing(m, l);
    l->out_rows = m->rt.rows;
}

static void gated_groups(const struct rt_layer *l, int32_t group[3]) {
    group[0] = group[1] = l->out;
    group[2] = 0;
}

static void attention_groups(const struct rt_layer *l, int32_t group[3]) {
    group[0] = l->out;
    group[1] = group[2] = l->out / l->config.attention.heads * l->config.attention.kv_heads;
}

/* ---- bytes that a team exchanges ---- */

static int64_t statistics_of_members(const struct rt_layer *l, int64_t element) {
    (void)element;
    return l->share.members * statistics_bytes(l);
}

static int64_t pieces_of_members(const struct rt_layer *l, int64_t element) {
    return l->part.members * piece_bytes(l, element);
}
static int64_t places_of_members(const struct rt_layer *l, int64_t element) { return element * l->rows * l->in; }

/* The fields of a layer in scripts: its width, the fields of runtime/config.h, and how a team divides it. */
#define FIELD(group, name, type, range, otherwise, meaning)                                                            \
    FIELD_TO(#name, range, otherwise, model_layer, config.group.name)
#define WIDTH                   FIELD_TO("width", SIZE, NAN, model_layer, out)
#define UNIT_SIZE(name, member) FIELD_TO(#name, BASE, 0, model_layer, member)
#define SPLIT                   FIELD_TO("split", SPLIT, SPLIT_NONE, model_layer, split)
#define FIELDS(...)                                                                                                    \
    (const struct field[]) {                                                                                           \
        __VA_ARGS__ { 0 }                                                                                              \
    }

const struct layer_row layer_rows[NLAYERS] = {
    [LAYER_embedding] = {.field = FIELDS(WIDTH EMBEDDING_FIELDS(FIELD) SPLIT),
                         .first = true,
                         .named = true,
                         .input = INPUT_TOKENS,
                         .out = given_out,
                         .size = size_embedding,
                         .sequences = true},
    [LAYER_linear] = {.field = FIELDS(WIDTH LINEAR_FIELDS(FIELD) SPLIT), .named = true, .out = given_out},
    [LAYER_relu] = {.field = FIELDS(SPLIT), .team.by_rows = true, .team.by_columns = true},
    [LAYER_gelu] = {.field = FIELDS(SPLIT), .team.by_rows = true, .team.by_columns = true},
    [LAYER_silu] = {.field = FIELDS(SPLIT), .team.by_rows = true, .team.by_columns = true},
    [LAYER_swiglu] = {.field = FIELDS(GATED_FIELDS(FIELD)), .out = gated_out, .team.groups = gated_groups},
    [LAYER_geglu] = {.field = FIELDS(GATED_FIELDS(FIELD)), .out = gated_out, .team.groups = gated_groups},
    [LAYER_dropout] = {.field = FIELDS(DROPOUT_FIELDS(FIELD) SPLIT), .team.by_rows = true, .sequences = true},
    [LAYER_layernorm] = {.field = FIELDS(NORM_FIELDS(FIELD) SPLIT), .named = true, .team.by_rows = true},
    [LAYER_rmsnorm] = {.field = FIELDS(NORM_FIELDS(FIELD) SPLIT), .named = true, .team.by_rows = true},
    [LAYER_headnorm] = {.field = FIELDS(NORM_FIELDS(FIELD)),
                        .named = true,
                        .input = INPUT_TOKENS,
                        .because = ", as the attention after it does",
                        .out = headnorm_out,
                        .size = size_headnorm,
                        .team.by_columns = true,
                        .team.in_common = true},
    [LAYER_attention] = {.field = FIELDS(ATTENTION_FIELDS(FIELD) SPLIT),
                         .input = INPUT_TOKENS,
                         .because = ", which has a context",
                         .out = attention_out,
                         .size = size_attention,
                         .team.groups = attention_groups,
                         .sequences = true},
    [LAYER_route] = {.field = FIELDS(WIDTH MOE_FIELDS(FIELD) SPLIT),
                     .of_moe = true,
                     .input = INPUT_TOKENS,
                     .because = ": the room of experts is counted in tokens per sequence",
                     .routed = 1,
                     .sequences = true,
                     .size = size_route},
    [LAYER_experts] = {.of_moe = true, .out = experts_out},
    [LAYER_combine] = {.of_moe = true, .routed = -1, .sequences = true, .size = size_combine},
    [LAYER_to_experts] = {.of_team = true,
                          .team.exchange = {OP_ALL_TO_ALL_A, OP_ALL_TO_ALL_A, 0},
                          .team.exchanged = places_of_members},
    [LAYER_to_tokens] = {.of_team = true,
                         .team.exchange = {OP_ALL_TO_ALL_A, OP_ALL_TO_ALL_A, 0},
                         .team.exchanged = places_of_members},
    [LAYER_fork] = {.block = 1, .same_y = true},
    [LAYER_join] = {.block = -1, .out = join_out, .same_dx = true},
    [LAYER_bias] = {.of_team = true, .same_dx = true},
    [LAYER_spread] = {.of_team = true, .same_y = true, .team.exchange.i = OP_ALL_REDUCE_A},
    [LAYER_reduce] = {.of_team = true, .same_dx = true, .team.exchange.f = OP_ALL_REDUCE_A},
    [LAYER_gather] = {.of_team = true, .team.exchange = {OP_ALL_GATHER_A, OP_REDUCE_SCATTER_A, 0}},
    [LAYER_scatter] = {.of_team = true, .team.exchange = {OP_REDUCE_SCATTER_A, OP_ALL_GATHER_A, 0}},
    [LAYER_again] = {.of_team = true, .same_y = true, .same_dx = true, .team.exchange.w = OP_ALL_GATHER_A},
    [LAYER_gather_kv] = {.of_team = true,
                         .same_y = true,
                         .same_dx = true,
                         .team.exchange = {OP_ALL_GATHER_A, OP_REDUCE_SCATTER_A, 0},
                         .team.exchanged = pieces_of_members},
    [LAYER_again_kv] = {.of_team = true,
                        .same_y = true,
                        .same_dx = true,
                        .team.exchange.i = OP_ALL_GATHER_A,
                        .team.exchanged = pieces_of_members},
    [LAYER_to_heads] = {.of_team = true,
                        .team.exchange = {OP_ALL_TO_ALL_A, OP_ALL_TO_ALL_A, 0},
                        .team.exchanged = pieces_of_members},
    [LAYER_to_rows] = {.of_team = true,
                       .team.exchange = {OP_ALL_TO_ALL_A, OP_ALL_TO_ALL_A, 0},
                       .team.exchanged = pieces_of_members},
    [LAYER_unit] = {.field = FIELDS(UNIT_SIZE(width, out) UNIT_SIZE(in_width, in_width) UNIT_SIZE(in_rows, in_rows)
                                        UNIT_SIZE(out_rows, out_rows)),
                    .named = true,
                    .declared = true,
                    .any_rows = true,
                    .out = unit_out,
                    .size = size_unit,
                    .title = unit_title},
    [LAYER_unembedding] = {.field = FIELDS(SPLIT),
                           .input = INPUT_TOKENS,
                           .because = ": it shares the embedding's table",
                           .out = unembedding_out,
                           .shares = true},
    [LAYER_cross_entropy] = {.loss = true,
                             .input = INPUT_TOKENS,
                             .because = "; integers go with mse",
                             .out = loss_out,
                             .team.by_columns = true,
                             .team.exchange.f = OP_ALL_GATHER_A,
                             .team.exchanged = statistics_of_members},
    [LAYER_mse] = {.loss = true, .input = INPUT_INTEGERS, .because = "; tokens go with cross_entropy", .out = loss_out},
    [LAYER_mean_loss] = {.loss = true, .input = INPUT_TOKENS, .because = "; integers go with mse", .out = mean_out},
};
