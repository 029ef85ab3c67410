/* Reads the starts of jobs off the path of states that the search found. */
#include "search.h"

struct turn { /* an item of a pool */
    int64_t ready;
    int32_t job;
};

static int by_ready(const void *x, const void *y) {
    const struct turn *a = x, *b = y;
    return (a->ready > b->ready) - (a->ready < b->ready);
}

/* Assigns the starts of a pool's items: the k-th to start is the k-th that becomes ready. */
static void start_pool(const struct instance *in, const struct class *class, const struct graph *graph, int64_t *begin,
                       int64_t *start) {
    struct turn *turn = NEW(struct turn, class->items);
    for (int k = 0; k < class->items; k++) {
        int32_t j = class->job[k];
        turn[k].job = j;
        for (int32_t e = graph->pred_at[j]; e < graph->pred_at[j + 1]; e++) {
            int64_t lag = 0;
            for (int l = 0; l < class->nlags; l++)
                if (class->lag[l].from == in->class_of[graph->pred[e]])
                    lag = class->lag[l].ticks;
            turn[k].ready = start[graph->pred[e]] + lag > turn[k].ready ? start[graph->pred[e]] + lag : turn[k].ready;
        }
    }
    sort(turn, (size_t) class->items, sizeof *turn, by_ready);
    for (int k = 0; k < class->items; k++)
        start[turn[k].job] = begin[k];
}

int64_t *starts_of(const struct instance *in, const struct found *found, const struct graph *graph) {
    const struct visited *v = &found->visited;
    int64_t *start = NEW(int64_t, graph->n), **begin = NEW(int64_t *, in->n);
    for (int c = 0; c < in->n; c++)
        begin[c] = NEW(int64_t, in->class[c].items);
    for (int32_t state = v->best; v->parent[state] >= 0; state = v->parent[state]) {
        int32_t parent = v->parent[state];
        for (int c = 0; c < in->n; c++)
            for (int32_t k = v->word[v->at[parent] + (size_t)c]; k < v->word[v->at[state] + (size_t)c]; k++)
                begin[c][k] = v->time[parent];
    }
    for (int c = 0; c < in->n; c++)
        for (int k = 0; k < in->class[c].items && !in->class[c].pool; k++)
            start[in->class[c].job[k]] = begin[c][k];
    for (int c = 0; c < in->n; c++)
        if (in->class[c].pool)
            start_pool(in, &in->class[c], graph, begin[c], start);
    return start;
}
