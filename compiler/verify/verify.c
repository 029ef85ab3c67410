/* The proof that a program does what its job graph says, on every machine that keeps the orders of the model
 * "start-end" (verify_orders.c).
 *
 * 1. Messages pair in the order of their edge, as NCCL pairs them, and collectives in the order of their group's lanes.
 *    Partners agree in name and size (verify_pair.c).
 * 2. All ranks are walked together, each one instruction at a time in issue order. Every send blocks until its receive,
 *    and every collective until all members have arrived. If the walk completes, it is a total order of all
 *    instructions. Along the way, values are tracked symbolically (verify_values.c, verify_copies.c, verify_parts.c,
 *    verify_groups.c, verify_homes.c, verify_pieces.c, verify_sums.c, verify_updates.c, verify_memory.c).
 * 3. If a period repeats, the walk compares the state after it with the state before it (verify_period.c).
 * 4. Lanes and non-blocking sends only remove orders. All remaining orders agree with the walk's, so nothing can
 *    deadlock that does not deadlock in the walk. Conflicting accesses are still ordered (verify_races.c), so every
 *    buffer holds what it held in the walk, however the lanes run. */
#include "base/cycle.h"
#include "check_orders.h"
#include <assert.h>
#include <string.h>

void put_place(struct check *check, int r, int32_t i) {
    const struct rank *k = &check->p->rank[r];
    if (i >= k->nins) {
        put(&check->why, "rank %d", r);
        return;
    }
    put(&check->why, "rank %d lane ", r);
    put_lane(&check->why, check->p, &k->lane[k->ins[i].lane]);
    if (k->line)
        put(&check->why, ", line %d: ", k->line[i]);
    else
        put(&check->why, ", instruction %d: ", i);
    put_label(&check->why, &check->p->names, &k->ins[i]);
}

const char *stage_text(const struct check *check, int s) {
    struct text t = {0};
    put_stage(&t, &check->p->names, s);
    return t.s;
}

const char *job_text(const struct check *check, int32_t j) {
    const struct job *job = &check->sp->job[j];
    return job_name(&check->p->names, job->s, job->b, job->d);
}

#define X(name, word, what) word,
const char *const claim_word[NCLAIMS] = {CLAIMS(X)};
#undef X
#define X(name, word, what) what,
const char *const claim_what[NCLAIMS] = {CLAIMS(X)};
#undef X

const struct arg *find_arg(const struct rank *k, const struct instr *x, int role, int nth) {
    for (uint32_t a = x->arg; a < x->arg + x->narg; a++)
        if (k->arg[a].role == (uint32_t)role && nth-- == 0)
            return &k->arg[a];
    return NULL;
}

int32_t operand(const struct rank *k, const struct instr *x, int role, int nth) {
    const struct arg *a = find_arg(k, x, role, nth);
    return a ? a->buf : -1;
}

bool refute_all(struct check *check, int claim, const char *fmt, ...) {
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    check->failed = claim;
    put(&check->why, "%s", text);
    return false;
}

bool refute(struct check *check, int claim, int r, int32_t i, const char *fmt, ...) {
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    check->failed = claim;
    put_place(check, r, i);
    put(&check->why, ": %s", text);
    return false;
}

/* ---- the serial walk ---- */

static bool refute_deadlock(struct check *check); /* defined after the lane graph */

struct walk {
    int32_t *todo; /* ranks that may proceed, each at most once */
    bool *queued;
    int n;
    int32_t *came; /* per series: number of members that have arrived at its next collective */
    bool *stands;  /* per rank: whether it has arrived at a collective and waits */
};

static void queue(struct walk *walk, int r) {
    if (!walk->queued[r])
        walk->todo[walk->n++] = r;
    walk->queued[r] = true;
}

/* Returns a member that has not arrived at this collective, or -1. */
static int absent(const struct check *check, int r, int32_t i) {
    const struct series *series = series_of(check, r, &check->p->rank[r].ins[i]);
    for (int m = 0; m < series->g->n; m++)
        if (check->at[series->g->rank[m]] != series->ins[m][check->mate[r][i]])
            return series->g->rank[m];
    return -1;
}

/* Returns the rank that r's next instruction waits for, or -1 if it can proceed. */
static int waits_for(const struct check *check, int r) {
    int32_t i = check->at[r];
    const struct instr *x = &check->p->rank[r].ins[i];
    if (is_group(x->op))
        return absent(check, r, i);
    if (is_message(x->op))
        return check->at[x->peer] == check->mate[r][i] ? -1 : x->peer;
    return -1;
}

/* Moves rank r past the instruction it has just run. */
static bool step_done(struct check *check, int r) {
    check->at[r]++;
    return at_mark(check, r);
}

/* Records that rank r has arrived at a collective; the last member to arrive runs it for all. */
static bool run_collective(struct check *check, struct walk *walk, int r) {
    int32_t i = check->at[r];
    const struct series *series = series_of(check, r, &check->p->rank[r].ins[i]);
    int32_t *came = &walk->came[series - check->series];
    *came += !walk->stands[r];
    walk->stands[r] = true;
    if (*came < series->g->n)
        return true;
    *came = 0;
    if (check->values && !values_collective(check, series, check->mate[r][i]))
        return false;
    for (int m = 0; m < series->g->n; m++) {
        if (!step_done(check, series->g->rank[m]))
            return false;
        walk->stands[series->g->rank[m]] = false;
        queue(walk, series->g->rank[m]);
    }
    return true;
}

static bool go_on(struct check *check, struct walk *walk, int r) {
    const struct rank *k = &check->p->rank[r];
    walk->queued[r] = false;
    while (check->at[r] < k->nins) {
        int32_t i = check->at[r];
        const struct instr *x = &k->ins[i];
        if (is_group(x->op)) {
            if (!run_collective(check, walk, r))
                return false;
            if (walk->stands[r])
                return true;
            continue;
        }
        if (waits_for(check, r) >= 0)
            return true;
        bool link = is_message(x->op), sends = is_send(x->op);
        if (check->values) {
            bool ok = !link   ? values_run(check, r, i)
                      : sends ? values_message(check, r, i, x->peer, check->mate[r][i])
                              : values_message(check, x->peer, check->mate[r][i], r, i);
            if (!ok)
                return false;
        }
        if (!step_done(check, r) || (link && !step_done(check, x->peer)))
            return false;
        if (link)
            queue(walk, x->peer);
    }
    return true;
}

/* Refutes if an instruction waits for a later one of its own rank: in issue order it would wait forever. */
static bool waits_point_back(struct check *check) {
    for (int r = 0; r < check->p->workers; r++) {
        const struct rank *k = &check->p->rank[r];
        for (int32_t i = 0; i < k->nins; i++)
            for (uint32_t a = k->ins[i].wait; a < k->ins[i].wait + k->ins[i].nwait; a++)
                if (k->wait[a] >= i)
                    return refute(check, CLAIM_SERIAL, r, i, "waits for an instruction that is issued after it");
    }
    return true;
}

static bool walk(struct check *check) {
    int W = check->p->workers;
    if (!waits_point_back(check))
        return false;
    struct walk w = {NEW(int32_t, W), NEW(bool, W), 0, NEW(int32_t, GROUP_LANES * check->p->ngroups + 1), NEW(bool, W)};
    memset(check->at, 0, sizeof *check->at * (size_t)W);
    for (int r = 0; r < W; r++)
        if (!at_mark(check, r))
            return false;
    for (int r = 0; r < W; r++) {
        queue(&w, r);
        while (w.n > 0)
            if (!go_on(check, &w, w.todo[--w.n]))
                return false;
    }
    for (int r = 0; r < W; r++)
        if (check->at[r] < check->p->rank[r].nins)
            return refute_deadlock(check);
    return true;
}

/* ---- lanes: a graph of what each instruction must follow; it must have no cycle ---- */

struct lanes {
    int32_t *base; /* per rank: its first node */
    int32_t *at, *to;
    size_t n, cap;
    int32_t **before; /* per rank and instruction: the one before it in its lane, or -1 */
};

static void edge(struct lanes *lanes, int32_t to) {
    GROW(lanes->to, lanes->cap, lanes->n + 1);
    lanes->to[lanes->n++] = to;
}

/* Returns the number of nodes: the instructions, then one node per collective, then each rank's two marks. */
static int nodes_of(const struct check *check, const struct lanes *lanes) {
    return lanes->base[check->p->workers] + check->ncollectives + 2 * check->p->workers;
}

static int32_t mark_of(const struct check *check, const struct lanes *lanes, int r, int section) {
    return lanes->base[check->p->workers] + check->ncollectives + 2 * r + section - 1;
}

/* Adds the edges of a mark. It follows the last instruction before it in each lane, and the second mark follows the
 * first. */
static void edges_of_mark(struct check *check, struct lanes *lanes, int r, int section) {
    const struct rank *k = &check->p->rank[r];
    if (!check->p->period)
        return;
    bool *seen = NEW(bool, k->nlanes);
    for (int32_t i = (section == 1 ? k->period.begin : k->period.end) - 1; i >= 0 && section_of(k, i) == section - 1;
         i--) {
        if (!seen[k->ins[i].lane])
            edge(lanes, lanes->base[r] + i);
        seen[k->ins[i].lane] = true;
    }
    if (section == 2)
        edge(lanes, mark_of(check, lanes, r, 1));
}

static void edges_of(struct check *check, struct lanes *lanes, int r, int32_t i) {
    const struct rank *k = &check->p->rank[r];
    const struct instr *x = &k->ins[i];
    int32_t before = lanes->before[r][i];
    int section = section_of(k, i);
    if (before >= 0)
        edge(lanes, lanes->base[r] + before);
    if (check->p->period && section > 0 && (before < 0 || section_of(k, before) < section))
        edge(lanes, mark_of(check, lanes, r, section));
    for (uint32_t a = x->wait; a < x->wait + x->nwait; a++)
        edge(lanes, lanes->base[r] + k->wait[a]);
}

/* Builds the lane graph. An instruction follows the one before it in its lane and its waits; if it meets other ranks,
 * it also follows what its partners follow. */
static struct lanes lane_graph(struct check *check) {
    int W = check->p->workers;
    struct lanes lanes = {.base = NEW(int32_t, W + 1), .before = NEW(int32_t *, W)};
    for (int r = 0; r < W; r++) {
        const struct rank *k = &check->p->rank[r];
        int32_t *last = NEW(int32_t, k->nlanes);
        memset(last, -1, sizeof *last * (size_t)k->nlanes);
        lanes.base[r + 1] = lanes.base[r] + k->nins;
        lanes.before[r] = NEW(int32_t, k->nins);
        for (int32_t i = 0; i < k->nins; i++) {
            lanes.before[r][i] = last[k->ins[i].lane];
            last[k->ins[i].lane] = i;
        }
    }
    lanes.at = NEW(int32_t, (int64_t)nodes_of(check, &lanes) + 1);
    for (int r = 0; r < W; r++)
        for (int32_t i = 0; i < check->p->rank[r].nins; i++) {
            const struct instr *x = &check->p->rank[r].ins[i];
            edges_of(check, &lanes, r, i);
            if (is_group(x->op))
                edge(&lanes, lanes.base[W] + collective_of(check, r, i));
            else if (is_message(x->op))
                edges_of(check, &lanes, x->peer, check->mate[r][i]);
            lanes.at[lanes.base[r] + i + 1] = (int32_t)lanes.n;
        }
    for (const struct series *series = check->series; series < check->series + GROUP_LANES * check->p->ngroups;
         series++)
        for (int32_t nth = 0; nth < series->n; nth++) {
            for (int m = 0; m < series->g->n; m++)
                edges_of(check, &lanes, series->g->rank[m], series->ins[m][nth]);
            lanes.at[lanes.base[W] + series->first + nth + 1] = (int32_t)lanes.n;
        }
    for (int r = 0; r < W; r++)
        for (int section = 1; section <= 2; section++) {
            edges_of_mark(check, &lanes, r, section);
            lanes.at[mark_of(check, &lanes, r, section) + 1] = (int32_t)lanes.n;
        }
    return lanes;
}

static bool acyclic(const struct lanes *lanes, int n) {
    int32_t *left = NEW(int32_t, n), *from_at = NEW(int32_t, n + 2), *from = NEW(int32_t, lanes->n + 1);
    int32_t *queue = NEW(int32_t, n);
    for (size_t e = 0; e < lanes->n; e++)
        from_at[lanes->to[e] + 2]++;
    for (int v = 0; v < n; v++)
        from_at[v + 2] += from_at[v + 1];
    for (int v = 0; v < n; v++)
        for (int32_t e = lanes->at[v]; e < lanes->at[v + 1]; e++)
            from[from_at[lanes->to[e] + 1]++] = v;
    int head = 0, tail = 0;
    for (int v = 0; v < n; v++)
        if (!(left[v] = lanes->at[v + 1] - lanes->at[v]))
            queue[tail++] = v;
    while (head < tail) {
        int v = queue[head++];
        for (int32_t e = from_at[v]; e < from_at[v + 1]; e++)
            if (--left[from[e]] == 0)
                queue[tail++] = from[e];
    }
    return tail == n;
}

static bool lanes_finish(struct check *check) {
    struct lanes lanes = lane_graph(check);
    int W = check->p->workers, n = nodes_of(check, &lanes), len;
    if (acyclic(&lanes, n))
        return true;
    int32_t *cycle = shortest_cycle(n, lanes.at, lanes.to, &len);
    check->failed = CLAIM_LANES;
    put(&check->why, "deadlock of lanes:");
    for (int c = 0; c < len && c < 12; c++) {
        int r = 0;
        if (cycle[c] >= lanes.base[W])
            continue; /* a mark, or a collective, whose members are printed instead */
        while (cycle[c] >= lanes.base[r + 1])
            r++;
        put(&check->why, "\n  ");
        put_place(check, r, cycle[c] - lanes.base[r]);
        put(&check->why, " cannot start before the next ends");
    }
    return false;
}

/* Reports a deadlock: every unfinished rank waits for another. Prints the shortest cycle of these waits. */
static bool refute_deadlock(struct check *check) {
    int W = check->p->workers, len;
    int32_t *at = NEW(int32_t, W + 1), *to = NEW(int32_t, W + 1);
    for (int r = 0, n = 0; r < W; at[++r] = n)
        if (check->at[r] < check->p->rank[r].nins)
            to[n++] = waits_for(check, r);
    int32_t *cycle = shortest_cycle(W, at, to, &len);
    check->failed = CLAIM_SERIAL;
    put(&check->why, "deadlock when every send waits for its receive:");
    for (int c = 0; c < len; c++) {
        put(&check->why, "\n  ");
        put_place(check, cycle[c], check->at[cycle[c]]);
        put(&check->why, " waits for rank %d", cycle[(c + 1) % len]);
    }
    struct lanes l = lane_graph(check);
    bool lanes = acyclic(&l, nodes_of(check, &l));
    put(&check->why, lanes ? "\nlanes alone would not hang" : "\nlanes hang as well");
    check->holds = lanes ? CLAIM_LANES : 0;
    return false;
}

/* ---- the whole proof ---- */

static bool prove(struct check *check) {
    if (!pair_messages(check) || !pair_collectives(check))
        return false;
    int followed = CLAIM_JOBS | CLAIM_GRADIENTS | CLAIM_MEMORY | CLAIM_PERIOD;
    bool follow = check->claims & followed;
    struct scratch values = scratch_begin();
    if (follow && (!waits_stay(check) || !values_begin(check)))
        return false;
    /* If the walk completes, so do the lanes: the walk kept every order that they keep. */
    if (check->claims & CLAIM_SERIAL || follow) {
        if (!walk(check)) {
            if (check->failed != CLAIM_SERIAL || check->claims & CLAIM_SERIAL)
                return false;
            check->failed = 0;
            check->why.n = 0;
        } else if (follow && !values_end(check))
            return false;
        else {
            check->holds = CLAIM_SERIAL | CLAIM_LANES | (follow ? followed : 0);
            check->values = NULL;
            scratch_end(values);
        }
    } else if (check->claims & CLAIM_LANES && !lanes_finish(check))
        return false;
    return !(check->claims & CLAIM_RACES) || races(check);
}

struct refutation *verify(const struct costs *costs, const struct graph *graph, const struct program *p, int claims) {
    const struct spec *sp = costs->spec;
    struct check check = {.sp = sp, .costs = costs, .g = graph, .p = p, .claims = claims};
    /* The caller guarantees only this. The program may be anything, so everything else must be proved. */
    assert(p->workers == sp->workers && p->stages == sp->stages && graph->n == sp->njobs);
    assert(p->batches > 0 && p->repeats >= 1 && p->period >= 0 && p->rank);
    struct scratch all = scratch_begin();
    check.at = NEW(int32_t, p->workers);
    check.mate = NEW(int32_t *, p->workers);
    for (int r = 0; r < p->workers; r++) {
        check.mate[r] = NEW(int32_t, p->rank[r].nins);
        memset(check.mate[r], -1, sizeof **check.mate * (size_t)p->rank[r].nins);
    }
    if (prove(&check)) {
        scratch_end(all);
        return NULL;
    }
    struct refutation *no = NEW(struct refutation, 1);
    *no = (struct refutation){check.failed, check.holds, check.why.s};
    return no;
}
