/* Checkpoints. Each stage's first home begins and ends the stage's file, and all its homes write the elements that they
 * update. Rank 0 completes the checkpoint. */
#include "store/durable.h"
#include "device/owners.h"
#include "rank_run.h"
#include "store/checkpoint_fit.h"
#include "comm/watch.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct rt_rank *here(const struct rank_run *run) { return &run->program.rank[run->world.rank]; }

const struct rt_home *rank_home(const struct rank_run *run, int stage) {
    for (int h = 0; h < here(run)->nhomes; h++)
        if (here(run)->home[h].stage == stage)
            return &here(run)->home[h];
    return NULL;
}

const int32_t *rank_owners(const struct rank_run *run, int set) {
    return run->owner + (int64_t)set * (run->world.size + 1);
}

void rank_find_owners(struct rank_run *run) {
    int size = run->world.size, S = run->program.sets;
    struct owner_range *mine = calloc((size_t)S, sizeof *mine), *all = calloc((size_t)S * (size_t)size, sizeof *all);
    run->owner = calloc((size_t)S * (size_t)(size + 1), sizeof *run->owner);
    if (!mine || !all || !run->owner)
        rank_error(run->self, "no memory");
    for (int s = 0; s < S; s++)
        mine[s].count = -1;
    for (int h = 0; h < here(run)->nhomes; h++) {
        const struct rt_home *home = &here(run)->home[h];
        mine[home->stage] = owner_range(&run->program, home);
    }
    run->world.all(run->world.link, mine, all, sizeof *mine * (size_t)S);
    for (int s = 0; s < S; s++)
        find_owners(run->owner + (int64_t)s * (size + 1), all + s, size, S);
    free(mine);
    free(all);
}

/* Waits for all ranks; returns whether all of them pass true. */
static bool all_true(struct rank_run *run, bool mine) {
    float n = mine;
    run->world.sum_begin(run->world.link, &n, 1);
    run->world.sum_end(run->world.link);
    return (int)n == run->world.size;
}

/* Locks the checkpoint folder. In a process that runs all ranks, rank 0 holds the lock. */
static bool take_lock(struct rank_run *r, char *why, size_t nwhy) {
    char run[96];
    if (r->whole && r->world.rank > 0)
        return true;
    if (r->whole)
        snprintf(run, sizeof run, "%.64s in one process", r->self->name);
    else
        snprintf(run, sizeof run, "%.64s of compile %016llx", r->self->name, (unsigned long long)r->self->hash);
    bool ok = checkpoint_lock(&r->lock, r->flags.checkpoint, r->world.rank, run, why, nwhy);
    if (ok && *why && r->world.rank == 0)
        fprintf(stderr, "pianola: warning: %s\n", why);
    return ok;
}

void rank_fail(const struct rank_run *run, const char *why) {
    char more[DURABLE_PATH + 2048];
    snprintf(more, sizeof more, "%s%s", why, run->flags.how ? run->flags.how : "");
    rank_error(run->self, more);
}

static void verdict_at_start(const struct rank_run *run, bool ok, const char *why) {
    world_verdict(&run->world, ok, why);
}
static void verdict_on_saving(const struct rank_run *run, bool ok, const char *why) {
    char more[DURABLE_PATH + 2048];
    snprintf(more, sizeof more, "%s%s", why,
             run->flags.how ? run->flags.how : "; --resume continues from the newest complete checkpoint");
    world_verdict(&run->world, ok, more);
}

/* Locks the folder on every rank. Ends all ranks, by verdict, if another run has it. Returns false and sets why if this
 * rank cannot lock it. If the folder was moved, rank 0 decides so for all: a rank that finds out by itself would lock
 * the new folder first, and look like another run's. */
static bool lock_checkpoints(struct rank_run *run,
                             void (*verdict)(const struct rank_run *run, bool ok, const char *why), char *why,
                             size_t nwhy) {
    int before = run->lock;
    bool ok = run->world.rank > 0 || take_lock(run, why, nwhy);
    verdict(run, ok, why);
    bool same = all_true(run, run->world.rank > 0 || run->lock == before);
    return run->world.rank == 0 || same || take_lock(run, why, nwhy);
}

/* Creates a file on each rank; rank 0 checks that it sees all of them. */
void rank_try_checkpoint(struct rank_run *run) {
    char why[DURABLE_PATH + 512] = "", path[DURABLE_PATH];
    const char *dir = run->flags.checkpoint;
    struct durable durable;
    watch_phase("waits for all ranks to open the checkpoint folder");
    snprintf(path, sizeof path, "%s/rank%d", dir, run->world.rank);
    bool ok = lock_checkpoints(run, verdict_at_start, why, sizeof why);
    if (rank_evaluates(run))
        return;
    bool made = ok && durable_begin(&durable, path, why, sizeof why);
    ok = made;
    bool looks = all_true(run, made) && run->world.rank == 0;
    for (int k = 1; ok && looks && k < run->world.size; k++) {
        snprintf(path, sizeof path, "%s/rank%d.tmp", dir, k);
        if (!(ok = access(path, F_OK) == 0))
            snprintf(why, sizeof why,
                     "%s: rank 0 does not see what rank %d writes there: all ranks need the same folder", dir, k);
    }
    if (ok && looks && !run->flags.resume && !(ok = checkpoint_none(dir)))
        snprintf(why, sizeof why, "%s: already holds checkpoints: continue with --resume, or name another folder", dir);
    all_true(run, ok); /* waits until rank 0 has looked */
    if (made)
        durable_drop(&durable);
    world_verdict(&run->world, ok, why);
}

bool rank_owns(const struct rank_run *run, int set) {
    const int32_t *owner = rank_owners(run, set);
    while (*owner >= 0 && *owner != run->world.rank)
        owner++;
    return *owner >= 0 && rank_home(run, set);
}

/* Numbers the files of the checkpoint, and returns whether this rank leads the set's file. A file holds whole layers:
 * the shards of all sets of a team. The first owner of the file's first set begins and ends it; a set without weights
 * has no file. */
static bool leads_file(const struct rank_run *run, int set, int *file) {
    bool first = run->program.stage[set].place == 0 && *rank_owners(run, set) >= 0;
    *file += first;
    return first && *rank_owners(run, set) == run->world.rank;
}

void rank_scan(struct rank_run *run, const struct rt_home *home, int64_t step) {
    const struct rt_model *m = run->program.model;
    struct checkpoint_shard shard = backend_pull(run, home);
    const struct rt_piece piece = {m, &run->program.stage[home->stage], shard.first, shard.count};
    struct nonfinite_at at = {step, run->world.rank, NONFINITE_STATE, 0};
    nonfinite_scan(&run->replay->bad, &at, piece, shard.weight);
    for (int k = 0; k < count_moments(m->optimizer) && shard.moments && run->replay->bad.step == 0; k++) {
        at.moment = moments_of(m->optimizer)[k];
        nonfinite_scan(&run->replay->bad, &at, piece, shard.moments + k * shard.stride);
    }
}

void rank_save(struct rank_run *run, int64_t step) {
    char why[DURABLE_PATH + 512] = "";
    const char *dir = run->flags.checkpoint;
    const struct rt_program *p = &run->program;
    watch_phase("writes a checkpoint, or waits for others to");
    bool ok = lock_checkpoints(run, verdict_on_saving, why, sizeof why);
    struct stage_file file = {dir, step, -1};
    for (int s = 0; ok && s < p->sets; s++)
        if (leads_file(run, s, &file.stage))
            ok = checkpoint_begin_stage(&file, p->model, &p->stage[s], why, sizeof why);
    verdict_on_saving(run, ok, why);
    file.stage = -1;
    for (int s = 0; ok && s < p->sets; s++) {
        leads_file(run, s, &file.stage);
        if (!rank_owns(run, s))
            continue;
        struct checkpoint_shard shard = backend_pull(run, rank_home(run, s));
        ok = checkpoint_write_shard(&file, p->model, &p->stage[s], &shard, why, sizeof why);
    }
    verdict_on_saving(run, ok, why);
    file.stage = -1;
    for (int s = 0; ok && s < p->sets; s++)
        if (leads_file(run, s, &file.stage))
            ok = checkpoint_end_stage(&file, why, sizeof why);
    verdict_on_saving(run, ok, why);
    run->is.sequences = run->from_sequence + (step - run->from) * sequences_per_step(p->model);
    if (run->world.rank == 0)
        ok = checkpoint_write_manifest(dir, step, file.stage + 1, &run->is, why, sizeof why) &&
             checkpoint_keep(dir, (int)run->flags.keep, why, sizeof why);
    verdict_on_saving(run, ok, why);
}

/* Finds the position in the data at which the run continues. */
static void find_place(struct rank_run *run, const struct checkpoint_found *found) {
    char note[DURABLE_PATH + 512];
    run->from_sequence = checkpoint_place(run->flags.checkpoint, found, &run->is,
                                          sequences_per_step(run->program.model), note, sizeof note);
    if (!run->whole || run->world.rank == 0)
        data_begin(run->data, found->step, run->from_sequence);
    if (run->world.rank == 0 && *note && !rank_evaluates(run))
        fprintf(stderr, "pianola: %s\n", note);
}

void rank_resume(struct rank_run *run) {
    struct checkpoint_found mine = {.ok = true}, *all = malloc(sizeof mine * (size_t)run->world.size);
    char why[DURABLE_PATH + 512] = "";
    if (!all)
        rank_error(run->self, "no memory");
    watch_phase("waits for all ranks to resume");
    if (run->world.rank == 0)
        mine = checkpoint_find(run->flags.checkpoint);
    run->world.all(run->world.link, &mine, all, sizeof mine);
    struct checkpoint_found found = all[0];
    free(all);
    bool ok = found.ok;
    snprintf(why, sizeof why, "%s", found.why);
    const struct checkpoint_wish wish = {run->flags.new_data, run->flags.allow_nonfinite};
    ok = ok && (!found.some || rank_evaluates(run) ||
                checkpoint_fits(run->flags.checkpoint, &found, &run->is, &wish, why, sizeof why));
    for (int h = 0; ok && found.some && h < here(run)->nhomes; h++) {
        const struct rt_home *home = &here(run)->home[h];
        const struct rt_stage *stage = &run->program.stage[home->stage];
        float *state =
            checkpoint_read_stage(run->flags.checkpoint, found.step, run->program.model, stage, why, sizeof why);
        ok = state != NULL;
        if (ok)
            backend_push(run, home, state, state + weight_count(run->program.model, stage));
        free(state);
    }
    world_verdict(&run->world, ok, why);
    if (found.some && found.run.steps > 0)
        run->is.steps = found.run.steps;
    run->from = found.step;
    run->is.nonfinite = found.some && found.run.nonfinite;
    if (found.some)
        find_place(run, &found);
}
