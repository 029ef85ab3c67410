/* The lists of ranks that w() returns, each kept once. */
#include "script.h"
#include <string.h>

void list_begin(struct lists *lists, int workers) {
    if (!lists->member)
        lists->member = NEW(int32_t, workers);
    lists->number++;
    lists->n = 0;
}

bool list_add(struct lists *lists, int32_t rank) {
    if (lists->member[rank] == lists->number)
        return false;
    lists->member[rank] = lists->number;
    GROW(lists->rank, lists->cap, (size_t)lists->n + 1);
    lists->rank[lists->n++] = rank;
    return true;
}

static uint64_t hash_of(const int32_t *rank, int n) {
    uint64_t hash = 0;
    for (int i = 0; i < n; i++)
        hash = hash_add(hash, rank[i]);
    return hash;
}

/* Doubles the table and enters all lists anew. */
static void grow(struct lists *lists, const struct spec *sp) {
    lists->map = map_new(2 * (size_t)sp->nlists + 16);
    for (int i = 0; i < sp->nlists; i++) {
        uint32_t at = map_start(&lists->map, hash_of(sp->list[i].rank, sp->list[i].n));
        while (lists->map.slot[at])
            at = map_next(&lists->map, at);
        lists->map.slot[at] = i + 1;
    }
    lists->room = 2 * sp->nlists + 16;
}

int32_t list_end(struct lists *lists, struct spec *sp) {
    if (lists->n == 1)
        return lists->rank[0];
    if (sp->nlists == lists->room)
        grow(lists, sp);
    uint32_t at = map_start(&lists->map, hash_of(lists->rank, lists->n));
    for (int32_t i; (i = lists->map.slot[at] - 1) >= 0; at = map_next(&lists->map, at))
        if (sp->list[i].n == lists->n && !memcmp(sp->list[i].rank, lists->rank, sizeof *lists->rank * (size_t)lists->n))
            return sp->workers + i;
    int32_t *rank = NEW(int32_t, lists->n);
    memcpy(rank, lists->rank, sizeof *rank * (size_t)lists->n);
    GROW(sp->list, lists->cap_list, (size_t)sp->nlists + 1);
    sp->list[sp->nlists++] = (struct home){lists->n, rank};
    lists->map.slot[at] = sp->nlists;
    return sp->workers + sp->nlists - 1;
}
