/* The parameters of a layer, one after the other: their shapes, how teams divide them, and how optimizers treat them.
 */
#ifndef PIANOLA_PARAMETERS_H
#define PIANOLA_PARAMETERS_H
#include "attention.h"

enum { MOST_PARAMETERS = 32 };
struct rt_parameter {
    const char *name;
    int32_t ndims; /* a vector has 1 */
    int64_t dim[2], count;
    int32_t split; /* enum split: how the members of a team divide the parameter */
    int32_t init;  /* enum unit_init, if a script declares the parameter */
    int64_t drawn; /* if so: elements of the parameters that it declares before this one */
};
struct rt_parameters {
    int32_t n;
    struct rt_parameter at[MOST_PARAMETERS];
};
static inline void add_parameter(struct rt_parameters *p, const char *name, int32_t ndims, int64_t rows,
                                 int64_t columns, int32_t split) {
    struct rt_parameter one = {name, ndims, {rows, columns}, ndims == 1 ? rows : rows * columns, split, 0, 0};
    if (one.count > 0)
        p->at[p->n++] = one;
}
/* Returns whether weight decay applies to a parameter: to matrices, not to norms and biases. */
static inline bool decays(const struct rt_parameter *p) { return p->ndims > 1; }
/* Rounds floats up to whole cache lines. */
static inline int64_t whole_lines(int64_t n) { return (n + 15) / 16 * 16; }
/* Returns the floats of workspace that a step of the whole matrix needs, or 0 if the parameter is stepped element by
 * element. Only hidden matrices, of linear layers except the output's, are stepped whole, by one of MATRIX_OPTIMIZERS.
 */
static inline int64_t matrix_work(const struct rt_model *m, const struct rt_layer *l, const struct rt_parameter *p) {
    int64_t n = p->count, side = p->dim[0] < p->dim[1] ? p->dim[0] : p->dim[1];
    if (l->kind != LAYER_linear || l->index == m->output || p->ndims != 2)
        return 0;
    switch (m->optimizer) {
#define X(NAME, name, work, flop)                                                                                      \
    case OPT_##NAME: return work;
        MATRIX_OPTIMIZERS(X)
#undef X
    default: return 0;
    }
}
/* Returns a member's part of n rows, or columns, of layer l. */
static inline int64_t share_of(const struct rt_layer *l, int split, int64_t n) {
    return l->share.split == split ? n / l->share.members : n;
}
/* The place of element `at` of a member's parameter in the whole parameter, and the number of elements that are
 * contiguous in both from there on. */
struct rt_stretch {
    int64_t at, n;
};
static inline struct rt_stretch stretch_of(const struct rt_layer *l, const struct rt_parameter *p, int64_t at) {
    struct rt_stretch run = {at, p->count - at};
    const struct rt_share *share = &l->share;
    if (p->split == SPLIT_ROWS)
        run.at += share->member * p->count;
    if (p->split != SPLIT_COLUMNS)
        return run;
    int64_t columns = p->ndims == 1 ? p->dim[0] : p->dim[1], row = at / columns, column = at % columns, begin = 0;
    for (int g = 0; g < 3 && share->group[g] > 0; g++) { /* begin: the group's, in the member's part */
        int64_t width = share->group[g] / share->members;
        if (column < begin + width) {
            run.at = (row * columns + begin) * share->members + share->member * width + (column - begin);
            run.n = begin + width - column;
            break;
        }
        begin += width;
    }
    return run;
}
/* Returns the whole parameter, given a member's part p. */
static inline struct rt_parameter whole_parameter(const struct rt_layer *l, const struct rt_parameter *p) {
    struct rt_parameter whole = *p;
    if (p->split == SPLIT_NONE)
        return whole;
    whole.dim[p->split == SPLIT_COLUMNS ? p->ndims - 1 : 0] *= l->share.members;
    whole.count *= l->share.members;
    return whole;
}
/* Returns whether a parameter counts here. If every member of a team has all of it, only the first member's counts. */
static inline bool counts_here(const struct rt_stage *s, const struct rt_parameter *p) {
    return p->split != SPLIT_NONE || s->place == 0;
}
/* Adds a unit's trained parameters, or else its frozen ones. */
static inline void add_unit_parameters(struct rt_parameters *p, const struct rt_unit *unit, bool frozen) {
    int64_t drawn = 0;
    for (int i = 0; i < unit->nparameters; i++) {
        const struct rt_unit_parameter *one = &unit->parameter[i];
        const int before = p->n;
        if (one->frozen == frozen)
            add_parameter(p, one->name, one->ndims, one->dim[0], one->dim[1], SPLIT_NONE);
        if (p->n > before) {
            p->at[before].init = one->init;
            p->at[before].drawn = drawn;
        }
        drawn += one->ndims == 1 ? one->dim[0] : one->dim[0] * one->dim[1];
    }
}
/* Returns the parameters of layer l of model m, from LAYERS, without those that a unit freezes. */
static inline struct rt_parameters parameters_of(const struct rt_model *m, const struct rt_layer *l, bool shared) {
    const int vector_split = l->share.split == SPLIT_COLUMNS ? SPLIT_COLUMNS : SPLIT_NONE;
    struct rt_parameters p;
    p.n = 0;
    switch (l->kind) {
#define MATRIX(name, rows, columns) add_parameter(&p, #name, 2, rows, columns, l->share.split);
#define WHOLE(name, rows, columns)  add_parameter(&p, #name, 2, rows, columns, SPLIT_NONE);
#define VECTOR(name, n)             add_parameter(&p, #name, 1, n, 0, vector_split);
#define OF_UNIT                     add_unit_parameters(&p, l->unit, false);
#define X(name, parameters, ...)                                                                                       \
    case LAYER_##name: parameters break;
        LAYERS(X)
#undef X
#undef MATRIX
#undef WHOLE
#undef VECTOR
#undef OF_UNIT
    }
    return p;
}
/* Returns the parameters that a layer lists as frozen, in LAYERS: only units have any. */
static inline struct rt_parameters listed_as_frozen(const struct rt_layer *l) {
    struct rt_parameters p;
    p.n = 0;
    switch (l->kind) {
#define MATRIX(name, rows, columns)
#define WHOLE(name, rows, columns)
#define VECTOR(name, n)
#define OF_UNIT add_unit_parameters(&p, l->unit, true);
#define X(name, parameters, ...)                                                                                       \
    case LAYER_##name: parameters break;
        LAYERS(X)
#undef X
#undef MATRIX
#undef WHOLE
#undef VECTOR
#undef OF_UNIT
    }
    return p;
}
/* Returns whether a layer computes with a copy of the embedding's frozen table. */
static inline bool copies_table(const struct rt_layer *l) {
    return l->set == SET_FROZEN && l->kind == LAYER_unembedding;
}
/* Returns the parameters of layer l of model m that are not trained. */
static inline struct rt_parameters frozen_parameters_of(const struct rt_model *m, const struct rt_layer *l) {
    if (l->set != SET_FROZEN)
        return listed_as_frozen(l);
    if (!copies_table(l))
        return parameters_of(m, l, false);
    struct rt_parameters p;
    p.n = 0;
    add_parameter(&p, "token", 2, l->out, l->in, SPLIT_NONE);
    return p;
}
/* Counts the elements of a layer's frozen parameters. */
static inline int64_t frozen_elements(const struct rt_layer *l) {
    if (l->set == SET_FROZEN)
        return copies_table(l) ? (int64_t)l->in * l->out : l->nparam;
    const struct rt_parameters all = listed_as_frozen(l);
    int64_t n = 0;
    for (int i = 0; i < all.n; i++)
        n += all.at[i].count;
    return n;
}
#endif
