/* Units among the layers: their shapes, and what they cost. */
#include "layers.h"

/* Returns, for messages, what makes a layer's input. */
static const char *before_layer(const struct model *m, int i) {
    for (i--; i >= 0 && row_of(m->layer[i].kind)->same_y; i--)
        continue;
    if (i >= 0 && m->layer[i].kind == LAYER_join)
        return format("the residual block that ends with %s", where_layer(m, i - 1));
    return i >= 0 ? where_layer(m, i) : "the model's input";
}

int unit_out(const struct model *m, int i, int in, int forked) {
    const struct model_layer *layer = &m->layer[i];
    (void)forked;
    if (layer->in_width > 0 && layer->in_width != in)
        die("%s: it takes in_width = %d columns, but %s makes %d", where_layer(m, i), layer->in_width,
            before_layer(m, i), in);
    return m->layer[i].out > 0 ? m->layer[i].out : in;
}

void size_unit(const struct model *m, int i, struct rt_layer *l) {
    if (m->layer[i].in_rows > 0 && m->layer[i].in_rows != l->rows)
        die("%s: it takes in_rows = %d rows, but %s makes %d", where_layer(m, i), m->layer[i].in_rows,
            before_layer(m, i), l->rows);
    l->unit = m->layer[i].own;
    l->out_rows = m->layer[i].out_rows != l->rows ? m->layer[i].out_rows : 0;
}

/* Counts what the script says; else a product of each row with each matrix, twice in a backward, or once if the matrix
 * is frozen, and the columns of its output. */
struct flop unit_flop(const struct rt_layer *l) {
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

int64_t unit_stash(const struct rt_layer *l, int64_t element) {
    (void)element;
    return l->unit->stash;
}
