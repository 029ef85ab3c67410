/* Writes measured costs as a cluster script for the next compile.
 *
 * A stage's job costs its mean measured CPU time: the mean, because the ranks' work then adds up to the measured total;
 * CPU time, because it excludes waiting for a core. Without CPU times, it costs the median of its durations. For a
 * link, messages of two or more sizes give latency and bandwidth by a line through their means or medians, whose slope
 * is the median of slopes (Theil 1950, the incomplete method). Messages of a single size cannot separate the two, and
 * give bandwidth alone.
 *
 * A collective counts as its steps over each link of the ring of its members, for links that have no messages of their
 * own. Between ranks that are threads, collectives of an operation and a number of members also get a line of their
 * own, by the bytes of passes/collective.c: one thread does the whole work, and adding costs more than copying. */
#include "diff.h"
#include "passes/passes.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Returns whether the work of all operations is known apart from their durations. */
static bool measures_work(const struct side *side) {
    bool known = side->steps->cores > 0;
    for (int64_t i = 0; known && i < (int64_t)side->steps->nsteps * side->n; i++)
        known = isfinite(side->steps->row[i].cpu);
    return known;
}

/* Numbers by group: group g's are x[at[g] .. at[g + 1]). */
struct samples {
    int32_t *of;   /* per operation: its group, or -1 */
    int32_t *part; /* per operation: the one that it continues as a further part, or -1 */
    int n;
    size_t *at;
    double *x;
};

/* Writes an operation's work in each step: its CPU time, with its whole message's; or, without CPU times (`work`), its
 * duration. */
static void sample_work(const struct side *side, int i, bool work, double *out) {
    diff_sample(side, i, false, out);
    if (!work)
        return;
    for (int k = 0; k < side_nsteps(side); k++) {
        const struct timeline_row *row = &side->steps->row[(size_t)k * (size_t)side->n];
        out[k] = row[i].cpu;
        for (int other = side->op[i].ring; other != i; other = side->op[other].ring)
            out[k] += row[other].cpu;
    }
}

/* Collects the work of all operations of each group, in all steps. */
static void collect(const struct side *side, bool work, struct samples *samples) {
    int K = side_nsteps(side);
    samples->at = NEW(size_t, samples->n + 1);
    for (int i = 0; i < side->n; i++)
        if (samples->of[i] >= 0)
            samples->at[samples->of[i] + 1] += (size_t)K;
    for (int g = 0; g < samples->n; g++)
        samples->at[g + 1] += samples->at[g];
    size_t *next = NEW(size_t, samples->n + 1);
    for (int g = 0; g < samples->n; g++)
        next[g] = samples->at[g];
    samples->x = NEW(double, samples->at[samples->n]);
    size_t *place = NEW(size_t, side->n);
    double *took = NEW(double, K);
    for (int i = 0; i < side->n; i++)
        if (samples->of[i] >= 0) {
            place[i] = next[samples->of[i]];
            sample_work(side, i, work, &samples->x[place[i]]);
            next[samples->of[i]] += (size_t)K;
        } else if (samples->part[i] >= 0) {
            sample_work(side, i, work, took);
            for (int k = 0; k < K; k++)
                samples->x[place[samples->part[i]] + (size_t)k] += took[k];
        }
}

/* Returns the mean, if x is work, or the median. Sorts x. */
static double typical(double *x, int n, bool work) {
    double sum = 0, median = median_of(x, n);
    for (int i = 0; i < n; i++)
        sum += x[i];
    return work ? sum / n : median;
}

/* Returns what a group costs. Sorts its samples. */
static double group_cost(const struct samples *samples, int g, bool work) {
    return typical(&samples->x[samples->at[g]], (int)(samples->at[g + 1] - samples->at[g]), work);
}

/* Formats with six digits; measurements are no more precise. */
static const char *rounded_text(double x, char buf[32]) {
    if (isinf(x))
        return "math.huge";
    snprintf(buf, 32, "%.6g", x);
    return buf;
}

/* Writes the quantiles of each group of an operation, in tenths. */
static void put_spread(struct text *t, const struct samples *samples, int op, int stages) {
    char buf[32];
    put(t, "  %s = {\n", op_name[op]);
    for (int s = 0; s < stages; s++) {
        const double *x = &samples->x[samples->at[op * stages + s]];
        size_t n = samples->at[op * stages + s + 1] - samples->at[op * stages + s];
        if (n < 2)
            continue;
        put(t, "    [%d] = { ", s);
        for (size_t tenth = 0; tenth <= 10; tenth++)
            put(t, "%s%s", rounded_text(x[(n - 1) * tenth / 10], buf), tenth < 10 ? ", " : " },\n");
    }
    put(t, "  },\n");
}

/* ---- jobs ---- */

/* Returns whether operation i is a further part of the job before it: a backward in parts is several operations, one
 * after the other. */
static bool is_continued(const struct side *side, int i) {
    const struct diff_op *op = &side->op[i], *before = &side->op[i > 0 ? i - 1 : 0];
    return i > 0 && is_job(op->op) && before->op == op->op && before->stage == op->stage &&
           before->batch == op->batch && before->lane == op->lane;
}

static void put_jobs(struct text *t, const struct side *side, int stages, bool work) {
    struct samples samples = {.of = NEW(int32_t, side->n), .part = NEW(int32_t, side->n), .n = NOPS * stages};
    char buf[32];
    for (int i = 0; i < side->n; i++) {
        samples.part[i] = !is_continued(side, i) ? -1 : samples.part[i - 1] >= 0 ? samples.part[i - 1] : i - 1;
        bool counts = has_cost(side->op[i].op) && samples.part[i] < 0;
        samples.of[i] = counts ? side->op[i].op * stages + side->op[i].stage : -1;
    }
    collect(side, work, &samples);
    bool any[NOPS] = {false};
    for (int g = 0; g < samples.n; g++)
        any[g / stages] |= samples.at[g] < samples.at[g + 1];
    put(t, "local seconds = {\n");
    for (int op = 0; op < NOPS; op++) {
        if (any[op])
            put(t, "  %s = { ", op_name[op]);
        for (int g = op * stages; g < (op + 1) * stages; g++)
            if (samples.at[g] < samples.at[g + 1])
                put(t, "[%d] = %s, ", g - op * stages, rounded_text(group_cost(&samples, g, work), buf));
        put(t, any[op] ? "},\n" : "");
    }
    put(t, "}\nlocal spread = { -- the least, each tenth of the measurements, and the greatest\n");
    for (int op = 0; op < NOPS; op++)
        if (any[op])
            put_spread(t, &samples, op, stages);
    put(t, "}\n");
}

/* ---- links ---- */

struct point { /* a message, or all of one size over one link; or collectives of operation `from` and `to` members */
    int32_t from, to;
    int64_t bytes;
    double took, weight; /* weight: in means; 0: in medians */
    bool ring;           /* it is a step of a reduction */
};

struct line {
    int32_t from, to;
    double latency, bandwidth;
};

static int by_edge(const void *x, const void *y) {
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

static void add_point(struct points *points, struct point point) {
    GROW(points->at, points->cap, (size_t)points->n + 1);
    points->at[points->n++] = point;
}

static int count_members(const struct side *side, int first) {
    int members = 1;
    for (int k = side->op[first].ring; k != first; k = side->op[k].ring)
        members++;
    return members;
}

/* Adds the points of a collective over its members, ascending; side's own ring goes the other way after the first. It
 * counts as the steps of a tree, which the prediction uses if links are alike (passes/collective.c): s = ceil(log2 n)
 * steps, or twice that, in which n - 1 shards move in total each time. So a prediction with the fitted costs reproduces
 * the measurement. */
static void add_ring(struct points *points, const struct side *side, int first, double took, bool work) {
    const struct diff_op *op = &side->op[first];
    int members = count_members(side, first), from = op->rank, steps = 0;
    while (1 << steps < members)
        steps++;
    bool all = op->op == OP_ALL_REDUCE;
    int64_t shard = all ? (op->bytes + members - 1) / members : op->bytes;
    struct point point = {
        .bytes = shard * (members - 1) / steps, .took = took / ((all ? 2 : 1) * steps), .weight = work, .ring = true};
    point.to = from;
    for (int k = op->ring; k != first; k = side->op[k].ring) {
        point.from = side->op[k].rank;
        add_point(points, point);
        point.to = point.from;
    }
    point.from = from;
    add_point(points, point);
}

/* Returns one point per message and per step of a ring, with the median over the measured steps. A copy to or from host
 * memory is a point from the rank to itself. If ranks are threads (`work`), the point has the mean. */
static struct points points_of(const struct side *side, bool work) {
    struct points points = {0};
    double *took = NEW(double, side_nsteps(side));
    for (int i = 0; i < side->n; i++) {
        const struct diff_op *op = &side->op[i];
        bool stepped = op->op == OP_ALL_REDUCE || op->op == OP_ALL_GATHER || op->op == OP_REDUCE_SCATTER;
        bool ring = stepped && side_leads(side, i);
        if (op->bytes <= 0 || !(ring || is_recv(op->op) || is_copy(op->op)))
            continue;
        sample_work(side, i, work, took);
        double t = typical(took, side_nsteps(side), work);
        if (ring)
            add_ring(&points, side, i, t, work);
        else
            add_point(&points,
                      (struct point){is_copy(op->op) ? op->rank : op->peer, op->rank, op->bytes, t, work, false});
    }
    sort(points.at, (size_t)points.n, sizeof *points.at, by_edge);
    return points;
}

/* Returns one point per collective of ranks that are threads. */
static struct points collective_points(const struct side *side) {
    struct points points = {0};
    double *took = NEW(double, side_nsteps(side));
    for (int i = 0; i < side->n; i++) {
        const struct diff_op *op = &side->op[i];
        if (op->bytes <= 0 || !is_group(op->op) || !side_leads(side, i))
            continue;
        int n = count_members(side, i), motion = motion_of(op->op);
        bool shards = motion == OP_ALL_GATHER || motion == OP_REDUCE_SCATTER;
        double whole = (double)op->bytes * (shards ? n : 1);
        sample_work(side, i, true, took);
        add_point(&points, (struct point){motion, n, (int64_t)bus_bytes(motion, n, whole),
                                          typical(took, side_nsteps(side), true), 1, false});
    }
    sort(points.at, (size_t)points.n, sizeof *points.at, by_edge);
    return points;
}

/* Returns the mean by weight or, if there are no weights, the median. Sorts x. */
static double middle(double *x, const struct point *point, int n) {
    double sum = 0, weight = 0;
    for (int a = 0; a < n; a++) {
        sum += point[a].weight * x[a];
        weight += point[a].weight;
    }
    return weight > 0 ? sum / weight : median_of(x, n);
}

/* Returns the seconds per byte if latency is 0. */
static double time_per_byte(const struct point *point, double *each, int n) {
    double took = 0, bytes = 0;
    for (int a = 0; a < n; a++) {
        each[a] = point[a].took / (double)point[a].bytes;
        took += point[a].weight * point[a].took;
        bytes += point[a].weight * (double)point[a].bytes;
    }
    return bytes > 0 ? took / bytes : median_of(each, n);
}

/* Fits Theil's line through points of ascending sizes, pairing each of the lower half with its counterpart in the upper
 * half. With weights, the line has their mean. */
static struct line fit_line(const struct point *point, int n) {
    struct line line = {point->from, point->to, 0, INFINITY};
    int slopes = n / 2;
    double *slope = NEW(double, slopes), *rest = NEW(double, n);
    for (int a = 0; a < slopes; a++) {
        const struct point *low = &point[a], *high = &point[a + n - slopes];
        slope[a] = (high->took - low->took) / (double)(high->bytes - low->bytes);
    }
    double per_byte = slopes ? median_of(slope, slopes) : 0;
    for (int a = 0; a < n; a++)
        rest[a] = point[a].took - per_byte * (double)point[a].bytes;
    line.latency = middle(rest, point, n);
    if (slopes && per_byte > 0 && line.latency >= 0) {
        line.bandwidth = 1 / per_byte;
        return line;
    }
    double each = time_per_byte(point, rest, n); /* one size, or size has no effect */
    line.latency = 0;
    line.bandwidth = each > 0 ? 1 / each : INFINITY;
    return line;
}

/* Reduces one link's points, up to `end`, to one per size, and stores them at `out`. Uses messages or, if there are
 * none, rings. Returns their number. */
static int sizes_of(const struct point *point, const struct point *end, struct point *out) {
    double *took = NEW(double, end - point);
    int sizes = 0;
    bool ring = point->ring;
    while (point < end && point->ring == ring) {
        const struct point *first = point;
        int n = 0;
        for (; point < end && point->ring == ring && point->bytes == first->bytes; point++)
            took[n++] = point->took;
        out[sizes] = *first;
        out[sizes].took = middle(took, first, n);
        out[sizes++].weight *= n;
    }
    return sizes;
}

static struct line *fit_lines(const struct point *point, int n, int *count) {
    struct line *line = NEW(struct line, n);
    struct point *size = NEW(struct point, n);
    int lines = 0;
    for (const struct point *end = point + n, *next; point < end; point = next) {
        for (next = point; next < end && next->from == point->from && next->to == point->to; next++)
            ;
        line[lines++] = fit_line(size, sizes_of(point, next, size));
    }
    *count = lines;
    return line;
}

/* Writes the lines of links between ranks, or to host memory. Links that carried nothing get the medians of the others,
 * which is better than free. Returns whether there are any. */
static bool put_link_lines(struct text *t, const struct line *line, int lines, bool host) {
    double *latency = NEW(double, lines + 1), *bandwidth = NEW(double, lines + 1);
    char a[32], b[32];
    int n = 0;
    for (int i = 0; i < lines; i++) {
        if ((line[i].from == line[i].to) != host)
            continue;
        if (n == 0)
            put(t, host ? "local hosts = { -- rank: latency (seconds), bandwidth (bytes per second) of copies\n"
                        : "local links = { -- from, to: latency (seconds), bandwidth (bytes per second)\n");
        latency[n] = line[i].latency;
        bandwidth[n++] = line[i].bandwidth;
        put(t, host ? "  [%d] = " : "  [\"%d %d\"] = ", line[i].from, line[i].to);
        put(t, "{ %s, %s },\n", rounded_text(line[i].latency, a), rounded_text(line[i].bandwidth, b));
    }
    if (n > 0)
        put(t, "}\nlocal other%ss = { %s, %s } -- their medians\n", host ? "_host" : "",
            rounded_text(median_of(latency, n), a), rounded_text(median_of(bandwidth, n), b));
    return n > 0;
}

/* Writes the lines of collectives. */
static void put_collectives(struct text *t, const struct line *line, int lines) {
    char a[32], b[32];
    put(t, "local collectives = { -- operation, members: latency (seconds), bandwidth (bytes per second)\n");
    for (int i = 0; i < lines; i++)
        put(t, "  [\"%s %d\"] = { %s, %s },\n", op_name[line[i].from], line[i].to, rounded_text(line[i].latency, a),
            rounded_text(line[i].bandwidth, b));
    put(t, "}\n");
}

/* ---- the script ---- */

/* Returns the speed for whatever was not measured: FLOP of all jobs over their seconds. 0: the prediction gives no
 * FLOP. */
static double flops_of(const struct diff *diff, const struct side *measured, const struct side *predicted) {
    double was = 0, is = 0;
    if (diff->base.flops > 0)
        return diff->base.flops;
    if (diff->base.rate > 0)
        return strcmp(predicted->unit, "FLOP") == 0 ? 1 / diff->base.rate : 0;
    for (int i = 0; predicted->flops > 0 && i < measured->n; i++) {
        const struct diff_op *op = &measured->op[i];
        if (!is_job(op->op) || !diff_compares(op))
            continue;
        is += measured->end[i] - measured->start[i];
        was += predicted->end[op->match] - predicted->start[op->match];
    }
    return is > 0 ? predicted->flops * was / is : 0;
}

void emit_fit(struct text *t, const struct diff *diff) {
    const struct side *side = diff->side[diff->side[1]->steps != NULL], *other = diff->side[side == diff->side[0]];
    int stages = 0, sets = 0;
    char buf[32];
    if (!side->steps)
        die("--fit: neither %s nor %s is measured; `pianola run --timeline FILE` measures", diff->side[0]->name,
            diff->side[1]->name);
    for (int i = 0; i < side->n; i++) { /* counts the sets of weights: the stages' and, in a tied model, the table's */
        if (side->op[i].stage >= side->n)
            die("--fit: %s has a row of stage %d, but only %d operations", side->name, side->op[i].stage, side->n);
        if (side->op[i].op == OP_F && side->op[i].stage >= stages)
            stages = side->op[i].stage + 1;
        if (has_cost(side->op[i].op) && side->op[i].stage >= sets)
            sets = side->op[i].stage + 1;
    }
    bool work = measures_work(side);
    put(t, "-- Costs as measured, %s of %d steps of %s; for --cluster.\n", work ? "mean CPU times" : "medians",
        side_nsteps(side), tame(side->name));
    put_jobs(t, side, sets, work);
    int lines, kinds = 0;
    struct points points = points_of(side, work), together = {0};
    const struct line *line = fit_lines(points.at, points.n, &lines);
    bool links = put_link_lines(t, line, lines, false), hosts = put_link_lines(t, line, lines, true);
    if (work)
        together = collective_points(side);
    const struct line *collective = fit_lines(together.at, together.n, &kinds);
    if (kinds > 0)
        put_collectives(t, collective, kinds);
    put(t,
        "\nreturn cluster {\n  stages = %d,\n  cost = function(s, op) return seconds[op] and seconds[op][s] end,\n"
        "  spread = function(s, op) return spread[op] and spread[op][s] end,\n",
        stages);
    if (work)
        put(t,
            "  cores = %g, -- shared by all ranks, each of which is one thread\n  serial = true,\n"
            "  handoff = %s, -- seconds until a rank that gets a core runs\n",
            side->steps->cores, rounded_text(side->steps->handoff, buf));
    double flops = flops_of(diff, side, other);
    if (flops > 0)
        put(t, "  flops = %s,\n", rounded_text(flops, buf));
    if (links)
        put(t,
            "  link = function(src, dst)\n    local l = links[src .. \" \" .. dst] or others\n    return l[1], l[2]\n"
            "  end,\n");
    if (kinds > 0)
        put(t,
            "  collective = function(op, n)\n    local l = collectives[op .. \" \" .. n] or {}\n    return l[1], l[2]\n"
            "  end,\n");
    if (hosts)
        put(t,
            "  host_link = function(rank)\n    local l = hosts[rank] or other_hosts\n    return l[1], l[2]\n  end,\n");
    put(t, "}\n");
}
