/* A stay keeps a set from one of its uses to the next, and needs room in all turns between the two. The stays to choose
 * are those that fit and are worth the most.
 *
 * If parts of stays may be chosen, this is a flow. Free room flows over each turn to the next; a stay takes a part of
 * the flow past the turns between its uses. Stays are added by their ends, each along the cheapest path back that makes
 * room for it, by removing stays that it replaces. The prices of turns, the dual of the flow, are what a stay must be
 * worth. If all stays have one size, the flow consists of whole stays. Otherwise the prices bound a depth-first search:
 * no later decision can recover what one loses against them. */
#include "residency.h"
#include "base/heap.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct stay { /* covers the turns from .. to - 1 */
    int32_t use, from, to;
    int64_t size, worth;
};
struct stays {
    struct stay *a; /* sorted by `to` */
    int n, turns;
    int64_t *slots, *room; /* per turn: what is left for stays beside the sets in use; NULL: no limit */
};

/* ---- the flow ---- */

struct reached {
    double far;
    int32_t node;
};
static inline bool is_nearer(struct reached x, struct reached y) {
    return x.far != y.far ? x.far < y.far : x.node > y.node;
}
HEAP(front, struct reached, is_nearer)

enum {
    ON = -1,
    BACK = -2
};                    /* an arc to the next node, or to the previous one; other values are stays, in either direction */
struct node {         /* before each turn, and after the last */
    double price;     /* decreases from node to node by the price per unit of the turn between them */
    int32_t from, to; /* newest stay that begins here, and newest that ends here; or -1 */
    double far;       /* distance in the search `seen` */
    int32_t seen, before, by;
    bool settled;
};
struct flow {
    const struct stays *stays;
    struct node *node;
    int32_t last;            /* the last node so far: no stay ends after it */
    int64_t *left;           /* per turn */
    int64_t *taken;          /* per stay */
    int32_t *next, *next_to; /* per stay: the previous one that begins, that ends at the same node */
    bool bytes;              /* the unit is a byte; otherwise a stay */
    int32_t search;
    int32_t *settled; /* nodes that the search has settled */
    int nsettled;
    struct front front;
};

static int64_t units(const struct flow *flow, int32_t i) { return flow->bytes ? flow->stays->a[i].size : 1; }
static double worth_of_unit(const struct flow *flow, int32_t i) {
    return (double)flow->stays->a[i].worth / (double)units(flow, i);
}

static void reach_node(struct flow *flow, int32_t from, int32_t to, double cost, int32_t by) {
    const struct node *a = &flow->node[from];
    struct node *b = &flow->node[to];
    double far = a->far + fmax(0, cost + a->price - b->price); /* negative only by rounding */
    if (b->seen == flow->search && (b->settled || b->far <= far))
        return;
    b->seen = flow->search;
    b->far = far;
    b->before = from;
    b->by = by;
    b->settled = false;
    front_push(&flow->front, (struct reached){far, to});
}

static void leave_node(struct flow *flow, int32_t v) {
    const struct node *node = &flow->node[v];
    if (v < flow->last)
        reach_node(flow, v, v + 1, 0, ON);
    if (v > 0 && flow->left[v - 1] > 0)
        reach_node(flow, v, v - 1, 0, BACK);
    for (int32_t i = node->from; i >= 0; i = flow->next[i])
        if (flow->taken[i] < units(flow, i))
            reach_node(flow, v, flow->stays->a[i].to, -worth_of_unit(flow, i), i);
    for (int32_t i = node->to; i >= 0; i = flow->next_to[i])
        if (flow->taken[i] > 0)
            reach_node(flow, v, flow->stays->a[i].from, worth_of_unit(flow, i), i);
}

/* Finds the cheapest path from the stay's end to its beginning, by Dijkstra's algorithm on costs that prices make
 * nonnegative. Returns whether it costs less than `most`. Updates prices up to the smaller of the two. */
static bool make_way(struct flow *flow, const struct stay *stay, double most) {
    bool found = false;
    flow->search++;
    flow->nsettled = 0;
    flow->front.n = 0;
    flow->node[stay->to].far = 0;
    flow->node[stay->to].seen = flow->search;
    flow->node[stay->to].settled = false;
    front_push(&flow->front, (struct reached){0, stay->to});
    while (flow->front.n > 0 && !found) {
        struct reached at = front_pop(&flow->front);
        struct node *node = &flow->node[at.node];
        if (at.far >= most)
            break;
        if (node->settled)
            continue;
        node->settled = true;
        flow->settled[flow->nsettled++] = at.node;
        if ((found = at.node == stay->from))
            most = at.far;
        else
            leave_node(flow, at.node);
    }
    for (int i = 0; i < flow->nsettled; i++)
        flow->node[flow->settled[i]].price += flow->node[flow->settled[i]].far - most;
    return found;
}

static int64_t room_on(const struct flow *flow, int32_t before, int32_t by) {
    if (by == ON)
        return INT64_MAX;
    if (by == BACK)
        return flow->left[before - 1];
    return flow->stays->a[by].from == before ? units(flow, by) - flow->taken[by] : flow->taken[by];
}

static void take_way(struct flow *flow, int32_t i) {
    const struct stay *stay = &flow->stays->a[i];
    int64_t n = units(flow, i) - flow->taken[i];
    for (int32_t v = stay->from; v != stay->to; v = flow->node[v].before) {
        int64_t room = room_on(flow, flow->node[v].before, flow->node[v].by);
        n = room < n ? room : n;
    }
    for (int32_t v = stay->from; v != stay->to; v = flow->node[v].before) {
        int32_t before = flow->node[v].before, by = flow->node[v].by;
        if (by == ON)
            flow->left[before] += n;
        else if (by == BACK)
            flow->left[before - 1] -= n;
        else
            flow->taken[by] += flow->stays->a[by].from == before ? n : -n;
    }
    flow->taken[i] += n;
}

static void add_stay(struct flow *flow, int32_t i) {
    const struct stay *stay = &flow->stays->a[i];
    while (flow->last < stay->to) {
        flow->node[flow->last + 1].price = flow->node[flow->last].price;
        flow->last++;
    }
    struct node *from = &flow->node[stay->from], *to = &flow->node[stay->to];
    flow->next[i] = from->from;
    flow->next_to[i] = to->to;
    from->from = to->to = i;
    while (flow->taken[i] < units(flow, i)) {
        double worth = worth_of_unit(flow, i), gain = worth - (from->price - to->price);
        if (gain <= 1e-12 * worth || !make_way(flow, stay, gain))
            return;
        take_way(flow, i);
    }
}

static struct flow flow_of(const struct stays *stays, bool bytes) {
    const int64_t *limit = bytes ? stays->room : stays->slots;
    struct flow flow = {.stays = stays, .bytes = bytes};
    flow.node = NEW(struct node, stays->turns + 1);
    flow.settled = NEW(int32_t, stays->turns + 1);
    flow.left = NEW(int64_t, stays->turns);
    flow.taken = NEW(int64_t, stays->n);
    flow.next = NEW(int32_t, stays->n);
    flow.next_to = NEW(int32_t, stays->n);
    for (int v = 0; v <= stays->turns; v++)
        flow.node[v].from = flow.node[v].to = -1;
    memcpy(flow.left, limit, sizeof *limit * (size_t)stays->turns);
    for (int32_t i = 0; i < stays->n; i++)
        add_stay(&flow, i);
    return flow;
}

static double price_of_turn(const struct flow *flow, int t) {
    return t < flow->last ? fmax(0, flow->node[t].price - flow->node[t + 1].price) : 0;
}

/* Returns the stay's worth beyond the price of its turns. */
static double profit(const struct flow *flow, int32_t i) {
    const struct stay *stay = &flow->stays->a[i];
    return (double)stay->worth - (double)units(flow, i) * (flow->node[stay->from].price - flow->node[stay->to].price);
}

/* Returns an upper bound on the worth of any choice of stays, whatever the prices (weak duality). */
static double worth_bound(const struct flow *flow) {
    const int64_t *limit = flow->bytes ? flow->stays->room : flow->stays->slots;
    double most = 0;
    for (int t = 0; t < flow->last; t++)
        most += price_of_turn(flow, t) * (double)limit[t];
    for (int32_t i = 0; i < flow->stays->n; i++)
        most += fmax(0, profit(flow, i));
    return most;
}

/* ---- the search ---- */

static bool stay_fits(const struct stays *stays, const struct stay *stay) {
    for (int t = stay->from; t < stay->to; t++)
        if ((stays->slots && stays->slots[t] < 1) || (stays->room && stays->room[t] < stay->size))
            return false;
    return true;
}

/* Takes (times 1) or releases (times -1) the room of a stay. */
static void occupy(struct stays *stays, const struct stay *stay, int times) {
    for (int t = stay->from; t < stay->to; t++) {
        if (stays->slots)
            stays->slots[t] -= times;
        if (stays->room)
            stays->room[t] -= times * stay->size;
    }
}

struct ranked {
    double key;
    int32_t stay;
};
static int by_stay(const void *x, const void *y) {
    const struct ranked *a = x, *b = y;
    return a->key != b->key ? (a->key > b->key) - (a->key < b->key) : (a->stay > b->stay) - (a->stay < b->stay);
}

/* Chooses stays that fit, the most profitable first. Returns their worth. */
static int64_t choose_greedily(struct stays *stays, const struct flow *flow, bool *chosen) {
    struct ranked *ranked = NEW(struct ranked, stays->n);
    int64_t worth = 0;
    for (int32_t i = 0; i < stays->n; i++)
        ranked[i] = (struct ranked){-profit(flow, i) - (double)(flow->taken[i] == units(flow, i)), i};
    sort(ranked, (size_t)stays->n, sizeof *ranked, by_stay);
    for (int i = 0; i < stays->n; i++) {
        const struct stay *stay = &stays->a[ranked[i].stay];
        if (!(chosen[ranked[i].stay] = stay_fits(stays, stay)))
            continue;
        occupy(stays, stay, 1);
        worth += stay->worth;
    }
    for (int32_t i = 0; i < stays->n; i++)
        if (chosen[i])
            occupy(stays, &stays->a[i], -1);
    return worth;
}

struct choice {         /* decision about a stay */
    int tried;          /* number of options tried, of two */
    bool taken;         /* the option that is being tried */
    double lost, slack; /* losses against the bound: by earlier decisions, and by turns that have passed */
    int64_t worth;      /* worth of the stays taken before it */
};

/* Returns the price of the room that is left unused in turns that no further stays cover. */
static double unused(const struct stays *stays, const struct flow *flow, int from, int to) {
    double lost = 0;
    for (int t = from; t < to; t++)
        lost += price_of_turn(flow, t) * (double)(flow->bytes ? stays->room : stays->slots)[t];
    return lost;
}

/* Improves on `best`, the worth of the chosen stays. Returns a proven upper bound, which is `best` if the search has
 * ended. */
static double search_stays(struct stays *stays, const struct flow *flow, int64_t step, int64_t *best, bool *chosen) {
    struct choice *choice = NEW(struct choice, stays->n + 1);
    struct ranked *order = NEW(struct ranked, stays->n);
    double most = worth_bound(flow), rounding = 1e-9 * most + 1e-6;
    int k = 0, nodes = 0;
    for (int32_t i = 0; i < stays->n; i++)
        order[i] = (struct ranked){stays->a[i].from, i};
    sort(order, (size_t)stays->n, sizeof *order, by_stay);
    while (k >= 0) {
        struct choice *at = &choice[k];
        if (k == stays->n) {
            *best = at->worth;
            for (int i = 0; i < k; i++)
                chosen[order[i].stay] = choice[i].taken;
            k--;
            continue;
        }
        int32_t i = order[k].stay;
        const struct stay *stay = &stays->a[i];
        double gain = profit(flow, i);
        if (at->tried > 0 && at->taken)
            occupy(stays, stay, -1);
        if (at->tried == 2) {
            k--;
            continue;
        }
        at->taken = (gain >= 0) == (at->tried++ == 0);
        if (at->taken && !stay_fits(stays, stay)) {
            at->taken = false;
            continue;
        }
        if (++nodes > RESIDENCY_NODES)
            return most;
        if (at->taken)
            occupy(stays, stay, 1);
        int from = stay->from, to = k + 1 < stays->n ? stays->a[order[k + 1].stay].from : flow->last;
        double lost = at->lost + fmax(0, at->taken ? -gain : gain) + unused(stays, flow, from, to);
        if (most - lost + rounding < (double)(*best + step))
            continue;
        choice[++k] = (struct choice){.lost = lost, .worth = at->worth + (at->taken ? stay->worth : 0)};
    }
    return (double)*best;
}

/* ---- the whole problem ---- */

static int64_t common_divisor(int64_t a, int64_t b) {
    while (b != 0) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Chooses stays. Returns the best proven upper bound on the worth of any choice. */
static int64_t choose_residents(struct stays *stays, bool *chosen) {
    bool equal = true;
    int64_t step = 0, best;
    if (stays->n == 0)
        return 0;
    for (int i = 0; i < stays->n; i++) {
        equal &= stays->a[i].size == stays->a[0].size;
        step = common_divisor(stays->a[i].worth, step);
    }
    if (stays->room && equal) { /* then a limit in bytes is a number of sets, too */
        for (int t = 0; t < stays->turns; t++) {
            int64_t n = stays->a[0].size > 0 ? stays->room[t] / stays->a[0].size : INT64_MAX;
            stays->slots[t] = n < stays->slots[t] ? n : stays->slots[t];
        }
        stays->room = NULL;
    }
    struct flow flow = flow_of(stays, false);
    if (!stays->room) {
        for (int i = 0; i < stays->n; i++)
            chosen[i] = flow.taken[i] == 1;
        return -1;
    }
    struct flow bytes = flow_of(stays, true);
    if (worth_bound(&bytes) < worth_bound(&flow))
        flow = bytes;
    best = choose_greedily(stays, &flow, chosen);
    double most = search_stays(stays, &flow, step, &best, chosen);
    int64_t whole = (int64_t)(most + 1e-9 * most + 1e-6);
    return step > 0 ? whole / step * step : whole;
}

struct residency residency_solve(const struct residency_problem *problem) {
    struct residency residency = {.kept = NEW(bool, problem->nuses)};
    struct stays stays = {.a = NEW(struct stay, problem->nuses), .turns = problem->turns};
    int32_t *last = NEW(int32_t, problem->sets); /* 1 + the turn of the set's last use */
    stays.slots = NEW(int64_t, problem->turns);
    stays.room = problem->room ? NEW(int64_t, problem->turns) : NULL;
    for (int t = 0; t < problem->turns; t++) {
        stays.slots[t] = problem->slots;
        if (stays.room)
            stays.room[t] = problem->room[t];
    }
    for (int i = 0; i < problem->nuses; i++) {
        const struct residency_use *use = &problem->use[i];
        occupy(&stays, &(struct stay){.from = use->turn, .to = use->turn + 1, .size = problem->size[use->set]}, 1);
    }
    for (int t = 0; t < problem->turns; t++) { /* sets in use are there, even if they do not fit */
        stays.slots[t] = stays.slots[t] > 0 ? stays.slots[t] : 0;
        if (stays.room)
            stays.room[t] = stays.room[t] > 0 ? stays.room[t] : 0;
    }
    for (int i = 0; i < problem->nuses; i++) {
        const struct residency_use *use = &problem->use[i];
        int64_t size = problem->size[use->set], worth = problem->fetch[use->set];
        struct stay stay = {i, last[use->set], use->turn, size, worth};
        last[use->set] = use->turn + 1;
        residency.received += worth;
        if (stay.from == 0)
            continue;
        if (stay.from == stay.to) {
            residency.kept[i] = true;
            residency.received -= worth;
        } else if (worth > 0 && stay_fits(&stays, &stay))
            stays.a[stays.n++] = stay;
    }
    bool *chosen = NEW(bool, stays.n);
    int64_t kept = 0, most = choose_residents(&stays, chosen);
    for (int i = 0; i < stays.n; i++)
        if (chosen[i]) {
            residency.kept[stays.a[i].use] = true;
            kept += stays.a[i].worth;
        }
    residency.bound = residency.received - (most < 0 ? kept : most);
    residency.received -= kept;
    return residency;
}
