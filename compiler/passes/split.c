/* Computes one member's part of a stage's layers.
 *
 * Each value between layers is whole on every member, or divided among them by columns. A layer split by "columns"
 * takes a whole value and makes a divided one. Layers that work on each column, or on each head, by itself continue
 * with their part. A layer split by "rows" takes a divided value; its results, added up over the members, are whole
 * again (Shoeybi 2019, "Megatron-LM", section 3). The collectives belong to layers in between: `spread` before columns,
 * which adds up the gradients of the input, and `reduce` after rows. A bias of divided rows is added once, after the
 * sum. If cuts separate such columns from their rows, and the stages from one to the other have teams of different
 * sizes, both layers are whole on each member.
 *
 * A model may specify that the values in between are divided too, by rows (sequence parallel: Korthikanti et al. 2022,
 * "Reducing Activation Recomputation in Large Transformer Models", section 4.2). Then `gather` and `scatter` replace
 * `spread` and `reduce`, and move as many bytes: a sum is a scatter, then a gather. The stash holds the gather's input,
 * and `again`, after the linear layer that reads all rows, gathers them once more for its weight gradient. Layers that
 * work on a member's rows compute only a part of their gradients, so their parameters are in the set that the members
 * share.
 *
 * Attention on such rows needs other members' keys and values. With split = "rows" all members receive them (context
 * parallelism: Llama Team 2024, "The Llama 3 Herd of Models", section 3.3.2). A member's rows are then two chunks of
 * each sequence, so that all members have equal work. With split = "heads" each member gets all rows of some heads
 * (Jacobs 2023, "DeepSpeed Ulysses", section 3.2).
 *
 * A norm of each head's queries and keys has the same few parameters for all heads. If a team divides the heads, its
 * members also compute only a part of their gradients, so they are in the set that the members share.
 *
 * Experts are distributed over the members (Lepikhin 2020, "GShard", section 3.2), after tokens that are divided by
 * rows. `to_experts` and `to_tokens` move places from the members that have their tokens to the members that have their
 * experts, and back. */
#include "cost.h"
#include "layers.h"
#include <string.h>

struct splitting {
    const struct model *m;
    struct rt_layer *out;
    int n, place, size;
    bool divided; /* the current value is divided by columns */
};

static struct rt_layer *put_layer(struct splitting *split, struct rt_layer layer) {
    split->out[split->n] = layer;
    return &split->out[split->n++];
}

/* Adds a layer that no script writes, with as many columns as the current value. */
static struct rt_layer *put_between(struct splitting *split, int kind, const struct rt_layer *beside, int columns) {
    return put_layer(
        split,
        (struct rt_layer){.kind = kind, .rows = beside->rows, .in = columns, .out = columns, .index = beside->index});
}

/* Returns each member's number of a layer's columns, rows or heads. */
static int divide_evenly(const struct splitting *split, const struct rt_layer *l, int n, const char *what) {
    if (n % split->size)
        die("%s: its %d %s cannot be divided evenly among a team of %d; one number must divide the other",
            where_layer(split->m, l->index), n, what, split->size);
    return n / split->size;
}

static void divide_heads(const struct splitting *split, struct rt_layer *l, const struct rt_layer *whole) {
    l->config.attention.heads = divide_evenly(split, whole, whole->config.attention.heads, "heads");
    l->config.attention.kv_heads = divide_evenly(split, whole, whole->config.attention.kv_heads, "heads of keys");
}

/* Checks that each member can have two chunks of each sequence. */
static void need_chunks(const struct splitting *split, const struct rt_layer *l) {
    int context = split->m->rt.context;
    if (split->size > MOST_BY_ROWS)
        die("%s: a team that divides attention by rows has at most %d members, not %d; use a smaller team, or give "
            "attention split = \"heads\"",
            where_layer(split->m, l->index), MOST_BY_ROWS, split->size);
    if (context % (2 * split->size))
        die("%s: a team of %d members has %d chunks of each sequence, and context = %d cannot be divided into that "
            "many; use a multiple of %d",
            where_layer(split->m, l->index), split->size, 2 * split->size, context, 2 * split->size);
}

/* Makes a layer work on the member's rows, if the model divides rows. Its input must not be divided by columns. */
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
        die("%s: it sends the tokens of whole sequences, but each member of a team of %d has its own rows; give a "
            "microbatch %d sequences, or a multiple",
            where_layer(split->m, l->index), split->size, split->size);
}

/* Makes attention work on the member's sequences as if they were all; its rows or heads are not divided. */
static void need_sequences(const struct splitting *split, struct rt_layer *l) {
    if (l->rows % l->context || split->m->by_chunks)
        die("%s: it needs whole sequences, but each member of a team of %d has its own rows; give it split = \"rows\" "
            "or \"heads\", or give a linear layer before it split = \"columns\"",
            where_layer(split->m, l->index), split->size);
    l->part = (struct rt_rows){0};
}

/* gather_rows adds the layer that makes the current value whole, for a layer whose columns are divided. put_sum adds
 * the layer that makes a whole value of sums over columns. */
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
        die("%s: its rows are split, but its input is whole on each of the %d members of its team; give a linear layer "
            "before it split = \"columns\"",
            where_layer(split->m, l->index), split->size);
    die("%s: its input is divided by columns among the %d members of its team; give a linear layer before it split = "
        "\"rows\"",
        where_layer(split->m, l->index), split->size);
}

/* Divides the columns of a linear layer. They are in groups if the next layer that does not work on each column by
 * itself takes several groups, in this stage or in a later one. Then each group is divided. */
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

/* Dies if the model divides rows by chunks: columns are divided between gathers, which put one member's rows after
 * another's. */
static void refuse_chunks(const struct splitting *split, const struct rt_layer *whole) {
    if (split->m->by_chunks)
        die("%s: a team divides it, and also divides attention by rows, where each member has two chunks of every "
            "sequence; leave this layer's split out, or give attention split = \"heads\"",
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
    bool first = row_of(whole->kind)->first; /* first layer of the model: an embedding's rows are tokens, and its input
                                              * is whole */
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

/* Adds an exchange before the experts, or after them: a member has the places of its sequences, or of its experts. */
static void exchange_places(struct splitting *split, int kind, const struct rt_layer *experts, int columns) {
    struct rt_layer *l = put_between(split, kind, experts, columns);
    work_by_rows(split, l, experts);
    l->config.moe.experts = experts->config.moe.experts;
}

/* Divides experts: each member has equally many, which work for all sequences. */
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

/* Checks the input of a layer that takes several groups. A member's part consists of a part of each group, so it must
 * come as the linear layer made it: a layer in between that itself takes groups leaves only one. */
static void need_groups(const struct splitting *split, const struct rt_layer *l) {
    int i = l->index - 1;
    while (i >= 0 && split->m->layer[i].split == SPLIT_NONE && !row_of(split->m->layer[i].kind)->team.groups)
        i--;
    if (split->divided && i >= 0 && split->m->layer[i].split == SPLIT_NONE)
        die("%s: its input is the output of %s, divided by columns among the %d members of its team; put a linear "
            "layer with split = \"rows\" and one with split = \"columns\" between them",
            where_layer(split->m, l->index), where_layer(split->m, i), split->size);
}

/* Adds a layer that keeps the current value's division. */
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

/* Adds a layer beside attention whose rows or heads are divided; it has the attention's rows. */
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

/* Returns the first layer from which a stage is not divided. That is a layer split by columns whose rows are in a later
 * stage, if a team of another size computes that stage or one in between. Stages with teams of this size have the next
 * layers, up to reach. */
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

/* Returns whether the columns that belong to these rows are in an earlier stage, which kept them whole. */
static bool follows_whole_columns(const struct splitting *split, const struct rt_layer *rows) {
    int i = rows->index - 1;
    while (i >= 0 && split->m->layer[i].split == SPLIT_NONE)
        i--;
    return !split->divided && i >= 0 && split->m->layer[i].split == SPLIT_COLUMNS;
}

/* Dies if a team would divide a frozen layer, or one that computes whole microbatches only. */
static void refuse_whole(const struct splitting *split, const struct rt_layer *l) {
    if (l->set == SET_FROZEN)
        die("%s: it is frozen, and a team of %d ranks computes its stage, which cannot divide frozen layers yet; give "
            "its stage to one rank, with a cut before and after it, or train the layer",
            where_layer(split->m, l->index), split->size);
    if (rt_kind_of(l)->whole)
        die("%s: a team of %d ranks computes its stage, and nobody knows how to divide it; give its stage to one rank, "
            "with a cut before and after it",
            where_layer(split->m, l->index), split->size);
}

struct rt_layer *split_layers(const struct model *m, const struct rt_layer *whole, int n, struct member member,
                              int reach, bool *divided, int *count) {
    struct splitting split = {m, NEW(struct rt_layer, 3 * n), 0, member.place, member.size, *divided};
    const struct rt_layer *undivided = first_undivided(m, whole, n, reach);
    for (const struct rt_layer *l = whole; l < whole + n; l++) {
        int how = m->layer[l->index].split;
        refuse_whole(&split, l);
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
