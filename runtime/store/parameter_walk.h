/* A walk over the parameters in a piece of a stage's elements, such as a shard of its weights, gradients or moments.
 *
 *     for (struct parameter_walk w = walk_parameters(m, s, first, count); next_parameter(&w);)
 *
 * Parameter w.p of layer w.l begins at element w.begin of the stage's own set. Its elements [w.from, w.to), counted
 * from the set's beginning, are those among [first, first + count). */
#ifndef PIANOLA_PARAMETER_WALK_H
#define PIANOLA_PARAMETER_WALK_H
#include "rt.h"

struct parameter_walk {
    const struct rt_model *m;
    const struct rt_stage *s;
    const struct rt_layer *l;
    const struct rt_parameter *p;
    int64_t first, end, begin, next, from, to; /* next: where the parameter after p begins */
    int32_t layer, i;                          /* the next layer, and the next parameter of l */
    struct rt_parameters all;
};
static inline struct parameter_walk walk_parameters(const struct rt_model *m, const struct rt_stage *s, int64_t first,
                                                    int64_t count) {
    struct parameter_walk w;
    w.m = m;
    w.s = s;
    w.first = first;
    w.end = first + count;
    w.layer = w.i = w.all.n = 0;
    return w;
}
static inline bool next_parameter(struct parameter_walk *w) {
    do {
        while (w->i == w->all.n) {
            if (w->layer == w->s->nlayers)
                return false;
            w->l = &w->s->layer[w->layer++];
            w->i = w->all.n = 0;
            if (w->l->set == SET_OWN)
                w->all = parameters_of(w->m, w->l, shared_table(w->m, w->l) > 0);
            w->next = w->l->param / precision_bytes(w->m->precision);
        }
        w->p = &w->all.at[w->i++];
        w->begin = w->next;
        w->next += w->p->count;
        w->from = w->begin > w->first ? w->begin : w->first;
        w->to = w->next < w->end ? w->next : w->end;
    } while (w->from >= w->to);
    return true;
}
#endif
