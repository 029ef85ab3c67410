/* offload = "auto": chooses the stashes that leave the device, so that each rank's plan fits into the cluster's memory.
 *
 * The program is lowered with all of them offloaded. Then each rank walks through its buffers in the order in which the
 * plan opens and closes them, as if the movable ones had stayed. When they exceed the rank's target, the stash with the
 * largest value from then on leaves; a stash's value is its bytes times the time until it must be back. A real plan
 * also has gaps, so a bisection finds the largest target whose plan fits.
 *
 * The choice is greedy, not optimal: which few stashes suffice depends on their overlaps, as in bin packing. Among
 * stashes of one size, the one needed last leaves, which is Belady's rule. */
#include "passes/lower.h"
#include "plan.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct stay { /* The tensor that the forward of (s, b) keeps, on the rank that reads it. */
    int64_t bytes;
    double from, to;    /* the forward's end, the reader's start */
    int32_t rank, back; /* back: the rank's event at which it returns; 0: it cannot leave */
};

/* A rank's buffers as they open and close, in the program that offloads all stashes it can. */
struct picture {
    int64_t *use; /* per event: bytes in use after it */
    int32_t *leaves,
        *backs; /* per event: the (s, b) whose stash leaves or returns there, as an index in choices.offload, or -1 */
    size_t n;
};

static void find_stays(const struct compile *c, struct stay *stay) {
    const struct spec *sp = c->spec;
    for (int j = 0; j < sp->njobs; j++)
        for (int32_t e = c->graph->pred_at[j]; e < c->graph->pred_at[j + 1]; e++) {
            const struct job *from = &sp->job[c->graph->pred[e]], *to = &sp->job[j];
            int kind = c->graph->kind[e];
            if (from->d == OP_F && (kind == K_stash || kind == K_input))
                stay[to->s * sp->batches + to->b] =
                    (struct stay){0, c->sched->end[c->graph->pred[e]], c->sched->start[j], to->rank, 0};
        }
}

static int64_t permanent_bytes(const struct rank *k) {
    bool *opens = NEW(bool, k->nbufs);
    int64_t sum = 0;
    for (size_t i = 0; i < k->nevents; i++)
        if (k->event[i] >= 0) {
            opens[k->event[i]] = true;
            if (k->buf[k->event[i]].grows >= 0)
                opens[k->buf[k->event[i]].grows] = true;
        }
    for (int b = 0; b < k->nbufs; b++)
        sum += opens[b] || memory_of(&k->buf[b]) == MEMORY_HOST ? 0 : k->buf[b].bytes;
    return sum;
}

static struct picture draw_rank(const struct spec *sp, const struct rank *k, int r, struct stay *stay) {
    struct picture picture = {NEW(int64_t, k->nevents), NEW(int32_t, k->nevents), NEW(int32_t, k->nevents), k->nevents};
    int64_t use = permanent_bytes(k);
    for (size_t i = 0; i < k->nevents; i++) {
        bool opens = k->event[i] >= 0;
        const struct buf *b = &k->buf[opens ? k->event[i] : ~k->event[i]];
        int64_t bytes = memory_of(b) == MEMORY_DEVICE ? grown_bytes(k, b) : 0;
        picture.use[i] = use += opens ? bytes : -bytes;
        picture.leaves[i] = picture.backs[i] = -1;
        int32_t cell = b->stage * sp->batches + b->batch;
        if (!kind_has_batch[b->kind] || stay[cell].rank != r)
            continue;
        bool again = job_at(sp, b->stage, b->batch, OP_R) >= 0; /* F then keeps its input, and the stash is R's */
        if (!opens && b->kind == (again ? K_input : K_stash))
            picture.leaves[i] = cell;
        if (opens && b->kind == (again ? K_rinput : K_rstash)) {
            stay[cell].bytes = bytes;
            stay[cell].back = (int32_t)i;
            picture.backs[i] = cell;
        }
    }
    return picture;
}

static size_t stashes_of(const struct spec *sp) { return (size_t)sp->stages * (size_t)sp->batches; }

/* Returns the pictures of all ranks with all stashes offloaded. */
static struct picture *picture_memory(const struct compile *c, struct stay *stay) {
    struct picture *picture = NEW(struct picture, c->spec->workers);
    struct compile with = compile_vary(c, STREAMS);
    memset(with.choices.offload, 1, stashes_of(c->spec));
    find_stays(c, stay);
    compile_until(&with, STREAMS);
    for (int r = 0; r < c->spec->workers; r++)
        picture[r] = draw_rank(c->spec, &with.program->rank[r], r, stay);
    return picture;
}

/* Returns the stash in the list that is worth most from time t on and has not left; -1 if none is left. */
static int32_t most_worth(const uint8_t *offload, const struct stay *stay, const int32_t *cell, int n, double t) {
    int32_t best = -1;
    double most = 0;
    for (int k = 0; k < n; k++) {
        double worth = (double)stay[cell[k]].bytes * (stay[cell[k]].to - t);
        if (!offload[cell[k]] && stay[cell[k]].bytes > 0 && (best < 0 || worth > most)) {
            most = worth;
            best = cell[k];
        }
    }
    return best;
}

/* Chooses a rank's stashes to offload, so that it never uses more than `target` bytes, if possible. here: scratch space
 * for all of them. */
static void choose_leaving(const struct picture *picture, const struct stay *stay, double target, uint8_t *offload,
                           int32_t *here) {
    int64_t kept = 0;
    double t = 0;
    int n = 0; /* entries of `here`: stashes that could be away now, and are not back yet */
    for (int32_t i = 0; i < (int32_t)picture->n; i++) {
        int32_t cell = picture->backs[i];
        if (cell >= 0) {
            kept -= offload[cell] ? 0 : stay[cell].bytes;
            for (int k = 0; k < n; k++)
                if (here[k] == cell)
                    here[k--] = here[--n];
        }
        if ((cell = picture->leaves[i]) >= 0) {
            if (stay[cell].back > i) /* else it returns before it leaves */
                here[n++] = cell;
            kept += stay[cell].bytes;
            t = fmax(t, stay[cell].from);
        }
        while ((double)(picture->use[i] + kept) > target && (cell = most_worth(offload, stay, here, n, t)) >= 0) {
            offload[cell] = true;
            kept -= stay[cell].bytes;
        }
    }
}

/* Chooses the stashes to offload for these targets; returns their number. */
static int choose_stays(struct compile *c, const struct picture *picture, const struct stay *stay,
                        const double *target) {
    struct scratch scratch = scratch_begin();
    int32_t *here = NEW(int32_t, stashes_of(c->spec));
    int n = 0;
    memset(c->choices.offload, 0, stashes_of(c->spec));
    for (int r = 0; r < c->spec->workers; r++)
        choose_leaving(&picture[r], stay, target[r], c->choices.offload, here);
    for (size_t i = 0; i < stashes_of(c->spec); i++)
        n += c->choices.offload[i];
    scratch_end(scratch);
    return n;
}

/* Compiles a variation, and sets for each rank whether its plan fits. Returns whether all do. */
static bool find_fitting_ranks(const struct compile *c, bool *fits) {
    struct scratch scratch = scratch_begin();
    struct compile with = compile_vary(c, STREAMS);
    bool all = plan_least(&with);
    for (int r = 0; r < c->spec->workers; r++)
        fits[r] = beyond_memory(&with, r) == 0;
    scratch_end(scratch);
    return all;
}

static const char *stashes(int n) { return format("%d stashes away", n); }

void search_offloads(struct compile *c) {
    const struct spec *sp = c->spec;
    if (!c->choices.auto_offload || isinf(sp->machine.memory))
        return;
    c->choices.offload = NEW(uint8_t, stashes_of(sp)); /* holds each trial's choice in turn */
    struct stay *stay = NEW(struct stay, stashes_of(sp));
    const struct picture *picture = picture_memory(c, stay);
    double *enough = NEW(double, sp->workers), *target = NEW(double, sp->workers), *most = NEW(double, sp->workers);
    bool *fits = NEW(bool, sp->workers), open = true;
    for (int r = 0; r < sp->workers; r++) {
        enough[r] = -1; /* offloads all that can leave */
        target[r] = most[r] = sp->machine.memory;
    }
    for (int i = 0; i < 12 && open; i++) { /* to a few thousandths of the memory */
        const char *away = stashes(choose_stays(c, picture, stay, target));
        tried_add(c, "offload", away, NAN, find_fitting_ranks(c, fits) ? NULL : "does not fit on some rank");
        open = false;
        for (int r = 0; r < sp->workers; r++) {
            *(fits[r] ? &enough[r] : &most[r]) = target[r];
            target[r] = enough[r] == sp->machine.memory ? enough[r] : floor((enough[r] + most[r]) / 2);
            open |= enough[r] < sp->machine.memory && most[r] - enough[r] > 1;
        }
    }
    const char *away = stashes(choose_stays(c, picture, stay, enough));
    tried_add(c, "offload", away, NAN, NULL);
    tried_ships(c, away);
}
