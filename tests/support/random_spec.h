/* Random schedules, one for each seed: placements, homes, priorities, caps, split backwards, recompute, costs, links,
 * weight slots and added orders that nobody would write by hand. Except with EXTREME, all numbers are small multiples
 * of a quarter, so that sums of times are exact in any order. */
#ifndef PIANOLA_RANDOM_SPEC_H
#define PIANOLA_RANDOM_SPEC_H
#include "compiler.h"
#include <limits.h>
#include <math.h>
#include <string.h>

static uint64_t random_state;

/* Returns 0 .. n-1 (SplitMix64, Steele, Lea & Flood 2014). */
static inline int below(int n) {
    uint64_t z = random_state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (int)((z ^ (z >> 31)) % (uint64_t)n);
}

enum { /* features of a spec beyond the basic ones */
       CAPS = 1,
       LATENCY = 2,   /* links with latency alone */
       BANDWIDTH = 4, /* links with latency and bandwidth */
       ORDERS = 8,    /* a custom pred that adds orders to the default ones */
       AT_HOME = 16,  /* a stage runs on one rank, its home */
       COARSE = 32,   /* lanes per edge, per peer or per rank */
       TIED = 64,     /* stage 0 and another one, or the same, share a token table */
       PAIRS = 128,   /* a strict order whose neighbours may overlap */
       EXTREME = 256, /* costs and links that are 0, or negligible next to others */
       SHARDED = 512, /* homes are lists of ranks, and zero; often each rank computes microbatches of its own */
       ROUNDS = 1024, /* few gradients are summed at a time */
       HOST = 2048,   /* stashes, inputs and state go to host memory */
       SLICES = 4096, /* microbatches are cut into slices; often, some stages have no attention */
       BARE = 16384,  /* some stages have no weights */
       TEAMS = 8192,  /* each stage has a team, the same for all jobs or any ranks that keep their places */
};

static inline struct spec *empty_spec(int workers, int stages, int batches) {
    struct spec *sp = &NEW(struct costed, 1)->spec;
    int cells = stages * batches * NDIRS;
    *sp = (struct spec){.name = "drawn", .file = "drawn.lua", .workers = workers, .stages = stages, .batches = batches};
    sp->job = NEW(struct job, cells);
    sp->at = NEW(int32_t, cells);
    memset(sp->at, -1, sizeof *sp->at * (size_t)cells);
    sp->limits.cap = NEW(int, workers);
    sp->choices.slots = NEW(int, workers);
    for (int r = 0; r < workers; r++) {
        sp->limits.cap[r] = INT_MAX;
        sp->choices.slots[r] = 2;
    }
    sp->machine.memory = sp->machine.host_memory = INFINITY;
    return sp;
}

/* Returns a time: always 0 if kinds is 1, else one of the first kinds of extreme values. */
static inline double draw_extreme(int kinds) {
    static const double time[] = {0, 1, 1e-20, 1e9, 1e-9, MOST_TIME, LEAST_TIME};
    return time[below(kinds)];
}

/* Adds a job; the order is by stage, microbatch, direction. */
static inline struct job *add_job(struct spec *sp, int s, int b, int d, int home, int rank) {
    sp->at[(s * sp->batches + b) * NDIRS + d] = sp->njobs;
    struct job *j = &sp->job[sp->njobs++];
    *j = (struct job){s, b, (uint8_t)d, .rank = rank, .home = home, .cost = d == OP_B ? 2 : 1};
    return j;
}

/* Returns a pipeline with a stage per rank, as in GPipe and 1F1B. n is the priority of an F; a B has 1. */
static inline struct spec *pipeline_spec(int workers, int batches, double n) {
    struct spec *sp = empty_spec(workers, workers, batches);
    for (int s = 0; s < workers; s++)
        for (int b = 0; b < batches; b++) {
            add_job(sp, s, b, OP_F, s, s)->prio = n;
            add_job(sp, s, b, OP_B, s, s)->prio = 1;
        }
    return sp;
}

static inline void draw_jobs(struct spec *sp, int flags) {
    int home_kind = below(4), split = below(3), again = below(3), W = sp->workers, few = below(2);
    for (int s = 0; s < sp->stages; s++) {
        int own = below(W);
        for (int b = 0; b < sp->batches; b++) {
            bool two = split == 1 || (split == 2 && below(2)), recompute = again == 1 && below(2);
            int back = below(W);
            for (int d = 0; d < NDIRS; d++) {
                if ((d == OP_R && !recompute) || (d == OP_B ? two : (d == OP_I || d == OP_W) && !two))
                    continue;
                int rank = d == OP_R || d == OP_B || d == OP_I ? back : below(W); /* R runs where its backward does */
                int home = home_kind == 0 ? own : home_kind == 1 ? below(W) : home_kind == 2 ? rank : b % W;
                if (flags & AT_HOME)
                    rank = home = own;
                struct job *j = add_job(sp, s, b, d, home, rank);
                j->prio = few ? below(3) : below(1000) - 500;
                j->cost = 0.25 * (1 + below(16));
            }
        }
    }
}

enum { MOST_CUT = 4, MOST_NEEDS = 4 + MOST_CUT };

/* Returns whether slices of a microbatch read each other's keys and values on stage s. */
static inline bool has_attention(const struct spec *sp, int s) {
    return sp->names.slices > 0 && (costs_of(sp)->attends == NULL || costs_of(sp)->attends[s]);
}

/* Lists the default dependencies of schedules/language.md, each job once, and returns their number. */
static inline int needs_by_design(const struct spec *sp, const struct job *j, int32_t out[MOST_NEEDS]) {
    int n = 0, s = j->s, b = j->b, Q = sp->names.slices;
    bool back = j->d == OP_B || j->d == OP_I, again = back && job_at(sp, s, b, OP_R) >= 0;
    if (j->d == OP_F && s > 0)
        out[n++] = job_at(sp, s - 1, b, OP_F);
    if (j->d == OP_R)
        out[n++] = job_at(sp, s, b, OP_F);
    if (j->d == OP_W)
        out[n++] = job_at(sp, s, b, OP_I);
    if (back) {
        out[n++] = job_at(sp, s, b, again ? OP_R : OP_F);
        if (s < sp->stages - 1)
            out[n++] = job_at(sp, s + 1, b, job_at(sp, s + 1, b, OP_B) >= 0 ? OP_B : OP_I);
    }
    if (!has_attention(sp, s) || j->d == OP_W)
        return n;
    for (int q = 0; q < b % Q; q++)
        out[n++] = job_at(sp, s, b / Q * Q + q, OP_F);
    if (again)
        out[n++] = job_at(sp, s, b, OP_F);
    if (back && b % Q < Q - 1)
        out[n++] = job_at(sp, s, b + 1, job_at(sp, s, b + 1, OP_B) >= 0 ? OP_B : OP_I);
    return n;
}

/* Lists the tensors of a dependency between two ranks, by the second table of "Default dependencies" in
 * schedules/language.md. There are two if a backward reads the stash, and the keys and values, of one forward. Returns
 * their number. */
static inline int carried(const struct spec *sp, const struct job *a, const struct job *b, int kind[2]) {
    bool back = b->d == OP_B || b->d == OP_I, from_back = a->d == OP_B || a->d == OP_I;
    bool slices = has_attention(sp, a->s) && a->s == b->s && a->b / sp->names.slices == b->b / sp->names.slices;
    bool again = job_at(sp, b->s, b->b, OP_R) >= 0;
    kind[0] = K_token;
    kind[1] = K_kv;
    if (a->b != b->b) {
        if (slices && a->d == OP_F && a->b < b->b && b->d != OP_W)
            kind[0] = K_kv;
        if (slices && from_back && back && a->b == b->b + 1)
            kind[0] = K_dkv;
    } else if (a->d == OP_F && b->d == OP_F)
        kind[0] = K_act;
    else if (a->s != b->s)
        kind[0] = back && from_back ? K_grad : K_token;
    else if (a->d == OP_F && b->d == OP_R)
        kind[0] = K_input;
    else if (back && a->d == (again ? OP_R : OP_F))
        kind[0] = K_stash;
    else if (back && a->d == OP_F && slices)
        kind[0] = K_kv;
    else if (a->d == OP_I && b->d == OP_W)
        kind[0] = K_wstash;
    return kind[0] == K_stash && slices && !again ? 2 : 1;
}

/* Draws an order of all jobs that respects the dependencies. */
static inline int32_t *draw_order(const struct spec *sp) {
    int32_t *order = NEW(int32_t, sp->njobs), *open = NEW(int32_t, sp->njobs), need[MOST_NEEDS];
    bool *done = NEW(bool, sp->njobs);
    for (int i = 0; i < sp->njobs; i++) {
        int nopen = 0;
        for (int j = 0; j < sp->njobs; j++) {
            bool ready = !done[j];
            for (int n = needs_by_design(sp, &sp->job[j], need); ready && n > 0; n--)
                ready = done[need[n - 1]];
            if (ready)
                open[nopen++] = j;
        }
        done[order[i] = open[below(nopen)]] = true;
    }
    return order;
}

/* Sets the default dependencies, plus a few random ones that agree with `order`. */
static inline void draw_preds(struct spec *sp, const int32_t *order) {
    int32_t *more = NEW(int32_t, sp->njobs), *place = NEW(int32_t, sp->njobs);
    for (int i = 0; i < sp->njobs; i++)
        place[order[i]] = i;
    sp->pred = NEW(int32_t, (MOST_NEEDS + 2) * sp->njobs);
    sp->pred_at = NEW(int32_t, sp->njobs + 1);
    for (int j = 0, n = 0; j < sp->njobs; sp->pred_at[++j] = n) {
        int own = needs_by_design(sp, &sp->job[j], sp->pred + n), nmore = 0;
        for (int i = 0; i < place[j] && below(3) == 0 && nmore < 2; i++) {
            int32_t p = order[below(place[j])];
            int Q = sp->names.slices ? sp->names.slices : 1;
            bool known = sp->job[p].b / Q == sp->job[j].b / Q; /* within one microbatch it could pass for a tensor */
            for (int k = 0; k < nmore; k++)
                known |= more[k] == p;
            if (!known)
                more[nmore++] = p;
        }
        for (int k = 0; k < nmore; k++)
            sp->pred[n + own + k] = more[k];
        n += own + nmore;
    }
}

/* Lets independent neighbours of one rank's order overlap. The order stays valid if each pair is contracted to one job.
 */
static inline void draw_pairs(struct spec *sp, const int32_t *order) {
    sp->pair = NEW(struct pair, sp->njobs);
    sp->overlap = 0.5 * below(3);
    for (int i = 0; i + 1 < sp->njobs; i++) {
        struct job *a = &sp->job[order[i]], *b = &sp->job[order[i + 1]];
        int32_t need[MOST_NEEDS];
        bool can = a->rank == b->rank && a->team == b->team && below(4) > 0;
        for (int n = needs_by_design(sp, b, need); n > 0; n--)
            can &= need[n - 1] != order[i];
        for (int e = 0; sp->pred && e < sp->pred_at[order[i + 1] + 1] - sp->pred_at[order[i + 1]]; e++)
            can &= sp->pred[sp->pred_at[order[i + 1]] + e] != order[i];
        if (!can)
            continue;
        sp->pair[sp->npairs] = (struct pair){order[i], order[i + 1]};
        a->pair = b->pair = ++sp->npairs;
        i++;
    }
}

/* Draws disjoint lists of one length. A job's home is the list that contains its rank, or any list. */
static inline void draw_lists(struct spec *sp) {
    int W = sp->workers;
    bool apart = below(2);
    sp->owners.list = NEW(struct home, W * sp->stages);
    sp->owners.zero = NEW(uint8_t, sp->stages);
    for (struct job *j = sp->job; apart && j < sp->job + sp->njobs; j++)
        j->rank = j->b % W;
    for (int s = 0; s < sp->stages; s++) {
        int size = 1 + below(W), lists = 1 + below(W / size), *rank = NEW(int, W), *list = NEW(int, W);
        sp->owners.zero[s] = (uint8_t)below(3);
        for (int r = 0; r < W; r++) {
            int other = below(r + 1);
            rank[r] = rank[other];
            rank[other] = r;
        }
        for (int r = 0; r < W; r++)
            list[rank[r]] = r / size < lists ? r / size : -1;
        int first = sp->owners.nlists;
        for (int l = 0; l < lists && size > 1; l++)
            sp->owners.list[sp->owners.nlists++] = (struct home){size, rank + l * size};
        for (struct job *j = sp->job; j < sp->job + sp->njobs; j++) {
            if (j->s != s)
                continue;
            int l = list[j->rank] >= 0 && below(8) ? list[j->rank] : below(lists);
            j->home = size > 1 ? W + first + l : rank[l];
        }
    }
}

/* Returns a list of n ranks; its i-th member r has place[r] = i, so it keeps its place in all teams of the stage. */
static inline int32_t draw_team(struct spec *sp, const int *place, int n) {
    int *rank = NEW(int, n);
    for (int i = 0; i < n; i++)
        do
            rank[i] = below(sp->workers);
        while (place[rank[i]] != i);
    return keep_list(sp, rank, n);
}

/* Draws teams, of one size per stage. In some specs, one team has most stages. */
static inline void draw_teams(struct spec *sp) {
    int W = sp->workers, *place = NEW(int, W), n = 0;
    bool one = below(3) == 0, fixed = below(2);
    int32_t list = 0, back = 0;
    for (int s = 0; s < sp->stages; s++) {
        if (s == 0 || !one) {
            n = 1 + below(W);
            for (int r = 0; r < W; r++) { /* each place has at least one rank */
                int other = below(r + 1);
                place[r] = place[other];
                place[other] = r % n;
            }
            list = n > 1 ? draw_team(sp, place, n) : 0;
        }
        bool team = n > 1 && (!one || below(4) > 0);
        for (struct job *j = sp->job; j < sp->job + sp->njobs; j++) {
            bool again = (j->d == OP_B || j->d == OP_I) && j[-1].d == OP_R;
            if (j->s != s)
                continue;
            j->team = !team ? j->rank : fixed ? list : again ? back : draw_team(sp, place, n);
            back = j->team; /* R runs where its backward does */
            j->rank = team ? sp->owners.list[j->team - W].rank[0] : j->rank;
        }
    }
}

static inline void draw_offload(struct spec *sp) {
    sp->choices.offload = NEW(uint8_t, sp->stages * sp->batches);
    sp->limits.offload_state = NEW(bool, sp->stages + 1);
    sp->machine.host_link = NEW(struct link, sp->workers);
    for (int i = 0; i < sp->stages * sp->batches; i++)
        sp->choices.offload[i] = below(3) > 0;
    for (int s = 0; s <= sp->stages; s++)
        sp->limits.offload_state[s] = s < sp->stages ? below(2) : sp->limits.offload_state[0];
    for (int r = 0; r < sp->workers; r++)
        sp->machine.host_link[r] = (struct link){0.25 * below(3), below(3) ? 1 << below(6) : INFINITY};
}

/* Takes the weights from some stages. Such a stage with a token table has a home, the table's. */
static inline void draw_bare(struct spec *sp) {
    bool *bare = NEW(bool, sp->stages);
    for (int s = sp->names.tables > 0; s < sp->stages; s++)
        bare[s] = below(3) == 0;
    for (struct job *j = sp->job; j < sp->job + sp->njobs; j++)
        j->home = bare[j->s] ? -1 : j->home;
    find_bare(costs_of(sp));
}

static inline struct spec *draw_spec(uint64_t seed, int flags) {
    random_state = seed;
    int W = 1 + below(5);
    int Q = flags & SLICES ? 2 + below(MOST_CUT - 1) : 0, B = Q ? Q * (1 + below(3)) : 1 + below(8);
    int S = 1 + below(6);
    struct spec *sp = empty_spec(W, S, B);
    sp->names.slices = Q;
    struct costs *costs = costs_of(sp);
    costs->sliced = Q && below(2);
    costs->attends = Q && below(2) ? NEW(bool, S) : NULL;
    for (int s = 0; costs->attends && s < S; s++)
        costs->attends[s] = below(2);
    sp->choices.lanes = flags & COARSE ? (enum lanes_per)(seed % 3) : PER_EDGE;
    draw_jobs(sp, flags);
    if (flags & TEAMS)
        draw_teams(sp);
    int kinds = flags & EXTREME ? 1 + below(7) : 0;
    for (int j = 0; kinds && j < sp->njobs; j++)
        sp->job[j].cost = draw_extreme(kinds);
    int32_t *order = draw_order(sp);
    if (flags & ORDERS && below(2))
        draw_preds(sp, order);
    sp->strict = below(3) == 0 || flags & PAIRS; /* an order drawn job by job would nearly always deadlock */
    for (int i = 0; sp->strict && i < sp->njobs; i++)
        sp->job[order[i]].prio = i;
    for (int r = 0; r < W; r++) {
        sp->choices.slots[r] = below(4);
        if (flags & CAPS && below(2))
            sp->limits.cap[r] = sp->stages + below(3);
    }
    if (flags & PAIRS)
        draw_pairs(sp, order);
    if (flags & (LATENCY | BANDWIDTH))
        sp->machine.link = NEW(struct link, W * W);
    for (int i = 0; sp->machine.link && i < W * W; i++) {
        sp->machine.link[i] = (struct link){0.25 * below(9), INFINITY};
        if (flags & BANDWIDTH && below(4))
            sp->machine.link[i].bandwidth = 1 << below(4);
        if (kinds)
            sp->machine.link[i] = (struct link){draw_extreme(kinds), below(2) ? INFINITY : 1 / draw_extreme(kinds)};
    }
    costs->unembedding = flags & TIED ? below(sp->stages) : 0;
    name_sets(&sp->names, sp->stages, flags & TIED, false);
    if (flags & SHARDED)
        draw_lists(sp);
    if (flags & ROUNDS)
        sp->limits.grad_slots = NEW(int, W);
    for (int r = 0; sp->limits.grad_slots && r < W; r++)
        sp->limits.grad_slots[r] = 1 + below(3);
    if (flags & HOST)
        draw_offload(sp);
    if (flags & BARE)
        draw_bare(sp);
    return sp;
}

/* Cuts the stage's gradient into random pieces, and its last backward into parts with arbitrary boundaries. */
static inline void draw_pieces(struct stage *st, int owners) {
    int low = st->pieces = owners * (1 + below(3));
    struct touched *touched = NEW(struct touched, low + 1);
    while (low > 0) {
        int high = low - 1;
        low -= 1 + below(low);
        touched[st->parts++] = (struct touched){low, high};
        if (low > 0 && below(2) && low < high)
            low++; /* the next part shares this piece */
    }
    st->touched[OP_B] = st->touched[OP_W] = touched;
    int *cut = NEW(int, st->parts + 1);
    st->cut = cut; /* no layers at any boundary */
}

/* Finds homes, makes weights divisible into their pieces, and gives copies the size of their originals. */
static inline void find_shards(struct costs *costs) {
    const struct spec *sp = costs->spec;
    struct stage *st = costs->stage;
    costs->homes = find_homes(costs);
    take_job_costs(costs, NULL);
    for (int s = 0; s < sp->stages + sp->names.sets; s++) {
        const struct homes *homes = &costs->homes[s];
        int64_t *bytes = st[s].bytes, pieces = (int64_t)homes->size * shares_of(homes);
        if (is_bare(costs, s)) {
            static const uint8_t none[] = {K_weight, K_wgrad, K_opt};
            for (int i = 0; i < 3; i++)
                bytes[none[i]] = 0;
        }
        if (sp->limits.grad_slots && s < sp->stages && !is_bare(costs, s) && below(3) == 0) {
            draw_pieces(&st[s], (int)pieces);
            pieces = st[s].pieces;
        }
        bytes[K_weight] *= pieces;
        bytes[K_wgrad] *= pieces;
        pieces = (int64_t)homes->size * shares_of(homes);
        bytes[K_wshard] = bytes[K_weight] / homes->size;
        bytes[K_gshard] = bytes[K_wgrad] / homes->size;
        bytes[K_gown] = bytes[K_wgrad] / pieces;
        bytes[K_hstash] = bytes[K_rstash] = bytes[K_stash];
        bytes[K_hinput] = bytes[K_rinput] = bytes[K_input];
        bytes[K_hopt] = bytes[K_opt];
    }
}

/* Draws the sizes of keys, values and their gradients; if slices are unequal, of all tensors of a slice. */
static inline void draw_slices(const struct costs *costs, int s, int most) {
    const struct spec *sp = costs->spec;
    struct stage *st = costs->stage;
    st[s].bytes[K_kv] = 1 + (sp->names.slices ? below(most) : 0);
    st[s].bytes[K_dkv] = 1 + (sp->names.slices ? below(most) : 0);
    for (int q = 0; costs->sliced && q < sp->names.slices; q++) {
        struct stage *slice = (struct stage *)stage_at(costs, s, q);
        *slice = st[s];
        static const uint8_t own[] = {K_act, K_stash, K_kv, K_dkv};
        for (int i = 0; i < 4; i++)
            slice->bytes[own[i]] = 1 + below(most);
        slice->bytes[K_wstash] = slice->bytes[K_stash] + below(most);
        slice->bytes[K_hstash] = slice->bytes[K_rstash] = slice->bytes[K_stash];
    }
}

static inline struct costs *draw_stages(const struct spec *sp) {
    struct costs *costs = costs_of(sp);
    struct stage *st = costs->stage = NEW(struct stage, stage_entries(costs));
    int most = below(2) ? 40 : 3;
    bool state = below(2); /* whether there is optimizer state */
    for (int s = 0; s < sp->stages + sp->names.sets; s++) {
        for (int k = 0; k < NKINDS; k++)
            st[s].bytes[k] = k == K_kv || k == K_dkv ? 0 : 1 + below(most);
        st[s].bytes[K_wgrad] = st[s].bytes[K_weight] * (1 + s % 2); /* fp32, or bf16 */
        st[s].bytes[K_wstash] += st[s].bytes[K_stash];
        st[s].bytes[K_opt] *= state;
        st[s].bytes[K_grad] = st[s].bytes[K_input] = most; /* at least as large as the stage's input */
        st[s].bytes[K_work] *= below(2);
        st[s].update = 0.25 * below(5);
    }
    find_shards(costs);
    for (int s = 0; s < sp->stages; s++)
        draw_slices(costs, s, most);
    return costs;
}

static inline struct costs *unit_stages(const struct spec *sp) {
    struct costs *costs = costs_of(sp);
    struct stage *st = costs->stage = NEW(struct stage, stage_entries(costs));
    for (int s = 0; s < stage_entries(costs); s++)
        for (int k = 0; k < NKINDS; k++)
            st[s].bytes[k] = k == K_opt || k == K_work ? 0 : 1;
    find_shards(costs);
    return costs;
}

/* Returns the message with which what(with) dies, or NULL. */
static inline const char *death_of(void (*what)(void *), void *with) { return try(what, with) ? NULL : diag_text; }
/* Makes half of the jobs fetch their weights from another rank: from a home that has all of them, or from a rank whose
 * jobs read them at some time. */
static inline void draw_sources(struct spec *sp) {
    int *can = NEW(int, sp->workers);
    sp->owners.source = NEW(int32_t, sp->njobs);
    for (int j = 0; j < sp->njobs; j++) {
        const struct job *job = &sp->job[j];
        const struct homes *homes = &costs_of(sp)->homes[job->s];
        int n = 0;
        for (int r = 0; r < sp->workers; r++) {
            bool has = homes->size == 1 && place_in(homes, r) >= 0;
            for (int i = 0; i < sp->njobs; i++)
                has |= sp->job[i].rank == r && sp->job[i].s == job->s && sp->job[i].d != OP_W;
            if (has && r != job->rank)
                can[n++] = r;
        }
        sp->owners.source[j] = n > 0 && below(2) ? can[below(n)] : -1;
    }
}
/* Turns updates into jobs. Their microbatch count divides the step and lets each of a stage's homes take part. The
 * versions that jobs read follow any of the rules. Needs sp->costs.homes. Returns whether such updates exist. */
static inline bool draw_updates(struct spec *sp) {
    struct costs *costs = costs_of(sp);
    static const int rules[] = {READ_FORWARD, READ_LATEST, READ_INPUT, 0, 1, 2};
    int *update = NEW(int, sp->stages), rule = below(6), mixed = below(3) == 0;
    sp->updates.step = sp->batches;
    for (int s = 0; s < sp->stages; s++) {
        const struct homes *homes = &costs->homes[s];
        for (int tries = 0; tries < 20 && !update[s]; tries++) {
            int m = 1 + below(sp->batches);
            bool good = sp->batches % m == 0 && homes->size == 1;
            for (int k = 0; good && k < sp->batches / m; k++)
                for (int l = 0; l < homes->lists && good; l++) {
                    bool takes_part = homes->lists == 1;
                    for (int b = k * m; b < (k + 1) * m; b++) {
                        int32_t j = job_at(sp, s, b, job_at(sp, s, b, OP_W) >= 0 ? OP_W : OP_B);
                        takes_part |= sp->job[j].rank == homes->rank[l];
                    }
                    good = takes_part;
                }
            update[s] = good ? m : 0;
        }
        if (!update[s])
            return false;
    }
    sp->updates.every = update;
    sp->updates.turn = sp->batches; /* any common multiple */
    sp->owners.zero = NULL;
    sp->limits.offload_state = NULL; /* neither is allowed with such updates */
    sp->updates.reads = NEW(int32_t, sp->njobs);
    for (int j = 0; j < sp->njobs; j++)
        sp->updates.reads[j] = rules[mixed ? below(6) : rule];
    costs->update_at = NEW(int32_t, sp->stages + 1);
    costs->update_at[0] = sp->njobs;
    for (int s = 0; s < sp->stages; s++)
        costs->update_at[s + 1] = costs->update_at[s] + sp->batches / update[s] * costs->homes[s].lists;
    costs->njobs = costs->update_at[sp->stages];
    struct job *job = NEW(struct job, costs->njobs);
    memcpy(job, sp->job, sizeof *job * (size_t)sp->njobs);
    costs->job = job;
    for (int s = 0; s < sp->stages; s++)
        for (int32_t j = costs->update_at[s]; j < costs->update_at[s + 1]; j++) {
            int at = j - costs->update_at[s], rank = costs->homes[s].rank[at % costs->homes[s].lists];
            bool at_once = sp->strict || below(2);
            job[j] = (struct job){s,
                                  at / costs->homes[s].lists,
                                  OP_U,
                                  .rank = rank,
                                  .home = rank,
                                  .fill = sp->strict,
                                  .prio = at_once ? -INFINITY : below(1000) - 500,
                                  .cost = 0.25 * below(5)};
        }
    take_job_costs(costs, NULL);
    return true;
}
#endif
