/* Who owns the sets of weights, and what each rank holds and updates of them. */
#include "program.h"
#include "spec.h"
#include <stdlib.h>
#include <string.h>

static int by_first(const void *x, const void *y) {
    const struct home *a = x, *b = y;
    return (a->rank[0] > b->rank[0]) - (a->rank[0] < b->rank[0]);
}

struct homes *find_homes(const struct spec *sp) {
    struct homes *all = NEW(struct homes, sp->stages + 1);
    struct home *named = NEW(struct home, sp->workers + sp->nlists);
    int *seen = NEW(int, sp->workers + sp->nlists); /* 1 + the last stage that named it */
    for (int s = 0; s < sp->stages; s++)
        all[s].size = 1;
    for (int j = 0; j < sp->njobs;) {
        int s = sp->job[j].s, n = 0;
        for (; j < sp->njobs && sp->job[j].s == s; j++)
            if (seen[sp->job[j].home] != s + 1) {
                seen[sp->job[j].home] = s + 1;
                named[n++] = home_of(sp, &sp->job[j].home);
            }
        qsort(named, (size_t)n, sizeof *named, by_first);
        struct homes *homes = &all[s];
        *homes = (struct homes){n, named[0].n, sp->zero && n > 1 ? sp->zero[s] : 0, NEW(int32_t, n * named[0].n)};
        for (int i = 0; i < n; i++)
            memcpy(homes->rank + i * homes->size, named[i].rank, sizeof *homes->rank * (size_t)homes->size);
    }
    all[sp->stages] = all[0];
    return all;
}

struct held *held_on(const struct program *p, int r, int64_t element, int *n) {
    const struct rank *k = &p->rank[r];
    int sets = p->stages + p->tied;
    int32_t *at = NEW(int32_t, sets); /* 1 + the set's place in held */
    struct held *held = NEW(struct held, sets);
    *n = 0;
    for (int b = 0; b < k->nbufs; b++) {
        const struct buf *x = &k->buf[b];
        if (x->kind != K_wshard && (x->kind != K_weight || x->inst >= 0))
            continue;
        struct held *h = &held[(*n)++];
        at[x->stage] = *n;
        *h = (struct held){.set = x->stage, .weight = x->off, .opt = -1, .count = x->bytes / element};
        h->owned = h->count;
        const struct homes *homes = p->homes ? &p->homes[x->stage] : NULL;
        if (homes) {
            int me = place_in(homes, r);
            h->owned = h->count / shares_of(homes);
            h->first = me % homes->size * h->count;
            h->own = h->first + (homes->zero ? me / homes->size * h->owned : 0);
        }
    }
    for (int b = 0; b < k->nbufs; b++) {
        const struct buf *x = &k->buf[b];
        struct held *h = x->kind == K_opt || x->kind == K_hopt ? &held[at[x->stage] - 1] : NULL;
        if (h && (x->kind == K_hopt || h->memory == MEMORY_DEVICE)) { /* offloaded, opt is there for the update alone */
            h->memory = memory_of(x);
            h->opt = x->off;
        }
    }
    return held;
}
