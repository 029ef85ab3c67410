/* Prints a spec as scripts, with every result of its functions in a table. */
#include "property.h"
#include <limits.h>
#include <math.h>
#include <string.h>

static void put_number(struct text *t, double x) {
    char buf[32];
    put(t, "%s", isinf(x) ? "math.huge" : number(x, buf));
}

static void put_home(struct text *t, const struct spec *sp, const int32_t *home) {
    struct home list = home_of(sp, home);
    put(t, *home < sp->workers ? "%d" : "{ %d", list.rank[0]);
    for (int i = 1; i < list.n; i++)
        put(t, ", %d", list.rank[i]);
    put(t, *home < sp->workers ? "" : " }");
}

/* Prints a job's line: home, rank, n, cost, source, and its needs if they are not the default. */
static void put_job(struct text *t, const struct spec *sp, int j) {
    const struct job *job = &sp->job[j];
    put(t, "  [\"%s\"] = { home = ", job_name(NULL, job->s, job->b, job->d));
    put_home(t, sp, &job->home);
    put(t, ", rank = %d, n = ", job->rank);
    put_number(t, job->prio);
    if (sp->owners.source && sp->owners.source[j] >= 0)
        put(t, ", source = %d", sp->owners.source[j]);
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

/* Prints the fields with a value per stage. */
static void put_stages(struct text *t, const struct spec *sp) {
    bool buckets = false;
    for (int s = 0; s < sp->stages; s++)
        buckets |= sp->limits.bucket[s] > 0;
    if (sp->owners.zero)
        put(t, "  zero = function(s) return ({ ");
    for (int s = 0; sp->owners.zero && s < sp->stages; s++)
        put(t, "%d, ", sp->owners.zero[s]);
    put(t, sp->owners.zero ? "})[s + 1] end,\n" : "");
    if (buckets)
        put(t, "  bucket = function(s) return ({ ");
    for (int s = 0; buckets && s < sp->stages; s++) {
        put_number(t, sp->limits.bucket[s] == INT64_MAX ? INFINITY : (double)sp->limits.bucket[s]);
        put(t, ", ");
    }
    put(t, buckets ? "})[s + 1] end,\n" : "");
    if (sp->limits.offload_state)
        put(t, "  offload_optimizer = function(s) return ({ ");
    for (int s = 0; sp->limits.offload_state && s < sp->stages; s++)
        put(t, "%s, ", sp->limits.offload_state[s] ? "true" : "false");
    put(t, sp->limits.offload_state ? "})[s + 1] end,\n" : "");
    if (sp->choices.offload)
        put(t, "  offload = function(s, b) return ({ ");
    for (int i = 0; sp->choices.offload && i < sp->stages * sp->batches; i++)
        put(t, "%s, ", sp->choices.offload[i] ? "true" : "false");
    put(t, sp->choices.offload ? "})[s * %d + b + 1] end,\n" : "", sp->batches);
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
    put_ranks(&t, "cap", sp->limits.cap, sp->workers, INT_MAX);
    put_ranks(&t, "weight_slots", sp->choices.slots, sp->workers, 2);
    if (sp->limits.grad_slots)
        put_ranks(&t, "grad_slots", sp->limits.grad_slots, sp->workers, INT_MAX);
    if (sp->owners.source)
        put(&t, "  source = function(s, b, d) return job(s, b, d).source end,\n");
    put_stages(&t, sp);
    put(&t, "}\n");
    return t.s;
}

static void put_link(struct text *t, struct link link, const char *after) {
    put(t, "{ ");
    put_number(t, link.latency);
    put(t, ", ");
    put_number(t, link.bandwidth);
    put(t, " }%s", after);
}

char *print_cluster(const struct spec *sp) {
    if (!sp->machine.link && !sp->machine.host_link)
        return NULL;
    struct text t = {0};
    if (sp->machine.link)
        put(&t, "local links = { -- latency, bandwidth: from src in rows, to dst in columns\n");
    for (int i = 0; sp->machine.link && i < sp->workers * sp->workers; i++) {
        put(&t, "%s", i % sp->workers ? " " : "  { ");
        put_link(&t, sp->machine.link[i], i % sp->workers == sp->workers - 1 ? " },\n" : ",");
    }
    put(&t, sp->machine.link ? "}\n\n" : "");
    if (sp->machine.host_link)
        put(&t, "local host_links = { ");
    for (int r = 0; sp->machine.host_link && r < sp->workers; r++)
        put_link(&t, sp->machine.host_link[r], ", ");
    put(&t, "%sreturn cluster {\n  flops = %g,\n", sp->machine.host_link ? "}\n\n" : "", sp->machine.flops);
    if (sp->machine.link)
        put(&t, "  link = function(src, dst) return table.unpack(links[src + 1][dst + 1]) end,\n");
    if (sp->machine.host_link)
        put(&t, "  host_link = function(r) return table.unpack(host_links[r + 1]) end,\n");
    put(&t, "}\n");
    return t.s;
}
