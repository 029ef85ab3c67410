/* Breaks lanes and groups. An edge keeps one lane at each end, unless a lane is split in two. */
#include "mutate_parts.h"
#include <string.h>

/* Renumbers all lanes: old lane l becomes to[l]. Drops lanes that no lane becomes. */
static void renumber(struct rank *k, const int *to, const struct lane *lane, int n) {
    for (int i = 0; i < k->nins; i++)
        k->ins[i].lane = (uint16_t)to[k->ins[i].lane];
    k->lane = NEW(struct lane, n);
    memcpy(k->lane, lane, sizeof *lane * (size_t)n);
    k->nlanes = n;
}

static bool carries_messages(int kind) { return kind == LANE_ALL || lanekind_row(kind)->of == OF_PEER; }

/* Joins the lanes for messages: one for each peer, or one for all. */
static const char *join_lanes(struct place *m, bool all) {
    struct rank *k = m->k;
    int *to = NEW(int, k->nlanes), n = 0;
    struct lane *lane = NEW(struct lane, k->nlanes);
    for (int l = 0; l < k->nlanes; l++) {
        struct lane now = k->lane[l];
        if (now.kind == LANE_ALL || (now.kind == LANE_PEER && !all))
            return NULL;
        if (carries_messages(now.kind))
            now = (struct lane){all ? LANE_ALL : LANE_PEER, all ? -1 : now.peer, -1};
        int at = 0;
        while (at < n && memcmp(&lane[at], &now, sizeof now) != 0)
            at++;
        n += at == n;
        lane[at] = now;
        to[l] = at;
    }
    if (n == k->nlanes)
        return NULL;
    renumber(k, to, lane, n);
    return all ? "all messages" : "both directions";
}

static int add_lane(struct rank *k, struct lane lane) {
    struct lane *now = NEW(struct lane, k->nlanes + 1);
    memcpy(now, k->lane, sizeof lane * (size_t)k->nlanes);
    now[k->nlanes] = lane;
    k->lane = now;
    return k->nlanes++;
}

static int lane_of_kind(struct rank *k, struct lane want) {
    for (int l = 0; l < k->nlanes; l++)
        if (k->lane[l].kind == want.kind && k->lane[l].peer == want.peer && k->lane[l].group == want.group)
            return l;
    return add_lane(k, want);
}

/* Splits a coarse lane into one for each edge, and any other in two: the second gets the later instructions. */
static const char *split_lane(struct place *m) {
    struct rank *k = m->k;
    int old = m->x->lane, kind = k->lane[old].kind;
    if (kind == LANE_COMPUTE)
        return NULL;
    int second = kind == LANE_PEER || kind == LANE_ALL ? -1 : add_lane(k, k->lane[old]);
    for (int i = 0; i < k->nins; i++) {
        struct instr *x = &k->ins[i];
        if (x->lane == old && second < 0)
            x->lane = (uint16_t)lane_of_kind(k, (struct lane){op_lane[x->op], x->peer, -1});
        else if (x->lane == old && i >= m->i)
            x->lane = (uint16_t)second;
    }
    if (second < 0) { /* the old lane is now empty */
        int *to = NEW(int, k->nlanes);
        for (int l = 0; l < k->nlanes; l++)
            to[l] = l - (l > old);
        struct lane *left = NEW(struct lane, k->nlanes);
        memcpy(left, k->lane, sizeof *left * (size_t)old);
        memcpy(left + old, k->lane + old + 1, sizeof *left * (size_t)(k->nlanes - old - 1));
        renumber(k, to, left, k->nlanes - 1);
    }
    return second < 0 ? "by direction" : "in two";
}

static const char *other_group(struct place *m) {
    int g = m->p->ngroups ? draw(m, m->p->ngroups) : 0, n = m->p->ngroups ? m->p->group[g].n : 0, q;
    if (!n)
        return NULL;
    int32_t *rank = NEW(int32_t, n + 1);
    bool member[64] = {false};
    if (!draw(m, 3)) { /* the same members in another order */
        memcpy(rank, m->p->group[g].rank, sizeof *rank * (size_t)n);
        int a = draw(m, n), b = draw(m, n);
        rank[a] = m->p->group[g].rank[b];
        rank[b] = m->p->group[g].rank[a];
        m->p->group[g].rank = rank;
        return a != b ? format("ranks %d and %d change places", rank[a], rank[b]) : NULL;
    }
    for (int i = 0; i < n; i++)
        member[m->p->group[g].rank[i] & 63] = true;
    q = draw(m, m->p->workers < 64 ? m->p->workers : 64);
    if (n == 1 && member[q])
        return NULL;
    member[q] ^= true;
    m->p->group[g] = (struct group){0, rank};
    for (int r = 0; r < m->p->workers && r < 64; r++)
        if (member[r])
            rank[m->p->group[g].n++] = r;
    return format("rank %d", q);
}

static const char *other_lane(struct place *m) {
    int l = draw(m, m->k->nlanes);
    if (l == m->x->lane || !lane_takes(m->k->lane[l].kind, m->x->op))
        return NULL;
    m->x->lane = (uint16_t)l;
    if (carries_messages(m->k->lane[l].kind) && m->k->lane[l].peer >= 0 && draw(m, 2))
        m->x->peer = m->k->lane[l].peer;
    return format("lane %d", l);
}

const char *mutate_lane(struct place *m, enum mutation how) {
    switch (how) {
    case MUT_JOIN_LANES: return join_lanes(m, draw(m, 2));
    case MUT_SPLIT_LANE: return split_lane(m);
    case MUT_OTHER_GROUP: return other_group(m);
    default: return other_lane(m);
    }
}
