/* A walk over the parameters in a piece of a stage's elements, such as a shard of its weights, gradients or moments.
 *
 *     for (struct parameter_walk w = walk_parameters(piece); next_parameter(&w);)
 *
 * Parameter w.p of layer w.l begins at element w.begin of the stage's own set. Its elements [w.from, w.to), counted
 * from the set's beginning, are in the piece. */
#ifndef PIANOLA_PARAMETER_WALK_H
#define PIANOLA_PARAMETER_WALK_H
#include "rt.h"

struct parameter_walk {
    struct rt_piece piece;
    const struct rt_layer *l;
    const struct rt_parameter *p;
    int64_t begin, next, from, to; /* next: beginning of the parameter after p */
    int32_t layer, i;              /* index of the next layer, and of l's next parameter */
    struct rt_parameters all;
};
static inline struct parameter_walk walk_parameters(struct rt_piece piece) {
    struct parameter_walk w;
    w.piece = piece;
    w.layer = w.i = w.all.n = 0;
    return w;
}
static inline bool next_parameter(struct parameter_walk *w) {
    do {
        while (w->i == w->all.n) {
            if (w->layer == w->piece.s->nlayers)
                return false;
            w->l = &w->piece.s->layer[w->layer++];
            w->i = w->all.n = 0;
            if (w->l->set == SET_OWN)
                w->all = parameters_of(w->piece.m, w->l, shared_table(w->piece.m, w->l) > 0);
            w->next = w->l->param / precision_bytes(w->piece.m->precision);
        }
        w->p = &w->all.at[w->i++];
        w->begin = w->next;
        w->next += w->p->count;
        const int64_t end = w->piece.first + w->piece.n;
        w->from = w->begin > w->piece.first ? w->begin : w->piece.first;
        w->to = w->next < end ? w->next : end;
    } while (w->from >= w->to);
    return true;
}
#endif
