/* Addresses of an attention's queries, keys and values, and of their gradients, for attention_host.c and attention.cu.
 *
 * The layer's x has them side by side: heads, kv_heads and kv_heads of dim columns. A sequence attends to itself, in x.
 * A slice of it also attends to the slices before it, whose keys and values are in their kv. Gradients go to the
 * counterpart of where the values came from. The slice's own gradients go to dx. Those for earlier slices go to dpast,
 * which the sweep initializes with the gradients from later slices. */
#ifndef PIANOLA_KEYS_H
#define PIANOLA_KEYS_H
#include "attend.h"
#include "rt.h"
#include <string.h>

/* Returns how many slices of its sequence come before the layer's. */
static inline int32_t slices_before(const struct rt_bind *at, const struct rt_layer *l) {
    int32_t n = 0;
    while (l->length > 0 && at->slice[n].layer[0].first < l->first)
        n++;
    return n;
}

/* Returns the bytes of a stage's keys and values for its first n slices. dpast has the same size on the next slice. */
static inline int64_t past_bytes(const struct rt_stage *slice, int32_t n, int64_t element) {
    int64_t sum = 0;
    for (const struct rt_stage *s = slice; s < slice + n; s++)
        for (int32_t i = 0; i < s->nlayers; i++)
            sum += s->layer[i].kind == LAYER_attention ? kv_bytes(&s->layer[i], element) : 0;
    return sum;
}

static inline char *slot_at(const struct rt_bind *at, struct slot slot) {
    return at->at[slot.space] ? at->at[slot.space] + slot.off : NULL;
}

/* A copy of n columns from one tensor to another; each has its own row stride, in elements. */
struct strip {
    char *to;
    const char *from;
    int32_t to_stride, from_stride, n;
};

/* Lists the copies of a slice's keys and values of layer l between kv and the tensor with q, k and v side by side, or
 * of their gradients. */
static inline void keys_and_values(const struct rt_layer *l, char *x, char *kv, bool to_kv, int64_t element,
                                   struct strip strip[2]) {
    int32_t columns = (l->in - l->out) / 2;
    for (int i = 0; i < 2; i++) {
        char *part = x + element * (l->out + i * columns), *packed = kv + l->kv + i * element * l->rows * columns;
        strip[i].to = to_kv ? packed : part;
        strip[i].from = to_kv ? part : packed;
        strip[i].to_stride = to_kv ? columns : l->in;
        strip[i].from_stride = to_kv ? l->in : columns;
        strip[i].n = columns;
    }
}

/* Lists what a slice's forward keeps: its keys and values, which later slices read too, unless it is recomputed only
 * for the stash; and its queries. Returns the number of strips. */
static inline int kept_strips(const struct rt_layer *l, const struct rt_bind *at, int64_t element,
                              struct strip strip[3]) {
    char *x = slot_at(at, l->x);
    int n = 0;
    if (at->own) {
        keys_and_values(l, x, at->own, true, element, strip);
        n = 2;
    }
    if (keeps_queries(l)) {
        strip[n].to = slot_at(at, l->aux) + lse_bytes(l);
        strip[n].from = x;
        strip[n].to_stride = strip[n].n = l->out;
        strip[n++].from_stride = l->in;
    }
    return n;
}

/* Returns the segment of a layer's keys and values in kv. */
static inline struct segment segment_of(const struct rt_layer *l, const char *kv, int64_t element) {
    struct segment s;
    int32_t columns = (l->in - l->out) / 2;
    memset(&s, 0, sizeof s);
    s.k = kv + l->kv;
    s.v = kv + l->kv + element * l->rows * columns;
    s.stride = s.dstride = columns;
    s.first = l->first;
    s.rows = sequence_length(l);
    return s;
}

/* Returns the attend of a layer; with back, for its gradients. segment: room for one more than the earlier slices. */
static inline struct attend attend_of(const struct rt_layer *l, const struct rt_bind *at, int64_t element, bool back,
                                      struct segment *segment) {
    struct attend a;
    int32_t n = slices_before(at, l), columns = (l->in - l->out) / 2;
    const struct rt_layer *first = l->length > 0 ? at->slice[n].layer : l;
    char *x = slot_at(at, l->x), *dx = slot_at(at, l->dx), *past = at->dpast;
    memset(&a, 0, sizeof a);
    a.q = x;
    a.y = slot_at(at, l->y);
    a.lse = (float *)(void *)slot_at(at, l->aux);
    a.q_stride = a.dq_stride = l->in;
    a.y_stride = l->out;
    a.sequences = l->rows / sequence_length(l);
    a.first = l->first;
    a.rows = sequence_length(l);
    a.heads = l->config.attention.heads;
    a.kv_heads = l->config.attention.kv_heads;
    a.dim = l->out / l->config.attention.heads;
    a.nsegments = n + 1;
    a.segment = segment;
    for (int32_t q = 0; q < n; q++) {
        const struct rt_layer *o = &at->slice[q].layer[l - first];
        segment[q] = segment_of(o, at->arena + at->kv[q]->off, element);
        if (!back)
            continue;
        segment[q].dk = past + o->kv;
        segment[q].dv = past + o->kv + element * o->rows * columns;
        segment[q].add = at->dkv != NULL;
        past += past_bytes(&at->slice[q], 1, element);
    }
    struct segment *own = &segment[n];
    memset(own, 0, sizeof *own);
    own->k = x + element * l->out;
    own->v = x + element * (l->out + columns);
    own->stride = l->in;
    own->first = l->first;
    own->rows = sequence_length(l);
    if (!back)
        return a;
    if (keeps_queries(l)) {
        a.q = slot_at(at, l->aux) + lse_bytes(l);
        a.q_stride = l->out;
        *own = segment_of(l, at->arena + at->kv[n]->off, element);
    }
    own->dstride = l->in;
    a.dq = dx;
    a.dy = slot_at(at, l->dy);
    a.d = (float *)(void *)slot_at(at, l->tmp);
    own->dk = dx + element * l->out;
    own->dv = dx + element * (l->out + columns);
    own->add = at->dkv != NULL;
    return a;
}

/* Returns where in dkv the gradients begin that later slices sent for this slice's own keys and values. */
static inline char *own_gradients(const struct rt_layer *l, const struct rt_bind *at, int64_t element) {
    return at->dkv + past_bytes(at->slice, slices_before(at, l), element);
}
#endif
