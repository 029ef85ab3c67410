/* What one member of a team has of a stage's layers.
 *
 * Each value between layers is whole on every member, or divided among them by columns. A layer that the model lets be
 * split "columns" takes a whole value and makes one that is divided; what works on each column by itself, or on each
 * head, goes on with its part; one that is split "rows" takes such a value, and its results, added up over the members,
 * are whole again (Shoeybi 2019, "Megatron-LM", section 3). The collectives belong to layers that stand between:
 * `spread` in front of columns, whose gradients of the input are added up, and `reduce` behind rows. A bias behind
 * divided rows is added once, after the sum. Where cuts part such columns from their rows, and the stages from one to
 * the other have teams of different sizes, both layers are whole on each member.
 *
 * A model may say that the values in between are divided too, by rows (sequence parallel: Korthikanti et al. 2022,
 * "Reducing Activation Recomputation in Large Transformer Models", section 4.2). Then `gather` and `scatter` take the
 * places of `spread` and `reduce`, for as many bytes: a sum is a scatter, then a gather. The stash has the gather's
 * input, and `again`, behind the linear layer that reads all rows, gathers them once more for its weight gradient.
 * Layers that work on a member's rows make a part of their gradients: their parameters are in the set that the members
 * share.
 *
 * Attention of such rows needs other members' keys and values. With split = "rows" all get them (context parallelism:
 * Llama Team 2024, "The Llama 3 Herd of Models", section 3.3.2): then a member's rows are two chunks of each sequence,
 * so that all have as much to do. With split = "heads" each member gets all rows of some heads (Jacobs 2023, "DeepSpeed
 * Ulysses", section 3.2).
 *
 * A norm of each head's queries and keys has the same few numbers for all heads: where a team divides these, its
 * members make a part of their gradients, too, and they are in the set that the members share.
 *
 * Experts are divided by their number (Lepikhin 2020, "GShard", section 3.2), behind tokens that are divided by rows:
 * `to_experts` and `to_tokens` bring places from the members who have their tokens to those who have their experts, and
 * back. */
#include "cost.h"
#include "layers.h"
#include <string.h>

struct splitting {
    const struct model *m;
    struct rt_layer *out;
    int n, place, size;
    bool divided; /* the value at hand, by columns */
};

static struct rt_layer *put_layer(struct splitting *split, struct rt_layer layer) {
    split->out[split->n] = layer;
    return &split->out[split->n++];
}

/* A layer that no script writes, with as many columns as the value at hand. */
static struct rt_layer *put_between(struct splitting *split, int kind, const struct rt_layer *beside, int columns) {
    return put_layer(
        split,
        (struct rt_layer){.kind = kind, .rows = beside->rows, .in = columns, .out = columns, .index = beside->index});
}

/* So many columns, rows, heads of a layer for each member. */
static int divide_evenly(const struct splitting *split, const struct rt_layer *l, int n, const char *what) {
    if (n % split->size)
        die("%s: its %d %s cannot be divided evenly among a team of %d; let one number divide the other",
            where_layer(split->m, l->index), n, what, split->size);
    return n / split->size;
}

static void divide_heads(const struct splitting *split, struct rt_layer *l, const struct rt_layer *whole) {
    l->config.attention.heads = divide_evenly(split, whole, whole->config.attention.heads, "heads");
    l->config.attention.kv_heads = divide_evenly(split, whole, whole->config.attention.kv_heads, "heads of keys");
}

/* Two chunks of each sequence for each member. */
static void need_chunks(const struct splitting *split, const struct rt_layer *l) {
    int context = split->m->rt.context;
    if (split->size > MOST_BY_ROWS)
        die("%s: a team that divides attention by rows has at most %d members, not %d; use a smaller one, or let "
            "attention have split = \"heads\"",
            where_layer(split->m, l->index), MOST_BY_ROWS, split->size);
    if (context % (2 * split->size))
        die("%s: a team of %d members has %d chunks of each sequence, and context = %d cannot be divided into so many; "
            "let the context be a multiple of %d",
            where_layer(split->m, l->index), split->size, 2 * split->size, context, 2 * split->size);
}

/* A layer whose input is not divided by columns: it may work on the member's rows. */
static void work_by_rows(const struct splitting *split, struct rt_layer *l, const struct rt_layer *whole) {
    if (!split->m->by_rows)
        return;
    if (split->m->by_chunks)
        need_chunks(split, whole);
    l->rows = divide_evenly(split, whole, whole->rows, "rows of a microbatch");
    l->part = (struct rt_rows){split->place, split->size, split->m->by_chunks ? split->m->rt.context : 0};
    if (whole->out_rows > 0)
        l->out_rows = divide_evenly(split, whole, whole->out_rows, "rows of a microbatch");
    int32_t tokens = row_of(l->kind)->routed < 0 ? l->out_rows : l->rows;
    if (row_of(l->kind)->routed && (split->m->by_chunks || tokens % whole->context))
        die("%s: it sends the tokens of whole sequences, and each member of a team of %d has rows of its own; let a "
            "microbatch have %d sequences or a multiple",
            where_layer(split->m, l->index), split->size, split->size);
}

/* Attention whose rows or heads are not divided works on the member's sequences as if these were all. */
static void need_sequences(const struct splitting *split, struct rt_layer *l) {
    if (l->rows % l->context || split->m->by_chunks)
        die("%s: it needs whole sequences, and each member of a team of %d has rows of its own; let it have split = "
            "\"rows\" or \"heads\", or a linear layer before it split = \"columns\"",
            where_layer(split->m, l->index), split->size);
    l->part = (struct rt_rows){0};
}

/* The whole value at hand, for a layer whose columns are divided; and what makes a whole value of sums over columns. */
static void gather_rows(struct splitting *split, const struct rt_layer *whole) {
    struct rt_layer *l = put_between(split, split->m->by_rows ? LAYER_gather : LAYER_spread, whole, whole->in);
    work_by_rows(split, l, whole);
    l->out_rows = split->m->by_rows ? whole->rows : 0;
}
static void put_sum(struct splitting *split, const struct rt_layer *whole) {
    struct rt_layer *l = put_between(split, split->m->by_rows ? LAYER_scatter : LAYER_reduce, whole, whole->out);
    l->out_rows = split->m->by_rows ? divide_evenly(split, whole, whole->rows, "rows of a microbatch") : 0;
}
static void gather_again(struct splitting *split, const struct rt_layer *linear) {
    struct rt_layer *l = put_between(split, LAYER_again, linear, linear->in);
    l->rows = divide_evenly(split, linear, linear->rows, "rows of a microbatch");
    l->out_rows = linear->rows;
    l->out = linear->out;
}

static void need_input(const struct splitting *split, const struct rt_layer *l, bool divided) {
    if (split->divided == divided)
        return;
    if (divided)
        die("%s: its rows are to be split, but its input is whole on each of the %d members of its team; let a linear "
            "layer before it have split = \"columns\"",
            where_layer(split->m, l->index), split->size);
    die("%s: its input is divided by columns among the %d members of its team; let a linear layer before it have split "
        "= \"rows\"",
        where_layer(split->m, l->index), split->size);
}

/* The columns of a linear layer lie in groups, each of which is divided, if what takes them takes several: in this
 * stage or in a later one, and behind layers that work on each column by itself. */
static void set_groups(const struct splitting *split, struct rt_layer *l, const struct rt_layer *whole) {
    const struct rt_layer *next = whole + 1, *end = whole + split->m->nlayers - whole->index;
    l->share = (struct rt_share){SPLIT_COLUMNS, split->place, split->size, {l->out}};
    while (next < end && row_of(next->kind)->team.by_columns)
        next++;
    if (next < end && row_of(next->kind)->team.groups)
        row_of(next->kind)->team.groups(next, l->share.group);
    for (int g = 0; g < 3 && l->share.group[g]; g++)
        divide_evenly(split, l, l->share.group[g], "columns");
}

/* Columns are divided between gathers, which put the rows of one member behind those of the other. */
static void refuse_chunks(const struct splitting *split, const struct rt_layer *whole) {
    if (split->m->by_chunks)
        die("%s: a team is to divide it, but also attention by rows, of which each member has two chunks of every "
            "sequence; let this layer go without split, or attention have split = \"heads\"",
            where_layer(split->m, whole->index));
}

static void split_columns(struct splitting *split, const struct rt_layer *whole) {
    need_input(split, whole, false);
    refuse_chunks(split, whole);
    gather_rows(split, whole);
    struct rt_layer *l = put_layer(split, *whole);
    set_groups(split, l, whole);
    l->out = divide_evenly(split, whole, whole->out, "columns");
    if (split->m->by_rows)
        gather_again(split, l);
    split->divided = true;
}

static void split_rows(struct splitting *split, const struct rt_layer *whole) {
    bool first = row_of(whole->kind)->first; /* of the model: an embedding's rows are tokens, and its input is whole */
    refuse_chunks(split, whole);
    if (!first)
        need_input(split, whole, true);
    struct rt_layer *l = put_layer(split, *whole);
    l->share = (struct rt_share){SPLIT_ROWS, split->place, split->size, {0}};
    if (first)
        divide_evenly(split, whole, split->m->rt.vocab, "tokens");
    else
        l->in = divide_evenly(split, whole, whole->in, "rows");
    put_sum(split, whole);
    int64_t products = first ? 0 : (int64_t)whole->in * whole->out;
    if (!first && whole->nparam > products)
        work_by_rows(split, put_between(split, LAYER_bias, whole, whole->out), whole);
    split->divided = false;
}

/* In front of the experts, or behind them: a member has the places of its sequences, or those of its experts. */
static void exchange_places(struct splitting *split, int kind, const struct rt_layer *experts, int columns) {
    struct rt_layer *l = put_between(split, kind, experts, columns);
    work_by_rows(split, l, experts);
    l->config.moe.experts = experts->config.moe.experts;
}

/* Each member has as many experts, which work for all sequences. */
static void split_experts(struct splitting *split, const struct rt_layer *whole) {
    int experts = divide_evenly(split, whole, whole->config.moe.experts, "experts");
    if (whole[-1].kind == LAYER_route)
        exchange_places(split, LAYER_to_experts, whole, whole->in);
    struct rt_layer *l = put_layer(split, *whole);
    l->share = (struct rt_share){SPLIT_ROWS, split->place, split->size, {0}};
    l->rows = whole->rows / split->size;
    l->config.moe.experts = experts;
    if (whole[1].kind == LAYER_combine)
        exchange_places(split, LAYER_to_tokens, whole, whole->out);
}

/* A member's part of several groups is a part of each, so it must come as the linear layer made it: a layer in between
 * that takes groups itself leaves one. */
static void need_groups(const struct splitting *split, const struct rt_layer *l) {
    int i = l->index - 1;
    while (i >= 0 && split->m->layer[i].split == SPLIT_NONE && !row_of(split->m->layer[i].kind)->team.groups)
        i--;
    if (split->divided && i >= 0 && split->m->layer[i].split == SPLIT_NONE)
        die("%s: its input is what %s makes, divided by columns among the %d members of its team; let a linear "
            "layer with split = \"rows\" and one with split = \"columns\" lie between them",
            where_layer(split->m, l->index), where_layer(split->m, i), split->size);
}

/* A layer that goes on with the value as it is. */
static void keep_split(struct splitting *split, const struct rt_layer *whole) {
    const struct layer_row *row = row_of(whole->kind);
    if (!row->team.by_columns && !row->team.groups)
        need_input(split, whole, false);
    if (row->team.groups)
        need_groups(split, whole);
    struct rt_layer *l = put_layer(split, *whole);
    if (!split->divided) {
        work_by_rows(split, l, whole);
        if (split->m->by_rows && l->config.attention.heads && l->context)
            need_sequences(split, l);
        return;
    }
    l->set = row->team.in_common ? SET_SHARED : SET_OWN;
    if (row->loss)
        l->share = (struct rt_share){SPLIT_COLUMNS, split->place, split->size, {whole->in}};
    l->in = divide_evenly(split, whole, whole->in, "columns");
    l->out = divide_evenly(split, whole, whole->out, "columns");
    if (whole->config.attention.heads)
        divide_heads(split, l, whole);
}

/* A layer beside attention whose rows or heads are divided, of the attention's rows. */
static struct rt_layer *put_beside(struct splitting *split, int kind, const struct rt_layer *whole, int columns) {
    struct rt_layer *l = put_between(split, kind, whole, columns);
    work_by_rows(split, l, whole);
    l->config = whole->config, l->context = whole->context;
    return l;
}

static void attend_by_rows(struct splitting *split, const struct rt_layer *whole) {
    put_beside(split, LAYER_gather_kv, whole, whole->in);
    work_by_rows(split, put_layer(split, *whole), whole);
    put_beside(split, LAYER_again_kv, whole, whole->out);
}

static void attend_by_heads(struct splitting *split, const struct rt_layer *whole) {
    struct rt_layer *before = put_beside(split, LAYER_to_heads, whole, whole->in);
    before->out_rows = whole->rows;
    struct rt_layer *l = put_layer(split, *whole);
    divide_heads(split, l, whole);
    before->out = l->in = whole->in / split->size;
    l->out = whole->out / split->size;
    struct rt_layer *behind = put_beside(split, LAYER_to_rows, whole, whole->out);
    behind->out_rows = behind->rows;
    behind->rows = whole->rows;
    behind->in = l->out;
    behind->config.attention.kv_heads = 0;
}

static void attend(struct splitting *split, const struct rt_layer *whole) {
    need_input(split, whole, false);
    if (split->m->layer[whole->index].attends == SPLIT_ROWS)
        attend_by_rows(split, whole);
    else
        attend_by_heads(split, whole);
}

/* The layers from which on a stage is whole: a layer split by columns whose rows are in a later stage, if a team of
 * another size computes that, or a stage in between. Stages of teams of this size have the next layers, up to reach. */
static const struct rt_layer *first_undivided(const struct model *m, const struct rt_layer *whole, int n, int reach) {
    const struct rt_layer *from = whole + n;
    for (const struct rt_layer *l = whole; l < whole + n; l++) {
        int split = m->layer[l->index].split;
        from = split == SPLIT_COLUMNS ? l : split == SPLIT_ROWS ? whole + n : from;
    }
    int next = whole->index + n, end = whole->index + reach;
    while (next < end && m->layer[next].split == SPLIT_NONE)
        next++;
    return next < end || end == m->nlayers ? whole + n : from;
}

/* The columns that go with these rows are in an earlier stage, which kept them whole. */
static bool follows_whole_columns(const struct splitting *split, const struct rt_layer *rows) {
    int i = rows->index - 1;
    while (i >= 0 && split->m->layer[i].split == SPLIT_NONE)
        i--;
    return !split->divided && i >= 0 && split->m->layer[i].split == SPLIT_COLUMNS;
}

struct rt_layer *split_layers(const struct model *m, const struct rt_layer *whole, int n, struct member member,
                              int reach, bool *divided, int *count) {
    struct splitting split = {m, NEW(struct rt_layer, 3 * n), 0, member.place, member.size, *divided};
    const struct rt_layer *undivided = first_undivided(m, whole, n, reach);
    for (const struct rt_layer *l = whole; l < whole + n; l++) {
        int how = m->layer[l->index].split;
        if (l->kind == LAYER_experts && how == SPLIT_ROWS)
            split_experts(&split, l);
        else if (how == SPLIT_COLUMNS && l < undivided)
            split_columns(&split, l);
        else if (how == SPLIT_ROWS && !follows_whole_columns(&split, l))
            split_rows(&split, l);
        else if (m->layer[l->index].attends)
            attend(&split, l);
        else
            keep_split(&split, l);
    }
    for (struct rt_layer *l = split.out; l < split.out + split.n; l++) {
        l->nparam = count_parameters(m, l);
        l->set = l->nparam && l->part.members ? SET_SHARED : l->set;
    }
    *divided = split.divided;
    *count = split.n;
    return split.out;
}
