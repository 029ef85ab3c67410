/* All ranks of a program in this process: a thread each, one arena each, taken at the start. */
#include "comm_local.h"
#include "store/seconds.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct training {
    const struct rt_run *run;
    char **arena;
    struct worker {
        struct training *all;
        struct replay replay;
        struct host_rank rank;
        pthread_t thread;
        double *first, *last;  /* per step: when its first instruction started, its last one ended */
        _Atomic int64_t steps; /* done */
    } * worker;
    float *loss; /* [steps][batches] */
    struct local *local;
};

/* What came of data that has changed is worth nothing. Ends the process: the other ranks would wait for this one. */
static void check_data(const struct rt_run *run) {
    char why[512];
    if (data_same(run->data, why, sizeof why))
        return;
    fprintf(stderr, "%spianola: error: %s\n", run->progress && isatty(STDERR_FILENO) ? "\n" : "", why);
    _exit(2);
}

static void *work(void *arg) {
    struct worker *w = arg;
    const struct rt_run *run = w->all->run;
    const struct rt_rank *k = &run->program->rank[w->replay.rank];
    struct replay *re = &w->replay;
    for (re->step = 0; re->step < run->steps; re->step++) {
        w->rank.loss = w->all->loss + re->step * run->program->batches;
        replay_step(re);
        double first = k->nins ? w->rank.stamp[0].start : 0, last = 0;
        for (int32_t i = 0; i < k->nins; i++) {
            first = w->rank.stamp[i].start < first ? w->rank.stamp[i].start : first;
            last = w->rank.stamp[i].end > last ? w->rank.stamp[i].end : last;
        }
        w->first[re->step] = first;
        w->last[re->step] = last;
        int64_t turn = re->step - (run->steps - run->kept);
        if (run->stamp && turn >= 0)
            memcpy(run->stamp[re->rank] + turn * k->nins, w->rank.stamp, sizeof *w->rank.stamp * (size_t)k->nins);
        atomic_store(&w->steps, re->step + 1);
        if (re->rank == 0)
            check_data(run);
    }
    return NULL;
}

static bool prepare(struct training *t, struct worker *w, int r, double origin) {
    const struct rt_run *run = t->run;
    w->all = t;
    w->rank = (struct host_rank){.data = run->data, .transport = &host_local, .origin = origin};
    w->first = host_pages((size_t)run->steps, sizeof *w->first);
    w->last = host_pages((size_t)run->steps, sizeof *w->last);
    bool ok = host_take(&w->replay, &w->rank, run->program, r) && w->first && w->last;
    t->arena[r] = w->rank.arena;
    if (ok)
        host_begin(&w->replay, run->seed);
    return ok;
}

static float step_loss(const struct training *t, int64_t step) {
    int B = t->run->program->batches;
    float sum = 0;
    for (int b = 0; b < B; b++)
        sum += t->loss[step * B + b];
    return sum / (float)B;
}

static void watch(struct training *t) {
    const struct rt_run *run = t->run;
    struct timespec nap = {0, 1000000};
    double begin = seconds();
    for (int64_t done = 0, told = 0; run->progress && done < run->steps;) {
        nanosleep(&nap, NULL);
        nap.tv_nsec +=
            nap.tv_nsec < 100000000 ? nap.tv_nsec : 0; /* short runs end soon, long ones tell ten times a second */
        done = run->steps;
        for (int r = 0; r < run->program->workers; r++) {
            int64_t n = atomic_load(&t->worker[r].steps);
            done = n < done ? n : done;
        }
        if (done > told)
            run->progress(run->context, done, step_loss(t, done - 1), seconds() - begin);
        told = done;
    }
}

static void results(struct training *t) {
    const struct rt_run *run = t->run;
    for (int64_t s = 0; s < run->steps; s++) {
        double first = t->worker[0].first[s], last = 0;
        for (int r = 0; r < run->program->workers; r++) {
            if (!run->program->rank[r].nins)
                continue;
            first = t->worker[r].first[s] < first ? t->worker[r].first[s] : first;
            last = t->worker[r].last[s] > last ? t->worker[r].last[s] : last;
        }
        run->makespan[s] = last - first;
        run->loss[s] = step_loss(t, s);
    }
}

static void release(struct training *t) {
    for (int r = 0; t->worker && r < t->run->program->workers; r++) {
        host_release(&t->worker[r].replay, &t->worker[r].rank);
        free(t->worker[r].first);
        free(t->worker[r].last);
    }
    free(t->worker);
    free(t->loss);
    local_close(t->local);
}

void host_free(const struct rt_program *p, char **arena) {
    for (int r = 0; arena && r < p->workers; r++)
        free(arena[r]);
    free(arena);
}

char **host_train(const struct rt_run *run) {
    const struct rt_program *p = run->program;
    struct training t = {.run = run};
    double origin = seconds();
    t.arena = calloc((size_t)p->workers, sizeof *t.arena);
    t.worker = host_pages((size_t)p->workers, sizeof *t.worker);
    t.loss = host_pages((size_t)(run->steps * p->batches), sizeof *t.loss);
    bool ok = t.arena && t.worker && t.loss;
    for (int r = 0; ok && r < p->workers; r++)
        ok = prepare(&t, &t.worker[r], r, origin);
    ok = ok && (t.local = local_open(p, t.arena));
    for (int r = 0; ok && r < p->workers; r++)
        t.worker[r].rank.link = t.local;
    for (int r = 0; ok && r < p->workers; r++)
        if (pthread_create(&t.worker[r].thread, NULL, work, &t.worker[r]) != 0) {
            fprintf(stderr, "pianola: error: cannot start a thread for rank %d of %d\n", r, p->workers);
            _exit(2); /* the ranks that did start would wait for it for ever */
        }
    if (ok)
        watch(&t);
    for (int r = 0; ok && r < p->workers; r++)
        pthread_join(t.worker[r].thread, NULL);
    if (ok) {
        check_data(run); /* once more, now that every rank has read its last */
        results(&t);
    }
    release(&t);
    if (!ok) {
        host_free(p, t.arena);
        return NULL;
    }
    return t.arena;
}
