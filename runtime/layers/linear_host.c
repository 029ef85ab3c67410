/* The linear layer, y = x W + bias: one matrix product each way. The layer's parameters are W, in x out, then the bias.
 * A layer with no room for a bias has none (models on integers, see data.c). Also the unembedding, y = x Eᵀ, whose E,
 * out x in, is the shared token table rather than a parameter of its own, or a copy of a frozen one. */
#include "host.h"
#include "product.h"
#include <string.h>

static bool has_bias(const struct rt_layer *l) { return l->nparam > (int64_t)l->in * l->out; }

static void linear_forward(const struct host_call *c) {
    const struct rt_layer *l = c->l;
    const float *w = host_w(c), *bias = w + (int64_t)l->in * l->out;
    host_product((struct product){l->rows, l->out, l->in, .a = plain(host_x(c), l->in), .b = plain(w, l->out),
                                  .c = host_at(c, l->y), .stride = l->out, .bias = has_bias(l) ? bias : NULL});
}

static void linear_input(const struct host_call *c) {
    const struct rt_layer *l = c->l;
    host_product((struct product){l->rows, l->in, l->out, .a = plain(host_at(c, l->dy), l->out),
                                  .b = turned(host_w(c), l->out), .c = host_at(c, l->dx), .stride = l->in});
}

/* Returns the input for a weight gradient. If the forward read a gathered input, which is not kept, it has been
 * gathered again. */
static const float *weight_x(const struct host_call *c) {
    return c->l->aux.space == SP_NONE ? host_x(c) : host_at(c, c->l->aux);
}

static void linear_weight(const struct host_call *c) {
    const struct rt_layer *l = c->l;
    const float *dy = host_at(c, l->dy), *x = weight_x(c);
    float *dw = host_dw(c), *dbias = dw + (int64_t)l->in * l->out;
    host_product((struct product){l->in, l->out, l->rows, .a = turned(x, l->in), .b = plain(dy, l->out), .c = dw,
                                  .stride = l->out, .add = !host_first(c)});
    if (!has_bias(l))
        return;
    if (host_first(c))
        memset(dbias, 0, (size_t)l->out * sizeof *dbias);
    host_add_rows(dy, l->out, l->rows, l->out, dbias, 0);
}

static void unembedding_forward(const struct host_call *c) {
    const struct rt_layer *l = c->l;
    host_product((struct product){l->rows, l->out, l->in, .a = plain(host_x(c), l->in),
                                  .b = turned(layer_table(c->at, l), l->in), .c = host_at(c, l->y), .stride = l->out});
}

static void unembedding_input(const struct host_call *c) {
    const struct rt_layer *l = c->l;
    host_product((struct product){l->rows, l->in, l->out, .a = plain(host_at(c, l->dy), l->out),
                                  .b = plain(layer_table(c->at, l), l->in), .c = host_at(c, l->dx), .stride = l->in});
}

static void unembedding_weight(const struct host_call *c) {
    const struct rt_layer *l = c->l;
    host_product((struct product){l->out, l->in, l->rows, .a = turned(host_at(c, l->dy), l->out),
                                  .b = plain(weight_x(c), l->in), .c = c->at->dv, .stride = l->in,
                                  .add = !c->at->vfirst});
}

const struct host_layer host_unembedding = {unembedding_forward, unembedding_input, unembedding_weight};
const struct host_layer host_linear = {linear_forward, linear_input, linear_weight};
