/* Units among the layers: their shapes. */
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
    l->out_rows = m->layer[i].out_rows != l->rows ? m->layer[i].out_rows : 0;
}

const char *unit_title(const struct model_layer *layer) { return format("unit %s", layer->unit->name); }
