/* Orders of jobs: see order.h. */
#include "order.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct turn {
    int64_t start;
    int32_t job;
};

static int by_start(const void *x, const void *y) {
    const struct turn *a = x, *b = y;
    return a->start != b->start ? (a->start < b->start ? -1 : 1) : (a->job > b->job) - (a->job < b->job);
}

int32_t *jobs_by_start(const struct spec *sp, const int64_t *start) {
    struct turn *turn = NEW(struct turn, sp->njobs);
    int32_t *job = NEW(int32_t, sp->njobs);
    for (int32_t j = 0; j < sp->njobs; j++)
        turn[j] = (struct turn){start[j], j};
    sort(turn, (size_t)sp->njobs, sizeof *turn, by_start);
    for (int32_t i = 0; i < sp->njobs; i++)
        job[i] = turn[i].job;
    return job;
}

struct lists lists_by_start(const struct spec *sp, const int64_t *start) {
    const int32_t *job = jobs_by_start(sp, start);
    struct lists lists = {NEW(int32_t *, sp->workers), NEW(int, sp->workers)};
    for (int32_t j = 0; j < sp->njobs; j++)
        lists.n[sp->job[j].rank]++;
    for (int r = 0; r < sp->workers; r++) {
        lists.job[r] = NEW(int32_t, lists.n[r]);
        lists.n[r] = 0;
    }
    for (int32_t i = 0; i < sp->njobs; i++) {
        int r = sp->job[job[i]].rank;
        lists.job[r][lists.n[r]++] = job[i];
    }
    return lists;
}

void take_spec(struct compile *c, const struct spec *sp) {
    struct costs *costs = memcpy(NEW(struct costs, 1), c->costs, sizeof *costs);
    costs->spec = c->spec = sp;
    costs->job = sp->job;
    c->costs = costs;
}

struct compile vary_order(const struct compile *c, struct lists lists, bool limited) {
    const struct spec *sp = c->spec;
    struct compile with = compile_vary(c, SCHED);
    struct spec *strict = NEW(struct spec, 1);
    *strict = *sp;
    strict->strict = true;
    if (!limited)
        strict->machine.memory = strict->machine.host_memory = INFINITY;
    strict->job = NEW(struct job, sp->njobs);
    memcpy(strict->job, sp->job, sizeof *sp->job * (size_t)sp->njobs);
    for (int r = 0; r < sp->workers; r++)
        for (int i = 0; i < lists.n[r]; i++) {
            struct job *job = &strict->job[lists.job[r][i]];
            job->prio = i;
            job->rest = 0;
            job->fill = false;
        }
    take_spec(&with, strict);
    return with;
}

struct sched *sched_in_order(const struct compile *c, struct lists lists) {
    struct compile with = vary_order(c, lists, false);
    compile_until(&with, SCHED);
    return with.sched;
}
