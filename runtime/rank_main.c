/* The main of a rank's own program: flags, one agreement with all other ranks, then the replay. */
#include "comm_mpi.h"
#include "host_device.h"
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct settings {
    const char *data;
    int64_t steps;
    uint64_t seed;
};

/* What all ranks of a run must have alike, exchanged before anything runs. */
struct place {
    char name[64];
    uint64_t hash, seed;
    int64_t steps, data; /* data: bytes of the text */
    int32_t rank, workers;
};

static _Noreturn void stop(const struct rt_self *self, const char *what) {
    fprintf(stderr, "pianola: rank %d of %s: error: %s\n", self->rank, self->name, what);
    exit(2);
}

static int64_t number(const struct rt_self *self, const char *flag, const char *s, int64_t least) {
    char *end, why[128];
    errno = 0;
    long long n = strtoll(s, &end, 10);
    if (end == s || *end || errno || n < least) {
        snprintf(why, sizeof why, "--%s %.32s: expected a whole number of at least %lld", flag, s, (long long)least);
        stop(self, why);
    }
    return n;
}

static struct settings parse(int argc, char **argv, const struct rt_self *self) {
    static const struct option options[] = {{"data", required_argument, NULL, 'x'},
                                            {"steps", required_argument, NULL, 'n'},
                                            {"seed", required_argument, NULL, 's'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    struct settings z = {.steps = 100, .seed = 1};
    for (int key; (key = getopt_long(argc, argv, "h", options, NULL)) != -1;)
        switch (key) {
        case 'x': z.data = optarg; break;
        case 'n': z.steps = number(self, "steps", optarg, 1); break;
        case 's': z.seed = (uint64_t)number(self, "seed", optarg, 0); break;
        case 'h':
            printf("Rank %d of %d of %s. Start all ranks together: mpirun --app app.mpi\n\n"
                   "  --data FILE   training text\n  --steps N     default 100\n  --seed N      default 1\n",
                   self->rank, self->workers, self->name);
            exit(0);
        default: exit(2);
        }
    return z;
}

/* Refuses another rank's file, another world size, an older compile or different data, by name. */
static void agree(struct mpi *c, const struct rt_self *self, const struct settings *z, int rank, int size) {
    char why[512] = "";
    struct place mine = {.hash = self->hash, .seed = z->seed, .steps = z->steps};
    snprintf(mine.name, sizeof mine.name, "%s", self->name);
    mine.rank = self->rank;
    mine.workers = self->workers;
    struct place *all = malloc(sizeof *all * (size_t)size);
    if (!all)
        stop(self, "no memory");
    mpi_all(c, &mine, all, sizeof mine);
    for (int r = 0; r < size && !*why; r++) {
        const struct place *a = &all[r];
        if (a->workers != size)
            snprintf(why, sizeof why, "%s is compiled for %d ranks, but %d were started", a->name, a->workers, size);
        else if (a->rank != r)
            snprintf(why, sizeof why, "process %d runs the program of rank %d of %s; start them in order", r, a->rank,
                     a->name);
        else if (a->hash != all[0].hash)
            snprintf(why, sizeof why, "rank %d runs %s of compile %016llx, rank 0 %s of compile %016llx; compile again",
                     r, a->name, (unsigned long long)a->hash, all[0].name, (unsigned long long)all[0].hash);
        else if (a->seed != all[0].seed || a->steps != all[0].steps)
            snprintf(why, sizeof why, "rank %d has --seed %llu --steps %lld, rank 0 --seed %llu --steps %lld", r,
                     (unsigned long long)a->seed, (long long)a->steps, (unsigned long long)all[0].seed,
                     (long long)all[0].steps);
    }
    free(all);
    if (*why) {
        if (rank == 0)
            fprintf(stderr, "pianola: error: %s\n", why);
        mpi_close(c);
        exit(2);
    }
}

static struct rt_rank *own_rank(const struct rt_self *self, const struct rt_tables *t) {
    struct rt_rank *all = calloc((size_t)self->workers, sizeof *all), *k = &all[self->rank];
    int32_t *at = calloc((size_t)self->nlanes + 2, sizeof *at), *ins = calloc((size_t)t->nins + 1, sizeof *ins);
    if (!all || !at || !ins)
        stop(self, "no memory");
    for (int32_t i = 0; i < t->nins; i++)
        at[t->ins[i].lane + 2]++;
    for (int l = 0; l < self->nlanes; l++)
        at[l + 2] += at[l + 1];
    for (int32_t i = 0; i < t->nins; i++)
        ins[at[t->ins[i].lane + 1]++] = i;
    *k = (struct rt_rank){.ins = t->ins, .nins = t->nins, .nlanes = self->nlanes, .lane_ins = ins, .lane_at = at};
    k->wait = t->wait;
    k->home = t->homes;
    while (t->homes[k->nhomes].stage >= 0)
        k->nhomes++;
    k->arena = self->arena;
    k->work = self->work;
    return all;
}

/* The fingerprint that `pianola run` prints: FNV-1a over all parameters in the order of the model. Stage by stage, the
 * first home goes on where the last one's ended. */
static uint64_t fingerprint(struct mpi *c, const struct replay *z, int size) {
    const struct rt_program *p = z->program;
    const struct rt_rank *k = &p->rank[z->rank];
    uint64_t hash = 0xcbf29ce484222325u;
    int32_t *home = malloc(sizeof *home * (size_t)size);
    for (int s = 0; home && s < p->stages; s++) {
        int32_t here = -1, from = 0;
        for (int h = 0; h < k->nhomes; h++)
            here = k->home[h].stage == s ? h : here;
        mpi_all(c, &here, home, sizeof here);
        while (from < size - 1 && home[from] < 0)
            from++;
        const struct rt_stage *st = &p->stage[s];
        for (int l = 0; from == z->rank && l < st->nlayers; l++) {
            const char *arena = ((const struct host_rank *)z->self)->arena;
            const unsigned char *byte = (const unsigned char *)arena + k->home[here].weight + st->layer[l].param;
            for (int64_t i = 0; i < st->layer[l].nparam * 4; i++)
                hash = (hash ^ byte[i]) * 0x100000001b3u;
        }
        mpi_spread(c, &hash, sizeof hash, from);
    }
    free(home);
    return hash;
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int rank_main(int argc, char **argv, const struct rt_self *self, const struct rt_tables *t) {
    int rank, size;
    char why[512];
    struct settings set = parse(argc, argv, self);
    host_blas();
    struct mpi *c = mpi_open(&argc, &argv, &rank, &size);
    agree(c, self, &set, rank, size);
    struct data *data = data_open(t->model, set.data, set.seed, why, sizeof why);
    if (!data) {
        fprintf(stderr, "pianola: rank %d: error: %s\n", rank, why);
        mpi_abort(c, 2);
    }
    struct rt_program p = {.name = self->name, .workers = self->workers, .stages = self->stages};
    p.batches = self->batches;
    p.nmsgs = self->nmsgs;
    p.model = t->model;
    p.stage = t->stage;
    p.rank = own_rank(self, t);
    struct host_rank h = {.data = data, .comm = &comm_mpi, .link = c};
    struct replay z;
    float *loss = host_pages((size_t)(set.steps * p.batches), sizeof *loss);
    if (!loss || !host_take(&z, &h, &p, rank) || !mpi_prepare(c, &p.rank[rank], p.nmsgs, t->groups, h.arena)) {
        fprintf(stderr, "pianola: rank %d: error: no memory for %lld bytes\n", rank, (long long)self->arena);
        mpi_abort(c, 2);
    }
    host_begin(&z, set.seed);
    double begin = seconds();
    for (z.step = 0; z.step < set.steps; z.step++) {
        h.loss = loss + z.step * p.batches;
        replay_step(&z);
    }
    double took = seconds() - begin;
    mpi_sum(c, loss, set.steps * p.batches);
    uint64_t hash = fingerprint(c, &z, size);
    float ends[2] = {0, 0};
    for (int b = 0; b < p.batches; b++) {
        ends[0] += loss[b];
        ends[1] += loss[(set.steps - 1) * p.batches + b];
    }
    if (rank == 0)
        printf("loss      %.4f to %.4f in %lld steps, %.3f ms a step\nweights   %016llx (fingerprint)\n",
               ends[0] / (float)p.batches, ends[1] / (float)p.batches, (long long)set.steps,
               1e3 * took / (double)set.steps, (unsigned long long)hash);
    mpi_close(c);
    host_release(&z, &h);
    free(h.arena);
    free(loss);
    free((void *)p.rank[rank].lane_at);
    free((void *)p.rank[rank].lane_ins);
    free((void *)p.rank);
    data_close(data);
    return 0;
}
