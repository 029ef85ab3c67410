/* Writes schedule scripts from orders: see closed.h. */
#include "closed.h"
#include "ir/program.h"
#include <limits.h>
#include <stdlib.h>

/* ---- fields of all scripts ---- */

static void put_caps(struct text *t, const struct spec *sp, const int *cap) {
    bool any = false, same = true;
    for (int r = 0; cap && r < sp->workers; r++) {
        any |= cap[r] < INT_MAX;
        same &= cap[r] == cap[0];
    }
    if (!any)
        return;
    if (same) {
        put(t, "  cap = %d,\n", cap[0]);
        return;
    }
    put_word(t, "  cap = function(worker) return ({");
    for (int r = 0; r < sp->workers; r++)
        put(t, cap[r] < INT_MAX ? "%s %d" : "%s math.huge", r ? "," : "", cap[r]);
    put_word(t, " })[worker + 1] end,\n");
}

/* Returns the first job that takes longer or shorter than others of its stage and direction; -1: none. */
static int32_t uneven(const struct costs *costs) {
    const struct spec *sp = costs->spec;
    for (int32_t j = 0; j < sp->njobs; j++) {
        const struct job *job = &sp->job[j];
        int32_t first = job_at(sp, job->s, 0, job->d);
        if (first < 0 || costs->computes[first] != costs->computes[j])
            return j;
    }
    return -1;
}

/* Writes the jobs' costs, unless a model gives them. */
static void put_costs(struct text *t, const struct costs *costs) {
    const struct spec *sp = costs->spec;
    static const double usual[NDIRS] = {[OP_F] = 1, [OP_R] = 1, [OP_I] = 1, [OP_B] = 2, [OP_W] = 1};
    char buf[32];
    bool all = true;
    for (int32_t j = 0; j < sp->njobs; j++)
        all &= costs->computes[j] == usual[sp->job[j].d];
    if (all || sp->model)
        return;
    int32_t j = uneven(costs);
    if (j >= 0)
        die("%s: %s takes longer or shorter than the stage's other microbatches, which the written script cannot "
            "express; leave out -o",
            sp->file, job_name(&sp->names, sp->job[j].s, sp->job[j].b, sp->job[j].d));
    put_word(t, "  cost = function(s, b, d) return ({\n");
    for (int d = 0; d < NDIRS; d++) {
        if (!has_direction(sp, d))
            continue;
        put(t, "    %s = {", op_name[d]);
        for (int s = 0; s < sp->stages; s++) {
            int32_t k = job_at(sp, s, 0, d);
            put(t, "%s %s", s ? "," : "", k < 0 ? "0" : number(costs->computes[k], buf));
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

/* Writes where each stage runs, and where its weights are, if elsewhere. */
static void put_placement(struct text *t, const struct spec *sp) {
    bool plain = true;
    put_word(t, "  w = function(s, b, d)\n    local rank = ({");
    for (int s = 0; s < sp->stages; s++) {
        const struct job *job = &sp->job[job_at(sp, s, 0, OP_F)];
        plain &= job->home == job->rank;
        put(t, "%s %d", s ? "," : "", job->rank);
    }
    put_word(t, " })[s + 1]\n    return ");
    put_word(t, plain ? "rank" : "({");
    for (int s = 0; s < sp->stages && !plain; s++) {
        put_word(t, s ? "," : "");
        put_home(t, sp, sp->job[job_at(sp, s, 0, OP_F)].home);
    }
    put_word(t, plain ? ", rank\n  end,\n" : " })[s + 1] or nil, rank\n  end,\n");
}

/* Writes `name = true` or a function, if the stages' microbatches have jobs of this direction. */
static void put_which(struct text *t, const struct spec *sp, const char *name, int d) {
    int n = 0;
    for (int s = 0; s < sp->stages; s++)
        n += job_at(sp, s, 0, d) >= 0;
    if (n == 0)
        return;
    put(t, n == sp->stages ? "  %s = true,\n" : "  %s = function(s, b) return ({", name);
    for (int s = 0; s < sp->stages && n < sp->stages; s++)
        put(t, "%s %s", s ? "," : "", job_at(sp, s, 0, d) >= 0 ? "true" : "false");
    put_word(t, n == sp->stages ? "" : " })[s + 1] end,\n");
}

/* Writes, for a sequence, where a stage's weights are, unless they are where its jobs run. */
static void put_home_ranks(struct text *t, const struct spec *sp) {
    bool plain = true;
    for (int32_t j = 0; j < sp->njobs; j++) {
        const struct job *job = &sp->job[j];
        int32_t first = job_at(sp, job->s, 0, OP_F);
        plain &= job->home == job->rank && job->rank == sp->job[first].rank;
        if (job->home != sp->job[first].home)
            die("%s: the weights of stage %d have several homes, which a sequence cannot express; leave out -o",
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

static void put_sizes(struct text *t, const struct spec *sp, const char *batches) {
    put(t, "return schedule {\n  workers = %d, stages = %d, batches = %s,", sp->workers, sp->stages, batches);
    if (sp->names.slices)
        put(t, " slices = %d,", sp->names.slices);
    put_word(t, "\n");
}

void emit_before_sequence(struct text *t, const struct costs *costs, const char *batches) {
    const struct spec *sp = costs->spec;
    if (sp->pred)
        die("%s: pred gives its jobs other dependencies, which a sequence cannot express; leave out -o", sp->file);
    put_sizes(t, sp, batches);
    put_home_ranks(t, sp);
    put_caps(t, sp, sp->limits.cap);
    put_costs(t, costs);
}

static void put_rank_list(struct text *t, const struct spec *sp, const int32_t *list, int n) {
    put_word(t, "    {");
    size_t line = t->n;
    for (int i = 0; i < n; i++) {
        const struct job *job = &sp->job[list[i]];
        if (t->n - line > 104) {
            put_word(t, "\n     ");
            line = t->n;
        }
        put(t, " \"%s\",", job_name(&sp->names, job->s, job->b, job->d));
    }
    put_word(t, " },\n");
}

void emit_sequence(struct text *t, const struct costs *costs, struct lists lists) {
    const struct spec *sp = costs->spec;
    emit_before_sequence(t, costs, format("%d", whole_batches(sp)));
    put_word(t, "  sequence = {\n");
    for (int r = 0; r < sp->workers; r++)
        put_rank_list(t, sp, lists.job[r], lists.n[r]);
    put_word(t, "  },\n}\n");
}

void emit_rule(struct text *t, const struct costs *costs, const struct rule *rule) {
    const struct spec *sp = costs->spec;
    put(t, "local p = params { batches = %d }\n", sp->batches);
    put_sizes(t, sp, "p.batches");
    put_placement(t, sp);
    put_which(t, sp, "split_backward", OP_W);
    put_which(t, sp, "recompute", OP_R);
    put(t, "  n = %s,\n", rule->n);
    if (rule->strict)
        put_word(t, "  order = \"strict\",\n");
    if (rule->strict && has_direction(sp, OP_W))
        put_word(t, "  fill = function(s, b, d) return d == \"W\" end,\n");
    put_caps(t, sp, rule->cap);
    put_costs(t, costs);
    put_word(t, "}\n");
}
