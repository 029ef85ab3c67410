/* The main of a rank's own program: the ranks meet and agree, then the replay, step by step, under a watch. */
#include "store/durable.h"
#include "store/fingerprint.h"
#include "store/progress.h"
#include "store/seconds.h"
#include "rank_run.h"
#include "comm/watch.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The part of rt_program that a rank knows: its own stream, and what all share. */
static void own_program(struct rank_run *r) {
    const struct rt_self *self = r->self;
    const struct rt_tables *t = r->tables;
    struct rt_rank *all = calloc((size_t)self->workers, sizeof *all), *k = &all[self->rank];
    int32_t *at = calloc((size_t)self->nlanes + 2, sizeof *at), *ins = calloc((size_t)t->nins + 1, sizeof *ins);
    if (!all || !at || !ins)
        rank_error(self, "no memory");
    for (int32_t i = 0; i < t->nins; i++)
        at[t->ins[i].lane + 2]++;
    for (int l = 0; l < self->nlanes; l++)
        at[l + 2] += at[l + 1];
    for (int32_t i = 0; i < t->nins; i++)
        ins[at[t->ins[i].lane + 1]++] = i;
    *k = (struct rt_rank){.ins = t->ins, .nins = t->nins, .nlanes = self->nlanes, .lane_ins = ins, .lane_at = at};
    k->wait = t->wait;
    k->more = t->more;
    k->home = t->homes;
    while (t->homes[k->nhomes].stage >= 0)
        k->nhomes++;
    k->arena = self->arena;
    k->work = self->work;
    r->program = (struct rt_program){.name = self->name, .workers = self->workers, .stages = self->stages};
    r->program.batches = self->batches;
    r->program.sets = t->sets;
    r->program.nmsgs = self->nmsgs;
    r->program.model = t->model;
    r->program.stage = t->stage;
    r->program.rank = all;
}

/* ---- meeting ---- */

enum { INTS, TERMS, LOSSES }; /* what is in a pulse */
struct training {
    float *pulse; /* how many ranks SIGINT came to, and SIGTERM; then the last step's loss of each microbatch */
    float *loss;  /* of this rank, per microbatch */
    float first, last;
    double seconds;
    int signal; /* that ended it early; 0: none */
    int64_t step;
};

static const struct {
    const char *title;
    bool (*open)(struct world *w, const struct launch *how, char *why, size_t nwhy);
} transport[] = {
#define X(name, title) {title, name##_open},
    HOST_TRANSPORTS(X)
#undef X
};

static void meet(struct rank_run *r) {
    struct launch *how = &r->flags.launch;
    char why[512];
    how->program = r->self->hash;
    if (how->over == HOST_tcp && how->rank < 0 && r->self->workers > 1) {
        snprintf(why, sizeof why,
                 "nothing says which rank this process is. Start all %d together: mpirun --app app.mpi, srun "
                 "--multi-prog multi-prog.slurm, or with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set",
                 r->self->workers);
        rank_error(r->self, why);
    }
    watch_phase("waits for all ranks to start");
    if (!transport[how->over].open(&r->world, how, why, sizeof why))
        rank_error(r->self, why);
    r->world.self = r->self;
}

/* Everything the run needs is taken here; from the first step on, nothing is. */
static void prepare(struct rank_run *r, struct training *t) {
    char why[DURABLE_PATH + 512];
    r->data =
        data_open(r->tables->model, rank_reads(r) ? r->flags.data : NULL, (uint64_t)r->flags.seed, why, sizeof why);
    world_verdict(&r->world, r->data, why);
    rank_agree(r);
    own_program(r);
    t->pulse = calloc((size_t)r->program.batches + LOSSES, sizeof *t->pulse);
    t->loss = calloc((size_t)r->program.batches, sizeof *t->loss);
    if (!t->pulse || !t->loss)
        rank_error(r->self, "no memory");
    backend_choose(r);
    bool ok = backend_take(r, why, sizeof why);
    world_verdict(&r->world, ok, why); /* before the next line, which takes all ranks */
    backend_connect(r);
    rank_writers(r);
    backend_begin(r);
    if (r->flags.checkpoint)
        rank_try_checkpoint(r);
    if (r->flags.resume)
        rank_resume(r);
    if (r->flags.timeline)
        rank_timeline_open(r); /* last: its times begin here */
}

/* ---- training ---- */

static float mean(const struct rank_run *r, const float *loss) {
    float sum = 0;
    for (int b = 0; b < r->program.batches; b++)
        sum += loss[b];
    return sum / (float)r->program.batches;
}

static void check_data(struct rank_run *r) {
    char why[DURABLE_PATH + 512];
    if (!data_same(r->data, why, sizeof why))
        rank_error(r->self, why);
}

/* What ranks tell one another in each step goes round while its messages do: whether to stop after it, and the losses
 * of the step before. So a signal ends the step at hand, or the one that others have begun meanwhile. */
static void step(struct rank_run *r, struct training *t) {
    struct replay *re = &r->replay;
    t->pulse[INTS] = watch_signal() == SIGINT;
    t->pulse[TERMS] = watch_signal() == SIGTERM;
    watch_step(re);
    r->world.sum_begin(r->world.link, t->pulse, LOSSES + r->program.batches);
    backend_step(r, t->loss);
    if (r->flags.timeline)
        rank_timeline_keep(r);
    r->world.sum_end(r->world.link);
    t->step = ++re->step;
    check_data(r);
}

static void train(struct rank_run *r, struct training *t) {
    const struct rank_flags *f = &r->flags;
    int B = r->program.batches;
    struct progress told = {.what = "training", .from = r->from, .steps = f->steps, .tty = isatty(STDERR_FILENO)};
    told.tokens = (int64_t)r->program.model->rows * B;
    double begin = seconds();
    for (bool stop = r->from >= f->steps; !stop;) {
        memcpy(t->pulse + LOSSES, t->loss, sizeof *t->pulse * (size_t)B);
        step(r, t);
        if (t->step == r->from + 1)
            backend_report(r);
        t->last = mean(r, t->pulse + LOSSES);
        if (t->step == r->from + 2)
            t->first = t->last;
        t->signal = t->pulse[INTS] > 0 ? SIGINT : t->pulse[TERMS] > 0 ? SIGTERM : 0;
        stop = t->signal || t->step == f->steps;
        t->seconds = seconds() - begin;
        if (r->world.rank == 0 && t->step > r->from + 1)
            progress_tell(&told, t->step - 1, t->last, t->seconds);
        if (f->checkpoint && (stop || t->step % f->every == 0))
            rank_save(r, t->step);
    }
    watch_phase("waits for all ranks to end");
    memcpy(t->pulse + LOSSES, t->loss, sizeof *t->pulse * (size_t)B);
    r->world.sum_begin(r->world.link, t->pulse, LOSSES + B);
    r->world.sum_end(r->world.link);
    t->last = mean(r, t->pulse + LOSSES);
    if (t->step == r->from + 1)
        t->first = t->last;
    if (r->world.rank == 0 && t->step > r->from)
        progress_tell(&told, t->step, t->last, t->seconds);
}

/* ---- results ---- */

/* The fingerprint that `pianola run` prints. Stage by stage, the first home goes on where the last one's ended. */
static uint64_t fingerprint(struct rank_run *r) {
    const struct rt_program *p = &r->program;
    uint64_t hash = FNV_START, *all = malloc(sizeof hash * (size_t)r->world.size);
    if (!all)
        rank_error(r->self, "no memory");
    for (int s = 0; s < p->sets; s++) {
        if (r->writer[s] == r->world.rank)
            hash = fingerprint_stage(hash, p->model, &p->stage[s], backend_pull(r, rank_home(r, s)).weight);
        r->world.all(r->world.link, &hash, all, sizeof hash);
        hash = all[r->writer[s]];
    }
    free(all);
    return hash;
}

static void print(const struct rank_run *r, const struct training *t, uint64_t hash) {
    int64_t steps = t->step - r->from;
    double each = steps ? t->seconds / (double)steps : 0;
    if (r->flags.json) {
        printf("{\n  \"schema\": 1,\n  \"schedule\": \"%s\",\n  \"steps\": %lld,\n  \"resumed_from\": %lld,\n",
               r->self->name, (long long)t->step, (long long)r->from);
        if (steps)
            printf("  \"loss_first\": %.9g,\n  \"loss_last\": %.9g,\n  \"seconds_per_step\": %.6g,\n", t->first,
                   t->last, each);
        printf("  \"weights\": \"%016llx\"\n}\n", (unsigned long long)hash);
        return;
    }
    if (r->from)
        printf("resumed   from step %lld\n", (long long)r->from);
    if (steps)
        printf("loss      %.4f to %.4f in %lld steps, %.3f ms a step\n", t->first, t->last, (long long)steps,
               1e3 * each);
    printf("weights   %016llx (fingerprint) after %lld steps\n", (unsigned long long)hash, (long long)t->step);
}

static void release(struct rank_run *r, struct training *t) {
    const struct rt_rank *k = &r->program.rank[r->world.rank];
    backend_release(r);
    r->world.close(r->world.link);
    data_close(r->data);
    free((void *)(uintptr_t)k->lane_at);
    free((void *)(uintptr_t)k->lane_ins);
    free((void *)(uintptr_t)r->program.rank);
    free(r->writer);
    free(t->pulse);
    free(t->loss);
}

int rank_main(int argc, char **argv, const struct rt_self *self, const struct rt_tables *tables) {
    struct rank_run r = {.self = self, .tables = tables, .lock = -1};
    struct training t = {.first = 0};
    rank_parse(&r.flags, argc, argv, self);
    backend_open(self, tables);
    struct watch_args watch = {.program = self->name,
                               .rank = self->rank,
                               .deadline = r.flags.deadline,
                               .flight = r.flags.flight,
                               .group = tables->groups,
                               .lane = tables->lanes,
                               .abort = backend_abort};
    if (!watch_start(&watch))
        rank_error(self, "cannot start a thread");
    meet(&r);
    prepare(&r, &t);
    if (r.world.rank == 0) {
        fprintf(stderr, "pianola: %d process%s%s, %s\n", r.world.size, r.world.size == 1 ? "" : "es over ",
                r.world.size == 1 ? "" : transport[r.flags.launch.over].title, backend_line(&r));
        if (!r.flags.data && tables->model->input == INPUT_TOKENS)
            fprintf(stderr, "pianola: no --data: training on random tokens; give a text with --data FILE\n");
    }
    t.step = r.replay.step = r.from;
    train(&r, &t);
    uint64_t hash = fingerprint(&r);
    if (r.world.rank == 0)
        print(&r, &t, hash);
    if (r.flags.timeline)
        rank_timeline_write(&r, t.step);
    if (t.signal && r.world.rank == 0)
        fprintf(stderr, "pianola: %s came: stopped after step %lld%s\n", t.signal == SIGINT ? "SIGINT" : "SIGTERM",
                (long long)t.step, r.flags.checkpoint ? ", with a checkpoint" : "; there is no --checkpoint");
    watch_end();
    release(&r, &t);
    return t.signal ? 128 + t.signal : 0;
}
