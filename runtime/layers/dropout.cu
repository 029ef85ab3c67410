/* Dropout: of x in a forward, of dy in a backward. The kernel reads the step on the device, because a graph runs it
 * again in every step. */
#include "cuda.cuh"
extern "C" {
#include "dropout.h"
}

enum { THREADS = 256 };

/* counted: the step, from 1, and the repetition of the period, from 0 (struct cuda_number); NULL: the step is d's. n:
 * columns; a thread has V of them. period: how many microbatches later each repetition is; 0: nothing repeats. */
template <typename T, int V>
static __global__ void drop(T *to, const T *from, int rows, int n, struct dropout d, const int64_t *counted,
                            int period) {
    unsigned across = n / V, i = blockIdx.x * THREADS + threadIdx.x, row = i / across, j = i % across * V;
    if (row >= (unsigned)rows)
        return;
    if (counted)
        d.step = (uint32_t)(counted[0] - 1);
    d.batch += period > 0 ? (uint32_t)counted[1] * (uint32_t)period : 0;
    const uint64_t at = (uint64_t)row_drawn(&d, (int)row) * (uint64_t)n + j;
    pack<T, V> x = load<V>(from + (int64_t)row * n + j);
    struct words4 words = draw_words(&d, at / 4);
    for (int k = 0; k < V; k++) {
        if (k > 0 && (at + k) % 4 == 0)
            words = draw_words(&d, (at + k) / 4);
        const uint64_t place = (at + k) % 4;
        uint32_t word = place == 0 ? words.at[0] : place == 1 ? words.at[1] : place == 2 ? words.at[2] : words.at[3];
        x.v[k] = narrow<T>(word >= d.below ? widen(x.v[k]) * d.scale : 0);
    }
    store(to + (int64_t)row * n + j, x);
}

template <typename T> static void drop_values(const struct cuda_call *c, T *to, const T *from) {
    const struct rt_layer *l = c->l;
    static const struct rt_draw none = {0, 0, 0, 0, NULL};
    const struct rt_draw *draw = c->at->draw ? c->at->draw : &none;
    struct dropout d = dropout_of(c->m, l, draw);
    if (draw == &none) {
        d.below = 0;
        d.scale = 1;
    }
    LAUNCH_ROWS(drop, T, l->out, row_blocks<T>(l->rows, l->out, THREADS), THREADS, c->stream, to, from, l->rows, l->out,
                d, draw->counted, draw->period);
}

template <typename T> static void dropout_forward(const struct cuda_call *c) {
    drop_values<T>(c, cuda_at<T>(c, c->l->y), cuda_x<T>(c));
}
template <typename T> static void dropout_input(const struct cuda_call *c) {
    drop_values<T>(c, cuda_at<T>(c, c->l->dx), cuda_at<T>(c, c->l->dy));
}

const struct cuda_layer cuda_dropout = {EITHER(dropout_forward), EITHER(dropout_input), NULL};
