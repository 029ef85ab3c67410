/* Agreement of ranks: before anything runs, they exchange everything that must be the same on all ranks of a run. */
#include "device/job.h"
#include "parameters.h"
#include "rank_run.h"
#include "store/hash.h"
#include "store/import.h"
#include "store/named.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NSETTINGS = 16 };
static const char *const setting[NSETTINGS] = {
    "--steps",      "--seed",       "--every",   "--resume",  "--checkpoint", "--no-graph",  "--timeline",
    "--algorithms", "--losses",     "--weights", "--metrics", "--val",        "--val-every", "--allow-nonfinite",
    "--new-data",   "--tensorboard"};

struct identity {
    char name[64], device[4];
    uint64_t hash, data_hash, weights_hash; /* 0: the rank has no file of weights */
    uint64_t held_hash;                     /* hash of held-out text; 0: the rank reads none */
    int64_t data_bytes, held_bytes, held_sequences;
    int64_t set[NSETTINGS]; /* values of the settings; for those without a number, whether they are given */
    int32_t rank, workers, said, messages;
    bool ordered; /* NCCL sums in the members' order */
    bool reads;   /* the rank reads data */
};

/* Only stages that read inputs or targets need data; the ranks between them do not. */
bool rank_reads(const struct rank_run *run) {
    struct rt_program p = {.stages = run->self->stages, .stage = run->self->stage};
    for (int32_t i = 0; i < run->self->rank->nins; i++) {
        const struct rt_instr *x = &run->self->rank->ins[i];
        if (is_job(x->op) && stage_reads_batch(&p, x->stage))
            return true;
    }
    return false;
}

static struct identity own_identity(struct rank_run *run) {
    const struct rank_flags *flags = &run->flags;
    struct identity identity = {
        .hash = run->self->hash, .rank = run->self->rank->number, .workers = run->self->workers};
    snprintf(identity.name, sizeof identity.name, "%s", run->self->name);
    snprintf(identity.device, sizeof identity.device, "%s", backend_kind);
    identity.said = flags->launch.rank;
    identity.messages = flags->messages;
    identity.ordered = flags->ordered;
    identity.set[0] = flags->steps;
    identity.set[1] = flags->seed;
    identity.set[2] = flags->every;
    identity.set[3] = flags->resume;
    identity.set[4] = flags->checkpoint != NULL;
    identity.set[5] = flags->eager;
    identity.set[6] = flags->timeline != NULL;
    identity.set[7] = flags->algorithms != NULL;
    identity.set[8] = flags->losses != NULL;
    identity.set[9] = flags->weights != NULL;
    identity.set[10] = flags->metrics != NULL;
    identity.set[11] = flags->held_out != NULL;
    identity.set[12] = flags->val_every;
    identity.set[13] = flags->allow_nonfinite;
    identity.set[14] = flags->new_data;
    identity.set[15] = flags->tensorboard != NULL;
    identity.weights_hash = flags->weights ? named_hash(run->start.weights) : 0;
    identity.reads = rank_reads(run);
    if (identity.reads)
        data_identity(run->data, &identity.data_bytes, &identity.data_hash);
    if (identity.reads && run->held_out) {
        data_identity(run->held_out, &identity.held_bytes, &identity.held_hash);
        identity.held_sequences = data_sequences(run->held_out);
    }
    return identity;
}

static bool differ(const struct identity *identity, const struct identity *first, const struct identity *reader,
                   int rank, char *why, size_t n) {
    if (identity->workers != first->workers || identity->hash != first->hash)
        return snprintf(
            why, n, "rank %d runs %s of compile %016llx, but rank 0 runs %s of compile %016llx; compile again", rank,
            identity->name, (unsigned long long)identity->hash, first->name, (unsigned long long)first->hash);
    if (strcmp(identity->device, first->device) != 0)
        return snprintf(why, n, "rank %d is built for a %s, but rank 0 for a %s", rank, identity->device,
                        first->device);
    for (int i = 0; i < NSETTINGS; i++)
        if (identity->set[i] != first->set[i])
            return snprintf(why, n, "rank %d has %s %lld, but rank 0 has %lld; give all ranks the same flags", rank,
                            setting[i], (long long)identity->set[i], (long long)first->set[i]);
    if (identity->messages != first->messages)
        return snprintf(why, n, "rank %d has --messages %s, but rank 0 has %s; give all ranks the same flags", rank,
                        rank_messages[identity->messages], rank_messages[first->messages]);
    if (identity->ordered != first->ordered)
        return snprintf(why, n, "rank %d has --reduce %s, but rank 0 has %s; give all ranks the same flags", rank,
                        identity->ordered ? "ordered" : "nccl", first->ordered ? "ordered" : "nccl");
    if (identity->reads && (identity->data_bytes != reader->data_bytes || identity->data_hash != reader->data_hash))
        return snprintf(
            why, n, "rank %d reads different data than rank %d: %lld bytes with hash %016llx, not %lld with %016llx",
            rank, reader->rank, (long long)identity->data_bytes, (unsigned long long)identity->data_hash,
            (long long)reader->data_bytes, (unsigned long long)reader->data_hash);
    if (identity->reads && (identity->held_bytes != reader->held_bytes || identity->held_hash != reader->held_hash))
        return snprintf(why, n, "rank %d reads different held-out text than rank %d; give all ranks the same --val",
                        rank, reader->rank);
    if (identity->weights_hash != first->weights_hash)
        return snprintf(why, n, "rank %d starts from different --weights than rank 0; give all ranks the same file",
                        rank);
    return false;
}

/* Hashes the files that have a stage's frozen parameters, in the order of its layers. Returns false on error, with why.
 */
static bool hash_frozen(const struct rt_model *m, const struct rt_stage *s, uint64_t *hash, char *why, size_t nwhy) {
    const char *last = "";
    *hash = 1;
    for (const struct rt_layer *l = s->layer; l < s->layer + s->nlayers; l++) {
        const char *path = frozen_file(m, l);
        if (!path || strcmp(path, last) == 0)
            continue;
        last = path;
        struct named_file *file = named_open(last, why, nwhy);
        if (!file)
            return false;
        *hash = host_hash(*hash, named_hash(file));
        named_close(file);
    }
    return true;
}

/* Refuses different copies of a stage's frozen parameters, which each rank that computes the stage reads for itself. */
static void agree_on_frozen(struct rank_run *run) {
    const struct rt_program *p = run->self;
    const size_t n = (size_t)p->sets, size = (size_t)run->world.size;
    uint64_t *all = calloc(n * (size + 1), sizeof *all), *mine = all + n * size;
    char why[1000] = "";
    bool ok = true;
    if (!all)
        rank_error(p, "no memory");
    for (int i = 0; i < p->rank->nfrozen && ok; i++) {
        int s = p->rank->frozen[i].stage;
        ok = hash_frozen(p->model, &p->stage[s], &mine[s], why, sizeof why);
    }
    world_verdict(&run->world, ok, why);
    run->world.all(run->world.link, mine, all, n * sizeof *mine);
    for (size_t s = 0; s < n; s++)
        for (size_t r = 0, first = size; r < size; r++) {
            uint64_t hash = all[r * n + s];
            if (hash != 0 && first < size && hash != all[first * n + s])
                snprintf(why, sizeof why,
                         "rank %zu has other frozen parameters of stage %zu than rank %zu; give all ranks the same "
                         "file as the layer's 'data'",
                         r, s, first);
            first = hash != 0 && first == size ? r : first;
        }
    free(all);
    world_verdict(&run->world, !*why, why);
}

void rank_agree(struct rank_run *run) {
    int size = run->world.size;
    char why[512] = "";
    struct identity mine = own_identity(run), *all = malloc(sizeof *all * (size_t)size), *reader;
    if (!all)
        rank_error(run->self, "no memory");
    run->world.all(run->world.link, &mine, all, sizeof mine);
    for (reader = all; reader < all + size - 1 && !reader->reads;)
        reader++;
    for (int k = 0; k < size && !*why; k++) {
        const struct identity *identity = &all[k];
        if (identity->workers != size)
            snprintf(why, sizeof why, "%s is compiled for %d ranks, but %d were started", identity->name,
                     identity->workers, size);
        else if (identity->said >= 0 && identity->said != k)
            snprintf(why, sizeof why,
                     "a process has rank %d, but is number %d of %d: is a rank missing, or started twice?",
                     identity->said, k, size);
        else if (identity->rank != k)
            snprintf(why, sizeof why, "process %d runs the program of rank %d of %s; start them in order", k,
                     identity->rank, identity->name);
        else
            differ(identity, all, reader, k, why, sizeof why);
    }
    run->reader = (int)(reader - all);
    run->is.seed = (uint64_t)run->flags.seed;
    run->is.steps = run->flags.steps;
    run->is.data_bytes = reader->data_bytes;
    run->is.data_hash = reader->data_hash;
    run->is.context = run->self->model->context;
    if (run->held_out) {
        data_hold_out(run->held_out, reader->held_sequences);
        run->held_steps = data_steps(run->held_out);
    }
    free(all);
    world_verdict(&run->world, !*why, why);
    agree_on_frozen(run);
}
