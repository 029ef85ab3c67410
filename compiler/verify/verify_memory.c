/* The memory claim: tracks which buffers are live, and checks that live ones never share a byte and that sizes agree.
 *
 * A buffer is live from its first write to its free; a home's permanent buffers are live for the whole step. Live
 * buffers of a rank never overlap, so when one opens, only its two live neighbours need checking. */
#include "check_homes.h"
#include "check_orders.h"
#include <string.h>

struct plan {
    int32_t **slot;     /* per buffer: the rank of its first byte among all the rank's buffers */
    int32_t **occupant; /* per slot: the live buffer, or -1 */
    struct bits *live;
    bool **opened; /* per buffer */
};

/* Returns the kind of tensor that a buffer holds. */
static int kind_held(int kind) {
    switch (kind) {
    case K_hstash:
    case K_rstash: return K_stash;
    case K_hinput:
    case K_rinput: return K_input;
    case K_hopt: return K_opt;
    default: return holds_weights(kind) ? K_weight : holds_gradient(kind) ? K_wgrad : kind;
    }
}

bool open_buffer(struct check *check, int r, int32_t i, int32_t b) {
    struct plan *plan = check->values->plan;
    const struct rank *k = &check->p->rank[r];
    const struct buf *x = &k->buf[b];
    int64_t arena = arena_of(k, x);
    if (x->off < 0 || x->bytes > arena || x->off > arena - x->bytes)
        return refute(check, CLAIM_MEMORY, r, i, "%s lies outside the plan of %lld bytes%s", buf_text(check, r, b),
                      (long long)arena, in_host(x) ? " in host memory" : "");
    int s = plan->slot[r][b], below = bits_near(&plan->live[r], s, false), above = bits_near(&plan->live[r], s, true);
    int32_t other = plan->occupant[r][s];
    if (other < 0 && below >= 0 && end_byte(k, plan->occupant[r][below]) > first_byte(k, b))
        other = plan->occupant[r][below];
    if (other < 0 && above >= 0 && first_byte(k, plan->occupant[r][above]) < end_byte(k, b))
        other = plan->occupant[r][above];
    if (other >= 0)
        return refute(check, CLAIM_MEMORY, r, i, "%s at %lld overlaps %s at %lld, which is still in use",
                      buf_text(check, r, b), (long long)x->off, buf_text(check, r, other),
                      (long long)k->buf[other].off);
    plan->occupant[r][s] = b;
    bits_set(&plan->live[r], s, true);
    plan->opened[r][b] = true;
    bool received = holds_gradient(x->kind) && x->inst >= 0 && x->inst % check->p->workers != r;
    check->values->val[r][b] = (struct value){.stage = x->stage,
                                              .batch = x->batch,
                                              .count = x->kind == K_token ? x->inst : 0,
                                              .sum = NO_SUM,
                                              .part = received ? x->inst % check->p->workers : -1,
                                              .inst = x->inst,
                                              .kind = (uint8_t)kind_held(x->kind),
                                              .live = true};
    return true;
}

static void leave_bytes(struct check *check, int r, int32_t b) {
    struct plan *plan = check->values->plan;
    plan->occupant[r][plan->slot[r][b]] = -1;
    bits_set(&plan->live[r], plan->slot[r][b], false);
}

void give_way(struct check *check, int r, int32_t b) {
    leave_bytes(check, r, b);
    check->values->val[r][b].gave_way = true;
}

static void close_buffer(struct check *check, int r, int32_t b) {
    struct values *values = check->values;
    if (!values->val[r][b].gave_way)
        leave_bytes(check, r, b);
    drop_pieces(check, &values->val[r][b]);
    values->val[r][b] = (struct value){.sum = NO_SUM};
}

static bool may_grow(const struct buf *b) { return b->kind == K_stash || b->kind == K_rstash; }

bool free_buffers(struct check *check, int r, int32_t i, bool stashes) {
    const struct rank *k = &check->p->rank[r];
    const struct instr *x = &k->ins[i];
    for (uint32_t f = x->free; f < x->free + x->nfree; f++) {
        int32_t b = k->freed[f];
        if ((x->op == OP_I && may_grow(&k->buf[b])) != stashes)
            continue;
        if (!check->values->val[r][b].live || check->values->stays[r][b])
            return refute(check, CLAIM_MEMORY, r, i, "frees %s, which %s", buf_text(check, r, b),
                          check->values->stays[r][b] ? "stays for the whole step" : "is not in use");
        close_buffer(check, r, b);
    }
    return true;
}

/* ---- the beginning and the end of a step ---- */

struct offsets { /* scratch for sorting, sized for the largest rank */
    int64_t *off, *sorted;
    int32_t *scratch;
};

static struct offsets take_offsets(const struct program *p) {
    int n = 0;
    for (int r = 0; r < p->workers; r++)
        n = p->rank[r].nbufs > n ? p->rank[r].nbufs : n;
    return (struct offsets){NEW(int64_t, n + 1), NEW(int64_t, n + 1), NEW(int32_t, 2 * (int64_t)n + 1)};
}

static void sort_offsets(struct plan *plan, const struct rank *k, int r, const struct offsets *offsets) {
    for (int b = 0; b < k->nbufs; b++)
        offsets->off[b] = first_byte(k, b);
    plan->slot[r] = NEW(int32_t, k->nbufs + 1);
    int slots = places_of(offsets->off, k->nbufs, plan->slot[r], offsets->sorted, offsets->scratch);
    plan->occupant[r] = NEW(int32_t, slots);
    memset(plan->occupant[r], -1, sizeof(int32_t) * (size_t)slots);
    bits_init(&plan->live[r], slots);
}

/* Opens what exists from the start: weights, optimizer state, workspace, norm and the homes' gradients. */
static bool open_permanent(struct check *check, int r) {
    const struct rank *k = &check->p->rank[r];
    for (int32_t b = 0; b < k->nbufs; b++) {
        const struct buf *x = &k->buf[b];
        if (!keeps(check, r, x))
            continue;
        bool second = x->kind == K_work && x->inst == 1;
        if ((x->inst >= 0 && !second) ||
            ((x->kind == K_opt || x->kind == K_hopt) && own_span(check, r, x->stage).to < 0))
            return refute_all(check, CLAIM_MEMORY, "rank %d plans %s, which nothing uses", r, buf_text(check, r, b));
        check->values->stays[r][b] = true;
        if (!open_buffer(check, r, 0, b))
            return false;
        check->values->val[r][b].set = !holds_gradient(x->kind) && x->kind != K_norm;
    }
    return true;
}

/* Refutes unless all buffers of a kind and set have one size: the model's if known, else the first one's. */
static bool check_size(struct check *check, int r, int32_t b) {
    const struct buf *x = &check->p->rank[r].buf[b];
    if (x->kind == K_norm && x->bytes != NORM_BYTES)
        return refute_all(check, CLAIM_MEMORY, "rank %d plans %lld bytes for its norm, which needs %d", r,
                          (long long)x->bytes, NORM_BYTES);
    if (is_of_rank(x->kind))
        return true;
    if (x->stage < 0 || x->stage >= (kind_has_batch[x->kind] ? check->sp->stages : check->values->sets.n))
        return refute_all(check, CLAIM_JOBS, "rank %d has %s, but there are %d stages", r, buf_text(check, r, b),
                          check->sp->stages);
    if (x->kind == K_mid)
        return check_mid(check, r, b);
    if (kind_held(x->kind) == K_weight || kind_held(x->kind) == K_wgrad || kind_held(x->kind) == K_opt)
        if (!has_weights(check->p, x->stage))
            return refute_all(check, CLAIM_JOBS, "rank %d has %s, which belongs to a set without weights", r,
                              buf_text(check, r, b));
    int64_t *want = &check->values->bytes[x->kind][entry_of(check, x->stage, x->batch)];
    check->values->has_state |= x->kind == K_opt;
    check->values->sets.seen[x->stage] |= 1u << x->kind;
    if (*want < 0)
        *want = x->bytes;
    return *want == x->bytes || refute_all(check, CLAIM_MEMORY, "rank %d plans %lld bytes for %s, but others take %lld",
                                           r, (long long)x->bytes, buf_text(check, r, b), (long long)*want);
}

/* Refutes if both kinds of buffer exist and `kind` is smaller than `than`. A wstash takes over its stash's bytes. */
static bool no_smaller(struct check *check, int entry, int kind, int than) {
    long long have = check->values->bytes[kind][entry], least = check->values->bytes[than][entry];
    int sets = check->values->sets.n, s = entry < sets ? entry : (entry - sets) / check->p->names.slices;
    return have < 0 || have >= least ||
           refute_all(check, CLAIM_MEMORY, "%s(%d) has %lld bytes, fewer than %s(%d), which has %lld", kind_name[kind],
                      s, have, kind_name[than], s, least);
}

/* Refutes unless `pieces` buffers of one kind have exactly the bytes of a buffer of the other: shards, and pieces of
 * them. */
static bool adds_up(struct check *check, int s, int kind, int than, int pieces) {
    int64_t have = check->values->bytes[kind][s], all = check->values->bytes[than][s];
    uint32_t both = 1u << kind | 1u << than;
    return (check->values->sets.seen[s] & both) != both || have * pieces == all ||
           refute_all(check, CLAIM_MEMORY, "%s(%d) has %lld bytes; %d of them are not the %lld of %s(%d)",
                      kind_name[kind], s, (long long)have, pieces, (long long)all, kind_name[than], s);
}

/* Returns the bytes of a whole set, computed from the buffers of these kinds; -1: there are none. */
static int64_t bytes_of_set(const struct check *check, int s, int whole, int shard, int own) {
    const struct homes *homes = &check->values->homes[s];
    uint32_t seen = check->values->sets.seen[s];
    int64_t **bytes = check->values->bytes;
    return seen >> whole & 1   ? bytes[whole][s]
           : seen >> shard & 1 ? bytes[shard][s] * homes->size
           : seen >> own & 1   ? bytes[own][s] * homes->size * shares_of(homes)
                               : -1;
}

/* Checks the sizes of a set's shards and pieces, and that a gradient has at least as many bytes as the weights. */
static bool check_shards(struct check *check, int s) {
    const struct homes *homes = &check->values->homes[s];
    int pieces = homes->size * shares_of(homes);
    int64_t weight = bytes_of_set(check, s, K_weight, K_wshard, K_wshard);
    int64_t wgrad = bytes_of_set(check, s, K_wgrad, K_gshard, K_gown);
    if (!adds_up(check, s, K_wshard, K_weight, homes->size) || !adds_up(check, s, K_gshard, K_wgrad, homes->size) ||
        !adds_up(check, s, K_gown, K_wgrad, pieces) || !adds_up(check, s, K_gown, K_gshard, shares_of(homes)))
        return false;
    if (pieces > 1 && (weight % pieces || wgrad % pieces) && weight >= 0 && wgrad >= 0)
        return refute_all(check, CLAIM_MEMORY,
                          "set %d has %lld bytes of weights and %lld of gradient: not %d equal pieces", s,
                          (long long)weight, (long long)wgrad, pieces);
    return wgrad < 0 || wgrad >= weight ||
           refute_all(check, CLAIM_MEMORY, "wgrad(%d) has %lld bytes, fewer than weight(%d), which has %lld", s,
                      (long long)wgrad, s, (long long)weight);
}

static bool check_sizes(struct check *check) {
    int64_t **bytes = check->values->bytes;
    for (int kind = 0; kind < NKINDS; kind++) {
        bytes[kind] = NEW(int64_t, entries(check));
        for (int s = 0; s < check->values->sets.n; s++)
            for (int b = -1; b < (s < check->sp->stages ? check->p->names.slices : 0); b++)
                bytes[kind][entry_of(check, s, b)] =
                    check->costs->stage ? stage_at(check->costs, s, b)->bytes[kind] : -1;
    }
    for (int r = 0; r < check->p->workers; r++)
        for (int32_t b = 0; b < check->p->rank[r].nbufs; b++)
            if (!check_size(check, r, b))
                return false;
    for (int e = 0; e < entries(check); e++)
        if (!no_smaller(check, e, K_wstash, K_stash))
            return false;
    return true;
}

/* Refutes unless a stash that grows becomes its own job's wstash at the same offset, where I leaves what W needs. */
static bool check_growth(struct check *check, int r, int32_t b) {
    const struct buf *x = &check->p->rank[r].buf[b], *y = x->grows >= 0 ? &check->p->rank[r].buf[x->grows] : NULL;
    if (!y || (may_grow(x) && y->kind == K_wstash && y->stage == x->stage && y->batch == x->batch && y->off == x->off &&
               y->bytes >= x->bytes))
        return true;
    return refute_all(check, CLAIM_MEMORY,
                      "rank %d: %s cannot grow into %s, which is not a larger wstash(%d,%d) at the same address", r,
                      buf_text(check, r, b), buf_text(check, r, x->grows), x->stage, x->batch);
}

/* Returns the bytes at the end of a rank's workspace that hold frozen parameters, of each stage that it computes.
 * counted: per stage, the number of the last rank that has counted it, from 1. */
static int64_t frozen_bytes(const struct check *check, int r, int32_t *counted) {
    const struct rank *k = &check->p->rank[r];
    int64_t bytes = 0;
    for (int32_t i = 0; i < k->nins; i++) {
        int s = is_job(k->ins[i].op) ? k->ins[i].stage : -1;
        if (s < 0 || s >= check->sp->stages || counted[s] == r + 1)
            continue;
        counted[s] = r + 1;
        bytes += check->costs->stage[s].rt.frozen;
    }
    return bytes;
}

/* Refutes unless a rank's workspace suffices for every job and update that it runs there. counted: as above. */
static bool check_workspace(struct check *check, int r, int32_t *counted) {
    const struct rank *k = &check->p->rank[r];
    int64_t first = 0;
    for (int32_t b = 0; b < k->nbufs; b++)
        if (k->buf[b].kind == K_work && k->buf[b].inst < 0)
            first = k->buf[b].bytes;
    first -= frozen_bytes(check, r, counted);
    for (int32_t i = 0; i < k->nins; i++) {
        const struct instr *x = &k->ins[i];
        int32_t own = is_job(x->op) ? operand(k, x, ROLE_work, 0) : -1;
        int64_t have = own < 0 ? first : k->buf[own].bytes;
        if (x->op == OP_U && x->stage >= 0 && x->stage < check->sp->stages &&
            check->costs->stage[x->stage].update_work > first)
            return refute_all(check, CLAIM_MEMORY, "U %d needs %lld bytes of workspace; rank %d has %lld", x->stage,
                              (long long)check->costs->stage[x->stage].update_work, r, (long long)first);
        if (!is_job(x->op) || x->stage < 0 || x->stage >= check->sp->stages)
            continue;
        int64_t need = stage_at(check->costs, x->stage, x->batch)->bytes[K_work];
        if (need > have)
            return refute_all(check, CLAIM_MEMORY, "%s needs %lld bytes of workspace; rank %d has %lld",
                              job_name(&check->p->names, x->stage, x->batch, x->op), (long long)need, r,
                              (long long)have);
    }
    return true;
}

bool memory_begin(struct check *check) {
    int W = check->p->workers;
    struct plan *plan = check->values->plan = NEW(struct plan, 1);
    plan->slot = NEW(int32_t *, W);
    plan->occupant = NEW(int32_t *, W);
    plan->live = NEW(struct bits, W);
    plan->opened = NEW(bool *, W);
    if (!check_sizes(check))
        return false;
    int32_t *counted = NEW(int32_t, check->sp->stages);
    for (int r = 0; r < W && check->costs->stage; r++)
        if (!check_workspace(check, r, counted))
            return false;
    if (!homes_begin(check))
        return false;
    for (int s = 0; s < check->values->sets.n; s++)
        if (!check_shards(check, s))
            return false;
    struct offsets offsets = take_offsets(check->p);
    for (int r = 0; r < W; r++) {
        const struct rank *k = &check->p->rank[r];
        if ((double)k->arena > check->sp->machine.memory)
            return refute_all(check, CLAIM_MEMORY, "rank %d plans %lld bytes, but the cluster's memory is %.0f", r,
                              (long long)k->arena, check->sp->machine.memory);
        if ((double)k->host > check->sp->machine.host_memory)
            return refute_all(check, CLAIM_MEMORY,
                              "rank %d plans %lld bytes in host memory, but the cluster's host_memory is %.0f", r,
                              (long long)k->host, check->sp->machine.host_memory);
        for (int32_t b = 0; b < k->nbufs; b++)
            if (!check_growth(check, r, b))
                return false;
        plan->opened[r] = NEW(bool, k->nbufs);
        sort_offsets(plan, k, r, &offsets);
        if (!open_permanent(check, r))
            return false;
    }
    return true;
}

bool memory_end(struct check *check) {
    for (int r = 0; r < check->p->workers; r++)
        for (int32_t b = 0; b < check->p->rank[r].nbufs; b++) {
            if (!check->values->plan->opened[r][b])
                return refute_all(check, CLAIM_MEMORY, "rank %d plans %s, which nothing uses", r,
                                  buf_text(check, r, b));
            if (check->values->val[r][b].live && !check->values->stays[r][b])
                return refute_all(check, CLAIM_MEMORY, "rank %d never frees %s", r, buf_text(check, r, b));
        }
    return true;
}
