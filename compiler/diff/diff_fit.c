/* Costs as they were measured, as a cluster script that the next compile can be given.
 *
 * Of each stage's job, the median of all that was measured. Of each link, messages of two sizes or more give latency
 * and bandwidth, the line through their medians whose slope is the median of slopes (Theil 1950, the incomplete
 * method); one size cannot tell them apart, and is taken as bandwidth alone. A reduction counts as its ring's steps, 2
 * (n - 1) messages of an nth part (sim.c), over each link of the ring that has no messages of its own. */
#include "diff.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Numbers by what they are of: x[at[g] .. at[g + 1]) of group g. */
struct samples {
    int32_t *of; /* of each operation, its group, or -1 */
    int n;
    size_t *at;
    double *x;
};

/* Collects the durations of all operations of each group, in all steps. */
static void collect(const struct side *s, struct samples *z) {
    int K = side_nsteps(s);
    z->at = NEW(size_t, z->n + 1);
    for (int i = 0; i < s->n; i++)
        if (z->of[i] >= 0)
            z->at[z->of[i] + 1] += (size_t)K;
    for (int g = 0; g < z->n; g++)
        z->at[g + 1] += z->at[g];
    size_t *next = NEW(size_t, z->n + 1);
    for (int g = 0; g < z->n; g++)
        next[g] = z->at[g];
    z->x = NEW(double, z->at[z->n]);
    for (int i = 0; i < s->n; i++)
        if (z->of[i] >= 0) {
            diff_sample(s, i, false, &z->x[next[z->of[i]]]);
            next[z->of[i]] += (size_t)K;
        }
}

static double middle(const struct samples *z, int g) {
    return median_of(&z->x[z->at[g]], (int)(z->at[g + 1] - z->at[g]));
}

/* What was measured is not known to more than six digits. */
static const char *measured_text(double x, char buf[32]) {
    if (isinf(x))
        return "math.huge";
    snprintf(buf, 32, "%.6g", x);
    return buf;
}

/* ---- jobs ---- */

static void put_jobs(struct text *t, const struct side *s, int stages) {
    struct samples z = {.of = NEW(int32_t, s->n), .n = NOPS * stages};
    char buf[32];
    for (int i = 0; i < s->n; i++)
        z.of[i] = has_cost(s->op[i].op) ? s->op[i].op * stages + s->op[i].stage : -1;
    collect(s, &z);
    put(t, "local seconds = {\n");
    for (int op = 0; op < NOPS; op++) {
        bool any = false;
        for (int g = op * stages; g < (op + 1) * stages; g++)
            any |= z.at[g] < z.at[g + 1];
        if (!any)
            continue;
        put(t, "  %s = { ", op_name[op]);
        for (int g = op * stages; g < (op + 1) * stages; g++)
            if (z.at[g] < z.at[g + 1])
                put(t, "[%d] = %s, ", g - op * stages, measured_text(middle(&z, g), buf));
        put(t, "},\n");
    }
    put(t, "}\n");
}

/* ---- links ---- */

struct point { /* messages of one size over one link */
    int32_t from, to;
    int64_t bytes;
    double took;
    bool ring; /* a step of a reduction */
};

struct line {
    int32_t from, to;
    double latency, bandwidth;
};

static int by_link(const void *x, const void *y) {
    const struct point *a = x, *b = y;
    if (a->from != b->from)
        return a->from - b->from;
    if (a->to != b->to)
        return a->to - b->to;
    if (a->ring != b->ring)
        return a->ring - b->ring;
    return (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

struct points {
    struct point *at;
    int n;
    size_t cap;
};

static void add_point(struct points *z, struct point p) {
    GROW(z->at, z->cap, (size_t)z->n + 1);
    z->at[z->n++] = p;
}

/* A reduction over its ring of ranks, ascending; side's own ring goes the other way after the first. */
static void add_ring(struct points *z, const struct side *s, int first, double took) {
    int members = 1, from = s->op[first].rank;
    for (int k = s->op[first].ring; k != first; k = s->op[k].ring)
        members++;
    struct point p = {
        .bytes = (s->op[first].bytes + members - 1) / members, .took = took / (2 * (members - 1)), .ring = true};
    p.to = from;
    for (int k = s->op[first].ring; k != first; k = s->op[k].ring) {
        p.from = s->op[k].rank;
        add_point(z, p);
        p.to = p.from;
    }
    p.from = from;
    add_point(z, p);
}

/* One point per message and per step of a ring, with the median over the measured steps. */
static struct points points_of(const struct side *s) {
    struct points z = {0};
    double *took = NEW(double, side_nsteps(s));
    for (int i = 0; i < s->n; i++) {
        const struct diff_op *o = &s->op[i];
        bool reduces = is_group(o->op) && side_leads(s, i);
        if (o->bytes <= 0 || !(reduces || is_recv(o->op)))
            continue;
        diff_sample(s, i, false, took);
        double t = median_of(took, side_nsteps(s));
        if (reduces)
            add_ring(&z, s, i, t);
        else
            add_point(&z, (struct point){o->peer, o->rank, o->bytes, t, false});
    }
    qsort(z.at, (size_t)z.n, sizeof *z.at, by_link);
    return z;
}

/* Theil's line through points of ascending sizes: each of the lower half with its like in the upper half. */
static struct line line_of(const struct point *p, int n) {
    struct line l = {p->from, p->to, 0, INFINITY};
    int slopes = n / 2;
    double *slope = NEW(double, slopes), *rest = NEW(double, n);
    for (int a = 0; a < slopes; a++) {
        const struct point *low = &p[a], *high = &p[a + n - slopes];
        slope[a] = (high->took - low->took) / (double)(high->bytes - low->bytes);
    }
    double per_byte = slopes ? median_of(slope, slopes) : 0;
    for (int a = 0; a < n; a++)
        rest[a] = p[a].took - per_byte * (double)p[a].bytes;
    l.latency = median_of(rest, n);
    if (slopes && per_byte > 0 && l.latency >= 0) {
        l.bandwidth = 1 / per_byte;
        return l;
    }
    for (int a = 0; a < n; a++) /* one size, or sizes that do not matter: what they take together, as bytes */
        rest[a] = p[a].took / (double)p[a].bytes;
    double each = median_of(rest, n);
    l.latency = 0;
    l.bandwidth = each > 0 ? 1 / each : INFINITY;
    return l;
}

/* The points of one link from p on, up to end: those of messages, or where there are none those of rings, of which each
 * size becomes one point. Returns how many there are, at out. */
static int sizes_of(const struct point *p, const struct point *end, struct point *out) {
    double *took = NEW(double, end - p);
    int sizes = 0;
    bool ring = p->ring;
    while (p < end && p->ring == ring) {
        int n = 0;
        for (const struct point *same = p; p < end && p->ring == ring && p->bytes == same->bytes; p++)
            took[n++] = p->took;
        out[sizes] = p[-1];
        out[sizes++].took = median_of(took, n);
    }
    return sizes;
}

static struct line *lines_of(const struct point *p, int n, int *count) {
    struct line *line = NEW(struct line, n);
    struct point *size = NEW(struct point, n);
    int lines = 0;
    for (const struct point *end = p + n, *next; p < end; p = next) {
        for (next = p; next < end && next->from == p->from && next->to == p->to; next++)
            ;
        line[lines++] = line_of(size, sizes_of(p, next, size));
    }
    *count = lines;
    return line;
}

/* Links that nothing went over get the medians of the others: better than free. */
static void put_links(struct text *t, const struct side *s) {
    int lines;
    struct points p = points_of(s);
    const struct line *line = lines_of(p.at, p.n, &lines);
    double *latency = NEW(double, lines + 1), *bandwidth = NEW(double, lines + 1);
    char a[32], b[32];
    if (!lines)
        return;
    put(t, "local links = { -- from, to: latency (seconds), bandwidth (bytes per second)\n");
    for (int i = 0; i < lines; i++) {
        latency[i] = line[i].latency;
        bandwidth[i] = line[i].bandwidth;
        put(t, "  [\"%d %d\"] = { %s, %s },\n", line[i].from, line[i].to, measured_text(line[i].latency, a),
            measured_text(line[i].bandwidth, b));
    }
    put(t, "}\nlocal others = { %s, %s } -- their medians\n", measured_text(median_of(latency, lines), a),
        measured_text(median_of(bandwidth, lines), b));
}

/* ---- the script ---- */

/* By which what was not measured goes: FLOP of all jobs by their seconds. 0: the prediction does not say its FLOP. */
static double flops_of(const struct diff *d, const struct side *measured, const struct side *predicted) {
    double was = 0, is = 0;
    if (d->rate > 0)
        return strcmp(predicted->unit, "FLOP") == 0 ? 1 / d->rate : 0;
    for (int i = 0; predicted->flops > 0 && i < measured->n; i++) {
        const struct diff_op *o = &measured->op[i];
        if (!is_job(o->op) || !diff_compares(o))
            continue;
        is += measured->end[i] - measured->start[i];
        was += predicted->end[o->match] - predicted->start[o->match];
    }
    return is > 0 ? predicted->flops * was / is : 0;
}

void emit_fit(struct text *t, const struct diff *d) {
    const struct side *s = d->side[d->side[1]->steps != NULL], *other = d->side[s == d->side[0]];
    int stages = 0, sets = 0;
    char buf[32];
    if (!s->steps)
        die("--fit: neither %s nor %s is measured; `pianola run --timeline FILE` measures", d->side[0]->name,
            d->side[1]->name);
    for (int i = 0; i < s->n; i++) { /* sets of weights: the stages', and of a tied model the table's */
        if (s->op[i].stage >= s->n)
            die("--fit: %s has a row of stage %d, but %d operations only", s->name, s->op[i].stage, s->n);
        if (s->op[i].op == OP_F && s->op[i].stage >= stages)
            stages = s->op[i].stage + 1;
        if (has_cost(s->op[i].op) && s->op[i].stage >= sets)
            sets = s->op[i].stage + 1;
    }
    put(t, "-- Costs as measured, medians of %d steps of %s; for --cluster.\n", side_nsteps(s), tame(s->name));
    put_jobs(t, s, sets);
    size_t before = t->n;
    put_links(t, s);
    bool links = t->n > before;
    put(t, "\nreturn cluster {\n  stages = %d,\n  cost = function(s, op) return seconds[op] and seconds[op][s] end,\n",
        stages);
    double flops = flops_of(d, s, other);
    if (flops > 0)
        put(t, "  flops = %s,\n", measured_text(flops, buf));
    if (links)
        put(t,
            "  link = function(src, dst)\n    local l = links[src .. \" \" .. dst] or others\n    return l[1], l[2]\n"
            "  end,\n");
    put(t, "}\n");
}
