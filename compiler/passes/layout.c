/* Where the tensors of a stage lie.
 *
 * A value is the output of a layer that others read: value i is the output of layer i - 1, value 0 the stage's input.
 * fork passes its input on, so its output is the same value; in the backward, join passes gradients on in the same way.
 * Each value has one place, which depends on who needs it when:
 *
 *   the backward needs it        stash: what layers keep, their input or their output (layers.c); a loss its gradient,
 *                                written over its input where nothing else needs that
 *   the stage's ends             the operands x, y, dy, dx, unless the stash (or ext) must hold it too
 *   gradients that W needs       ext: dy of every layer with parameters, except the loss's, which the forward made
 *   everything else              the workspace, first fit over the layers between its making and its last use
 *
 * The batch, input of the first stage, is SP_NONE: it can be read again and is never kept. Where a stage reads several
 * others' outputs, their sum is its input, and the stash holds it; where several read its own, ext holds the sum of the
 * gradients that come back.
 *
 * Values and gradients are of the model's precision; statistics, and the sums of a loss, are not. */
#include "cost.h"
#include "layers.h"
#include <assert.h>

struct area { /* a tensor in the workspace, live from one layer of a sweep to another, both included */
    int last;
    int64_t off, bytes;
};

/* One sweep's workspace. Tensors come in the order of the sweep. */
struct workspace {
    struct area *live; /* by offset */
    int n;
    int64_t peak;
};

static int64_t fit(struct workspace *w, int now, int last, int64_t bytes) {
    int n = 0, at = 0;
    for (int i = 0; i < w->n; i++)
        if (w->live[i].last >= now)
            w->live[n++] = w->live[i];
    int64_t off = 0;
    while (at < n && w->live[at].off - off < bytes) {
        off = w->live[at].off + w->live[at].bytes;
        at++;
    }
    for (int i = n; i > at; i--)
        w->live[i] = w->live[i - 1];
    w->live[at] = (struct area){last, off, bytes};
    w->n = n + 1;
    w->peak = off + bytes > w->peak ? off + bytes : w->peak;
    return off;
}

struct plan {
    struct rt_stage *s;
    struct rt_layer *l;
    int n;
    int64_t element;    /* bytes, of a value and a gradient */
    int reads, readers; /* stages whose outputs it reads, 0: the batch; stages that read its own */
    int *partner;       /* of a fork its join, of a join its fork */
    int *root;          /* per value 0..n: the value it is the same as */
    bool *keep;         /* per root: in the stash, or for gradients in ext */
    int *end;           /* per root: step of the sweep that uses it last */
    struct slot *at;
};

static int64_t take(int64_t *size, int64_t bytes) {
    int64_t off = *size;
    *size = off + aligned(bytes);
    if (*size > (int64_t)1 << 58) /* several of these are added up later */
        die("a stage of the model takes more than 2^58 bytes, which no machine has; use narrower layers, or fewer");
    return off;
}

static int64_t bytes_of(const struct plan *p, int value) {
    int64_t columns = value > 0 ? p->l[value - 1].out : p->l[0].in;
    return aligned(p->element * columns * p->l[0].rows);
}

static const struct layer_row *row_at(const struct plan *p, int i) { return row_of(p->l[i].kind); }

static void find_partners(struct plan *p) {
    int *open = NEW(int, p->n), depth = 0;
    for (int i = 0; i < p->n; i++)
        if (row_at(p, i)->block > 0)
            open[depth++] = i;
        else if (row_at(p, i)->block < 0) {
            assert(depth > 0);
            p->partner[i] = open[--depth];
            p->partner[open[depth]] = i;
        }
    assert(depth == 0); /* a cut inside a residual block */
}

/* ---- forward: values, in the stash, the operands or the workspace ---- */

/* Its weight gradient needs dy. What shares a table has no parameters of its own. */
static bool has_gradient(const struct rt_layer *l) { return l->nparam > 0 || row_of(l->kind)->shares; }

static void read_values(struct plan *p) {
    for (int i = 0; i < p->n; i++) {
        const struct layer_row *row = row_at(p, i);
        p->root[i + 1] = row->block > 0 ? p->root[i] : i + 1;
        p->end[p->root[i]] = i;
        if (row->block < 0)
            p->end[p->root[p->partner[i]]] = i;
        if (row->keeps_x)
            p->keep[p->root[i]] = true;
        if (row->keeps_y)
            p->keep[p->root[i + 1]] = true;
    }
    p->keep[0] = p->keep[0] || p->reads > 1;
}

/* Layer i is a loss that may write its gradient over its input. */
static bool in_place(const struct plan *p, int i) {
    return i > 0 && i < p->n && row_at(p, i)->loss && !p->keep[p->root[i]];
}

static void place_value(struct plan *p, struct workspace *w, int v) {
    bool last = v == p->n;
    if ((v == 0 && p->reads == 0) || (last && row_at(p, v - 1)->loss))
        p->at[v] = (struct slot){SP_NONE, 0};
    else if (p->keep[v] || in_place(p, v))
        p->at[v] = (struct slot){SP_STASH, take(&p->s->stash, bytes_of(p, v))};
    else if (v == 0)
        p->at[v] = (struct slot){SP_X, 0};
    else if (last)
        p->at[v] = (struct slot){SP_Y, 0};
    else
        p->at[v] = (struct slot){SP_WORK, fit(w, v - 1, p->end[v], bytes_of(p, v))};
}

static void layout_forward(struct plan *p) {
    struct workspace w = {.live = NEW(struct area, p->n + 1)};
    read_values(p);
    for (int v = 0; v <= p->n; v++)
        if (p->root[v] == v)
            place_value(p, &w, v);
    for (int i = 0; i < p->n; i++) {
        struct rt_layer *l = &p->l[i];
        const struct layer_row *row = row_at(p, i);
        l->x = p->at[p->root[i]];
        l->y = p->at[p->root[i + 1]];
        if (row->block < 0)
            l->aux = p->at[p->root[p->partner[i]]];
        else if (in_place(p, i))
            l->aux = l->x;
        else if (row->aux)
            l->aux = (struct slot){SP_STASH, take(&p->s->stash, row->aux(l, p->element))};
        if (row->forward_work)
            l->tmp = (struct slot){SP_WORK, fit(&w, i, i, aligned(row->forward_work(l)))};
    }
    p->s->work = w.peak;
}

/* ---- backward: gradients, gradient i being that of value i, in ext, the operands or the workspace ---- */

/* Step of the backward sweep at which layer i runs. */
static int step_of(const struct plan *p, int i) { return p->n - 1 - i; }

static void read_gradients(struct plan *p) {
    p->root[p->n] = p->n;
    for (int i = p->n - 1; i >= 0; i--) {
        int dy = p->root[i + 1];
        p->root[i] = row_at(p, i)->block < 0 ? dy : i;
        p->end[dy] = step_of(p, i);
        if (row_at(p, i)->block > 0)
            p->end[p->root[p->partner[i] + 1]] = step_of(p, i);
        if (has_gradient(&p->l[i]))
            p->keep[dy] = true;
    }
    p->keep[p->n] = p->keep[p->n] || p->readers > 1;
}

/* A value needs no gradient if no parameter and no earlier stage contributed to it. */
static int first_needed(const struct plan *p) {
    int i = 0;
    while (p->reads == 0 && i < p->n && !has_gradient(&p->l[i]))
        i++;
    return p->reads == 0 ? i + 1 : 0;
}

static void place_gradient(struct plan *p, struct workspace *w, int g, int needed) {
    if (g < needed || (g == p->n && row_at(p, g - 1)->loss))
        p->at[g] = (struct slot){SP_NONE, 0};
    else if (g > 0 && g == p->n - 1 && row_at(p, g)->loss)
        p->at[g] = p->l[g].aux;
    else if (p->keep[g])
        p->at[g] = (struct slot){SP_EXT, take(&p->s->ext, bytes_of(p, g))};
    else if (g == p->n)
        p->at[g] = (struct slot){SP_DY, 0};
    else if (g == 0)
        p->at[g] = (struct slot){SP_DX, 0};
    else
        p->at[g] = (struct slot){SP_WORK, fit(w, step_of(p, g), p->end[g], bytes_of(p, g))};
}

static void layout_backward(struct plan *p) {
    struct workspace w = {.live = NEW(struct area, 2 * p->n + 1)};
    int needed = first_needed(p);
    read_gradients(p);
    place_gradient(p, &w, p->n, needed);
    for (int i = p->n - 1; i >= 0; i--) {
        struct rt_layer *l = &p->l[i];
        const struct layer_row *row = row_at(p, i);
        if (p->root[i] == i)
            place_gradient(p, &w, i, needed);
        l->dy = p->at[p->root[i + 1]];
        l->dx = i < needed ? (struct slot){SP_NONE, 0} : p->at[p->root[i]];
        if (row->block > 0)
            l->aux = p->at[p->root[p->partner[i] + 1]];
        if (row->input_work && l->dx.space != SP_NONE)
            l->tmp = (struct slot){SP_WORK, fit(&w, step_of(p, i), step_of(p, i), aligned(row->input_work(l)))};
    }
    if (w.peak > p->s->work)
        p->s->work = w.peak;
}

static struct plan plan_of(struct rt_stage *s, struct rt_layer *layer, int reads, int readers, int64_t element) {
    int n = s->nlayers;
    struct plan p = {.s = s, .l = layer, .n = n, .element = element, .reads = reads, .readers = readers};
    p.partner = NEW(int, n);
    p.root = NEW(int, n + 1);
    p.keep = NEW(bool, n + 1);
    p.end = NEW(int, n + 1);
    p.at = NEW(struct slot, n + 1);
    find_partners(&p);
    return p;
}

void layout_weights(struct rt_stage *s, struct rt_layer *layer, int precision, int state) {
    int64_t element = precision_bytes(precision);
    for (int i = 0; i < s->nlayers; i++)
        layer[i].param = take(&s->weight, element * layer[i].nparam);
    s->opt = 4 * state * (s->weight / element);
}

void layout_stage(struct rt_stage *s, struct rt_layer *layer, int reads, int readers, int precision, int state) {
    int64_t element = precision_bytes(precision);
    layout_weights(s, layer, precision, state);
    struct plan values = plan_of(s, layer, reads, readers, element);
    struct plan gradients = plan_of(s, layer, reads, readers, element);
    layout_forward(&values);
    layout_backward(&gradients);
}
