/* --timeline: the times of this rank's instructions, by its own clock. All steps are recorded, in a ring allocated at
 * the start, because a signal may make any of them the last. */
#include "store/timeline.h"
#include "store/durable.h"
#include "store/seconds.h"
#include "rank_run.h"
#include "comm/watch.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const struct rt_rank *own_rank(const struct rank_run *run) { return &run->program.rank[run->world.rank]; }

static void path_of(char *path, const struct rank_run *run, int rank) {
    snprintf(path, DURABLE_PATH, "%s/timeline.%d.tsv", run->flags.timeline, rank);
}

/* Opens the timeline. The verdict is the ranks' last exchange before they train. It reaches all of them at nearly the
 * same time, which is their common origin. */
void rank_timeline_open(struct rank_run *run) {
    char why[DURABLE_PATH + 512] = "", path[DURABLE_PATH];
    struct durable durable;
    size_t n = TIMELINE_STEPS * (size_t)own_rank(run)->nins;
    path_of(path, run, run->world.rank);
    bool ok = durable_folder(run->flags.timeline, why, sizeof why) && durable_begin(&durable, path, why, sizeof why);
    if (ok)
        durable_drop(&durable);
    run->keeps = TIMELINE_STEPS;
    run->times = calloc(n + 1, sizeof *run->times);
    if (!run->times)
        rank_error(run->self, "no memory");
    for (size_t i = 0; i < n; i++) /* touches the pages now rather than in the first steps */
        run->times[i].start = -1;
    watch_phase("waits for all ranks to open their timelines");
    world_verdict(&run->world, ok, why);
    run->origin = seconds();
}

static bool write_rows(struct rank_run *run, int64_t steps, char *why, size_t nwhy) {
    char path[DURABLE_PATH], *text = NULL;
    size_t n = 0;
    struct durable durable;
    FILE *f = open_memstream(&text, &n);
    if (f)
        timeline_head(f);
    for (int64_t s = timeline_first(run->from, steps); f && s < steps; s++)
        timeline_rows(f, s, own_rank(run), run->program.model->slices, rank_times(run, s), run->origin,
                      (struct timeline_on){0, 0});
    if (!f || ferror(f) || fclose(f) != 0)
        rank_error(run->self, "no memory for the timeline");
    path_of(path, run, run->world.rank);
    bool ok = durable_begin(&durable, path, why, nwhy);
    if (ok) {
        durable_write(&durable, text, n);
        ok = durable_end(&durable);
    }
    free(text);
    return ok;
}

void rank_timeline_write(struct rank_run *run, int64_t steps) {
    char why[DURABLE_PATH + 512] = "", path[DURABLE_PATH];
    watch_phase("writes its timeline, or waits for others to");
    bool ok = steps == run->from || write_rows(run, steps, why, sizeof why);
    world_verdict(&run->world, ok, why);
    if (run->world.rank == 0 && steps == run->from)
        fprintf(stderr, "pianola: no step was left to train: wrote no timeline\n");
    for (int k = run->world.size; run->world.rank == 0 && steps > run->from; k++) { /* left by a run of more ranks */
        path_of(path, run, k);
        if (unlink(path) != 0)
            break;
    }
    free(run->times);
}
