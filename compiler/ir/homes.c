/* Lists of ranks, owners of sets of weights, and what each rank holds and updates of them. */
#include "base/map.h"
#include "costs.h"
#include "program.h"
#include <stdlib.h>
#include <string.h>

/* ---- lists of ranks ---- */

struct list_table {
    struct map map; /* values: indices in spec.list */
    int room;
    size_t cap;
};

static uint64_t hash_ranks(const int32_t *rank, int n) {
    uint64_t hash = 0;
    for (int i = 0; i < n; i++)
        hash = hash_add(hash, rank[i]);
    return hash;
}

/* Doubles the table and inserts all lists again. */
static void double_table(struct spec *sp) {
    struct list_table *lists = sp->owners.lists;
    lists->room = 2 * sp->owners.nlists + 16;
    lists->map = map_new((size_t)lists->room);
    for (int i = 0; i < sp->owners.nlists; i++) {
        uint32_t at = map_start(&lists->map, hash_ranks(sp->owners.list[i].rank, sp->owners.list[i].n));
        while (lists->map.slot[at])
            at = map_next(&lists->map, at);
        lists->map.slot[at] = i + 1;
    }
}

int32_t keep_list(struct spec *sp, const int32_t *rank, int n) {
    if (n == 1)
        return rank[0];
    if (!sp->owners.lists) {
        sp->owners.lists = NEW(struct list_table, 1);
        sp->owners.lists->cap = (size_t)sp->owners.nlists;
    }
    struct list_table *lists = sp->owners.lists;
    if (sp->owners.nlists >= lists->room)
        double_table(sp);
    uint32_t at = map_start(&lists->map, hash_ranks(rank, n));
    for (int32_t i; (i = lists->map.slot[at] - 1) >= 0; at = map_next(&lists->map, at))
        if (sp->owners.list[i].n == n && !memcmp(sp->owners.list[i].rank, rank, sizeof *rank * (size_t)n))
            return sp->workers + i;
    int32_t *own = NEW(int32_t, n);
    memcpy(own, rank, sizeof *rank * (size_t)n);
    GROW(sp->owners.list, lists->cap, (size_t)sp->owners.nlists + 1);
    sp->owners.list[sp->owners.nlists++] = (struct home){n, own};
    lists->map.slot[at] = sp->owners.nlists;
    return sp->workers + sp->owners.nlists - 1;
}

/* ---- owners of a set ---- */

static int by_first(const void *x, const void *y) {
    const struct home *a = x, *b = y;
    return (a->rank[0] > b->rank[0]) - (a->rank[0] < b->rank[0]);
}

struct naming { /* Collects the homes of a stage. */
    struct home *named;
    int *seen; /* per home: the last `number` under which it was named */
    int n, number;
};

static void name_home(const struct spec *sp, struct naming *naming, int32_t j) {
    int32_t home = sp->job[j].home;
    if (home < 0 || naming->seen[home] == naming->number)
        return;
    naming->seen[home] = naming->number;
    naming->named[naming->n++] = home_of(sp, &sp->job[j].home);
}

static struct homes take_homes(const struct spec *sp, const struct naming *naming, int s) {
    int n = naming->n, size = n > 0 ? naming->named[0].n : 1;
    struct homes homes = {n, size, sp->owners.zero && n > 1 ? sp->owners.zero[s] : 0, NEW(int32_t, n * size)};
    for (int i = 0; i < n; i++)
        memcpy(homes.rank + i * size, naming->named[i].rank, sizeof *homes.rank * (size_t)size);
    return homes;
}

/* Returns a's lists, then b's lists that a lacks: members of a team may share a home. */
static struct homes append_homes(const struct homes *a, const struct homes *b, int zero) {
    struct homes both = {a->lists, b->size, 0, NEW(int32_t, (a->lists + b->lists) * b->size)};
    if (a->lists > 0)
        memcpy(both.rank, a->rank, sizeof *both.rank * (size_t)(a->lists * b->size));
    for (int l = 0; l < b->lists; l++)
        if (a->lists == 0 || place_in(a, b->rank[l * b->size]) < 0)
            memcpy(both.rank + both.lists++ * b->size, b->rank + l * b->size, sizeof *both.rank * (size_t)b->size);
    both.zero = both.lists > 1 ? zero : 0;
    return both;
}

void find_bare(struct costs *costs) {
    const struct spec *sp = costs->spec;
    bool any = false;
    costs->bare = NEW(bool, sp->stages + sp->names.sets);
    for (int j = 0; j < sp->njobs; j++)
        if (sp->job[j].home < 0) {
            int s = sp->job[j].s;
            any = costs->bare[s] = true;
            if (sp->names.shared && sp->names.shared[s] >= 0)
                costs->bare[sp->names.shared[s]] = true;
        }
    costs->bare = any ? costs->bare : NULL;
}

struct homes *find_homes(const struct costs *costs) {
    const struct spec *sp = costs->spec;
    int sets = sp->stages + sp->names.sets, tables = sp->names.tables;
    struct homes *all = NEW(struct homes, sets);
    struct naming naming = {NEW(struct home, sp->workers + sp->owners.nlists),
                            NEW(int, sp->workers + sp->owners.nlists), 0, 0};
    for (int j = 0; j < sp->njobs;) {
        int s = sp->job[j].s, shared = sp->names.shared ? sp->names.shared[s] : -1, next = j;
        naming.n = 0;
        naming.number++;
        for (; next < sp->njobs && sp->job[next].s == s; next++)
            name_home(sp, &naming, next);
        sort(naming.named, (size_t)naming.n, sizeof *naming.named, by_first);
        struct homes homes = take_homes(sp, &naming, s);
        if (!is_bare(costs, s))
            all[s] = homes;
        if (s < tables)
            all[sp->stages + s] = homes;
        if (shared >= 0 && !is_bare(costs, shared))
            all[shared] = append_homes(&all[shared], &homes, sp->owners.zero ? sp->owners.zero[s] : 0);
        j = next;
    }
    for (int set = 0; set < sets; set++)
        all[set].size = all[set].size > 0 ? all[set].size : 1;
    return all;
}

struct held *held_on(const struct program *p, int r, int64_t element, int *n) {
    const struct rank *k = &p->rank[r];
    int sets = sets_in(p);
    int32_t *at = NEW(int32_t, sets); /* 1 + the set's index in held */
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
        if (h && (x->kind == K_hopt || h->memory == MEMORY_DEVICE)) { /* offloaded, opt exists only for the update */
            h->memory = memory_of(x);
            h->opt = x->off;
        }
    }
    return held;
}
