/* A binary heap of any type. HEAP(events, struct event, earlier) declares struct events, whose a[0] is popped first
 * while n > 0, and events_push and events_pop. earlier(x, y): x is popped before y. If neither is earlier, their order
 * depends on the heap's history. */
#ifndef PIANOLA_HEAP_H
#define PIANOLA_HEAP_H
#include "base.h"

#define HEAP(name, type, earlier)                                                                                      \
    struct name {                                                                                                      \
        type *a;                                                                                                       \
        size_t n, cap;                                                                                                 \
    };                                                                                                                 \
    static inline void name##_push(struct name *h, type x) {                                                           \
        GROW(h->a, h->cap, h->n + 1);                                                                                  \
        size_t i = h->n++;                                                                                             \
        for (; i > 0 && earlier(x, h->a[(i - 1) / 2]); i = (i - 1) / 2)                                                \
            h->a[i] = h->a[(i - 1) / 2];                                                                               \
        h->a[i] = x;                                                                                                   \
    }                                                                                                                  \
    static inline type name##_pop(struct name *h) {                                                                    \
        type *a = h->a, top = a[0], x = a[--h->n];                                                                     \
        size_t i = 0;                                                                                                  \
        for (size_t c; (c = 2 * i + 1) < h->n; i = c) {                                                                \
            if (c + 1 < h->n && earlier(a[c + 1], a[c]))                                                               \
                c++;                                                                                                   \
            if (!earlier(a[c], x))                                                                                     \
                break;                                                                                                 \
            a[i] = a[c];                                                                                               \
        }                                                                                                              \
        a[i] = x;                                                                                                      \
        return top;                                                                                                    \
    }
#endif
