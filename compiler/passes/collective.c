/* Costs of collectives, and the bytes that they move.
 *
 * n ranks form a ring, where member i is next to member i + 1, or a tree, where step k = 1, 2, 4, … joins members k
 * apart. b is a shard, B = n b the whole tensor. A step takes the latency and bytes / bandwidth of its slowest link.
 *
 *                                 ring                           tree
 *   ALL_GATHER, REDUCE_SCATTER    n - 1 steps of b               ceil(log2 n) steps of min(k, n - k) b
 *   ALL_REDUCE                    both, one after the other      both
 *   BROADCAST, REDUCE             a chain: B once, and the       ceil(log2 n) steps of B
 *                                 latency of n - 1 steps
 *   ALL_TO_ALL_A                  n - 1 steps of b, the k-th     steps k of about B / 2
 *                                 between members k apart
 *
 * Ring: Patarasuk & Yuan 2009, "Bandwidth optimal all-reduce algorithms", section 2; tree: Bruck et al. 1997,
 * "Efficient algorithms for all-to-all communications", sections 3 and 4; Rabenseifner 2004 for ALL_REDUCE. Summands
 * are always added in the order of members, so the algorithm changes times but not bits.
 *
 * If the cluster gives the time of a collective, it takes that, whatever the links are. */
#include "passes.h"
#include <math.h>

struct group team_of(const struct spec *sp, int32_t j) {
    struct group team = {team_size(sp, sp->job[j].s), NULL};
    int32_t *rank = NEW(int32_t, team.n), first = gang_of(sp, j);
    for (int i = 0; i < team.n; i++)
        rank[i] = sp->job[gang_job(sp, first, i)].rank;
    team.rank = rank;
    return team;
}

/* Returns the time of one step, in which every member sends `bytes` to the member k places after it. */
static double step_time(const struct spec *sp, const struct group *g, int k, double bytes) {
    double most = 0;
    for (int i = 0; i < g->n; i++)
        most = fmax(most, link_time(sp, g->rank[i], g->rank[(i + k) % g->n], bytes));
    return most;
}

static double ring_time(const struct spec *sp, int op, const struct group *g, double whole) {
    double shard = whole / g->n, sum = 0;
    switch (motion_of(op)) {
    case OP_ALL_REDUCE: return 2 * (g->n - 1) * step_time(sp, g, 1, shard);
    case OP_ALL_TO_ALL_A:
        for (int k = 1; k < g->n; k++)
            sum += step_time(sp, g, k, shard);
        return sum;
    case OP_BROADCAST:
    case OP_REDUCE: return (g->n - 2) * step_time(sp, g, 1, 0) + step_time(sp, g, 1, whole);
    default: return (g->n - 1) * step_time(sp, g, 1, shard);
    }
}

static double tree_time(const struct spec *sp, int op, const struct group *g, double whole) {
    double sum = 0;
    for (int k = 1; k < g->n; k *= 2)
        switch (motion_of(op)) {
        case OP_BROADCAST:
        case OP_REDUCE: sum += step_time(sp, g, k, whole); break;
        case OP_ALL_TO_ALL_A: sum += step_time(sp, g, k, whole / 2); break;
        default: sum += step_time(sp, g, k, whole / g->n * (2 * k > g->n ? g->n - k : k));
        }
    return motion_of(op) == OP_ALL_REDUCE ? 2 * sum : sum;
}

double bus_bytes(int motion, int n, double whole) {
    double others = (double)(n - 1) / n;
    switch (motion) {
    case OP_BROADCAST:
    case OP_REDUCE: return whole;
    case OP_ALL_REDUCE: return 2 * others * whole;
    default: return others * whole;
    }
}

double collective_time(const struct spec *sp, int op, int algorithm, const struct group *g, int64_t whole) {
    int motion = motion_of(op);
    if (sp->machine.collective) {
        struct link given = sp->machine.collective[(int64_t)motion * (sp->workers + 1) + g->n];
        if (g->n > 1 && !isnan(given.latency))
            return given.latency + bus_bytes(motion, g->n, (double)whole) / given.bandwidth;
    }
    return (algorithm == RING ? ring_time : tree_time)(sp, op, g, (double)whole);
}

int cheaper_algorithm(const struct spec *sp, int op, const struct group *g, int64_t whole) {
    if (!sp->machine.link)
        return RING;
    double ring = ring_time(sp, op, g, (double)whole);
    return tree_time(sp, op, g, (double)whole) < ring * (1 - 1e-9) ? TREE : RING;
}

int64_t whole_bytes(const struct rank *k, const struct instr *x) {
    int64_t most = 0;
    for (uint32_t a = x->arg; a < x->arg + x->narg; a++) {
        int64_t bytes = arg_bytes(k, &k->arg[a]);
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* Returns the number of children of member `me` in a binomial tree whose root is member `root`. */
static int children(int n, int root, int me) {
    int place = (me - root + n) % n, count = 0;
    for (int k = 1; k < n; k *= 2)
        count += place < k && place + k < n;
    return count;
}

static int steps_of_tree(int n) {
    int steps = 0;
    for (int k = 1; k < n; k *= 2)
        steps++;
    return steps;
}

static struct moved member_moved(int op, int algorithm, const struct group *g, int root, int me, int64_t whole) {
    int64_t n = g->n, part = whole / n * (n - 1) + whole % n * (n - 1) / n; /* all but one shard, rounded down */
    int place = (me - root + g->n) % g->n;
    int64_t passed = algorithm == RING ? (place + 1 < g->n) * whole : children(g->n, root, me) * whole;
    int64_t kept = place > 0 ? whole : 0;
    switch (motion_of(op)) {
    case OP_ALL_REDUCE: part = whole / n * 2 * (n - 1) + (whole % n * 2 * (n - 1) + n - 1) / n; break;
    case OP_BROADCAST: return (struct moved){passed, kept};
    case OP_REDUCE: return (struct moved){kept, passed};
    case OP_ALL_TO_ALL_A:
        if (algorithm == TREE)
            part = steps_of_tree(g->n) * (whole / 2);
    }
    return (struct moved){part, part};
}

struct moved collective_moved(const struct program *p, int r, const struct instr *x) {
    const struct rank *k = &p->rank[r];
    const struct group *g = &p->group[k->lane[x->lane].group];
    int me = 0, root = 0;
    while (g->rank[me] != r)
        me++;
    while (x->peer >= 0 && g->rank[root] != x->peer)
        root++;
    return member_moved(x->op, x->algorithm, g, root, me, whole_bytes(k, x));
}
