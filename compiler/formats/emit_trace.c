/* Lays out what a trace viewer shows of a timeline: slices on lanes, arrows from send to receive, and each rank's
 * memory.
 *
 * Viewers count in whole nanoseconds and locate an arrow's ends by the slice open at that time. So every slice takes at
 * least a nanosecond, and slices of a lane never overlap: if many messages take no time, each is drawn a nanosecond
 * later than the last. A receive is drawn no earlier than its send. */
#include "emit_trace.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool sends_message(const struct instr *in) { return in->msg >= 0 && is_send(in->op); }
bool receives_message(const struct instr *in) { return in->msg >= 0 && is_recv(in->op); }

void put_slice_name(struct text *t, const struct names *names, const struct instr *in) {
    put_stage(t, names, in->stage);
    put_word(t, op_name[in->op]);
    if (in->batch >= 0)
        put_batch(t, in->op == OP_U ? NULL : names, in->batch);
    if (in->last)
        put(t, "[%d/%d]", in->part, in->last + 1);
}

void put_slice_args(struct text *t, const struct names *names, const struct rank *k, const struct instr *in) {
    if (in->batch >= 0)
        put(t, in->op == OP_U ? ",\"update\":%d" : ",\"mb\":%d",
            in->op == OP_U ? in->batch : in->batch / slices_of(names));
    if (in->batch >= 0 && in->op != OP_U && names->slices)
        put(t, ",\"slice\":%d", in->batch % names->slices);
    if (is_job(in->op) && in->inst >= 0)
        put(t, ",\"version\":%d", in->inst);
    if (in->peer >= 0)
        put(t, ",\"peer\":%d", in->peer);
    if (payload(k, in))
        put(t, ",\"bytes\":%lld", (long long)moved_bytes(k, in));
    put(t, "}}");
}

const char *slice_category(const struct instr *in) {
    return op_lane[in->op] == LANE_GROUP ? "collective" : lanekind_row(op_lane[in->op])->word;
}

/* Returns the nanoseconds drawn per unit: a second is drawn as a second, a unit of cost as a millisecond, a FLOP as a
 * nanosecond. If that is too long to display, uses a tenth of it, and so on. */
double trace_unit(const char *unit, const struct steps *steps) {
    double ns = unit[0] == 's' ? 1e9 : unit[1] == 0 ? 1e6 : 1;
    while (steps->of[steps->n - 1].makespan * ns > 1e15)
        ns /= 10;
    return ns;
}

static int64_t rounded(const struct trace *trace, double t) { return llround(t * trace->unit_ns); }

/* ---- slices ---- */

struct lanes {
    struct lane_lists of;
    int32_t *next;        /* per lane: index in of.ins up to which it is drawn */
    int64_t *free;        /* per lane: end of its last slice */
    int64_t *start, *end; /* per instruction of the current step: where it is drawn */
};

/* Draws a step's lane up to the first receive whose send is not drawn yet. sent: per message, the start of its send;
 * -1: not drawn yet. Returns whether it drew anything. */
static bool draw_lane(const struct trace *trace, const struct rank *k, const struct timeline *tl, int r,
                      struct lanes *lanes, int lane, int64_t *sent) {
    int32_t from = lanes->next[lane];
    for (; lanes->next[lane] < lanes->of.at[lane + 1]; lanes->next[lane]++) {
        int32_t i = lanes->of.ins[lanes->next[lane]];
        const struct instr *in = &k->ins[i];
        if (receives_message(in) && sent[in->msg] < 0)
            break;
        int64_t start = rounded(trace, tl->start[r][i]), end = rounded(trace, tl->end[r][i]);
        int32_t before = lanes->next[lane] > lanes->of.at[lane] ? lanes->of.ins[lanes->next[lane] - 1] : -1;
        bool pair = lane == 0 && before >= 0 && tl->start[r][i] == tl->start[r][before] &&
                    tl->end[r][i] == tl->end[r][before] && end > start;
        if (pair) { /* two overlapping jobs: one is drawn over the other */
            lanes->start[i] = lanes->start[before];
            lanes->end[i] = lanes->end[before];
            continue;
        }
        start = start < lanes->free[lane] ? lanes->free[lane] : start;
        if (receives_message(in) && start < sent[in->msg])
            start = sent[in->msg];
        lanes->start[i] = start;
        lanes->end[i] = lanes->free[lane] = end > start ? end : start + 1;
        if (sends_message(in))
            sent[in->msg] = start;
    }
    return lanes->next[lane] > from;
}

static void draw_step(struct trace *trace, const struct program *p, const struct timeline *tl, int step,
                      struct lanes *lanes) {
    int64_t *sent = NEW(int64_t, p->nmsgs);
    for (int m = 0; m < p->nmsgs; m++)
        sent[m] = -1;
    trace->start[step] = NEW(int64_t *, p->workers);
    trace->end[step] = NEW(int64_t *, p->workers);
    for (int r = 0; r < p->workers; r++) {
        lanes[r].start = trace->start[step][r] = NEW(int64_t, p->rank[r].nins);
        lanes[r].end = trace->end[step][r] = NEW(int64_t, p->rank[r].nins);
        memcpy(lanes[r].next, lanes[r].of.at, sizeof *lanes[r].next * (size_t)p->rank[r].nlanes);
    }
    for (bool more = true; more;) { /* two passes, unless sends and receives share lanes */
        more = false;
        for (int r = 0; r < p->workers; r++)
            for (int i = 0; i < p->rank[r].nlanes; i++)
                more |= draw_lane(trace, &p->rank[r], tl, r, &lanes[r], i, sent);
    }
}

static void draw_slices(struct trace *trace, const struct program *p, const struct steps *steps) {
    struct lanes *lanes = NEW(struct lanes, p->workers);
    trace->start = NEW(int64_t **, steps->n);
    trace->end = NEW(int64_t **, steps->n);
    for (int r = 0; r < p->workers; r++) {
        const struct rank *k = &p->rank[r];
        lanes[r] = (struct lanes){lane_lists(k), NEW(int32_t, k->nlanes), NEW(int64_t, k->nlanes), NULL, NULL};
    }
    for (int k = 0; k < steps->n; k++)
        draw_step(trace, p, &steps->of[k], k, lanes);
}

static int by_time(const void *x, const void *y) {
    const struct mark *a = x, *b = y;
    if (a->t != b->t)
        return a->t < b->t ? -1 : 1;
    if (a->what != b->what)
        return (int)a->what - (int)b->what;
    if (a->step != b->step)
        return a->step - b->step;
    return a->rank != b->rank ? a->rank - b->rank : a->ins - b->ins;
}

static void collect_marks(struct trace *trace, const struct program *p, int nsteps) {
    size_t n = 0;
    for (int r = 0; r < p->workers; r++)
        n += (size_t)p->rank[r].nins;
    trace->mark = NEW(struct mark, 2 * n * (size_t)nsteps);
    for (int k = 0; k < nsteps; k++)
        for (int r = 0; r < p->workers; r++)
            for (int i = 0; i < p->rank[r].nins; i++) {
                bool receives = receives_message(&p->rank[r].ins[i]);
                trace->mark[trace->nmarks++] =
                    (struct mark){trace->start[k][r][i], receives ? BEGINS_RECEIVE : BEGINS, k, r, i};
                trace->mark[trace->nmarks++] = (struct mark){trace->end[k][r][i], ENDS, k, r, i};
            }
    sort(trace->mark, trace->nmarks, sizeof *trace->mark, by_time);
}

/* ---- memory ---- */

/* Computes a rank's memory levels over all steps: each step ends at the level it began with. If several levels fall
 * into one nanosecond, the last one is used. */
static void find_levels(struct trace *trace, const struct rank *k, const struct steps *steps, int r) {
    size_t cap = 0;
    int n = 0;
    for (int step = 0; step < steps->n; step++) {
        struct usage usage = memory_use(k, steps->of[step].start[r], steps->of[step].end[r]);
        GROW(trace->memory[r], cap, (size_t)(n + usage.n));
        for (int i = step > 0; i < usage.n; i++) {
            struct level at = {rounded(trace, usage.at[i].t), usage.at[i].bytes};
            struct level *last = n > 0 ? &trace->memory[r][n - 1] : NULL;
            if (i + 1 < usage.n && rounded(trace, usage.at[i + 1].t) == at.t)
                continue;
            if (last && at.t == last->t)
                last->bytes = at.bytes;
            else if (!last || at.bytes != last->bytes)
                trace->memory[r][n++] = at;
        }
    }
    trace->nlevels[r] = n;
}

const char *join_name(const struct program *p, int n) {
    bool last = n == joins_of(p) - 1;
    if (p->period)
        return last ? "period ends" : "period begins";
    return last ? "last step ends" : "step begins";
}

struct trace *trace_make(const struct program *p, const struct steps *steps, const char *unit) {
    struct trace *trace = NEW(struct trace, 1);
    trace->unit_ns = trace_unit(unit, steps);
    trace->memory = NEW(struct level *, p->workers);
    trace->nlevels = NEW(int, p->workers);
    draw_slices(trace, p, steps);
    collect_marks(trace, p, steps->n);
    for (int r = 0; r < p->workers; r++)
        find_levels(trace, &p->rank[r], steps, r);
    return trace;
}
