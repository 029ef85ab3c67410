/* The least makespan over bytes of memory. The first search has unlimited room. Each further search has one byte less
 * than the previous order uses, so that it must find another order, until none fits. Among orders with the same
 * makespan, the last uses the least memory, and no other lies between two points. */
#include "frontier.h"
#include "memory.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>

struct change {
    int64_t time, bytes; /* below 0: given back */
};
static int by_step(const void *x, const void *y) {
    const struct change *a = x, *b = y;
    return a->time != b->time ? (a->time < b->time ? -1 : 1) : (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

/* Returns the peak of what a rank's microbatches keep at once, by what each job takes and gives back. */
static int64_t kept_on(const struct spec *sp, const struct instance *in, const int64_t *start, int r) {
    struct change *change = NEW(struct change, 2 * sp->njobs);
    int64_t kept = 0, most = 0;
    int n = 0;
    for (int32_t j = 0; j < sp->njobs; j++) {
        const struct class *class = &in->class[in->class_of[j]];
        if (class->rank != r)
            continue;
        change[n++] = (struct change){start[j], class->take};
        change[n++] = (struct change){start[j] + class->time, -class->give};
    }
    sort(change, (size_t)n, sizeof *change, by_step);
    for (int i = 0; i < n; i++) {
        kept += change[i].bytes;
        most = kept > most ? kept : most;
    }
    return most;
}

struct stairs {
    struct searched what;
    int64_t *stay;  /* per rank, in bytes; known once there is an order */
    int64_t *start; /* the last search's order */
    int64_t used;   /* its memory; 0: none yet */
};

static const int64_t *rooms(const struct stairs *steps, int64_t memory) {
    int64_t *room = NEW(int64_t, steps->what.c->spec->workers);
    for (int r = 0; r < steps->what.c->spec->workers; r++)
        room[r] = !memory ? (int64_t)1 << 52 : memory > steps->stay[r] ? memory - steps->stay[r] : 0;
    return room;
}

static void measure_steps(struct stairs *steps, const struct instance *in) {
    const struct spec *sp = steps->what.c->spec;
    if (!steps->used)
        memcpy(steps->stay, bytes_that_stay(steps->what.c, lists_by_start(sp, steps->start)),
               sizeof *steps->stay * (size_t)sp->workers);
    steps->used = 0;
    for (int r = 0; r < sp->workers; r++) {
        int64_t used = steps->stay[r] + kept_on(sp, in, steps->start, r);
        steps->used = used > steps->used ? used : steps->used;
    }
}

/* Searches once, within `memory` bytes; 0: no limit. */
static struct point step_down(struct stairs *steps, int64_t memory) {
    const struct searched *what = &steps->what;
    struct scratch scratch = scratch_begin();
    const struct instance *in = instance_in_bytes(what->c, rooms(steps, memory));
    struct optimum best = search_at(what, in, serial_time(in) + 1);
    struct point point = {.memory = memory, .makespan = NAN, .lower = (double)best.lower * in->tick};
    bool closed = best.lower >= best.makespan, found = best.start;
    if (found) {
        memcpy(steps->start, best.start, sizeof *best.start * (size_t)what->c->spec->njobs);
        measure_steps(steps, in);
        point.memory = steps->used;
        point.makespan = time_of_order(what->c, best.start);
        point.lower = closed && !in->rounded ? point.makespan : point.lower;
        point.proved = closed && !in->rounded;
    } else if (closed) {
        point.lower = NAN;
        point.proved = true;
    }
    const char *with = memory ? format(", with %lld bytes of memory", (long long)memory) : "";
    return end_search(what, scratch, point, certificate_text(what, in, &best, with), found ? steps->start : NULL);
}

static int by_memory(const void *x, const void *y) {
    const struct point *a = x, *b = y;
    return (a->memory > b->memory) - (a->memory < b->memory);
}

struct frontier find_staircase(struct compile *c, struct searches searches) {
    const struct spec *sp = c->spec;
    struct stairs steps = {{c, searches}, .stay = NEW(int64_t, sp->workers), .start = NEW(int64_t, sp->njobs)};
    struct frontier frontier = {0};
    size_t room = 0;
    set_caps(c, INT_MAX);
    struct point point = step_down(&steps, 0);
    frontier.free = point;
    if (isnan(point.makespan))
        die("%s: found no order at all; give more --time", sp->file);
    for (; !isnan(point.makespan); point = step_down(&steps, point.memory - 1)) {
        while (frontier.n > 0 && point.makespan <= frontier.point[frontier.n - 1].makespan)
            frontier.n--; /* as fast, with less memory */
        GROW(frontier.point, room, (size_t)frontier.n + 1);
        frontier.point[frontier.n++] = point;
    }
    sort(frontier.point, (size_t)frontier.n, sizeof *frontier.point, by_memory);
    frontier.none = point;
    return frontier;
}
