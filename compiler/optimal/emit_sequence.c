/* A schedule script from the starts of jobs: a sequence, with what else the jobs' script says of them. */
#include "ir/program.h"
#include "optimal.h"
#include <limits.h>
#include <stdlib.h>

struct turn {
    int64_t start;
    int32_t job;
};

static int by_start(const void *x, const void *y) {
    const struct turn *a = x, *b = y;
    return a->start != b->start ? (a->start < b->start ? -1 : 1) : (a->job > b->job) - (a->job < b->job);
}

static void put_rank(struct text *t, const struct spec *sp, const struct turn *turn, int n) {
    put_word(t, "    {");
    size_t line = t->n;
    for (int i = 0; i < n; i++) {
        const struct job *job = &sp->job[turn[i].job];
        if (t->n - line > 104) {
            put_word(t, "\n     ");
            line = t->n;
        }
        put(t, " \"%s\",", job_name(&sp->names, job->s, job->b, job->d));
    }
    put_word(t, " },\n");
}

static void put_lists(struct text *t, const struct spec *sp, const int64_t *start) {
    struct turn *turn = NEW(struct turn, sp->njobs);
    put_word(t, "  sequence = {\n");
    for (int r = 0; r < sp->workers; r++) {
        int n = 0;
        for (int32_t j = 0; j < sp->njobs; j++)
            if (sp->job[j].rank == r)
                turn[n++] = (struct turn){start[j], j};
        qsort(turn, (size_t)n, sizeof *turn, by_start);
        put_rank(t, sp, turn, n);
    }
    put_word(t, "  },\n");
}

static void put_caps(struct text *t, const struct spec *sp) {
    bool any = false;
    for (int r = 0; sp->cap && r < sp->workers; r++)
        any |= sp->cap[r] < INT_MAX;
    if (!any)
        return;
    put_word(t, "  cap = function(worker) return ({");
    for (int r = 0; r < sp->workers; r++)
        put(t, sp->cap[r] < INT_MAX ? "%s %d" : "%s math.huge", r ? "," : "", sp->cap[r]);
    put_word(t, " })[worker + 1] end,\n");
}

/* The first job of the stage and direction that takes another time than others; -1: all take the same. */
static int32_t uneven(const struct spec *sp) {
    for (int32_t j = 0; j < sp->njobs; j++) {
        const struct job *job = &sp->job[j];
        int32_t first = job_at(sp, job->s, 0, job->d);
        if (first < 0 || sp->job[first].cost != job->cost)
            return j;
    }
    return -1;
}

/* Without a model, a job's time is the script's. */
static void put_costs(struct text *t, const struct spec *sp) {
    static const double usual[NDIRS] = {[OP_F] = 1, [OP_R] = 1, [OP_I] = 1, [OP_B] = 2, [OP_W] = 1};
    char buf[32];
    bool all = true;
    for (int32_t j = 0; j < sp->njobs; j++)
        all &= sp->job[j].cost == usual[sp->job[j].d];
    if (all || sp->model)
        return;
    int32_t j = uneven(sp);
    if (j >= 0)
        die("%s: %s takes another time than the stage's other microbatches do, which a sequence cannot say; leave -o out",
            sp->file, job_name(&sp->names, sp->job[j].s, sp->job[j].b, sp->job[j].d));
    put_word(t, "  cost = function(s, b, d) return ({\n");
    for (int d = 0; d < NDIRS; d++) {
        if (job_at(sp, 0, 0, d) < 0)
            continue;
        put(t, "    %s = {", op_name[d]);
        for (int s = 0; s < sp->stages; s++) {
            int32_t k = job_at(sp, s, 0, d);
            put(t, "%s %s", s ? "," : "", k < 0 ? "0" : number(sp->job[k].cost, buf));
        }
        put_word(t, " },\n");
    }
    put_word(t, "  })[d][s + 1] end,\n");
}

static void put_home(struct text *t, const struct spec *sp, int32_t home) {
    struct home list = home_of(sp, &home);
    if (home < 0)
        put_word(t, " false");
    else if (list.n == 1)
        put(t, " %d", list.rank[0]);
    for (int i = 0; home >= 0 && list.n > 1 && i < list.n; i++)
        put(t, "%s %d%s", i ? "," : " {", list.rank[i], i + 1 < list.n ? "" : " }");
}

/* Where a stage's weights lie, unless it is where its jobs run. */
static void put_homes(struct text *t, const struct spec *sp) {
    bool plain = true;
    for (int32_t j = 0; j < sp->njobs; j++) {
        const struct job *job = &sp->job[j];
        int32_t first = job_at(sp, job->s, 0, OP_F);
        plain &= job->home == job->rank && job->rank == sp->job[first].rank;
        if (job->home != sp->job[first].home)
            die("%s: the weights of stage %d have several homes, which a sequence cannot say of each job; leave -o out",
                sp->file, job->s);
    }
    if (plain)
        return;
    put_word(t, "  w = function(s, b, d) return ({");
    for (int s = 0; s < sp->stages; s++) {
        put_word(t, s ? "," : "");
        put_home(t, sp, sp->job[job_at(sp, s, 0, OP_F)].home);
    }
    put_word(t, " })[s + 1] or nil end,\n");
}

void emit_sequence(struct text *t, const struct spec *sp, const int64_t *start, const char *notes) {
    if (sp->pred)
        die("%s: its jobs' dependencies are its own (pred), which a sequence cannot say; leave -o out", sp->file);
    put(t, "%sreturn schedule {\n  workers = %d, stages = %d, batches = %d,", notes, sp->workers, sp->stages,
        whole_batches(sp));
    if (sp->names.slices)
        put(t, " slices = %d,", sp->names.slices);
    put_word(t, "\n");
    put_homes(t, sp);
    put_caps(t, sp);
    put_costs(t, sp);
    put_lists(t, sp, start);
    put_word(t, "}\n");
}
