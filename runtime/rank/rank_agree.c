/* One program, one compile: what all ranks of a run must have alike, exchanged before anything runs. */
#include "device/job.h"
#include "rank_run.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NSETTINGS = 7 };
static const char *const setting[NSETTINGS] = {"--steps",      "--seed",     "--every",   "--resume",
                                               "--checkpoint", "--no-graph", "--timeline"};

struct identity {
    char name[64], device[4];
    uint64_t hash, data_hash;
    int64_t data_bytes;
    int64_t set[NSETTINGS]; /* the last four: whether given */
    int32_t rank, workers, said, messages;
    bool reads; /* data */
};

/* Stages at the ends read inputs and targets; ranks between them need no data. */
bool rank_reads(const struct rank_run *r) {
    struct rt_program p = {.stages = r->self->stages, .stage = r->tables->stage};
    for (int32_t i = 0; i < r->tables->nins; i++) {
        const struct rt_instr *x = &r->tables->ins[i];
        if (is_job(x->op) && stage_reads_batch(&p, x->stage))
            return true;
    }
    return false;
}

static struct identity own_identity(struct rank_run *r) {
    const struct rank_flags *f = &r->flags;
    struct identity p = {.hash = r->self->hash, .rank = r->self->rank, .workers = r->self->workers};
    snprintf(p.name, sizeof p.name, "%s", r->self->name);
    snprintf(p.device, sizeof p.device, "%s", backend_kind);
    p.said = f->launch.rank;
    p.messages = f->messages;
    p.set[0] = f->steps;
    p.set[1] = f->seed;
    p.set[2] = f->every;
    p.set[3] = f->resume;
    p.set[4] = f->checkpoint != NULL;
    p.set[5] = f->eager;
    p.set[6] = f->timeline != NULL;
    p.reads = rank_reads(r);
    if (p.reads)
        data_identity(r->data, &p.data_bytes, &p.data_hash);
    return p;
}

static bool differ(const struct identity *a, const struct identity *first, const struct identity *reader, int rank,
                   char *why, size_t n) {
    if (a->workers != first->workers || a->hash != first->hash)
        return snprintf(why, n, "rank %d runs %s of compile %016llx, rank 0 %s of compile %016llx; compile again", rank,
                        a->name, (unsigned long long)a->hash, first->name, (unsigned long long)first->hash);
    if (strcmp(a->device, first->device) != 0)
        return snprintf(why, n, "rank %d is built for a %s, rank 0 for a %s", rank, a->device, first->device);
    for (int i = 0; i < NSETTINGS; i++)
        if (a->set[i] != first->set[i])
            return snprintf(why, n, "rank %d has %s %lld, rank 0 %lld; give all ranks the same flags", rank, setting[i],
                            (long long)a->set[i], (long long)first->set[i]);
    if (a->messages != first->messages)
        return snprintf(why, n, "rank %d has --messages %s, rank 0 %s; give all ranks the same flags", rank,
                        rank_messages[a->messages], rank_messages[first->messages]);
    if (a->reads && (a->data_bytes != reader->data_bytes || a->data_hash != reader->data_hash))
        return snprintf(why, n,
                        "rank %d reads other data than rank %d: %lld bytes with hash %016llx, not %lld with %016llx",
                        rank, reader->rank, (long long)a->data_bytes, (unsigned long long)a->data_hash,
                        (long long)reader->data_bytes, (unsigned long long)reader->data_hash);
    return false;
}

void rank_agree(struct rank_run *r) {
    int size = r->world.size;
    char why[512] = "";
    struct identity mine = own_identity(r), *all = malloc(sizeof *all * (size_t)size), *reader;
    if (!all)
        rank_error(r->self, "no memory");
    r->world.all(r->world.link, &mine, all, sizeof mine);
    for (reader = all; reader < all + size - 1 && !reader->reads;)
        reader++;
    for (int k = 0; k < size && !*why; k++) {
        const struct identity *a = &all[k];
        if (a->workers != size)
            snprintf(why, sizeof why, "%s is compiled for %d ranks, but %d were started", a->name, a->workers, size);
        else if (a->said >= 0 && a->said != k)
            snprintf(why, sizeof why,
                     "a process is said to be rank %d, but comes at place %d of %d: is a rank missing, "
                     "or there twice?",
                     a->said, k, size);
        else if (a->rank != k)
            snprintf(why, sizeof why, "process %d runs the program of rank %d of %s; start them in order", k, a->rank,
                     a->name);
        else
            differ(a, all, reader, k, why, sizeof why);
    }
    r->is.seed = (uint64_t)r->flags.seed;
    r->is.data_bytes = reader->data_bytes;
    r->is.data_hash = reader->data_hash;
    free(all);
    world_verdict(&r->world, !*why, why);
}
