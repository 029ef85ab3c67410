/* Lanes: their names, the operations that run in them, and their instructions. */
#include "program.h"
#include <string.h>

void put_lane(struct text *t, const struct program *p, const struct lane *lane) {
    const struct lanekind_row *row = lanekind_row(lane->kind);
    put_bytes(t, row->word, strlen(row->word));
    put_bytes(t, " ", row->of != OF_ALONE);
    if (row->of == OF_PEER)
        put_int(t, lane->peer);
    for (int i = 0; row->of == OF_GROUP && i < p->group[lane->group].n; i++)
        put(t, "%s%d", i ? "," : "", p->group[lane->group].rank[i]);
}

int lane_kind(const char **name) {
    for (int kind = 0; kind < NLANEKINDS; kind++) {
        const struct lanekind_row *row = lanekind_row(kind);
        size_t n = strlen(row->word);
        if (strncmp(*name, row->word, n) || (row->of != OF_ALONE && (*name)[n] != ' '))
            continue;
        *name += n + (row->of != OF_ALONE);
        return kind;
    }
    return -1;
}

/* Returns whether operation op may run in a lane of this kind. A coarse lane takes messages, and ADD, which runs on the
 * lane that received its part. */
bool lane_takes(int kind, int op) {
    bool coarse = kind == LANE_PEER || kind == LANE_ALL;
    return op_lane[op] == kind || (coarse && has_peer(op));
}

int compare_lanes(const void *x, const void *y) {
    const struct lane *a = x, *b = y;
    if (a->kind != b->kind)
        return a->kind - b->kind;
    return a->peer != b->peer ? a->peer - b->peer : a->group - b->group;
}

int *sibling_lanes(const struct rank *k) {
    int *sibling = NEW(int, k->nlanes), other = 0;
    for (int l = 0; l < k->nlanes; l++)
        sibling[l] = -1;
    for (int l = 0; l < k->nlanes; l++) {
        if (k->lane[l].kind != LANE_GATHER)
            continue;
        while (other < k->nlanes && (k->lane[other].kind != LANE_GROUP || k->lane[other].group < k->lane[l].group))
            other++;
        if (other < k->nlanes && k->lane[other].group == k->lane[l].group) {
            sibling[l] = other;
            sibling[other] = l;
        }
    }
    return sibling;
}

struct lane_lists lane_lists(const struct rank *k) {
    struct lane_lists lists = {NEW(int32_t, k->nlanes + 2), NEW(int32_t, k->nins)};
    for (int32_t i = 0; i < k->nins; i++)
        lists.at[k->ins[i].lane + 2]++;
    for (int lane = 0; lane < k->nlanes; lane++)
        lists.at[lane + 2] += lists.at[lane + 1];
    for (int32_t i = 0; i < k->nins; i++)
        lists.ins[lists.at[k->ins[i].lane + 1]++] = i;
    return lists;
}
