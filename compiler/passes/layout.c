/* Places the tensors of a stage.
 *
 * A value is the output of a layer that others read: value i is the output of layer i - 1, value 0 the stage's input.
 * fork passes its input on, so its output is the same value; in the backward, join passes gradients on in the same way.
 * Each value has one place, which depends on its readers:
 *
 *   the backward needs it        stash: what layers keep, their input or their output (kinds.c); a loss its gradient,
 *                                written over its input where nothing else needs that
 *   the stage's ends             the operands x, y, dy, dx, unless the stash (or ext) must hold it too
 *   gradients that W needs       ext: dy of every layer with parameters, except the loss's, which the forward made;
 *                                for a route, the logits' gradient, which its combine begins
 *   everything else              the workspace, first fit over the layers between its making and its last use
 *
 * The batch, input of the first stage, is SP_NONE: it can be read again and is never kept. If a stage reads the outputs
 * of several others, their sum is its input, and the stash holds it. If several stages read its output, ext holds the
 * sum of the gradients that come back.
 *
 * Values and gradients have the model's precision; statistics, and the sums of a loss, do not. */
#include "cost.h"
#include "layers.h"
#include <assert.h>

struct area { /* a tensor in the workspace, live from one layer of a sweep to another, both included */
    int last;
    int64_t off, bytes;
};

/* One sweep's workspace. Tensors come in the order of the sweep. */
struct workspace {
    struct area *live; /* sorted by offset */
    int n;
    int64_t peak;
};

static int64_t fit(struct workspace *workspace, int now, int last, int64_t bytes) {
    int n = 0, at = 0;
    for (int i = 0; i < workspace->n; i++)
        if (workspace->live[i].last >= now)
            workspace->live[n++] = workspace->live[i];
    int64_t off = 0;
    while (at < n && workspace->live[at].off - off < bytes) {
        off = workspace->live[at].off + workspace->live[at].bytes;
        at++;
    }
    for (int i = n; i > at; i--)
        workspace->live[i] = workspace->live[i - 1];
    workspace->live[at] = (struct area){last, off, bytes};
    workspace->n = n + 1;
    workspace->peak = off + bytes > workspace->peak ? off + bytes : workspace->peak;
    return off;
}

struct plan {
    struct rt_stage *s;
    struct rt_layer *l;
    int n;
    int64_t element;    /* bytes of a value or a gradient */
    int reads, readers; /* reads: stages whose outputs it reads, 0: the batch; readers: stages that read its output */
    int *partner;       /* fork and join, or route and combine, each other's index */
    int *root;          /* per value 0..n: the value whose place it shares */
    bool *keep;         /* per root: it is kept in the stash, or, for gradients, in ext */
    int *end;           /* per root: step of the sweep with its last use */
    struct slot *at;
};

static int64_t take_space(int64_t *size, int64_t bytes) {
    int64_t off = *size;
    *size = off + aligned(bytes);
    if (*size > (int64_t)1 << 58) /* several sizes are added up later */
        die("a stage of the model takes more than 2^58 bytes, which no machine has; use narrower layers, or fewer");
    return off;
}

static int64_t value_bytes(const struct plan *plan, int value) {
    int64_t columns = value > 0 ? plan->l[value - 1].out : plan->l[0].in;
    int64_t rows = value > 0 ? rows_out(&plan->l[value - 1]) : plan->l[0].rows;
    return aligned(plan->element * columns * rows);
}

static const struct layer_row *layer_row_at(const struct plan *plan, int i) { return row_of(plan->l[i].kind); }

static void find_partners(struct plan *plan) {
    int *open = NEW(int, plan->n), depth = 0;
    for (int i = 0; i < plan->n; i++)
        if (brackets(layer_row_at(plan, i)) > 0)
            open[depth++] = i;
        else if (brackets(layer_row_at(plan, i)) < 0) {
            assert(depth > 0);
            plan->partner[i] = open[--depth];
            plan->partner[open[depth]] = i;
        }
    assert(depth == 0); /* no cut is inside a residual block, or a moe */
}

/* ---- forward: values, in the stash, the operands or the workspace ---- */

/* Returns whether a layer keeps its input's parts with its output's statistics, and in kv. An attention on a slice
 * does, because it has rotated queries and keys by then. If its input is the stage's, it may not rotate them in
 * place. */
static bool keeps_parts_of_x(const struct plan *plan, int i) {
    return plan->l[i].kind == LAYER_attention && plan->l[i].length > 0 && plan->root[i] > 0;
}
/* Returns whether layer i reads the output of a gather. Its weight gradient reads it again, after the next layer has
 * gathered it again, so that the stash holds only the gather's input. */
static bool reads_gathered(const struct plan *plan, int i) { return i > 0 && plan->l[i - 1].kind == LAYER_gather; }

static void find_value_ends(struct plan *plan) {
    for (int i = 0; i < plan->n; i++) {
        const struct layer_row *row = layer_row_at(plan, i);
        plan->root[i + 1] = row->same_y ? plan->root[i] : i + 1;
        plan->end[plan->root[i]] = i;
        if (row->block < 0)
            plan->end[plan->root[plan->partner[i]]] = i;
        if (keeps_x(&plan->l[i]) && !keeps_parts_of_x(plan, i) && !reads_gathered(plan, i))
            plan->keep[plan->root[i]] = true;
        if (keeps_y(&plan->l[i]))
            plan->keep[plan->root[i + 1]] = true;
    }
    plan->keep[0] = plan->keep[0] || plan->reads > 1;
}

/* Returns whether a loss reads value v and may write its gradient over it. */
static bool in_place(const struct plan *plan, int v) {
    int last = plan->n - 1;
    return v > 0 && layer_row_at(plan, last)->loss && plan->root[last] == v && !plan->keep[v];
}

/* Return whether value v is used only in an exchange. is_given: layer v gives it to a team, and no other layer reads
 * it. is_got: the layer before received it from the team, and it is read before another exchange's result arrives. */
static bool is_given(const struct plan *plan, int v) {
    return v > 0 && v < plan->n && forward_exchange(&plan->l[v]) && !layer_row_at(plan, v)->team.exchanged &&
           plan->end[v] == v;
}
static bool is_got(const struct plan *plan, int v) {
    bool got = v > 0 && v < plan->n && forward_exchange(&plan->l[v - 1]) && !layer_row_at(plan, v - 1)->team.exchanged;
    for (int i = v; got && i < plan->end[v]; i++)
        got = !forward_exchange(&plan->l[i]);
    return got;
}

static void place_value(struct plan *plan, struct workspace *workspace, int v) {
    bool last = v == plan->root[plan->n]; /* no later layer does anything */
    if ((v == 0 && plan->reads == 0) || (last && layer_row_at(plan, v - 1)->loss))
        plan->at[v] = (struct slot){SP_NONE, 0};
    else if (plan->keep[v] || in_place(plan, v))
        plan->at[v] = (struct slot){SP_STASH, take_space(&plan->s->stash, value_bytes(plan, v))};
    else if (v == 0)
        plan->at[v] = (struct slot){SP_X, 0};
    else if (last)
        plan->at[v] = (struct slot){SP_Y, 0};
    else if (is_given(plan, v) || is_got(plan, v))
        plan->at[v] = (struct slot){is_given(plan, v) ? SP_GIVE : SP_GOT, 0};
    else
        plan->at[v] = (struct slot){SP_WORK, fit(workspace, v - 1, plan->end[v], value_bytes(plan, v))};
}

/* Places the workspace that an operation of a layer has to itself, if any, at step `now` of the sweep. */
static void take_work(struct workspace *workspace, struct rt_layer *l, enum unit_operation op, int now) {
    int64_t bytes = work_bytes(l, op);
    if (bytes > 0 && !rt_kind_of(l)->one_work)
        l->tmp = (struct slot){SP_WORK, fit(workspace, now, now, aligned(bytes))};
}

static void layout_forward(struct plan *plan) {
    struct workspace workspace = {.live = NEW(struct area, plan->n + 1)};
    find_value_ends(plan);
    for (int v = 0; v <= plan->n; v++)
        if (plan->root[v] == v)
            place_value(plan, &workspace, v);
    for (int i = 0; i < plan->n; i++) {
        struct rt_layer *l = &plan->l[i];
        const struct layer_row *row = layer_row_at(plan, i);
        l->x = plan->at[plan->root[i]];
        l->y = plan->at[plan->root[i + 1]];
        if (row->block < 0)
            l->aux = plan->at[plan->root[plan->partner[i]]];
        else if (row->routed < 0)
            l->aux = plan->l[plan->partner[i]].aux;
        else if (row->loss && in_place(plan, plan->root[i]))
            l->aux = l->x;
        else if (reads_gathered(plan, i))
            l->aux = (struct slot){SP_GOT, 0};
        else if (l->kind == LAYER_again)
            l->aux = plan->at[plan->root[i - 2]]; /* the gather's input */
        else if (rt_kind_of(l)->stash)
            l->aux = (struct slot){SP_STASH, take_space(&plan->s->stash, rt_kind_of(l)->stash(l, plan->element))};
        take_work(&workspace, l, UNIT_FORWARD, i);
    }
    plan->s->work = workspace.peak;
}

/* ---- backward: gradients, in ext, the operands or the workspace; gradient i is value i's ---- */

/* Returns the step of the backward sweep at which layer i runs. */
static int step_of(const struct plan *plan, int i) { return plan->n - 1 - i; }

static void read_gradients(struct plan *plan) {
    plan->root[plan->n] = plan->n;
    for (int i = plan->n - 1; i >= 0; i--) {
        int dy = plan->root[i + 1];
        plan->root[i] = layer_row_at(plan, i)->same_dx ? dy : i;
        plan->end[dy] = step_of(plan, i);
        if (layer_row_at(plan, i)->block > 0)
            plan->end[plan->root[plan->partner[i] + 1]] = step_of(plan, i);
        if (has_weight_gradient(&plan->l[i]) && !rt_kind_of(&plan->l[i])->begun) /* its weight gradient needs dy */
            plan->keep[dy] = true;
    }
    plan->keep[plan->n] = plan->keep[plan->n] || plan->readers > 1;
}

/* Returns the first value that needs a gradient. A value needs none if no parameter and no earlier stage contributed to
 * it. */
static int first_needed(const struct plan *plan) {
    int i = 0;
    while (plan->reads == 0 && i < plan->n && !has_weight_gradient(&plan->l[i]))
        i++;
    return plan->reads == 0 ? i + 1 : 0;
}

/* Return whether layer g - 1 gives the gradient, and whether layer g has received it. */
static bool gradient_is_given(const struct plan *plan, int g) {
    return g > 0 && g < plan->n && input_exchange(&plan->l[g - 1]) && !layer_row_at(plan, g - 1)->team.exchanged &&
           plan->end[g] == step_of(plan, g - 1);
}
static bool gradient_is_got(const struct plan *plan, int g) {
    bool got = g > 0 && g < plan->n && input_exchange(&plan->l[g]) && !layer_row_at(plan, g)->team.exchanged;
    for (int i = g - 1; got && step_of(plan, i) < plan->end[g]; i--)
        got = !input_exchange(&plan->l[i]) && !weight_exchange(&plan->l[i]);
    return got;
}

static void place_gradient(struct plan *plan, struct workspace *workspace, int g, int needed) {
    if (g < needed || (g == plan->n && layer_row_at(plan, g - 1)->loss))
        plan->at[g] = (struct slot){SP_NONE, 0};
    else if (g > 0 && g == plan->n - 1 && layer_row_at(plan, g)->loss)
        plan->at[g] = plan->l[g].aux;
    else if (plan->keep[g])
        plan->at[g] = (struct slot){SP_EXT, take_space(&plan->s->ext, value_bytes(plan, g))};
    else if (g == plan->n)
        plan->at[g] = (struct slot){SP_DY, 0};
    else if (g == 0)
        plan->at[g] = (struct slot){SP_DX, 0};
    else if (gradient_is_given(plan, g) || gradient_is_got(plan, g))
        plan->at[g] = (struct slot){gradient_is_given(plan, g) ? SP_GIVE : SP_GOT, 0};
    else
        plan->at[g] = (struct slot){SP_WORK, fit(workspace, step_of(plan, g), plan->end[g], value_bytes(plan, g))};
}

static void layout_backward(struct plan *plan) {
    struct workspace workspace = {.live = NEW(struct area, 2 * plan->n + 1)};
    int needed = first_needed(plan);
    read_gradients(plan);
    place_gradient(plan, &workspace, plan->n, needed);
    for (int i = plan->n - 1; i >= 0; i--) {
        struct rt_layer *l = &plan->l[i];
        const struct layer_row *row = layer_row_at(plan, i);
        if (plan->root[i] == i)
            place_gradient(plan, &workspace, i, needed);
        l->dy = plan->at[plan->root[i + 1]];
        l->dx = i < needed ? (struct slot){SP_NONE, 0} : plan->at[plan->root[i]];
        if (row->block > 0)
            l->aux = plan->at[plan->root[plan->partner[i] + 1]];
        if (row->routed < 0) {
            struct rt_layer *route = &plan->l[plan->partner[i]];
            l->tmp = route->tmp = (struct slot){SP_EXT, take_space(&plan->s->ext, extra_bytes(route))};
        }
        if (has_weight_gradient(l) && extra_bytes(l) > 0 && !rt_kind_of(l)->begun)
            l->left = (struct slot){SP_EXT, take_space(&plan->s->ext, extra_bytes(l))};
        if (l->dx.space != SP_NONE)
            take_work(&workspace, l, UNIT_INPUT, step_of(plan, i));
    }
    if (workspace.peak > plan->s->work)
        plan->s->work = workspace.peak;
}

static struct plan plan_of(struct rt_stage *s, struct rt_layer *layer, int reads, int readers, int64_t element) {
    int n = s->nlayers;
    struct plan plan = {.s = s, .l = layer, .n = n, .element = element, .reads = reads, .readers = readers};
    plan.partner = NEW(int, n);
    plan.root = NEW(int, n + 1);
    plan.keep = NEW(bool, n + 1);
    plan.end = NEW(int, n + 1);
    plan.at = NEW(struct slot, n + 1);
    find_partners(&plan);
    return plan;
}

void layout_weights(struct rt_stage *s, struct rt_layer *layer, int precision, int state) {
    int64_t element = precision_bytes(precision);
    for (int i = 0; i < s->nlayers; i++)
        if (layer[i].set == SET_OWN)
            layer[i].param = take_space(&s->weight, element * layer[i].nparam);
    for (int i = 0; i < s->nlayers; i++)
        layer[i].frozen = take_space(&s->frozen, element * frozen_elements(&layer[i]));
    s->opt = 4 * state * (s->weight / element);
}

/* Places the workspace that all operations of a layer share after all else in the stage's: only one runs at a time.
 * If such a layer is not trained, what its input gradient leaves for a weight gradient goes there, too. */
static void layout_one_work(struct rt_stage *s, struct rt_layer *layer) {
    int64_t most = 0, at = s->work;
    for (struct rt_layer *l = layer; l < layer + s->nlayers; l++) {
        int64_t bytes = 0;
        if (!rt_kind_of(l)->one_work)
            continue;
        for (int op = 0; op < UNIT_OPERATIONS; op++)
            bytes = work_bytes(l, op) > bytes ? work_bytes(l, op) : bytes;
        bytes = aligned(bytes);
        l->tmp = (struct slot){SP_WORK, at};
        if (!has_weight_gradient(l) && extra_bytes(l) > 0 && l->dx.space != SP_NONE) {
            l->left = (struct slot){SP_WORK, at + bytes};
            bytes += aligned(extra_bytes(l));
        }
        most = bytes > most ? bytes : most;
    }
    take_space(&s->work, most);
}

void layout_stage(struct rt_stage *s, struct rt_layer *layer, int reads, int readers, int precision, int state) {
    int64_t element = precision_bytes(precision);
    layout_weights(s, layer, precision, state);
    struct plan values = plan_of(s, layer, reads, readers, element);
    struct plan gradients = plan_of(s, layer, reads, readers, element);
    layout_forward(&values);
    layout_backward(&gradients);
    layout_one_work(s, layer);
}
