/* A spec as scripts again: every answer of its functions in a table. */
#include "property.h"
#include <limits.h>
#include <math.h>
#include <string.h>

static void put_number(struct text *t, double x) {
    char buf[32];
    put(t, "%s", isinf(x) ? "math.huge" : number(x, buf));
}

/* A job's line: home, rank, n, cost, and what it needs where that is not the default. */
static void put_job(struct text *t, const struct spec *sp, int j) {
    const struct job *job = &sp->job[j];
    put(t, "  [\"%s\"] = { home = %d, rank = %d, n = ", job_name(job->s, job->b, job->d), job->home, job->rank);
    put_number(t, job->prio);
    if (!isnan(job->cost)) {
        put(t, ", cost = ");
        put_number(t, job->cost);
    }
    if (sp->pred) {
        put(t, ", needs = { ");
        for (int32_t e = sp->pred_at[j]; e < sp->pred_at[j + 1]; e++) {
            const struct job *p = &sp->job[sp->pred[e]];
            put(t, "{ %d, %d, \"%s\" }, ", p->s, p->b, op_name[p->d]);
        }
        put(t, "}");
    }
    put(t, " },\n");
}

static void put_ranks(struct text *t, const char *field, const int *value, int n, int otherwise) {
    bool any = false;
    for (int r = 0; r < n; r++)
        any |= value[r] != otherwise;
    if (!any)
        return;
    put(t, "  %s = function(r) return ({ ", field);
    for (int r = 0; r < n; r++) {
        put_number(t, value[r] == INT_MAX ? INFINITY : value[r]);
        put(t, ", ");
    }
    put(t, "})[r + 1] end,\n");
}

char *print_schedule(const struct spec *sp) {
    struct text t = {0};
    bool split = false, again = false, costs = false;
    put(&t, "local jobs = {\n");
    for (int j = 0; j < sp->njobs; j++) {
        put_job(&t, sp, j);
        split |= sp->job[j].d == OP_W;
        again |= sp->job[j].d == OP_R;
        costs |= !isnan(sp->job[j].cost);
    }
    put(&t, "}\nlocal function job(s, b, d) return jobs[s .. d .. b] end\n\nreturn schedule {\n");
    put(&t, "  workers = %d, stages = %d, batches = %d,%s\n", sp->workers, sp->stages, sp->batches,
        sp->strict ? " order = \"strict\"," : "");
    put(&t, "  w = function(s, b, d) return job(s, b, d).home, job(s, b, d).rank end,\n");
    put(&t, "  n = function(s, b, d) return job(s, b, d).n end,\n");
    if (costs)
        put(&t, "  cost = function(s, b, d) return job(s, b, d).cost end,\n");
    if (split)
        put(&t, "  split_backward = function(s, b) return job(s, b, \"I\") ~= nil end,\n");
    if (again)
        put(&t, "  recompute = function(s, b) return job(s, b, \"R\") ~= nil end,\n");
    if (sp->pred)
        put(&t, "  pred = function(s, b, d) return job(s, b, d).needs end,\n");
    put_ranks(&t, "cap", sp->cap, sp->workers, INT_MAX);
    put_ranks(&t, "weight_slots", sp->slots, sp->workers, 2);
    put(&t, "}\n");
    return t.s;
}

char *print_cluster(const struct spec *sp) {
    if (!sp->link)
        return NULL;
    struct text t = {0};
    put(&t, "local links = { -- latency, bandwidth: from src in rows, to dst in columns\n");
    for (int i = 0; i < sp->workers * sp->workers; i++) {
        put(&t, "%s{ ", i % sp->workers ? " " : "  { ");
        put_number(&t, sp->link[i].latency);
        put(&t, ", ");
        put_number(&t, sp->link[i].bandwidth);
        put(&t, i % sp->workers == sp->workers - 1 ? " } },\n" : " },");
    }
    put(&t,
        "}\n\nreturn cluster {\n  link = function(src, dst) return table.unpack(links[src + 1][dst + 1]) end,\n}\n");
    return t.s;
}
