/* Dropout (Srivastava et al. 2014, "Dropout: A Simple Way to Prevent Neural Networks from Overfitting"; scaled like
 * PyTorch's). What is dropped depends only on the seed, the step, the microbatch, the layer's place in the model, and
 * the row and column. So it is the same under every schedule, however rows are divided, when a forward is recomputed,
 * and after a resume. The backward draws again instead of storing a mask.
 *
 * Philox-4x32-10 (Salmon et al. 2011, "Parallel Random Numbers: As Easy as 1, 2, 3") makes four words from a counter
 * and a key, for four neighbouring values of the microbatch, rows x columns. A value is dropped if its word is below p
 * 2^32. */
#ifndef PIANOLA_DROPOUT_H
#define PIANOLA_DROPOUT_H
#include "attend.h"
#include "rt.h"

struct words4 {
    uint32_t at[4];
};
ON_BOTH struct words4 philox(struct words4 counter, uint32_t key0, uint32_t key1) {
    for (int round = 0; round < 10; round++, key0 += 0x9e3779b9, key1 += 0xbb67ae85) {
        const uint32_t *c = counter.at;
        uint64_t a = (uint64_t)0xd2511f53 * c[0], b = (uint64_t)0xcd9e8d57 * c[2];
        struct words4 next = {
            {(uint32_t)(b >> 32) ^ c[1] ^ key0, (uint32_t)b, (uint32_t)(a >> 32) ^ c[3] ^ key1, (uint32_t)a}};
        counter = next;
    }
    return counter;
}

/* A layer's keys for drawing random numbers, and its rows in the microbatch. The rows are in groups of `length`,
 * `stride` apart; in each, the first `chunk` are from row `first` on, the others from `second` on. */
struct dropout {
    uint32_t key0, key1, batch, step, layer, below;
    float scale;
    int32_t length, stride, chunk, first, second;
};
static inline struct dropout dropout_of(const struct rt_model *m, const struct rt_layer *l,
                                        const struct rt_draw *draw) {
    const struct rt_rows *part = &l->part;
    struct dropout d;
    d.key0 = (uint32_t)draw->seed;
    d.key1 = (uint32_t)(draw->seed >> 32);
    d.batch = (uint32_t)draw->batch;
    d.step = (uint32_t)draw->step;
    d.layer = (uint32_t)l->index;
    d.below = (uint32_t)((double)l->config.dropout.p * 4294967296.0);
    d.scale = (float)(1 / (1 - (double)l->config.dropout.p));
    d.length = d.chunk = l->length > 0 ? l->length : l->rows;
    d.stride = l->length > 0 ? l->context : 0;
    d.first = l->length > 0 ? l->first : row_of_batch(l, m->rows, 0);
    d.second = 0;
    if (part->context > 0) {
        d.length = part->context / part->members;
        d.chunk = d.length / 2;
        d.stride = part->context;
        d.second = row_of_batch(l, m->rows, d.chunk);
    }
    return d;
}
ON_BOTH int64_t row_drawn(const struct dropout *d, int32_t row) {
    int32_t at = row % d->length;
    return (int64_t)(row / d->length) * d->stride + (at < d->chunk ? d->first + at : d->second + at - d->chunk);
}
/* Returns the words of the four values from number 4 * block on, in the microbatch's order. */
ON_BOTH struct words4 draw_words(const struct dropout *d, uint64_t block) {
    struct words4 counter = {{(uint32_t)block, d->batch, d->step, d->layer + ((uint32_t)(block >> 32) << 16)}};
    return philox(counter, d->key0, d->key1);
}
#endif
