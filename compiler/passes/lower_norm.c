/* The norm of all gradients, where updates are clipped. Every rank that updates needs it before its first update.
 *
 * Each rank adds up the squares of the gradients that it updates with (NORM), once they are complete, and the ranks add
 * up their sums (ALL_REDUCE_N). Replicas of a set count once. If all sets have equally many replicas, and no rank has
 * parts of two replicas, each replica of the model adds up its own norm; if one rank has all of it, as in DDP, nothing
 * travels. Otherwise all ranks meet, and the first replica of each set counts, or, with zero, all replicas, each of
 * which updates a piece.
 *
 * With post-validation, all ranks meet before anything else, with the norms of the step before, which they took at its
 * end, after their updates. Ranks that update nothing take part too, because if one rank must repeat a step, all do. */
#include "lower.h"
#include <string.h>

/* Finds the replica of the model that each rank has a part of; -1: none. Returns the number of replicas; 1: all ranks
 * count as one. */
static int find_replicas(const struct build *build, int32_t *replica_of) {
    int replicas = 0;
    bool apart = true;
    memset(replica_of, -1, sizeof *replica_of * (size_t)build->p->workers);
    for (int i = 0; i < build->sums.ndone; i++) {
        const struct homes *homes = homes_of(build->costs, build->sums.done[i].set);
        apart &= !homes->zero && (replicas == 0 || homes->lists == replicas);
        replicas = homes->lists;
        for (int l = 0; l < homes->lists; l++) {
            int32_t *of = &replica_of[replica(build, build->sums.done[i], l)->rank];
            apart &= *of < 0 || *of == l;
            *of = l;
        }
    }
    for (int r = 0; r < build->p->workers && !apart; r++)
        replica_of[r] = replica_of[r] < 0 ? -1 : 0;
    return apart ? replicas : 1;
}

static void open_norm(struct build *build, int r) {
    if (build->norms.buf[r] < 0)
        build->norms.buf[r] = new_buf(build, r, (struct buf){K_norm, -1, -1, -1, .bytes = NORM_BYTES}, 0);
}

/* Issues a rank's NORM. counts: it adds the gradient by which the l-th replica of the shard updates; otherwise it only
 * starts an empty sum. */
static void issue_norm(struct build *build, int r, struct shard shard, int l, bool counts) {
    if (build->norms.begun[r] && !counts)
        return;
    open_norm(build, r);
    issue(build, r, OP_NORM, shard.set, -1, -1, -1)->first = !build->norms.begun[r];
    build->norms.begun[r] = true;
    if (counts)
        add_gradient(build, shard, l);
    add_operand(build, r, ROLE_norm, build->norms.buf[r]);
}

/* Sums the norms of the ranks with a part of the replica; with post-validation, of all ranks. */
static void sum_norms_of(struct build *build, const int32_t *replica_of, int which) {
    int n = 0, W = build->p->workers;
    int32_t *rank = NEW(int32_t, W);
    for (int r = 0; r < W; r++)
        if (replica_of[r] == which)
            rank[n++] = r;
    if (n < 2)
        return;
    int g = intern_group(build, rank, n);
    for (int i = 0; i < n; i++) {
        issue_collective(build, rank[i], OP_ALL_REDUCE_N, 0, -1, -1, g);
        add_operand(build, rank[i], ROLE_norm, build->norms.buf[rank[i]]);
        set_algorithm(build, rank[i]);
    }
}

/* Issues all NORMs. Returns the number of replicas that add up separately. */
static int take_norms(struct build *build, int32_t *replica_of) {
    int replicas = build->costs->post_validation ? 1 : find_replicas(build, replica_of);
    for (int pass = 0; pass < 2; pass++) /* those that count nothing come last, where a rank has nothing else */
        for (int i = 0; i < build->sums.ndone; i++) {
            const struct homes *homes = homes_of(build->costs, build->sums.done[i].set);
            for (int l = 0; l < homes->lists; l++) {
                bool counts = replicas > 1 || homes->zero || l == 0;
                if (counts == (pass == 0))
                    issue_norm(build, replica(build, build->sums.done[i], l)->rank, build->sums.done[i], l, counts);
            }
        }
    return replicas;
}

void issue_norms(struct build *build) {
    int32_t *replica_of = NEW(int32_t, build->p->workers);
    int replicas = take_norms(build, replica_of);
    for (int k = 0; k < replicas; k++)
        sum_norms_of(build, replica_of, k);
}

void add_up_last_norms(struct build *build) {
    int W = build->p->workers;
    for (int r = 0; r < W; r++)
        open_norm(build, r);
    sum_norms_of(build, NEW(int32_t, W), 0);
}

void issue_next_norms(struct build *build) {
    take_norms(build, NULL);
    for (int r = 0; r < build->p->workers; r++)
        issue_norm(build, r, (struct shard){0}, 0, false);
}
