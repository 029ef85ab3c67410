/* Proves that parameters which every member of a team has whole, such as norms, stay equal to the bit on all members
 * and replicas.
 *
 * Each member updates its own copy with its own gradient. Floating-point addition is commutative but not associative.
 * So the copies stay equal if the members' gradients have one shape: the same tree of additions over the same
 * microbatches, whichever of two addends comes first. Sums of one shape get one number. The first member or replica
 * that updates records the shape of each unit of its gradient; all others must match it. */
#include "base/map.h"
#include "check_homes.h"
#include <string.h>

/* The gradient for one update of a team's stage */
struct added {
    int32_t units, set; /* units and set of the first member or replica that updated; units 0: none yet */
    int32_t *shape;     /* per unit; 0: not known yet */
};

struct orders_of {
    struct added **added; /* per stage of a first member, and update; NULL: none yet, or nothing is whole */
    int32_t *shape;       /* per sum so far */
    size_t nshapes, shape_cap;
    struct addends
        *node; /* per shape, from 1 on: two shapes, the smaller first; or ~stage in the script and a microbatch */
    size_t nnodes, node_cap;
    struct map map; /* from nodes to shapes */
};

void members_begin(struct check *check) {
    struct orders_of *orders = check->values->added = NEW(struct orders_of, 1);
    orders->added = NEW(struct added *, check->p->stages);
    orders->map = map_new(0);
    GROW(orders->node, orders->node_cap, 1);
    orders->nnodes = 1;
}

static uint32_t slot_of_node(const struct orders_of *orders, struct addends node) {
    uint32_t at = map_start(&orders->map, hash_add(hash_add(0, node.a), node.b));
    for (int32_t n; (n = orders->map.slot[at] - 1) >= 0; at = map_next(&orders->map, at))
        if (orders->node[n].a == node.a && orders->node[n].b == node.b)
            break;
    return at;
}

static int32_t number_node(struct orders_of *orders, struct addends node) {
    if (2 * orders->nnodes > orders->map.mask) {
        orders->map = map_new(2 * orders->nnodes);
        for (size_t n = 1; n < orders->nnodes; n++)
            orders->map.slot[slot_of_node(orders, orders->node[n])] = (int32_t)n + 1;
    }
    int32_t *slot = &orders->map.slot[slot_of_node(orders, node)];
    if (!*slot) {
        GROW(orders->node, orders->node_cap, orders->nnodes + 1);
        orders->node[orders->nnodes++] = node;
        *slot = (int32_t)orders->nnodes;
    }
    return *slot - 1;
}

/* Returns the shape of a sum. Addends have lower numbers than their sum, so theirs are known. */
static int32_t shape_of(struct check *check, int32_t sum) {
    struct orders_of *orders = check->values->added;
    GROW(orders->shape, orders->shape_cap, (size_t)sum + 1);
    for (; orders->nshapes <= (size_t)sum; orders->nshapes++) {
        struct addends x = addends_of(check, (int32_t)orders->nshapes);
        if (x.a < 0)
            x.a = ~check->p->names.member[~x.a].stage;
        else if (x.a > 0) {
            int32_t a = orders->shape[x.a], b = orders->shape[x.b];
            x = a < b ? (struct addends){a, b} : (struct addends){b, a};
        }
        orders->shape[orders->nshapes] = orders->nshapes == NO_SUM ? 0 : number_node(orders, x);
    }
    return orders->shape[sum];
}

static struct added *added_to(struct check *check, int set, int32_t update) {
    struct orders_of *orders = check->values->added;
    int first = set - check->p->names.member[set].place;
    if (!orders->added[first])
        orders->added[first] = NEW(struct added, updates_of(check, first));
    struct added *added = &orders->added[first][update];
    if (!added->units) {
        added->units = check->values->units[set];
        added->set = set;
        added->shape = NEW(int32_t, added->units);
    }
    return added;
}

/* Returns whether unit u of a set has the shape recorded for the same part of the first set. Their units may differ in
 * size. */
static bool matches(struct added *added, int32_t u, int32_t units, int32_t shape) {
    int64_t from = (int64_t)u * added->units / units, to = ((int64_t)(u + 1) * added->units + units - 1) / units;
    for (int64_t v = from; v < to; v++) {
        if (added->shape[v] && added->shape[v] != shape)
            return false;
        added->shape[v] = shape;
    }
    return true;
}

static const char *set_text(const struct check *check, int set) {
    struct text t = {0};
    put_stage(&t, &check->p->names, set);
    return format("stage %s", t.s);
}

bool adds_in_order(struct check *check, int r, int32_t i, const struct arg *dw) {
    const struct instr *x = &check->p->rank[r].ins[i];
    const struct names *names = &check->p->names;
    int set = x->stage;
    if (!names->whole || set >= check->p->stages || !names->whole[set] || !check->values->bytes[K_wgrad][set])
        return true;
    struct added *added = added_to(check, set, check->p->update ? x->batch : 0);
    struct span span = units_of(check, r, dw);
    for (int32_t at = span.from, to; at < span.to; at = to) {
        int32_t shape = shape_of(check, held_at(check, r, dw->buf, at, &to).sum);
        to = to < span.to ? to : span.to;
        for (int32_t u = at; u < to; u++)
            if (!matches(added, u, check->values->units[set], shape))
                return refute(check, CLAIM_GRADIENTS, r, i,
                              "its gradient is added up in a different order, or from different parts, than in "
                              "%s: weights that the team's members hold whole would not stay equal bit for bit",
                              added->set == set ? "another replica" : set_text(check, added->set));
    }
    return true;
}
