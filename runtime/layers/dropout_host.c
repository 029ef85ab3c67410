/* Dropout on the host: of x in a forward, of dy in a backward. */
#include "dropout.h"
#include "host.h"
#include <string.h>

static void drop(const struct host_call *c, float *to, const float *from) {
    const struct rt_layer *l = c->l;
    const int64_t columns = l->out;
    if (!c->at->draw) {
        memcpy(to, from, (size_t)l->rows * (size_t)columns * sizeof *to);
        return;
    }
    const struct dropout d = dropout_of(c->m, l, c->at->draw);
    for (int32_t r = 0; r < l->rows; r++, to += columns, from += columns) {
        uint64_t begin = (uint64_t)(row_drawn(&d, r) * columns);
        struct words4 words = draw_words(&d, begin / 4);
        for (int64_t j = 0; j < columns; j++) {
            uint64_t at = begin + (uint64_t)j;
            if (j > 0 && at % 4 == 0)
                words = draw_words(&d, at / 4);
            to[j] = words.at[at % 4] >= d.below ? from[j] * d.scale : 0;
        }
    }
}

static void dropout_forward(const struct host_call *c) { drop(c, host_at(c, c->l->y), host_x(c)); }
static void dropout_input(const struct host_call *c) { drop(c, host_at(c, c->l->dx), host_at(c, c->l->dy)); }

const struct host_layer host_dropout = {dropout_forward, dropout_input, NULL};
