/* Chooses how many fetched weights each rank keeps if the cluster's memory limits it. choices.slots is the upper bound.
 * If memory is too small for it, a bisection finds the slots that fit. Beyond these a rank may keep whatever fits
 * beside its other tensors, so the number of sets may vary over time. Trials find the space lost to gaps between
 * tensors, which is subtracted from the room. */
#include "passes/lower.h"
#include "plan.h"
#include <math.h>
#include <string.h>

int64_t beyond_memory(const struct compile *c, int r) {
    double beyond = (double)c->program->rank[r].arena - c->spec->machine.memory;
    return beyond > 0 ? (int64_t)ceil(beyond) : 0;
}

bool plan_least(struct compile *c) {
    bool fits = true;
    c->choices.any_memory = true;
    compile_until(c, OFFSETS);
    c->choices.any_memory = false;
    for (int r = 0; r < c->program->workers; r++)
        fits &= beyond_memory(c, r) == 0;
    return fits;
}

void unplan(struct compile *c) {
    compile_forget(c, TRIED_SPARE);
    c->choices.life = NULL;
    for (int r = 0; r < c->program->workers; r++) {
        struct rank *k = &c->program->rank[r];
        k->over = k->over_at = NULL;
        k->arena = k->least = k->base = 0;
        for (int b = 0; b < k->nbufs; b++)
            k->buf[b].off = -1;
    }
}

/* Sets per rank whether the program fits into memory, with bytes reused as early as the schedule allows. */
static void find_fits(struct compile *c, bool *fits) {
    compile_until(c, STREAMS);
    struct scratch scratch = scratch_begin();
    plan_least(c);
    for (int r = 0; r < c->spec->workers; r++)
        fits[r] = beyond_memory(c, r) == 0;
    unplan(c);
    scratch_end(scratch);
}

static int most_slots(const struct compile *c, int r) {
    return c->choices.slots[r] < c->spec->stages + 1 ? c->choices.slots[r] : c->spec->stages + 1;
}

/* Returns, per rank, the largest number of slots with which it fits into memory; 0 if no number fits. c: the compile
 * with all slots. */
static int *slots_that_fit(const struct compile *c) {
    const struct spec *sp = c->spec;
    int *slots = NEW(int, sp->workers), *least = NEW(int, sp->workers), *most = NEW(int, sp->workers);
    bool *fits = NEW(bool, sp->workers), open = true;
    struct compile with = *c; /* the first trial reuses the existing program */
    for (int r = 0; r < sp->workers; r++) {
        least[r] = -1;
        most[r] = slots[r] = most_slots(c, r);
    }
    while (open) {
        struct scratch scratch = scratch_begin();
        find_fits(&with, fits);
        scratch_end(scratch);
        with = compile_vary(c, STREAMS);
        with.choices.slots = slots;
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

/* Returns the compile with these slots. Each rank's number was found with other numbers on other ranks, so ranks that
 * do not fit now get fewer. */
static struct compile fit_slots(struct compile *c, int *slots) {
    int workers = c->spec->workers;
    bool *fits = NEW(bool, workers);
    for (;;) {
        struct scratch scratch = scratch_begin(); /* stays open if this program is returned */
        struct compile with = compile_vary(c, STREAMS);
        bool fewer = false, none = false;
        with.choices.slots = slots;
        find_fits(&with, fits);
        for (int r = 0; r < workers; r++)
            none |= !fits[r] && slots[r] == 0; /* gathers that other ranks need come too early for it */
        for (int r = 0; r < workers; r++)
            if ((!fits[r] || none) && slots[r] > 0) {
                slots[r] = none ? slots[r] / 2 : slots[r] - 1;
                fewer = true;
            }
        if (!fewer)
            return with;
        scratch_end(scratch);
    }
}

/* A rank whose slots do not all fit, and its result with those that do. */
struct short_rank {
    bool open, fits; /* open: room limits what it keeps; fits: with the reduced slots */
    int64_t received;
};

static int64_t weights_on(const struct compile *c, const int32_t *place, int r) {
    return weights_received(c->costs, place, c->program, r);
}

/* Computes the room on ranks whose fitting slots are fewer than the script's. */
static void find_room(struct compile *by_slots, const int *most, int64_t *room, struct short_rank *rank) {
    struct scratch scratch = scratch_begin();
    const struct spec *sp = by_slots->spec;
    const int32_t *place = home_places(by_slots->costs);
    plan_least(by_slots);
    for (int r = 0; r < sp->workers; r++)
        rank[r] = (struct short_rank){by_slots->choices.slots[r] < most[r], beyond_memory(by_slots, r) == 0,
                                      weights_on(by_slots, place, r)};
    for (int j = 0; j < sp->njobs; j++) {
        const struct rank *k = &by_slots->program->rank[sp->job[j].rank];
        room[j] = rank[sp->job[j].rank].open
                      ? (int64_t)sp->machine.memory - k->base - by_slots->program->traffic.beside[j]
                      : INT64_MAX;
    }
    unplan(by_slots);
    scratch_end(scratch);
}

/* Returns the first job that uses a buffer planned beyond the memory; -1 if there is none. */
static int32_t job_beyond(const struct spec *sp, const struct rank *k) {
    for (int i = 0; i < k->nins; i++) {
        const struct instr *x = &k->ins[i];
        for (uint32_t a = x->arg; is_job(x->op) && a < x->arg + x->narg; a++)
            if ((double)(k->buf[k->arg[a].buf].off + mem_room(sp, k->buf[k->arg[a].buf].bytes)) > sp->machine.memory)
                return job_at(sp, x->stage, x->batch, x->op);
    }
    return -1;
}

/* Trials of rooms: with all of the script's slots; with one slot more than fits; with weights that arrive late; with
 * less room where it did not suffice; with less everywhere. */
enum { ALL_SLOTS, ONE_SLOT_MORE, LATE, LESS_THERE, LESS = 6, TRIALS = 12 };

struct rooms {
    const int *said;        /* the script's slots */
    const struct fit *fit;  /* the slots that fit */
    struct choices choices; /* for the next trial, which varies slots, room and late */
    struct short_rank *rank;
    int trial;
};

/* Adjusts rank r's choices after a trial. A rank that fits stays as it is. It returns to its fitting slots after the
 * last trial, or if it receives no less than with those. Returns whether anything changed. */
static bool adjust(struct rooms *rooms, const struct compile *with, int r, int64_t received) {
    const struct spec *sp = with->spec;
    struct short_rank *rank = &rooms->rank[r];
    int64_t beyond = beyond_memory(with, r);
    bool better = !rank->fits || received < rank->received;
    if (!rank->open || (beyond == 0 && better))
        return false;
    int next = rooms->trial + 1, fitting = rooms->fit->slots[r];
    rank->open = next < TRIALS && (better || next == LATE);
    rooms->choices.slots[r] = !rank->open ? fitting : next == ONE_SLOT_MORE ? fitting + 1 : rooms->said[r];
    rooms->choices.late[r] = next >= LATE;
    int32_t there = next < LESS ? job_beyond(sp, &with->program->rank[r]) : -1;
    for (int j = 0; j < sp->njobs; j++)
        if (sp->job[j].rank == r && !rank->open)
            rooms->choices.room[j] = INT64_MAX;
        else if (sp->job[j].rank == r && next >= LESS_THERE && (there < 0 || there == j))
            rooms->choices.room[j] -= beyond;
    return true;
}

static bool any_open(const struct short_rank *rank, int n) {
    for (int r = 0; r < n; r++)
        if (rank[r].open)
            return true;
    return false;
}

static struct rooms begin_rooms(const struct compile *c, const struct fit *fit) {
    const struct spec *sp = c->spec;
    struct rooms rooms = {c->choices.slots, fit, c->choices, NEW(struct short_rank, sp->workers), 0};
    int *most = NEW(int, sp->workers);
    rooms.choices.room = NEW(int64_t, sp->njobs);
    rooms.choices.slots = NEW(int, sp->workers);
    rooms.choices.late = NEW(bool, sp->workers);
    memcpy(rooms.choices.slots, rooms.said, sizeof *rooms.said * (size_t)sp->workers);
    for (int r = 0; r < sp->workers; r++)
        most[r] = most_slots(c, r);
    find_room(fit->by_slots, most, rooms.choices.room, rooms.rank);
    return rooms;
}

/* Tries to keep as many fetched weights as there is room for. Returns true, with the compile in *found, if that fits
 * and ranks receive less. Sets bound per rank. */
static bool fit_room(struct compile *c, const struct fit *fit, int64_t *bound, struct compile *found) {
    int workers = c->spec->workers;
    struct rooms rooms = begin_rooms(c, fit);
    const int32_t *place = home_places(c->costs);
    for (; any_open(rooms.rank, workers); rooms.trial++) {
        struct scratch scratch = scratch_begin(); /* stays open if this program is returned */
        struct compile with = compile_vary(c, STREAMS);
        with.choices = rooms.choices;
        bool changed = false, fits = plan_least(&with);
        for (int r = 0; r < workers; r++) {
            if (rooms.trial == 0)
                bound[r] = with.program->traffic.least[r];
            changed |= adjust(&rooms, &with, r, weights_on(&with, place, r));
        }
        if (!changed && fits) {
            unplan(&with);
            *found = with;
            return true;
        }
        scratch_end(scratch);
        if (!changed) /* joint transfers now arrive at other times, so a rank without a room limit may not fit */
            return false;
    }
    return false;
}

static bool fetches_weights(const struct program *p) {
    for (int r = 0; r < p->workers; r++)
        for (int b = 0; b < p->rank[r].nbufs; b++)
            if (p->rank[r].buf[b].kind == K_weight && p->rank[r].buf[b].inst >= 0)
                return true;
    return false;
}

static const char *slots_text(const int *slots, int workers) {
    struct text t = {0};
    put_word(&t, "slots");
    for (int r = 0; r < workers && r < 8; r++)
        put(&t, " %d", slots[r]);
    put_word(&t, workers > 8 ? " ..." : "");
    return t.s;
}

void search_room(struct compile *c) {
    compile_until(c, STREAMS);
    if (c->choices.prefetch != SOLVED || c->spec->updates.every || !fetches_weights(c->program))
        return; /* if updates are jobs, versions leave little to choose */
    int workers = c->spec->workers;
    bool fewer = false;
    struct fit *fit = NEW(struct fit, 1);
    *fit = (struct fit){c->choices.slots, c->program->traffic.least, NEW(struct compile, 2), NULL};
    *fit->by_slots = *c;
    c->fit = fit;
    if (isinf(c->spec->machine.memory))
        return;
    fit->slots = slots_that_fit(c);
    for (int r = 0; r < workers; r++)
        fewer |= fit->slots[r] < most_slots(c, r);
    if (!fewer) {
        tried_add(c, "fit", "all slots", NAN, NULL);
        tried_ships(c, "all slots");
        return;
    }
    int64_t *bound = NEW(int64_t, workers);
    struct compile by_room, by_slots = fit_slots(c, fit->slots);
    *fit->by_slots = by_slots;
    bool roomy = fit_room(c, fit, bound, &by_room);
    fit->bound = bound;
    if (roomy) {
        fit->by_room = fit->by_slots + 1;
        *fit->by_room = by_room;
    }
    const char *slots = slots_text(fit->slots, workers), *room = "as many as fit";
    struct tried *tried = c->tried;
    *c = roomy ? by_room : by_slots;
    c->tried = tried;
    c->fit = fit;
    tried_add(c, "fit", "all slots", NAN, "does not fit");
    tried_add(c, "fit", slots, NAN, NULL);
    tried_add(c, "fit", room, NAN, roomy ? NULL : "does not fit, or receives no fewer bytes");
    tried_ships(c, roomy ? room : slots);
}
