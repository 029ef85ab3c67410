/* All ranks of a program in this process: a thread each, with its arenas, allocated at the start. */
#include "comm_local.h"
#include "saving.h"
#include "device/ahead.h"
#include "store/seconds.h"
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct training {
    const struct rt_run *run;
    char **arena;
    char why[1000];
    struct worker {
        struct training *all;
        struct replay replay;
        struct host_rank rank;
        pthread_t thread;
        int64_t norm;    /* norm_at; -1: the rank has none */
        bool tells_norm; /* it is the first that has one */
        struct ahead ahead;
        double *first, *last;         /* per step: when its first instruction started, its last one ended */
        double *waited;               /* and how long the compute lane waited for others */
        bool tells;                   /* when the last stage is updated */
        _Atomic int64_t begun, steps; /* begun, done; -1: the first validation is not */
        _Atomic int64_t bad;          /* the first step, from 1, with a number that is not finite; 0: none */
        _Atomic bool over;            /* it has done its last step */
    } * worker;
    float *loss;     /* [steps][members][batches], of what each member of the last stage's team has of it */
    int64_t members; /* 1: the loss is not divided */
    /* [1 + validations][data_steps][members][batches]; NULL: there is no held-out text. The first is before any step.
     */
    float *validation;
    float *sum;   /* [batches]: of a step, over the members */
    double *when; /* [steps][updates of the last stage]; NULL: nobody asks */
    int32_t updates;
    double origin; /* of all clocks here: seconds() */
    double begun;  /* when the threads began, by these clocks */
    struct local *local;
    pthread_barrier_t saved; /* where all ranks wait while one writes a checkpoint */
    bool stopped;            /* it came to numbers that are not finite instead */
};

/* Ends the process: the other ranks would wait for this one. */
static _Noreturn void fail(const struct rt_run *run, const char *why) {
    bool saves = run->saving && run->saving->writes;
    fprintf(stderr, "%spianola: error: %s%s%s\n", run->progress && isatty(STDERR_FILENO) ? "\n" : "", why,
            saves ? "; to go on from the newest checkpoint: " : "", saves ? run->saving->how : "");
    _exit(2);
}

/* Results from data that has changed are worthless. */
static void check_data(const struct rt_run *run) {
    char why[512];
    if (data_same(run->data, why, sizeof why))
        return;
    fail(run, why);
}

static int64_t losses_in(const struct training *training) { /* of a run of the streams */
    return training->members * training->run->program->batches;
}

/* Which one it is, from 0. */
static void validate(struct worker *worker, int64_t number) {
    struct replay *re = &worker->replay;
    const struct training *training = worker->all;
    int64_t n = data_steps(training->run->held_out), step = re->step;
    re->purpose = VALIDATES;
    worker->rank.data = training->run->held_out;
    worker->rank.when = NULL;
    for (re->step = 0; re->step < n; re->step++) {
        worker->rank.loss = training->validation + (number * n + re->step) * losses_in(training);
        replay_step(re);
    }
    worker->rank.data = training->run->data;
    re->purpose = TRAINS;
    re->step = step;
}

static const uint64_t *norm_of(const struct worker *worker) {
    return (const uint64_t *)(const void *)(worker->rank.arena + worker->norm);
}

/* A step, again if it took the last updates back: what it gave then counts for nothing. */
static void train(struct worker *worker) {
    const struct rt_model *m = worker->all->run->program->model;
    struct rt_routed routed = worker->rank.routed;
    struct nonfinite bad = worker->replay.bad;
    bool open = worker->ahead.open;
    replay_step(&worker->replay);
    if (open && worker->tells_norm)
        worker->all->run->norm[worker->replay.step - 1] = norm_value(worker->rank.found);
    if (!runs_again(&worker->ahead, m, worker->rank.found))
        return;
    worker->rank.routed = routed;
    worker->replay.bad = bad;
    replay_step(&worker->replay);
}

/* Before anybody sees what the step has learned, or keeps a record of it. */
static void settle(struct worker *worker) {
    const struct rt_run *run = worker->all->run;
    struct replay *re = &worker->replay;
    if (!must_settle(&worker->ahead, is_asked_for(run, re->step) || saving_is_due(run, re->step + 1)))
        return;
    re->purpose = SETTLES;
    replay_step(re);
    re->purpose = TRAINS;
    settled(&worker->ahead, run->program->model, norm_of(worker));
}

static struct checkpoint_shard pull(void *context, int rank, const struct rt_home *home) {
    return host_pull(&((struct training *)context)->worker[rank].replay, home);
}
static void push(void *context, int rank, const struct rt_home *home, const float *weight, const float *moments) {
    host_push(&((struct training *)context)->worker[rank].replay, home, weight, moments);
}

/* While all other ranks wait. */
static void write_checkpoint(struct training *training, int64_t done) {
    const struct rt_run *run = training->run;
    const struct saving_memory memory = {training, pull, push};
    struct nonfinite bad = {0};
    char why[2048];
    for (int r = 0; r < run->program->workers; r++)
        nonfinite_join(&bad, &training->worker[r].replay.bad);
    training->stopped = run->stops && bad.step > 0;
    if (training->stopped || saving_write(run->saving, run->program, done, bad.step > 0, &memory, why, sizeof why))
        return;
    fail(run, why);
}

/* False: the run is to stop. */
static bool save(struct worker *worker, int64_t done) {
    struct training *training = worker->all;
    if (!saving_is_due(training->run, done))
        return true;
    if (pthread_barrier_wait(&training->saved) == PTHREAD_BARRIER_SERIAL_THREAD)
        write_checkpoint(training, done);
    pthread_barrier_wait(&training->saved);
    return !training->stopped;
}

/* Waits until every rank has begun the step that this one has done, as ranks that are processes do, and looks at what
 * they had found before. So all stop after the same step. */
static bool goes_on(struct worker *worker) {
    const struct training *training = worker->all;
    const struct timespec nap = {0, 50000};
    int64_t done = worker->replay.step + 1;
    bool bad = false;
    if (!training->run->stops)
        return true;
    for (int r = 0; r < training->run->program->workers; r++) {
        struct worker *other = &training->worker[r];
        for (int tries = 0; atomic_load(&other->begun) < done; tries++)
            tries < 100 ? (void)sched_yield() : (void)nanosleep(&nap, NULL);
        int64_t found = atomic_load(&other->bad);
        bad |= found > 0 && found < done;
    }
    return !bad;
}

static void *work(void *arg) {
    struct worker *worker = arg;
    const struct rt_run *run = worker->all->run;
    const struct rt_rank *k = &run->program->rank[worker->replay.rank];
    struct replay *re = &worker->replay;
    re->steps = run->of > 0 ? run->of : run->steps;
    if (run->held_out && run->from == 0)
        validate(worker, 0);
    atomic_store(&worker->steps, run->from);
    for (re->step = run->from; re->step < run->steps; re->step++) {
        worker->rank.loss = worker->all->loss + re->step * worker->all->members * run->program->batches;
        worker->rank.apart = run->program->batches;
        worker->rank.when = worker->tells ? worker->all->when + re->step * worker->all->updates : NULL;
        worker->rank.first = INFINITY;
        worker->rank.last = 0;
        worker->rank.took = run->took && re->step >= run->steps - run->timed ? run->took[re->rank] : NULL;
        atomic_store(&worker->begun, re->step + 1);
        train(worker);
        atomic_store(&worker->bad, re->bad.step);
        worker->rank.took = NULL;
        worker->first[re->step] = worker->rank.first;
        worker->last[re->step] = worker->rank.last;
        worker->waited[re->step] = host_waited(k, worker->rank.stamp);
        int64_t turn = re->step - (run->steps - run->kept);
        if (run->stamp && turn >= 0)
            memcpy(run->stamp[re->rank] + turn * k->nins, worker->rank.stamp,
                   sizeof *worker->rank.stamp * (size_t)k->nins);
        bool stops = !goes_on(worker);
        if (!stops)
            settle(worker);
        if (worker->tells_norm && !worker->ahead.open)
            run->norm[re->step] = norm_value(norm_of(worker));
        if (!stops && run->held_out && (re->step + 1) % run->every == 0)
            validate(worker, (re->step + 1) / run->every);
        stops = stops || !save(worker, re->step + 1);
        atomic_store(&worker->steps, re->step + 1);
        if (re->rank == 0)
            check_data(run);
        if (stops)
            break;
    }
    atomic_store(&worker->over, true);
    return NULL;
}

/* Is it the first rank that is home of the last stage with weights? */
static bool tells(const struct rt_program *p, int r) {
    for (int k = 0; k <= r; k++)
        for (int h = 0; h < p->rank[k].nhomes; h++)
            if (p->rank[k].home[h].stage == p->updated)
                return k == r;
    return false;
}

static bool prepare(struct training *training, struct worker *worker, int r) {
    const struct rt_run *run = training->run;
    worker->all = training;
    worker->steps = -1;
    worker->tells = training->when && tells(run->program, r);
    worker->norm = norm_at(&run->program->rank[r]);
    worker->tells_norm = worker->norm >= 0 && run->norm;
    for (int k = 0; k < r; k++)
        worker->tells_norm &= norm_at(&run->program->rank[k]) < 0;
    worker->rank = (struct host_rank){.data = run->data, .transport = &host_local, .origin = training->origin};
    worker->first = host_pages((size_t)run->steps, sizeof *worker->first);
    worker->last = host_pages((size_t)run->steps, sizeof *worker->last);
    worker->waited = host_pages((size_t)run->steps, sizeof *worker->waited);
    bool ok =
        host_take(&worker->replay, &worker->rank, run->program, r) && worker->first && worker->last && worker->waited;
    training->arena[MEMORY_DEVICE * run->program->workers + r] = worker->rank.arena;
    training->arena[MEMORY_HOST * run->program->workers + r] = worker->rank.host;
    worker->replay.purpose = run->evaluates ? VALIDATES : TRAINS;
    const struct start start = {run->seed, run->weights};
    return ok && host_begin(&worker->replay, &start, training->why, sizeof training->why);
}

/* Of each microbatch, from what the members have of it. */
static const float *losses_of(const struct training *training, const float *loss) {
    int64_t B = training->run->program->batches;
    for (int64_t b = 0; b < B; b++) {
        training->sum[b] = 0;
        for (int64_t m = 0; m < training->members; m++)
            training->sum[b] += loss[m * B + b];
    }
    return training->sum;
}

static float step_loss(const struct training *training, int64_t step) {
    int B = training->run->program->batches;
    const float *loss = losses_of(training, training->loss + step * losses_in(training));
    float sum = 0;
    for (int b = 0; b < B; b++)
        sum += loss[b];
    return sum / (float)B;
}

/* After the step, or before all where it is -1, if one was due. */
static double validation_loss(const struct training *training, int64_t step) {
    const struct rt_run *run = training->run;
    if (!run->held_out || (step + 1) % run->every != 0)
        return NAN;
    int64_t n = data_steps(run->held_out), number = (step + 1) / run->every;
    struct held_sum sum = {0, 0};
    for (int64_t k = 0; k < n; k++)
        data_sum(run->held_out, k, losses_of(training, training->validation + (number * n + k) * losses_in(training)),
                 run->program->batches, &sum);
    return sum.loss / (double)sum.sequences;
}

/* Of a rank that has any. */
static double makespan(const struct training *training, int64_t step) {
    const struct rt_program *p = training->run->program;
    double first = INFINITY, last = 0;
    for (int r = 0; r < p->workers; r++) {
        if (!p->rank[r].nins)
            continue;
        first = fmin(first, training->worker[r].first[step]);
        last = fmax(last, training->worker[r].last[step]);
    }
    return last - first;
}

static void tell(struct training *training, int64_t step) {
    const struct rt_run *run = training->run;
    if (step < 0) {
        if (run->held_out)
            run->ended(run->context, &(struct rt_ended){.step = -1, .validation = validation_loss(training, -1)});
        return;
    }
    double *when = training->when + step * training->updates;
    for (int32_t k = 0; k < training->updates; k++)
        when[k] -= training->begun;
    struct rt_ended ended = {.step = step, .when = when, .seconds = makespan(training, step)};
    ended.validation = validation_loss(training, step);
    ended.norm = run->norm ? run->norm[step] : NAN;
    ended.loss = losses_of(training, training->loss + step * losses_in(training));
    for (int r = 0; r < run->program->workers; r++)
        ended.waited += training->worker[r].waited[step] / run->program->workers;
    run->ended(run->context, &ended);
}

static void watch(struct training *training) {
    const struct rt_run *run = training->run;
    struct timespec nap = {0, 1000000};
    double begin = seconds();
    bool over = false;
    for (int64_t done = -1, told = run->from > 0 ? run->from : -1; (run->progress || run->ended) && !over;) {
        nanosleep(&nap, NULL);
        nap.tv_nsec +=
            nap.tv_nsec < 100000000 ? nap.tv_nsec : 0; /* short runs end soon, long ones report ten times a second */
        over = true;
        for (int r = 0; r < run->program->workers; r++)
            over &= atomic_load(&training->worker[r].over);
        done = run->steps;
        for (int r = 0; r < run->program->workers; r++) {
            int64_t n = atomic_load(&training->worker[r].steps);
            done = n < done ? n : done;
        }
        if (done > told && done > run->from && run->progress)
            run->progress(run->context, done, step_loss(training, done - 1), seconds() - begin);
        for (; told < done; told++)
            if (run->ended)
                tell(training, told);
    }
}

static void results(struct training *training) {
    const struct rt_run *run = training->run;
    for (int64_t s = run->from; s < run->steps; s++) {
        run->makespan[s] = makespan(training, s);
        run->loss[s] = step_loss(training, s);
    }
    if (run->twice)
        *run->twice = training->worker->ahead.twice;
    for (int r = 0; r < run->program->workers && run->bad; r++)
        nonfinite_join(run->bad, &training->worker[r].replay.bad);
    for (int r = 0; r < run->program->workers && run->routed; r++) {
        run->routed->pairs += training->worker[r].rank.routed.pairs;
        run->routed->dropped += training->worker[r].rank.routed.dropped;
    }
}

static void release(struct training *training) {
    for (int r = 0; training->worker && r < training->run->program->workers; r++) {
        host_release(&training->worker[r].replay, &training->worker[r].rank);
        free(training->worker[r].first);
        free(training->worker[r].last);
        free(training->worker[r].waited);
    }
    free(training->worker);
    free(training->loss);
    free(training->validation);
    free(training->sum);
    free(training->when);
    local_close(training->local);
}

void host_free(const struct rt_program *p, char **arena) {
    for (int i = 0; arena && i < NMEMORIES * p->workers; i++)
        free(arena[i]);
    free(arena);
}

char **host_train(const struct rt_run *run) {
    const struct rt_program *p = run->program;
    struct training training = {.run = run, .origin = seconds()};
    training.updates = updates_per_step(p->batches, &p->stage[p->updated]);
    training.arena = calloc((size_t)p->workers * NMEMORIES, sizeof *training.arena);
    training.worker = host_pages((size_t)p->workers, sizeof *training.worker);
    training.members = 1;
    for (int s = 0; s < p->stages; s++)
        if (sums_loss(&p->stage[s]))
            training.members = p->stage[s].members;
    training.loss = host_pages((size_t)(run->steps * training.members * p->batches), sizeof *training.loss);
    training.sum = host_pages((size_t)p->batches, sizeof *training.sum);
    if (run->ended)
        training.when = host_pages((size_t)run->steps * (size_t)training.updates, sizeof *training.when);
    if (run->held_out)
        training.validation =
            host_pages((size_t)((1 + run->steps / run->every) * data_steps(run->held_out) * losses_in(&training)),
                       sizeof *training.validation);
    for (int64_t s = 0; run->norm && s < run->steps; s++)
        run->norm[s] = NAN;
    bool ok = training.arena && training.worker && training.loss && training.sum && (training.when || !run->ended) &&
              (training.validation || !run->held_out);
    for (int r = 0; ok && r < p->workers; r++)
        ok = prepare(&training, &training.worker[r], r);
    ok = ok && (training.local = local_open(p, training.arena));
    for (int r = 0; ok && r < p->workers; r++)
        training.worker[r].rank.link = training.local;
    const struct saving_memory memory = {&training, pull, push};
    if (ok && run->saving && run->saving->loads)
        ok = saving_load(run->saving, p, &memory, training.why, sizeof training.why);
    pthread_barrier_init(&training.saved, NULL, (unsigned)p->workers);
    training.begun = seconds() - training.origin;
    for (int r = 0; ok && r < p->workers; r++)
        if (pthread_create(&training.worker[r].thread, NULL, work, &training.worker[r]) != 0) {
            fprintf(stderr, "pianola: error: cannot start a thread for rank %d of %d\n", r, p->workers);
            _exit(2); /* the ranks that did start would wait for it for ever */
        }
    if (ok)
        watch(&training);
    for (int r = 0; ok && r < p->workers; r++)
        pthread_join(training.worker[r].thread, NULL);
    if (ok) {
        check_data(run); /* once more, now that every rank has read its last */
        results(&training);
    }
    pthread_barrier_destroy(&training.saved);
    release(&training);
    if (!ok) {
        if (*training.why)
            fprintf(stderr, "pianola: error: %s\n", training.why);
        host_free(p, training.arena);
        return NULL;
    }
    return training.arena;
}
