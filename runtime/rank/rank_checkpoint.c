/* Checkpoints of a run whose ranks are processes: each stage's first home writes it; rank 0 makes them a checkpoint. */
#include "store/durable.h"
#include "rank_run.h"
#include "comm/watch.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct rt_rank *here(const struct rank_run *r) { return &r->program.rank[r->world.rank]; }

const struct rt_home *rank_home(const struct rank_run *r, int stage) {
    for (int h = 0; h < here(r)->nhomes; h++)
        if (here(r)->home[h].stage == stage)
            return &here(r)->home[h];
    return NULL;
}

void rank_writers(struct rank_run *r) {
    int size = r->world.size, S = r->program.sets;
    bool *mine = calloc((size_t)S, 1), *all = calloc((size_t)S, (size_t)size);
    r->writer = calloc((size_t)S, sizeof *r->writer);
    if (!mine || !all || !r->writer)
        rank_error(r->self, "no memory");
    for (int h = 0; h < here(r)->nhomes; h++)
        mine[here(r)->home[h].stage] = true;
    r->world.all(r->world.link, mine, all, (size_t)S);
    for (int s = 0; s < S; s++)
        while (r->writer[s] < size - 1 && !all[(int64_t)r->writer[s] * S + s])
            r->writer[s]++;
    free(mine);
    free(all);
}

/* True when all ranks have come, and all of them with true. */
static bool all_true(struct rank_run *r, bool mine) {
    float n = mine;
    r->world.sum_begin(r->world.link, &n, 1);
    r->world.sum_end(r->world.link);
    return (int)n == r->world.size;
}

static bool take_lock(struct rank_run *r, char *why, size_t nwhy) {
    char run[96];
    snprintf(run, sizeof run, "%.64s of compile %016llx", r->self->name, (unsigned long long)r->self->hash);
    bool ok = checkpoint_lock(&r->lock, r->flags.checkpoint, r->world.rank, run, why, nwhy);
    if (ok && *why && r->world.rank == 0)
        fprintf(stderr, "pianola: warning: %s\n", why);
    return ok;
}

/* When training is under way. */
static void verdict_on_saving(const struct world *w, bool ok, const char *why) {
    char more[DURABLE_PATH + 512];
    snprintf(more, sizeof more, "%s; --resume goes on from the newest whole checkpoint", why);
    world_verdict(w, ok, more);
}

/* Ends all ranks, by verdict, where another run has the folder. False with why: this rank cannot keep it. */
static bool lock_folder(struct rank_run *r, void (*verdict)(const struct world *w, bool ok, const char *why), char *why,
                        size_t nwhy) {
    bool ok = r->world.rank > 0 || take_lock(r, why, nwhy);
    verdict(&r->world, ok, why);
    return r->world.rank == 0 || take_lock(r, why, nwhy);
}

/* Each rank makes a file, and rank 0 looks for all of them. */
void rank_try_checkpoint(struct rank_run *r) {
    char why[DURABLE_PATH + 512] = "", path[DURABLE_PATH];
    const char *dir = r->flags.checkpoint;
    struct durable d;
    watch_phase("waits for all ranks to open the checkpoint folder");
    snprintf(path, sizeof path, "%s/rank%d", dir, r->world.rank);
    bool made = lock_folder(r, world_verdict, why, sizeof why) && durable_begin(&d, path, why, sizeof why), ok = made;
    bool looks = all_true(r, made) && r->world.rank == 0;
    for (int k = 1; ok && looks && k < r->world.size; k++) {
        snprintf(path, sizeof path, "%s/rank%d.tmp", dir, k);
        if (!(ok = access(path, F_OK) == 0))
            snprintf(why, sizeof why,
                     "%s: rank 0 does not see what rank %d writes there: all ranks need the same folder", dir, k);
    }
    if (ok && looks && !r->flags.resume && !(ok = checkpoint_none(dir)))
        snprintf(why, sizeof why, "%s: holds checkpoints already: go on with --resume, or name another folder", dir);
    all_true(r, ok); /* rank 0 has looked */
    if (made)
        durable_drop(&d);
    world_verdict(&r->world, ok, why);
}

void rank_save(struct rank_run *r, int64_t step) {
    char why[DURABLE_PATH + 512] = "";
    const char *dir = r->flags.checkpoint;
    const struct rt_program *p = &r->program;
    watch_phase("writes a checkpoint, or waits for others to");
    bool ok = lock_folder(r, verdict_on_saving, why, sizeof why);
    for (int s = 0; ok && s < p->sets; s++)
        if (r->writer[s] == r->world.rank) {
            struct home_state h = backend_pull(r, rank_home(r, s));
            ok = checkpoint_write_stage(dir, step, p->model, &p->stage[s], s, h.weight, h.moments, why, sizeof why);
        }
    verdict_on_saving(&r->world, ok, why);
    if (r->world.rank == 0)
        ok = checkpoint_write_manifest(dir, step, p->sets, &r->is, why, sizeof why) &&
             checkpoint_keep(dir, (int)r->flags.keep, why, sizeof why);
    verdict_on_saving(&r->world, ok, why);
}

/* What rank 0 found, for all. */
struct found {
    bool ok, some;
    int64_t step;
    struct checkpoint_run run;
    char why[1000];
};

static struct found find_latest(const struct rank_run *r) {
    struct found f = {.step = 0};
    const char *dir = r->flags.checkpoint;
    f.some = checkpoint_latest(dir, &f.step, f.why, sizeof f.why);
    if (f.some && *f.why)
        fprintf(stderr, "pianola: %s; going on from step %lld\n", f.why, (long long)f.step);
    f.ok = f.some ? checkpoint_read_run(dir, f.step, &f.run, f.why, sizeof f.why) : checkpoint_none(dir);
    if (!f.some && f.ok)
        fprintf(stderr, "pianola: %s holds no whole checkpoint yet: starting at step 0\n", dir);
    return f;
}

static bool fits(const struct rank_run *r, const struct found *f, char *why, size_t n) {
    const char *dir = r->flags.checkpoint;
    if (f->run.seed != r->is.seed)
        snprintf(why, n, "%s: is of a run with --seed %llu, not %llu", dir, (unsigned long long)f->run.seed,
                 (unsigned long long)r->is.seed);
    else if (f->run.data_bytes != r->is.data_bytes || f->run.data_hash != r->is.data_hash)
        snprintf(why, n, "%s: is of a run on other data: %lld bytes with hash %016llx, not %lld with %016llx", dir,
                 (long long)f->run.data_bytes, (unsigned long long)f->run.data_hash, (long long)r->is.data_bytes,
                 (unsigned long long)r->is.data_hash);
    else
        return true;
    return false;
}

void rank_resume(struct rank_run *r) {
    struct found mine = {.ok = true}, *all = malloc(sizeof mine * (size_t)r->world.size);
    char why[DURABLE_PATH + 512] = "";
    if (!all)
        rank_error(r->self, "no memory");
    watch_phase("waits for all ranks to resume");
    if (r->world.rank == 0)
        mine = find_latest(r);
    r->world.all(r->world.link, &mine, all, sizeof mine);
    struct found f = all[0];
    free(all);
    bool ok = f.ok;
    snprintf(why, sizeof why, "%s", f.why);
    ok = ok && (!f.some || fits(r, &f, why, sizeof why));
    for (int h = 0; ok && f.some && h < here(r)->nhomes; h++) {
        const struct rt_home *y = &here(r)->home[h];
        struct home_state m = backend_pull(r, y);
        ok = checkpoint_read_stage(r->flags.checkpoint, f.step, r->program.model, &r->program.stage[y->stage], m.weight,
                                   m.moments, why, sizeof why);
        if (ok)
            backend_push(r, y);
    }
    world_verdict(&r->world, ok, why);
    r->from = f.step;
}
