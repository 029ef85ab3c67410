/* How much of the weights that travel each rank keeps where the cluster's memory limits that.
 *
 * weight_slots is the most. Where memory is too small for it, a rank has as many slots as fit, by bisection. Beyond
 * these it may keep whatever fits beside its other tensors, which may be more sets at times than at others. What the
 * holes between tensors take is found by trial, and taken off the room. */
#include "lower.h"
#include <math.h>
#include <string.h>

int64_t beyond_memory(const struct spec *sp, const struct program *p, int r) {
    double beyond = (double)p->rank[r].arena - sp->memory;
    return beyond > 0 ? (int64_t)ceil(beyond) : 0;
}

bool plan_least(const struct spec *sp, struct program *p) {
    struct spec free = *sp;
    bool fits = true;
    free.memory = free.host_memory = INFINITY;
    mem_plan(&free, p);
    for (int r = 0; r < p->workers; r++)
        fits &= beyond_memory(sp, p, r) == 0;
    return fits;
}

int64_t weights_received(const struct spec *sp, const int32_t *place, const struct program *p, int r) {
    int64_t bytes = 0;
    for (int b = 0; b < p->rank[r].nbufs; b++) {
        const struct buf *buf = &p->rank[r].buf[b];
        if (buf->kind == K_weight && buf->inst >= 0)
            bytes += fetch_bytes(sp, place, r, buf->stage);
    }
    return bytes;
}

/* Per rank: whether the program, with bytes reused as early as the schedule allows, fits into memory. */
static void find_fits(const struct spec *sp, struct program *p, bool *fits) {
    struct scratch scratch = scratch_begin();
    plan_least(sp, p);
    for (int r = 0; r < sp->workers; r++)
        fits[r] = beyond_memory(sp, p, r) == 0;
    mem_forget(p);
    scratch_end(scratch);
}

static int most_slots(const struct spec *sp, int r) {
    return sp->slots[r] < sp->stages + 1 ? sp->slots[r] : sp->stages + 1;
}

/* The most slots with which each rank fits into memory; 0 if none does. p: the program with all of them. */
static int *slots_that_fit(const struct spec *sp, const struct stage *st, const struct graph *graph,
                           const struct sched *sc, struct program *p) {
    int *slots = NEW(int, sp->workers), *least = NEW(int, sp->workers), *most = NEW(int, sp->workers);
    bool *fits = NEW(bool, sp->workers), open = true;
    struct spec with = *sp;
    with.slots = slots;
    for (int r = 0; r < sp->workers; r++) {
        least[r] = -1;
        most[r] = slots[r] = most_slots(sp, r);
    }
    while (open) {
        struct scratch scratch = scratch_begin();
        find_fits(sp, p ? p : lower(&with, st, graph, sc), fits);
        scratch_end(scratch);
        p = NULL;
        open = false;
        for (int r = 0; r < sp->workers; r++) {
            if (fits[r])
                least[r] = slots[r];
            else
                most[r] = slots[r] - 1;
            slots[r] =
                most[r] <= least[r] || most[r] <= 0 ? (least[r] > 0 ? least[r] : 0) : (least[r] + most[r] + 1) / 2;
            open |= least[r] < most[r] && most[r] > 0;
        }
    }
    return slots;
}

/* A rank whose slots do not fit, and how it would do with those that do. */
struct short_rank {
    bool open, fits; /* open: what it keeps is limited by room; fits: with the slots */
    int64_t received;
};

/* Of the program with the slots that fit, the room on ranks that have fewer of them than the script said. */
static void find_room(const struct spec *sp, const int *slots, struct program *p, int64_t *room,
                      struct short_rank *rank) {
    struct scratch scratch = scratch_begin();
    const int32_t *place = home_places(sp);
    plan_least(sp, p);
    for (int r = 0; r < sp->workers; r++)
        rank[r] = (struct short_rank){slots[r] < most_slots(sp, r), beyond_memory(sp, p, r) == 0,
                                      weights_received(sp, place, p, r)};
    for (int j = 0; j < sp->njobs; j++) {
        const struct rank *k = &p->rank[sp->job[j].rank];
        room[j] = rank[sp->job[j].rank].open ? (int64_t)sp->memory - k->base - p->beside[j] : INT64_MAX;
    }
    mem_forget(p);
    scratch_end(scratch);
}

/* The first job that uses a buffer of the rank's plan that does not lie within memory; -1: none does. */
static int32_t job_beyond(const struct spec *sp, const struct rank *k) {
    for (int i = 0; i < k->nins; i++) {
        const struct instr *x = &k->ins[i];
        for (uint32_t a = x->arg; is_job(x->op) && a < x->arg + x->narg; a++)
            if ((double)(k->buf[k->arg[a].buf].off + mem_room(sp, k->buf[k->arg[a].buf].bytes)) > sp->memory)
                return job_at(sp, x->stage, x->batch, x->op);
    }
    return -1;
}

/* Trials of rooms: all that the script's slots permit; with only one slot more than fits; weights that come late; with
 * less room where it did not suffice; with less everywhere. */
enum { ALL_SLOTS, ONE_SLOT_MORE, LATE, LESS_THERE, LESS = 6, TRIALS = 12 };

/* After a trial, for the next. A rank that fits stays as it is; it is no concern any more after the last trial, or if
 * with its slots it receives as little. Returns whether anything has changed. */
static bool adjust(const struct spec *sp, struct spec *within, const int *slots, const struct program *p, int r,
                   int64_t received, int trial, struct short_rank *rank) {
    int64_t beyond = beyond_memory(sp, p, r);
    bool better = !rank->fits || received < rank->received;
    if (!rank->open || (beyond == 0 && better))
        return false;
    trial++;
    rank->open = trial < TRIALS && (better || trial == LATE);
    within->slots[r] = !rank->open ? slots[r] : trial == ONE_SLOT_MORE ? slots[r] + 1 : sp->slots[r];
    within->late[r] = trial >= LATE;
    int32_t there = trial < LESS ? job_beyond(sp, &p->rank[r]) : -1;
    for (int j = 0; j < sp->njobs; j++)
        if (sp->job[j].rank == r && !rank->open)
            within->room[j] = INT64_MAX;
        else if (sp->job[j].rank == r && trial >= LESS_THERE && (there < 0 || there == j))
            within->room[j] -= beyond;
    return true;
}

static bool any_open(const struct short_rank *rank, int n) {
    for (int r = 0; r < n; r++)
        if (rank[r].open)
            return true;
    return false;
}

/* The program whose ranks keep what there is room for; NULL if none receives less so. */
static struct program *lower_by_room(const struct spec *sp, const struct stage *st, const struct graph *graph,
                                     const struct sched *sc, struct fit *fit) {
    struct spec within = *sp;
    struct short_rank *rank = NEW(struct short_rank, sp->workers);
    const int32_t *place = home_places(sp);
    within.room = NEW(int64_t, sp->njobs);
    within.slots = NEW(int, sp->workers);
    within.late = NEW(bool, sp->workers);
    memcpy(within.slots, sp->slots, sizeof *sp->slots * (size_t)sp->workers);
    find_room(sp, fit->slots, fit->by_slots, within.room, rank);
    for (int trial = 0; any_open(rank, sp->workers); trial++) {
        struct scratch scratch = scratch_begin(); /* it does not end where its program is the one */
        struct program *p = lower(&within, st, graph, sc);
        bool changed = false, fits = plan_least(sp, p);
        for (int r = 0; r < sp->workers; r++) {
            if (trial == 0)
                fit->bound[r] = p->least_received[r];
            changed |= adjust(sp, &within, fit->slots, p, r, weights_received(sp, place, p, r), trial, &rank[r]);
        }
        if (!changed && fits) {
            mem_forget(p);
            return p;
        }
        scratch_end(scratch);
        if (!changed) /* weights that travel together come elsewhere at other times, to a rank without room for that */
            return NULL;
    }
    return NULL;
}

/* The program with these slots, each of which fits beside other numbers on other ranks: fewer where it does not now. */
static struct program *lower_by_slots(const struct spec *sp, const struct stage *st, const struct graph *graph,
                                      const struct sched *sc, int *slots) {
    struct spec with = *sp;
    bool *fits = NEW(bool, sp->workers);
    with.slots = slots;
    for (;;) {
        struct scratch scratch = scratch_begin(); /* it does not end where its program is the one */
        struct program *p = lower(&with, st, graph, sc);
        bool fewer = false, none = false;
        find_fits(sp, p, fits);
        for (int r = 0; r < sp->workers; r++)
            none |= !fits[r] && slots[r] == 0; /* others' gathers come to it too early */
        for (int r = 0; r < sp->workers; r++)
            if ((!fits[r] || none) && slots[r] > 0) {
                slots[r] = none ? slots[r] / 2 : slots[r] - 1;
                fewer = true;
            }
        if (!fewer)
            return p;
        scratch_end(scratch);
    }
}

struct fit fit_weights(const struct spec *sp, const struct stage *st, const struct graph *graph, const struct sched *sc,
                       struct program *p) {
    struct fit fit = {.slots = sp->slots, .bound = p->least_received, .by_slots = p};
    if (isinf(sp->memory))
        return fit;
    fit.slots = slots_that_fit(sp, st, graph, sc, p);
    bool fewer = false;
    for (int r = 0; r < sp->workers; r++)
        fewer |= fit.slots[r] < most_slots(sp, r);
    if (!fewer)
        return fit;
    fit.by_slots = lower_by_slots(sp, st, graph, sc, fit.slots);
    fit.bound = NEW(int64_t, sp->workers);
    fit.by_room = lower_by_room(sp, st, graph, sc, &fit);
    return fit;
}
