/* The graph of a certificate's classes and their topological order. */
#include "bound.h"

static void link_next(struct bound *b) {
    for (struct bound_class *c = b->class; c < b->class + b->nclass; c++) {
        c->latest = c->time;
        for (int32_t i = 0; i < c->narc; i++)
            b->class[c->arc[i].class].nnext++;
    }
    for (struct bound_class *c = b->class; c < b->class + b->nclass; c++) {
        c->next = NEW(struct bound_arc, c->nnext);
        c->nnext = 0;
    }
    for (int32_t n = 0; n < b->nclass; n++)
        for (int32_t i = 0; i < b->class[n].narc; i++) {
            struct bound_arc arc = b->class[n].arc[i];
            struct bound_class *from = &b->class[arc.class];
            from->next[from->nnext++] = (struct bound_arc){n, arc.lag};
            if (arc.lag > from->latest)
                from->latest = arc.lag;
        }
}

/* Reports a cycle. Every remaining class follows another remaining class, so walking back from any of them must repeat
 * one, which lies on a cycle. */
static _Noreturn void die_of_circle(const struct bound *b, const int32_t *left) {
    bool *seen = NEW(bool, b->nclass);
    int32_t n = 0;
    while (left[n] == 0)
        n++;
    while (!seen[n]) {
        const struct bound_class *c = &b->class[n];
        seen[n] = true;
        for (int32_t i = 0; i < c->narc; i++)
            if (left[n = c->arc[i].class])
                break;
    }
    die_at(b->file, b->src, b->class[n].arc_line, 0,
           "%s comes after itself: leave out one of the `after` lines of the cycle", b->class[n].name);
}

static void find_used(struct bound *b) {
    bool *seen = NEW(bool, b->ranks);
    b->used = NEW(int32_t, b->ranks);
    for (int32_t c = 0; c < b->nclass; c++)
        seen[b->class[c].rank] = true;
    for (int32_t k = 0; k < b->ranks; k++)
        if (seen[k])
            b->used[b->nused++] = k;
}

void bound_link(struct bound *b) {
    int32_t *left = NEW(int32_t, b->nclass), done = 0, n = 0; /* left: number of its predecessors not in order yet */
    link_next(b);
    find_used(b);
    b->order = NEW(int32_t, b->nclass);
    for (int32_t c = 0; c < b->nclass; c++)
        if ((left[c] = b->class[c].narc) == 0)
            b->order[n++] = c;
    for (; done < n; done++) {
        const struct bound_class *c = &b->class[b->order[done]];
        for (int32_t i = 0; i < c->nnext; i++)
            if (--left[c->next[i].class] == 0)
                b->order[n++] = c->next[i].class;
    }
    if (n < b->nclass)
        die_of_circle(b, left);
}
