/* The job graph: the dependencies between jobs, and the tensor that each of them carries. */
#include "base/cycle.h"
#include "base/text.h"
#include "graph.h"
#include "program.h"
#include <math.h>
#include <string.h>

int64_t edge_bytes(const struct stage *st, const struct job *from, const struct job *to) {
    return st[from->s].bytes[edge_kind(from, to)];
}

struct link link_of(const struct spec *sp, int src, int dst) {
    if (!sp->link || src == dst)
        return (struct link){0, INFINITY};
    return sp->link[(int64_t)src * sp->workers + dst];
}

double link_time(const struct spec *sp, int src, int dst, double bytes) {
    struct link link = link_of(sp, src, dst);
    return link.latency + (isinf(link.bandwidth) ? 0 : bytes / link.bandwidth);
}

double host_time(const struct spec *sp, int r, int64_t bytes) {
    if (!sp->host_link)
        return 0;
    struct link link = sp->host_link[r];
    return link.latency + (isinf(link.bandwidth) ? 0 : (double)bytes / link.bandwidth);
}

int source_of(const struct spec *sp, int s, int i) {
    const struct model *m = sp->model;
    if (is_graph(sp))
        return m->from_at[s] + i < m->from_at[s + 1] ? m->from[m->from_at[s] + i] : -1;
    return i == 0 ? s - 1 : -1;
}

int reader_of(const struct spec *sp, int s, int i) {
    const struct model *m = sp->model;
    if (is_graph(sp))
        return m->to_at[s] + i < m->to_at[s + 1] ? m->to[m->to_at[s] + i] : -1;
    return i == 0 && s + 1 < sp->stages ? s + 1 : -1;
}

/* Writes the default dependencies of one job (schedules/README.md) to out, which has room for stages + 1 of them.
 * Returns how many there are. With recompute the stash comes from R. */
static int default_pred(const struct spec *sp, const struct job *j, int32_t *out) {
    int s = j->s, b = j->b, n = 0, t;
    int32_t again = job_at(sp, s, b, OP_R), forward = job_at(sp, s, b, OP_F);
    switch (j->d) {
    case OP_F:
        for (int i = 0; (t = source_of(sp, s, i)) >= 0; i++)
            out[n++] = job_at(sp, t, b, OP_F);
        break;
    case OP_R: out[n++] = forward; break;
    case OP_W: out[n++] = job_at(sp, s, b, OP_I); break;
    default:
        out[n++] = again >= 0 ? again : forward;
        for (int i = 0; (t = reader_of(sp, s, i)) >= 0; i++) {
            int32_t whole = job_at(sp, t, b, OP_B);
            out[n++] = whole >= 0 ? whole : job_at(sp, t, b, OP_I);
        }
    }
    return n;
}

bool has_edge(const struct graph *graph, int32_t j, int32_t p) {
    for (int32_t e = graph->pred_at[j]; e < graph->pred_at[j + 1]; e++)
        if (graph->pred[e] == p)
            return true;
    return false;
}

static bool reads(const struct spec *sp, int s, int from) {
    for (int i = 0, t; (t = source_of(sp, s, i)) >= 0; i++)
        if (t == from)
            return true;
    return false;
}

/* Orders that look like a tensor but carry none: between stages that the model does not connect, and from F to a
 * backward whose stash comes from R. */
static bool looks_only(const struct spec *sp, const struct job *from, const struct job *to) {
    int kind = edge_kind(from, to);
    if (from->s == to->s)
        return kind == K_stash && from->d == OP_F && job_at(sp, from->s, from->b, OP_R) >= 0;
    return sp->model &&
           ((kind == K_act && !reads(sp, to->s, from->s)) || (kind == K_grad && !reads(sp, from->s, to->s)));
}

static void copy_custom(const struct spec *sp, struct graph *graph) {
    for (int j = 0; j < graph->n; j++)
        if (sp->pred_at[j + 1] - sp->pred_at[j] > 60000)
            die("%s: pred() of %s returns %d jobs; a job can wait for 60000", sp->file,
                job_name(sp->job[j].s, sp->job[j].b, sp->job[j].d), sp->pred_at[j + 1] - sp->pred_at[j]);
    graph->pred = NEW(int32_t, sp->pred_at[graph->n] + 1);
    for (int j = 0, n = 0; j < graph->n; graph->pred_at[++j] = n)
        for (int32_t e = sp->pred_at[j]; e < sp->pred_at[j + 1]; e++)
            if (!looks_only(sp, &sp->job[sp->pred[e]], &sp->job[j]))
                graph->pred[n++] = sp->pred[e];
}

/* A custom pred may add orders, but a job's own tensors must come from somewhere. */
static void check_custom(const struct spec *sp, const struct graph *graph) {
    int32_t *need = NEW(int32_t, sp->stages + 2);
    for (int j = 0; j < graph->n; j++) {
        const struct job *job = &sp->job[j];
        int n = default_pred(sp, job, need);
        for (int i = 0; i < n; i++) {
            const struct job *p = &sp->job[need[i]];
            bool own = p->s == job->s;
            if ((own || sp->model) && !has_edge(graph, j, need[i]))
                die("%s: pred() of %s does not list %s, whose %s it reads; add {%d, %d, \"%s\"} to what it returns",
                    sp->file, job_name(job->s, job->b, job->d), job_name(p->s, p->b, p->d),
                    kind_name[edge_kind(p, job)], p->s, p->b, op_name[p->d]);
        }
    }
}

static void die_on_cycle(const struct spec *sp, const struct graph *graph, const int32_t *missing) {
    int32_t *at = NEW(int32_t, graph->n + 1), *to = NEW(int32_t, graph->pred_at[graph->n] + 1);
    int32_t n = 0;
    for (int j = 0; j < graph->n; j++) {
        at[j] = n;
        for (int32_t e = graph->pred_at[j]; missing[j] > 0 && e < graph->pred_at[j + 1]; e++)
            if (missing[graph->pred[e]] > 0)
                to[n++] = graph->pred[e];
    }
    at[graph->n] = n;
    int len;
    int32_t *cycle = shortest_cycle(graph->n, at, to, &len);
    struct text t = {0};
    for (int i = 0; i < len && i < 12; i++) {
        const struct job *a = &sp->job[cycle[i]], *b = &sp->job[cycle[(i + 1) % len]];
        put(&t, "\n  %s needs %s", job_name(a->s, a->b, a->d), job_name(b->s, b->b, b->d));
    }
    if (len > 12)
        put(&t, "\n  ... and %d more", len - 12);
    die("%s: the jobs' dependencies form a cycle of %d; remove one of these from pred():%s", sp->file, len, t.s);
}

static void check_acyclic(const struct spec *sp, const struct graph *graph) {
    int32_t *missing = NEW(int32_t, graph->n + 1), *queue = NEW(int32_t, graph->n + 1);
    int head = 0, tail = 0;
    for (int j = 0; j < graph->n; j++)
        if (!(missing[j] = graph->pred_at[j + 1] - graph->pred_at[j]))
            queue[tail++] = j;
    while (head < tail) {
        int j = queue[head++];
        for (int32_t e = graph->succ_at[j]; e < graph->succ_at[j + 1]; e++)
            if (--missing[graph->succ[e]] == 0)
                queue[tail++] = graph->succ[e];
    }
    if (tail < graph->n)
        die_on_cycle(sp, graph, missing);
}

struct graph *graph_build(const struct spec *sp) {
    struct graph *graph = NEW(struct graph, 1);
    int n = graph->n = sp->njobs;
    graph->pred_at = NEW(int32_t, n + 1);
    if (sp->pred) {
        copy_custom(sp, graph);
        check_custom(sp, graph);
    } else {
        size_t cap = 0;
        for (int j = 0; j < n; j++) {
            if (graph->pred_at[j] > INT32_MAX - sp->stages - 2)
                die("%s: its jobs have more than 2^31 dependencies; use fewer microbatches", sp->file);
            GROW(graph->pred, cap, (size_t)graph->pred_at[j] + (size_t)sp->stages + 2);
            graph->pred_at[j + 1] = graph->pred_at[j] + default_pred(sp, &sp->job[j], &graph->pred[graph->pred_at[j]]);
        }
    }
    int32_t edges = graph->pred_at[n];
    graph->succ_at = NEW(int32_t, n + 2);
    graph->succ = NEW(int32_t, edges + 1);
    graph->succ_edge = NEW(int32_t, edges + 1);
    for (int32_t e = 0; e < edges; e++)
        graph->succ_at[graph->pred[e] + 2]++;
    for (int j = 0; j < n; j++)
        graph->succ_at[j + 2] += graph->succ_at[j + 1];
    for (int j = 0; j < n; j++)
        for (int32_t e = graph->pred_at[j]; e < graph->pred_at[j + 1]; e++) {
            int32_t at = graph->succ_at[graph->pred[e] + 1]++;
            graph->succ[at] = j;
            graph->succ_edge[at] = e;
        }
    check_acyclic(sp, graph);
    return graph;
}
