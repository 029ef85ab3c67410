/* --timeline: when this rank's instructions ran, by its own clock. All steps are recorded, in turns, in memory taken at
 * the start: a signal may make any of them the last. */
#include "store/timeline.h"
#include "store/durable.h"
#include "store/seconds.h"
#include "rank_run.h"
#include "comm/watch.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const struct rt_rank *here(const struct rank_run *r) { return &r->program.rank[r->world.rank]; }

static void path_of(char *path, const struct rank_run *r, int rank) {
    snprintf(path, DURABLE_PATH, "%s/timeline.%d.tsv", r->flags.timeline, rank);
}

static struct rt_stamp *slot(const struct rank_run *r, int64_t step) {
    return r->times + step % TIMELINE_STEPS * here(r)->nins;
}

/* The verdict is what all ranks do last before they train. It reaches them at nearly one time: their origin. */
void rank_timeline_open(struct rank_run *r) {
    char why[DURABLE_PATH + 512] = "", path[DURABLE_PATH];
    struct durable d;
    size_t n = TIMELINE_STEPS * (size_t)here(r)->nins;
    path_of(path, r, r->world.rank);
    bool ok = durable_folder(r->flags.timeline, why, sizeof why) && durable_begin(&d, path, why, sizeof why);
    if (ok)
        durable_drop(&d);
    r->times = calloc(n + 1, sizeof *r->times);
    if (!r->times)
        rank_error(r->self, "no memory");
    for (size_t i = 0; i < n; i++) /* touched now rather than in the first steps */
        r->times[i].start = -1;
    watch_phase("waits for all ranks to open their timelines");
    world_verdict(&r->world, ok, why);
    r->origin = seconds();
}

void rank_timeline_keep(struct rank_run *r) { backend_times(r, slot(r, r->replay.step)); }

static bool write_rows(struct rank_run *r, int64_t steps, char *why, size_t nwhy) {
    char path[DURABLE_PATH], *text = NULL;
    size_t n = 0;
    struct durable d;
    FILE *f = open_memstream(&text, &n);
    if (f)
        timeline_head(f);
    for (int64_t s = timeline_first(r->from, steps); f && s < steps; s++)
        timeline_rows(f, s, r->world.rank, here(r), r->tables->lanes, slot(r, s), r->origin);
    if (!f || ferror(f) || fclose(f) != 0)
        rank_error(r->self, "no memory for the timeline");
    path_of(path, r, r->world.rank);
    bool ok = durable_begin(&d, path, why, nwhy);
    if (ok) {
        durable_write(&d, text, n);
        ok = durable_end(&d);
    }
    free(text);
    return ok;
}

void rank_timeline_write(struct rank_run *r, int64_t steps) {
    char why[DURABLE_PATH + 512] = "", path[DURABLE_PATH];
    watch_phase("writes its timeline, or waits for others to");
    bool ok = steps == r->from || write_rows(r, steps, why, sizeof why);
    world_verdict(&r->world, ok, why);
    if (r->world.rank == 0 && steps == r->from)
        fprintf(stderr, "pianola: no step was left to train: no timeline is written\n");
    for (int k = r->world.size; r->world.rank == 0 && steps > r->from; k++) { /* what a run of more ranks left */
        path_of(path, r, k);
        if (unlink(path) != 0)
            break;
    }
    free(r->times);
}
