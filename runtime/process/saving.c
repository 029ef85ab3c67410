#include "saving.h"
#include "device/owners.h"
#include <stdio.h>
#include <stdlib.h>

static const struct rt_home *find_home(const struct rt_rank *k, int set) {
    for (const struct rt_home *home = k->home; home < k->home + k->nhomes; home++)
        if (home->stage == set)
            return home;
    return NULL;
}

bool saving_load(const struct saving *saving, const struct rt_program *p, const struct saving_memory *memory, char *why,
                 size_t n) {
    for (int s = 0; s < p->sets; s++) {
        const struct rt_stage *stage = &p->stage[s];
        float *state = checkpoint_read_stage(saving->dir, saving->loaded, p->model, stage, why, n);
        if (!state)
            return false;
        for (int r = 0; r < p->workers; r++) {
            const struct rt_home *home = find_home(&p->rank[r], s);
            if (home)
                memory->push(memory->context, r, home, state, state + weight_count(p->model, stage));
        }
        free(state);
    }
    return true;
}

/* owner: as find_owners leaves it. */
static bool write_shards(const struct saving *saving, const struct rt_program *p, int64_t done, int set, int file,
                         const int32_t *owner, const struct saving_memory *memory, char *why, size_t n) {
    bool ok = true;
    for (; ok && *owner >= 0; owner++) {
        const struct rt_home *home = find_home(&p->rank[*owner], set);
        struct checkpoint_shard shard = memory->pull(memory->context, *owner, home);
        ok = checkpoint_write_shard(saving->dir, done, p->model, &p->stage[set], file, &shard, why, n);
    }
    return ok;
}

static void find_all(const struct rt_program *p, struct owner_range *range, int32_t *owner) {
    int W = p->workers;
    for (int s = 0; s < p->sets; s++) {
        for (int r = 0; r < W; r++) {
            const struct rt_home *home = find_home(&p->rank[r], s);
            range[r] = home ? owner_range(p, home) : (struct owner_range){0, -1};
        }
        find_owners(owner + (int64_t)s * (W + 1), range, W, 1);
    }
}

/* A file has whole layers: the shards of all sets of a team, of which the first begins and the last ends it. */
bool saving_write(const struct saving *saving, const struct rt_program *p, int64_t done, bool nonfinite,
                  const struct saving_memory *memory, char *why, size_t n) {
    int W = p->workers, file = -1;
    struct owner_range *range = calloc((size_t)W, sizeof *range);
    int32_t *owner = calloc((size_t)p->sets * (size_t)(W + 1), sizeof *owner);
    struct checkpoint_run is = saving->is;
    bool ok = range && owner;
    if (ok)
        find_all(p, range, owner);
    else
        snprintf(why, n, "%s: no memory", saving->dir);
    for (int s = 0; ok && s < p->sets; s++) {
        const int32_t *owners = owner + (int64_t)s * (W + 1);
        if (p->stage[s].place == 0 && *owners >= 0)
            ok = checkpoint_begin_stage(saving->dir, done, p->model, &p->stage[s], ++file, why, n);
        ok = ok && write_shards(saving, p, done, s, file, owners, memory, why, n);
    }
    for (int f = 0; ok && f <= file; f++)
        ok = checkpoint_end_stage(saving->dir, done, f, why, n);
    is.sequences += (done - saving->from) * sequences_per_step(p->model);
    is.nonfinite |= nonfinite;
    ok = ok && checkpoint_write_manifest(saving->dir, done, file + 1, &is, why, n) &&
         checkpoint_keep(saving->dir, (int)saving->keep, why, n);
    free(owner);
    free(range);
    return ok;
}
