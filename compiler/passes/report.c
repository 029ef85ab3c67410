/* The figures of a schedule, from the program's timeline.
 *
 * makespan       end of the last instruction
 * busy           a rank's time in jobs (F, R, I, B, W), two that overlap counting once; idle: the rest of the
 *                makespan; span: first job's start to last job's end
 * bubble         1 - sum of busy / (W * makespan). bubble, throughput and gap are 0 where nothing takes any time
 * throughput     rho = S B / (L W), with L the makespan in units of one F + backward, averaged over all stages and
 *                microbatches: the cost of all F, B, I and W divided by W * makespan. R counts as work, not as
 *                progress; jobs that overlap count in full.
 * peak           the most activations alive at once. (s,b) is alive from the start of its F to the end of its B, or of
 *                its W when the backward is split, on the rank of its F; when its backward runs on another rank, there
 *                from the end of F on. At time t, ending activations leave before starting ones are counted. A job that
 *                takes no time starts and ends at t, in this order: the activation it starts is alive in between.
 * memory_held    sum of the times that the activations are alive
 * period         the time from one repetition to the next (sim_steady), and the bubble in it
 * staleness      the largest number of earlier microbatches' updates that a job's weights are behind */
#include "passes.h"
#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- activations alive ---- */

/* Times at which a rank takes over activations whose F ran on another rank, sorted. */
struct births {
    double *t;
    size_t n, cap;
};

static struct births *births_elsewhere(const struct compile *c) {
    const struct spec *sp = c->spec;
    const struct program *p = c->program;
    const struct timeline *tl = c->timeline;
    struct births *born = NEW(struct births, p->workers);
    for (int r = 0; r < p->workers; r++)
        for (int i = 0; i < p->rank[r].nins; i++) {
            const struct instr *in = &p->rank[r].ins[i];
            int there = in->op == OP_F && in->part == in->last
                            ? c->costs->job[last_backward(sp, in->stage, in->batch)].rank
                            : r;
            if (there == r)
                continue;
            struct births *births = &born[there];
            GROW(births->t, births->cap, births->n + 1);
            births->t[births->n++] = tl->end[r][i];
        }
    for (int r = 0; r < p->workers; r++)
        if (born[r].n > 0)
            sort(born[r].t, born[r].n, sizeof *born[r].t, by_value);
    return born;
}

/* A walk over one rank's jobs in their order, which is also the order of their times. An activation dies when a job
 * ends: dies[first .. n) are jobs that have begun so far and end one. */
struct alive {
    const double *start, *end;
    struct births born;
    size_t nborn;
    int32_t *dies;
    int first, n;
    int live, most;
    double held; /* lifetimes of all activations, added up */
};

/* Advances to time t. At equal times, what ends leaves first; but a job that takes no time ends after its own start. */
static void pass_time(struct alive *alive, double t) {
    for (;;) {
        int32_t d =
            alive->first < alive->n && alive->end[alive->dies[alive->first]] <= t ? alive->dies[alive->first] : -1;
        double birth =
            alive->nborn < alive->born.n && alive->born.t[alive->nborn] <= t ? alive->born.t[alive->nborn] : INFINITY;
        if (d >= 0 && alive->end[d] <= birth) {
            alive->first++;
            alive->live--;
            alive->held += alive->end[d];
        } else if (birth < INFINITY) {
            alive->nborn++;
            alive->live++;
            alive->held -= birth;
        } else
            return;
        alive->most = alive->live > alive->most ? alive->live : alive->most;
    }
}

static int peak(const struct spec *sp, const struct rank *k, int r, struct alive *alive) {
    for (int i = 0; i < k->nins; i++) {
        const struct instr *in = &k->ins[i];
        if (!is_job(in->op))
            continue;
        int32_t j = job_at(sp, in->stage, in->batch, in->op);
        if (!sp->job[j].pair || partner_of(sp, j) >= 0) /* the second of a pair starts with the first */
            pass_time(alive, alive->start[i]);
        bool leaves = in->op == OP_F && sp->job[last_backward(sp, in->stage, in->batch)].rank != r;
        if ((leaves || in->op == OP_B || in->op == OP_W) && in->part == in->last)
            alive->dies[alive->n++] = i;
        if (in->op == OP_F && in->part == 0) {
            alive->live++;
            alive->held -= alive->start[i];
        }
        alive->most = alive->live > alive->most ? alive->live : alive->most;
    }
    pass_time(alive, INFINITY);
    return alive->most;
}

static void find_peaks(const struct compile *c, struct report *rep) {
    const struct spec *sp = c->spec;
    const struct program *p = c->program;
    const struct timeline *tl = c->timeline;
    struct births *born = births_elsewhere(c);
    for (int r = 0; r < p->workers; r++) {
        struct alive alive = {.start = tl->start[r], .end = tl->end[r], .born = born[r]};
        alive.dies = NEW(int32_t, p->rank[r].nins);
        rep->rank[r].peak_activations = peak(sp, &p->rank[r], r, &alive);
        rep->memory_time.held += alive.held;
    }
}

/* ---- work and traffic of a rank ---- */

static void add_bytes(int64_t *sum, int64_t bytes, int r) {
    if (__builtin_add_overflow(*sum, bytes, sum))
        die("rank %d moves more than 2^63 bytes; use fewer microbatches, or a smaller model", r);
}

static void count_collective(const struct program *p, int r, const struct instr *in, struct rank_report *out) {
    struct moved moved = collective_moved(p, r, in);
    add_bytes(&out->bytes_sent, moved.sent, r);
    add_bytes(&out->bytes_received, moved.received, r);
    out->gathers += in->op == OP_ALL_GATHER;
    out->reductions += op_row(in->op)->tensor == K_wgrad;
    out->weights_received += in->op == OP_ALL_GATHER || (in->op == OP_BROADCAST && in->peer != r);
}

static void count_gather(struct rank_report *out, const struct arg *a) {
    out->weights_received += a->piece == 0;
    out->gathers += a->last && a->piece == 0;
    out->gathers_apart += a->last && a->piece == 0;
}

/* Counts a message. Weights whose shards come one by one count as one gather, counted at the first shard, even if the
 * rank owns it. */
static void count_message(const struct program *p, int r, const struct instr *in, struct rank_report *out) {
    const struct rank *k = &p->rank[r];
    if (in->op == OP_COPY && !is_copy_of_version(p, r, &k->buf[k->arg[in->arg + 1].buf]))
        count_gather(out, &k->arg[in->arg + 1]);
    if (is_copy(in->op))
        add_bytes(op_lane[in->op] == LANE_OFFLOAD ? &out->offloaded : &out->reloaded, moved_bytes(k, in), r);
    if (!is_message(in->op))
        return;
    const struct arg *a = &k->arg[in->arg];
    if (is_send(in->op)) {
        add_bytes(&out->bytes_sent, moved_bytes(k, in), r);
        return;
    }
    add_bytes(&out->bytes_received, moved_bytes(k, in), r);
    switch (op_row(in->op)->tensor) {
    case K_act:
    case K_kv:
    case K_stash: out->activations_received++; break;
    case K_grad:
    case K_dkv:
    case K_wstash: out->gradients_received++; break;
    case K_wgrad: out->reductions_received++; break;
    case K_weight: count_gather(out, a); break;
    }
}

/* ---- a rank's bytes by content, when most are in use ---- */

const char *const held_name[NHELD] = {"weights", "gradients", "optimizer", "fetched", "act",
                                      "grad",    "stash",     "work",      "gaps"};

static int held_as(const struct buf *b) {
    switch (b->kind) {
    case K_weight: return b->inst < 0 ? HELD_WEIGHTS : HELD_FETCHED;
    case K_wshard: return HELD_WEIGHTS;
    case K_wgrad:
    case K_gshard:
    case K_norm:
    case K_gown: return HELD_GRADIENTS;
    case K_opt: return HELD_OPTIMIZER;
    case K_act: return HELD_ACT;
    case K_grad:
    case K_dkv: return HELD_GRAD;
    case K_kv:
    case K_stash:
    case K_wstash:
    case K_input:
    case K_rstash:
    case K_rinput: return HELD_STASH;
    case K_mid:
    case K_work: return HELD_WORK;
    default: return HELD_GAPS;
    }
}

/* Counts bytes by content at their peak. Buffers that no event opens stay for the whole step. */
static void count_held(const struct rank *k, int64_t held[NHELD]) {
    bool *passes = NEW(bool, k->nbufs);
    int64_t now[NHELD] = {0}, sum = 0, most;
    for (size_t i = 0; i < k->nevents; i++) {
        int32_t b = k->event[i] >= 0 ? k->event[i] : ~k->event[i];
        passes[b] = true;
        if (k->buf[b].grows >= 0)
            passes[k->buf[b].grows] = true;
    }
    for (int b = 0; b < k->nbufs; b++)
        if (!passes[b] && memory_of(&k->buf[b]) == MEMORY_DEVICE) {
            now[held_as(&k->buf[b])] += k->buf[b].bytes;
            sum += k->buf[b].bytes;
        }
    most = sum;
    memcpy(held, now, sizeof now);
    for (size_t i = 0; i < k->nevents; i++) {
        bool opens = k->event[i] >= 0;
        const struct buf *b = &k->buf[opens ? k->event[i] : ~k->event[i]];
        if (memory_of(b) == MEMORY_HOST)
            continue;
        int64_t bytes = opens ? grown_bytes(k, b) : -grown_bytes(k, b);
        now[held_as(b)] += bytes;
        sum += bytes;
        if (sum > most) {
            most = sum;
            memcpy(held, now, sizeof now);
        }
    }
    held[HELD_GAPS] += k->arena - most;
}

/* Counts a job or an update: its time, and its contribution to the progress of F + backward. */
static void count_job(const struct costs *costs, int r, const struct instr *in, struct rank_report *out,
                      double *progress) {
    if (in->op == OP_U) {
        out->busy += costs->computes[update_at(costs, in->stage, in->batch, place_in(&costs->homes[in->stage], r))];
        return;
    }
    int32_t j = job_at(costs->spec, in->stage, in->batch, in->op);
    bool second = costs->job[j].pair && partner_of(costs->spec, j) < 0;
    bool counted = second || in->part < in->last;        /* with the first of a pair, or the last of its parts */
    out->busy += counted ? 0 : computing_time(costs, j); /* late in a step, end - start could round to 0 */
    *progress += in->op == OP_R || in->part < in->last ? 0 : costs->computes[j];
}

/* Adds the work and traffic of a rank's instructions [from, to). */
static void count_section(const struct costs *costs, const struct program *p, int r, int32_t from, int32_t to,
                          struct rank_report *out, double *progress) {
    for (int32_t i = from; i < to; i++) {
        const struct instr *in = &p->rank[r].ins[i];
        if (is_job(in->op) || (in->op == OP_U && costs->spec->updates.every))
            count_job(costs, r, in, out, progress);
        else if (is_group(in->op))
            count_collective(p, r, in, out);
        else
            count_message(p, r, in, out);
    }
}

/* Adds figures of the period, once per repetition. */
static void add_repeated(struct rank_report *all, const struct rank_report *once, int64_t times, int r) {
    int *const count[] = {&all->activations_received,
                          &all->gradients_received,
                          &all->weights_received,
                          &all->reductions_received,
                          &all->gathers,
                          &all->reductions,
                          &all->gathers_apart};
    const int each[] = {once->activations_received,
                        once->gradients_received,
                        once->weights_received,
                        once->reductions_received,
                        once->gathers,
                        once->reductions,
                        once->gathers_apart};
    int64_t *const bytes[] = {&all->bytes_received, &all->bytes_sent, &all->offloaded, &all->reloaded};
    const int64_t moved[] = {once->bytes_received, once->bytes_sent, once->offloaded, once->reloaded};
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        int64_t n = *count[i] + times * each[i];
        *count[i] = n < INT_MAX ? (int)n : INT_MAX;
    }
    for (size_t i = 0; i < sizeof moved / sizeof *moved; i++) {
        int64_t sum;
        if (__builtin_mul_overflow(moved[i], times, &sum))
            sum = INT64_MAX;
        add_bytes(bytes[i], sum, r);
    }
    all->busy += (double)times * once->busy;
}

/* Fills in a rank's figures, except idle, which needs the makespan. Returns the end of its last instruction. */
static double account(const struct compile *c, int r, struct rank_report *out, double *progress) {
    const struct program *p = c->program;
    const struct timeline *tl = c->timeline;
    const struct rank *k = &p->rank[r];
    double last = 0, from = INFINITY, to = 0, more = 0;
    struct rank_report once = {.busy = 0};
    count_section(c->costs, p, r, 0, k->nins, out, progress);
    count_section(c->costs, p, r, k->period.begin, k->period.end, &once, &more);
    add_repeated(out, &once, p->period ? p->repeats - 1 : 0, r);
    out->steady_busy = p->period ? once.busy : out->busy;
    *progress += p->period ? (double)(p->repeats - 1) * more : 0;
    for (int i = 0; i < k->nins; i++) {
        const struct instr *in = &k->ins[i];
        double start = tl->start[r][i], end = tl->end[r][i];
        last = fmax(last, end);
        if (is_job(in->op)) {
            from = fmin(from, start);
            to = fmax(to, end);
        }
    }
    if (p->period && to > from)
        to += tl->step - tl->makespan; /* repetitions that are not drawn */
    out->span = to > from ? to - from : 0;
    out->peak_bytes = k->arena;
    out->least_bytes = k->least;
    out->host_bytes = k->host;
    exposed_waits(k, tl->start[r], tl->end[r], out->exposed);
    hidden_moves(k, tl->start[r], tl->end[r], out->hidden);
    count_held(k, out->held);
    for (int b = 0; b < k->nbufs; b++)
        out->stages_stored += (k->buf[b].kind == K_weight && k->buf[b].inst < 0) || k->buf[b].kind == K_wshard;
    return last;
}

/* ---- versions ---- */

/* Raises each stage's most versions of weights that one of its homes has at once. */
static void count_versions(const struct program *p, int r, int *versions) {
    const struct rank *k = &p->rank[r];
    int *now = NEW(int, sets_in(p));
    for (size_t i = 0; i < k->nevents; i++) {
        const struct buf *b = &k->buf[k->event[i] >= 0 ? k->event[i] : ~k->event[i]];
        if (!is_copy_of_version(p, r, b))
            continue;
        int *most = &versions[member_at(&p->names, b->stage).stage];
        now[b->stage] += k->event[i] >= 0 ? 1 : -1;
        *most = now[b->stage] >= *most ? now[b->stage] + 1 : *most;
    }
}

/* Raises each stage's staleness: the number of updates by earlier microbatches that a job's weights lack. */
static void count_staleness(const struct program *p, int r, int *staleness) {
    for (int32_t i = 0; p->update && i < p->rank[r].nins; i++) {
        const struct instr *x = &p->rank[r].ins[i];
        int *most = &staleness[member_at(&p->names, x->stage).stage];
        int lacks = is_job(x->op) && x->inst >= 0 ? x->batch / p->update[x->stage] - x->inst : 0;
        *most = lacks > *most ? lacks : *most;
    }
}

/* Counts the backwards that read another version than their forwards. A team's count once; the period's count once per
 * repetition. The first one has the earliest microbatch. */
static void count_mixes(const struct program *p, struct report *rep) {
    int32_t *forward = NEW(int32_t, (size_t)p->stages * (size_t)p->batches);
    for (int back = 0; back < 2; back++)
        for (int r = 0; r < p->workers; r++)
            for (int32_t i = 0; i < p->rank[r].nins; i++) {
                const struct instr *x = &p->rank[r].ins[i];
                bool backward =
                    (x->op == OP_B || x->op == OP_I) && x->part == 0 && place_of_stage(&p->names, x->stage) == 0;
                int s = member_at(&p->names, x->stage).stage;
                int32_t *read = &forward[x->batch >= 0 ? (size_t)x->stage * (size_t)p->batches + (size_t)x->batch : 0];
                if (!back && x->op == OP_F)
                    *read = x->inst;
                if (!back || !backward || x->inst == *read)
                    continue;
                if (rep->mixed == 0 || x->batch < rep->mix.b || (x->batch == rep->mix.b && s < rep->mix.s)) {
                    rep->mix.s = s;
                    rep->mix.b = x->batch;
                    rep->mix.backward = x->inst;
                    rep->mix.forward = *read;
                }
                rep->mixed += p->period && section_of(&p->rank[r], i) == 1 ? p->repeats : 1;
            }
}

static void report_versions(const struct program *p, struct report *rep) {
    rep->staleness = NEW(int, rep->stages + 1);
    rep->versions = NEW(int, rep->stages + 1);
    for (int s = 0; s < rep->stages; s++)
        rep->versions[s] = 1;
    for (int r = 0; r < p->workers; r++) {
        count_versions(p, r, rep->versions);
        count_staleness(p, r, rep->staleness);
    }
    rep->updates = p->update != NULL;
    if (rep->updates)
        count_mixes(p, rep);
}

const char *time_unit(const struct spec *sp) {
    return sp->machine.took || is_costs(sp) ? "s" : !sp->model ? "F" : sp->machine.flops > 0 ? "s" : "FLOP";
}

struct report *report_make(const struct compile *c) {
    const struct spec *sp = c->spec;
    const struct program *p = c->program;
    const struct timeline *tl = c->timeline;
    struct report *rep = NEW(struct report, 1);
    double progress = 0, busy = 0, steady = 0, all;
    assert(c->graph->n == sp->njobs && p->workers == sp->workers && tl->makespan >= 0);
    rep->schedule = sp->name;
    rep->unit = time_unit(sp);
    rep->workers = sp->workers;
    rep->stages = script_stages(&sp->names, sp->stages);
    rep->slices = sp->names.slices;
    rep->batches = whole_batches(sp);
    rep->step_batches = step_batches(p) / slices_of(&sp->names);
    rep->period = tl->period;
    rep->period_batches = rep->batches;
    if (p->period) {
        rep->period *= (double)p->shortest / p->period;
        rep->period_batches = p->shortest / slices_of(&sp->names);
    }
    report_versions(p, rep);
    rep->rank = NEW(struct rank_report, sp->workers);
    for (int r = 0; r < p->workers; r++)
        rep->makespan = fmax(rep->makespan, account(c, r, &rep->rank[r], &progress));
    if (p->period && tl->step > 0)
        rep->makespan = tl->step;
    find_peaks(c, rep);
    for (int r = 0; r < p->workers; r++) {
        busy += rep->rank[r].busy;
        steady += rep->rank[r].steady_busy;
        rep->rank[r].weights = p->traffic.use ? &p->traffic.use[r] : NULL;
        rep->rank[r].idle = fmax(rep->makespan - rep->rank[r].busy, 0);
    }
    all = sp->workers * rep->makespan;
    rep->bubble = all > 0 ? fmax(1 - busy / all, 0) : 0;
    rep->steady_bubble = tl->period > 0 ? fmax(1 - steady / (sp->workers * tl->period), 0) : 0;
    rep->throughput = all > 0 ? progress / all : 0;
    report_bounds(c, rep);
    return rep;
}
