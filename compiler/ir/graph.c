/* The job graph: dependencies between jobs, and the tensor that each of them carries. */
#include "base/cycle.h"
#include "base/text.h"
#include "compile.h"
#include <math.h>
#include <string.h>

int64_t edge_bytes(const struct compile *c, int32_t e) {
    const struct job *from = &c->spec->job[c->graph->pred[e]];
    return stage_at(c->costs, from->s, from->b)->bytes[c->graph->kind[e]];
}

double edge_time(const struct compile *c, int32_t e, int32_t to) {
    int from = c->spec->job[c->graph->pred[e]].rank, rank = c->spec->job[to].rank;
    return from == rank ? 0 : link_time(c->spec, from, rank, (double)edge_bytes(c, e));
}

struct link link_of(const struct spec *sp, int src, int dst) {
    if (!sp->machine.link || src == dst)
        return (struct link){0, INFINITY};
    return sp->machine.link[(int64_t)src * sp->workers + dst];
}

double link_time(const struct spec *sp, int src, int dst, double bytes) {
    struct link link = link_of(sp, src, dst);
    return link.latency + (isinf(link.bandwidth) ? 0 : bytes / link.bandwidth);
}

double host_time(const struct spec *sp, int r, int64_t bytes) {
    if (!sp->machine.host_link)
        return 0;
    struct link link = sp->machine.host_link[r];
    return link.latency + (isinf(link.bandwidth) ? 0 : (double)bytes / link.bandwidth);
}

/* Returns the member of the script's stage t with which member stage s exchanges tensors: the one at the same place. If
 * t's team is smaller, places wrap around. */
static int counterpart(const struct spec *sp, int s, int t) {
    const struct member *member = sp->names.member;
    if (!member || t < 0)
        return t;
    int first = sp->names.first[t], size = sp->names.first[t + 1] - first;
    return first + (member[s].place < 0 ? 0 : member[s].place % size);
}

int source_of(const struct spec *sp, int s, int i) {
    const struct model *m = sp->model;
    int at = sp->names.member ? sp->names.member[s].stage : s, source = i == 0 ? at - 1 : -1;
    if (is_graph(sp))
        source = m->from_at[at] + i < m->from_at[at + 1] ? m->from[m->from_at[at] + i] : -1;
    return counterpart(sp, s, source);
}

int reader_of(const struct spec *sp, int s, int i) {
    const struct model *m = sp->model;
    int at = sp->names.member ? sp->names.member[s].stage : s;
    int reader = i == 0 && at + 1 < script_stages(&sp->names, sp->stages) ? at + 1 : -1;
    if (is_graph(sp))
        reader = m->to_at[at] + i < m->to_at[at + 1] ? m->to[m->to_at[at] + i] : -1;
    return counterpart(sp, s, reader);
}

/* Dependencies of one job, with room for most_needs. */
struct need_list {
    int32_t *job;
    uint8_t *kind;
    int n;
};
static int most_needs(const struct spec *sp) { return sp->stages + sp->names.slices + 2; }

static void need(struct need_list *list, int32_t job, int kind) {
    list->job[list->n] = job;
    list->kind[list->n++] = (uint8_t)kind;
}

static int32_t find_input_gradient(const struct spec *sp, int s, int b) { /* Returns the gradient's producer. */
    int32_t whole = job_at(sp, s, b, OP_B);
    return whole >= 0 ? whole : job_at(sp, s, b, OP_I);
}

/* Adds a slice's needs from its microbatch's other slices. A recompute recomputes its own keys and values, and drops
 * them. */
static void need_slices(const struct costs *costs, const struct job *j, struct need_list *list) {
    const struct spec *sp = costs->spec;
    bool back = j->d == OP_B || j->d == OP_I;
    if (!has_kv(costs, j->s) || j->d == OP_W)
        return;
    for (int b = j->b - j->b % sp->names.slices; b < j->b + back; b++)
        need(list, job_at(sp, j->s, b, OP_F), K_kv);
    if (back && (j->b + 1) % sp->names.slices)
        need(list, find_input_gradient(sp, j->s, j->b + 1), K_dkv);
}

/* Adds the default dependencies of one job (schedules/language.md). With recompute, the stash comes from R. */
static void default_needs(const struct costs *costs, const struct job *j, struct need_list *list) {
    const struct spec *sp = costs->spec;
    int s = j->s, b = j->b, t;
    int32_t again = job_at(sp, s, b, OP_R), forward = job_at(sp, s, b, OP_F);
    switch (j->d) {
    case OP_F:
        for (int i = 0; (t = source_of(sp, s, i)) >= 0; i++)
            need(list, job_at(sp, t, b, OP_F), K_act);
        break;
    case OP_R: need(list, forward, K_input); break;
    case OP_W: need(list, job_at(sp, s, b, OP_I), K_wstash); break;
    default:
        need(list, again >= 0 ? again : forward, K_stash);
        for (int i = 0; (t = reader_of(sp, s, i)) >= 0; i++)
            need(list, find_input_gradient(sp, t, b), K_grad);
    }
    need_slices(costs, j, list);
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

/* Returns whether stage s reads a gradient of stage `from`. If a larger team feeds a smaller one, several members read
 * one gradient. */
static bool reads_gradient(const struct spec *sp, int s, int from) {
    for (int i = 0, t; (t = reader_of(sp, s, i)) >= 0; i++)
        if (t == from)
            return true;
    return false;
}

/* Returns the tensor of an edge between slices of one microbatch. */
static int kind_between_slices(const struct costs *costs, const struct job *from, const struct job *to) {
    const struct spec *sp = costs->spec;
    int slices = sp->names.slices;
    bool back = to->d == OP_B || to->d == OP_I;
    if (from->s != to->s || !has_kv(costs, to->s) || from->b / slices != to->b / slices)
        return K_token;
    if (from->d == OP_F)
        return from->b < to->b && to->d != OP_W ? K_kv : K_token;
    return (from->d == OP_B || from->d == OP_I) && back && from->b == to->b + 1 ? K_dkv : K_token;
}

/* Returns the tensor that a dependency given by pred() carries. K_none: drops the edge, because the order holds anyway;
 * for example, from F to a backward whose stash comes from R. Stages that the model does not connect exchange
 * nothing. */
static int custom_kind(const struct costs *costs, const struct job *from, const struct job *to) {
    const struct spec *sp = costs->spec;
    bool back = to->d == OP_B || to->d == OP_I;
    if (from->b != to->b)
        return kind_between_slices(costs, from, to);
    if (from->s == to->s) {
        if (from->d == OP_F && to->d == OP_R)
            return K_input;
        if (from->d == OP_F && back && job_at(sp, to->s, to->b, OP_R) >= 0)
            return has_kv(costs, to->s) ? K_kv : K_none;
        if ((from->d == OP_F || from->d == OP_R) && back)
            return K_stash;
        return from->d == OP_I && to->d == OP_W ? K_wstash : K_token;
    }
    if (from->d == OP_F && to->d == OP_F)
        return sp->model && !reads(sp, to->s, from->s) ? K_none : K_act;
    if ((from->d == OP_B || from->d == OP_I) && back)
        return sp->model && !reads_gradient(sp, to->s, from->s) ? K_none : K_grad;
    return K_token;
}

/* Copies the edges that pred() gives. A backward that reads its forward's stash also reads its keys and values, by an
 * edge of their own. */
static void copy_custom(const struct costs *costs, struct graph *graph) {
    const struct spec *sp = costs->spec;
    for (int j = 0; j < graph->n; j++)
        if (sp->pred_at[j + 1] - sp->pred_at[j] > 60000)
            die("%s: pred() of %s returns %d jobs; a job can wait for 60000", sp->file,
                job_name(&sp->names, sp->job[j].s, sp->job[j].b, sp->job[j].d), sp->pred_at[j + 1] - sp->pred_at[j]);
    size_t most = (size_t)sp->pred_at[graph->n] + (size_t)graph->n * (size_t)(1 + sp->names.slices);
    struct need_list list = {NEW(int32_t, most), NEW(uint8_t, most), 0};
    for (int j = 0; j < graph->n; graph->pred_at[++j] = list.n) {
        if (sp->declared.recompute && sp->job[j].d == OP_R) /* pred() is not called for it */
            need_slices(costs, &sp->job[j], &list);
        for (int32_t e = sp->pred_at[j]; e < sp->pred_at[j + 1]; e++) {
            const struct job *from = &sp->job[sp->pred[e]];
            int kind = custom_kind(costs, from, &sp->job[j]);
            if (kind != K_none)
                need(&list, sp->pred[e], kind);
            if (kind == K_stash && from->d == OP_F && has_kv(costs, from->s))
                need(&list, sp->pred[e], K_kv);
        }
    }
    graph->pred = list.job;
    graph->kind = list.kind;
}

/* Returns a job as an item of pred()'s result, "1, 3, "F"", or with slices "1, 3, "F", 0". */
static const char *item_text(const struct spec *sp, const struct job *j) {
    int slices = slices_of(&sp->names), s = sp->names.member ? sp->names.member[j->s].stage : j->s;
    return sp->names.slices ? format("%d, %d, \"%s\", %d", s, j->b / slices, op_name[j->d], j->b % slices)
                            : format("%d, %d, \"%s\"", s, j->b, op_name[j->d]);
}

/* Dies if pred() omits an edge that brings a job its own tensors. pred() may add orders, but every tensor needs a
 * source. */
static void check_custom(const struct costs *costs, const struct graph *graph) {
    const struct spec *sp = costs->spec;
    struct need_list list = {NEW(int32_t, most_needs(sp)), NEW(uint8_t, most_needs(sp)), 0};
    for (int j = 0; j < graph->n; j++, list.n = 0) {
        const struct job *job = &sp->job[j];
        default_needs(costs, job, &list);
        for (int i = 0; i < list.n; i++) {
            const struct job *p = &sp->job[list.job[i]];
            bool own = p->s == job->s;
            if ((own || sp->model) && !has_edge(graph, j, list.job[i]))
                die("%s: pred() of %s does not list %s, whose %s it reads; add {%s} to what it returns", sp->file,
                    job_name(&sp->names, job->s, job->b, job->d), job_name(&sp->names, p->s, p->b, p->d),
                    kind_name[list.kind[i]], item_text(sp, p));
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
        put(&t, "\n  %s needs %s", job_name(&sp->names, a->s, a->b, a->d), job_name(&sp->names, b->s, b->b, b->d));
    }
    if (len > 12)
        put(&t, "\n  ... and %d more", len - 12);
    die("%s: the jobs' dependencies form a cycle of %d; remove one of these from pred():%s", sp->file, len, t.s);
}

/* Orders the jobs topologically into `order`; jobs in a cycle or after one are left out, and `missing` counts their
 * unmet needs. Returns the number of ordered jobs. */
static int order_jobs(const struct graph *graph, int32_t *order, int32_t *missing) {
    int n = 0;
    for (int j = 0; j < graph->n; j++)
        if (!(missing[j] = graph->pred_at[j + 1] - graph->pred_at[j]))
            order[n++] = j;
    for (int i = 0; i < n; i++)
        for (int32_t e = graph->succ_at[order[i]]; e < graph->succ_at[order[i] + 1]; e++)
            if (--missing[graph->succ[e]] == 0)
                order[n++] = graph->succ[e];
    return n;
}

static void check_acyclic(const struct spec *sp, const struct graph *graph) {
    int32_t *missing = NEW(int32_t, graph->n + 1);
    if (order_jobs(graph, NEW(int32_t, graph->n + 1), missing) < graph->n)
        die_on_cycle(sp, graph, missing);
}

int32_t *graph_order(const struct graph *graph) {
    int32_t *order = NEW(int32_t, graph->n + 1);
    int n = order_jobs(graph, order, NEW(int32_t, graph->n + 1));
    assert(n == graph->n); /* graph_build refuses cycles */
    return order;
}

struct graph *graph_build(const struct costs *costs) {
    const struct spec *sp = costs->spec;
    struct graph *graph = NEW(struct graph, 1);
    int n = graph->n = sp->njobs;
    graph->pred_at = NEW(int32_t, n + 1);
    if (sp->pred) {
        copy_custom(costs, graph);
        check_custom(costs, graph);
    } else {
        size_t cap = 0, cap_kind = 0, most = (size_t)most_needs(sp);
        for (int j = 0; j < n; j++) {
            int32_t at = graph->pred_at[j];
            if (at > INT32_MAX - (int32_t)most)
                die("%s: its jobs have more than 2^31 dependencies; use fewer microbatches", sp->file);
            GROW(graph->pred, cap, (size_t)at + most);
            GROW(graph->kind, cap_kind, (size_t)at + most);
            struct need_list list = {graph->pred + at, graph->kind + at, 0};
            default_needs(costs, &sp->job[j], &list);
            graph->pred_at[j + 1] = at + list.n;
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
