/* The lowered program's instructions, counted by kind, and their lanes. */
#include "lowered.h"
#include <criterion/criterion.h>

/* Counts messages that carry job j's outputs: one per kind and other rank. */
static void count_outputs(const struct lowered *x, int j, int *sends) {
    static const int op_of[NKINDS] = {
        [K_act] = OP_SEND_F,    [K_grad] = OP_SEND_B,  [K_stash] = OP_SEND_S, [K_input] = OP_SEND_S,
        [K_wstash] = OP_SEND_W, [K_token] = OP_SEND_T, [K_kv] = OP_SEND_K,    [K_dkv] = OP_SEND_D};
    const struct job *job = &x->sp->job[j];
    bool *sent = NEW(bool, NKINDS * x->sp->workers);
    for (int e = x->g->succ_at[j]; e < x->g->succ_at[j + 1]; e++) {
        const struct job *to = &x->sp->job[x->g->succ[e]];
        int kind[2];
        for (int n = carried(x->sp, job, to, kind); n > 0; n--) {
            bool *done = &sent[kind[n - 1] * x->sp->workers + to->rank];
            sends[op_of[kind[n - 1]]] += to->rank != job->rank && !*done;
            *done = true;
        }
    }
}

/* Counts shards whose owners contribute to the stage themselves, and all with contributions; w() names list l. */
static void count_gradients(const struct lowered *x, int s, int *n) {
    const struct homes *h = &costs_of(x->sp)->homes[s];
    bool *works = NEW(bool, x->sp->workers);
    int *parts = NEW(int, h->lists), *members = NEW(int, h->lists);
    for (int j = 0; j < x->sp->njobs; j++) {
        const struct job *job = &x->sp->job[j];
        if (job->s != s || (job->d != OP_B && job->d != OP_W) || works[job->rank])
            continue;
        works[job->rank] = true;
        int me = place_in(h, job->rank), to = place_in(h, home_of(x->sp, &job->home).rank[0]);
        parts[(me >= 0 ? me : to) / h->size]++; /* all of a rank's part goes where w() sends its first one */
        if (me >= 0)
            members[me / h->size]++;
    }
    for (int l = 0; l < h->lists; l++) {
        bool meets = h->size > 1 && members[l] == h->size;
        int apart = parts[l] - (meets || h->size == 1 ? members[l] : 0);
        n[OP_REDUCE_SCATTER] += meets ? h->size : 0;
        n[OP_TAKE] += h->size > 1 && !meets ? members[l] : 0;
        n[OP_SEND_G] += apart * h->size - (h->size > 1 && !meets ? members[l] : 0);
        /* a home of a set or a shard that receives nothing */
        for (int i = 0; i < h->size; i++)
            n[OP_ZERO] += parts[l] == 0;
    }
    n[OP_ADD] = n[OP_SEND_G];
    n[OP_U] += h->lists * h->size;
    if (h->lists > 1) {
        n[h->zero ? OP_REDUCE_SCATTER : OP_ALL_REDUCE] += h->lists * h->size;
        n[OP_ALL_GATHER] += h->zero ? h->lists * h->size : 0;
    }
}

/* Returns the one list of homes that rank r is in, over all sets whose replicas do not divide them. Returns -1 for
 * none, -2 for several, or if some sets are divided. */
static int list_of(const struct lowered *x, int r) {
    int list = -1;
    for (int s = 0; s < x->sp->stages; s++) {
        const struct homes *h = &costs_of(x->sp)->homes[s];
        int at = place_in(h, r), its = h->zero ? -2 : at < 0 ? list : at / h->size;
        list = list == -1 || list == its ? its : -2;
    }
    return list;
}

/* Counts norms. Either each list of homes is a model of its own, on its own ranks, with its own norm. Or all ranks
 * share one norm, to which the first lists add, and all ranks whose part zero divides; others begin with nothing. */
static void count_norms(const struct lowered *x, int *n) {
    int W = x->sp->workers, S = x->sp->stages;
    bool apart = true, *adds = NEW(bool, W), *updates = NEW(bool, W);
    for (int s = 0; s < S; s++)
        apart &= costs_of(x->sp)->homes[s].lists == costs_of(x->sp)->homes[0].lists;
    for (int r = 0; r < W; r++)
        apart &= list_of(x, r) != -2;
    for (int s = 0; s < S; s++) {
        const struct homes *h = &costs_of(x->sp)->homes[s];
        for (int i = 0; i < h->lists * h->size; i++) {
            bool counts = apart || h->zero || i < h->size;
            updates[h->rank[i]] = true;
            adds[h->rank[i]] |= counts;
            n[OP_NORM] += counts;
        }
    }
    for (int r = 0, *ranks = NEW(int, costs_of(x->sp)->homes[0].lists + 1); r < W; r++) {
        n[OP_NORM] += updates[r] && !adds[r];
        int *of = &ranks[apart && updates[r] ? list_of(x, r) : 0];
        if (updates[r])
            n[OP_ALL_REDUCE_N] += ++*of == 2 ? 2 : *of > 2;
    }
}

/* Counts fetches as they come: gathered, broadcast, or one message per shard. */
static void count_expected(const struct lowered *x, int *n) {
    for (int j = 0; j < x->sp->njobs; j++) {
        n[x->sp->job[j].d]++;
        count_outputs(x, j, n);
    }
    for (int s = 0; s < x->sp->stages; s++) {
        const struct homes *h = &costs_of(x->sp)->homes[s];
        count_gradients(x, s, n);
        for (int b = 0; x->sp->choices.offload && b < x->sp->batches; b++)
            n[OP_OFFLOAD_S] += x->sp->choices.offload[s * x->sp->batches + b];
        if (x->sp->choices.offload && x->sp->limits.offload_state[s] && x->costs->stage[s].bytes[K_opt] > 0)
            n[OP_OFFLOAD_O] += h->lists * h->size;
    }
    if (costs_of(x->sp)->clip)
        count_norms(x, n);
    n[OP_RELOAD_S] = n[OP_OFFLOAD_S];
    n[OP_RELOAD_O] = n[OP_OFFLOAD_O];
    for (int op = OP_SEND_F; op < OP_SERVE; op += 2)
        n[op + 1] = n[op];
}

/* Returns all stays of all ranks: each buffer of fetched weights is one. */
static int count_stays(const struct program *p) {
    int n = 0;
    for (int r = 0; r < p->workers; r++)
        for (int b = 0; b < p->rank[r].nbufs; b++)
            n += p->rank[r].buf[b].kind == K_weight && p->rank[r].buf[b].inst >= 0;
    return n;
}

/* Checks that an instruction's lane is of its own kind, to its own peer. */
static void expect_lane(const struct program *p, int r, const struct instr *i) {
    const struct lane *l = &p->rank[r].lane[i->lane];
    cr_assert(lane_takes(l->kind, i->op));
    cr_assert(l->peer == (lanekind_row(l->kind)->of == OF_PEER ? i->peer : -1));
    bool member = lanekind_row(l->kind)->of != OF_GROUP;
    for (int m = 0; !member && m < p->group[l->group].n; m++)
        member = p->group[l->group].rank[m] == r;
    cr_assert(member);
}

Test(lower, counts_and_lanes) {
    int total[NOPS] = {0};
    for (int seed = 0; seed < 550; seed++) {
        int more = seed < 150 ? 0 : seed < 350 ? SHARDED : seed < 450 ? SHARDED | HOST : SLICES;
        struct spec *sp = draw_spec((uint64_t)seed, ORDERS | COARSE | more);
        costs_of(sp)->clip = seed % 3 > 0;
        struct lowered x = lower_spec(sp);
        int want[NOPS] = {0}, got[NOPS] = {0};
        count_expected(&x, want);
        for (int r = 0; r < x.sp->workers; r++) {
            const struct rank *k = &x.p->rank[r];
            for (int i = 0; i < k->nins; i++) {
                got[k->ins[i].op]++;
                expect_lane(x.p, r, &k->ins[i]);
            }
            cr_assert(k->lane[0].kind == LANE_COMPUTE);
            for (int l = 1; l < k->nlanes; l++) {
                const struct lane *a = &k->lane[l - 1], *b = &k->lane[l];
                cr_assert(a->kind < b->kind || (a->kind == b->kind && (a->peer < b->peer || a->group < b->group)));
            }
        }
        for (int op = 0; op < NOPS; op++) {
            bool weights = op == OP_SERVE || op == OP_FETCH || op == OP_COPY || op == OP_BROADCAST;
            cr_assert(weights || got[op] == want[op] || (op == OP_ALL_GATHER && got[op] > want[op]),
                      "seed %d: %d %s, not %d", seed, got[op], op_name[op], want[op]);
            total[op] += got[op];
        }
        cr_assert_eq(count_stays(x.p), fetch_of(x.sp, x.sc, home_places(costs_of(x.sp))).n);
        free_all();
    }
    for (int op = 0; op < NOPS; op++) /* REDUCE needs pieces; random schedules have no teams */
        cr_assert(total[op] > 50 || op == OP_REDUCE || op_lane[op] == LANE_TEAM, "%s is hardly tested", op_name[op]);
}
