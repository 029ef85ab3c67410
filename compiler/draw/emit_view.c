/* The timeline's data for the interactive picture: a row for each rank, or for equal ranks, with its lanes if they are
 * requested, what each operation needs, and the memory in use. */
#include "svg.h"
#include "view.h"
#include <math.h>
#include <string.h>

enum { MOST_STEPS = 200000, BINS = 1000 }; /* most changes of memory written exactly; beyond, maxima per bin */

struct ends { /* of a message */
    int32_t src, send, dst, recv;
};

struct source {
    const struct program *p;
    const struct timeline *tl;
    const struct style *style;
    struct view *view;
    struct rows rows;
    bool **path;
    struct producers producers;
    struct ends *message;
    int32_t *row_of; /* per rank: its row */
    int32_t **place; /* per rank and instruction: its place in the row; -1: not drawn */
    struct view_need *need;
    size_t nneeds;
};

static bool is_shown(const struct source *source, int r, int i) {
    const struct instr *x = &source->p->rank[r].ins[i];
    return source->tl->end[r][i] > source->tl->start[r][i] && paint_of(x, BY_OP).name;
}

static bool is_on(const struct source *source, int r, int i, int lane) {
    return source->p->rank[r].ins[i].lane == lane && is_shown(source, r, i);
}

/* ---- before the rows ---- */

static void find_messages(struct source *source) {
    source->message = alloc(sizeof *source->message * (size_t)(source->p->nmsgs + 1));
    for (int r = 0; r < source->p->workers; r++)
        for (int i = 0; i < source->p->rank[r].nins; i++) {
            const struct instr *x = &source->p->rank[r].ins[i];
            struct ends *ends = x->msg >= 0 ? &source->message[x->msg] : NULL;
            if (ends && is_send(x->op)) {
                ends->src = r;
                ends->send = i;
            } else if (ends && is_recv(x->op)) {
                ends->dst = r;
                ends->recv = i;
            }
        }
}

static void number_places(struct source *source) {
    int row = 0;
    source->row_of = NEW(int32_t, source->p->workers);
    source->place = NEW(int32_t *, source->p->workers);
    for (int r = 0; r < source->p->workers; r++) {
        const struct rank *k = &source->p->rank[r];
        int lanes = source->style->with & WITH_LANES ? k->nlanes : 1, n = 0;
        if (source->rows.leader[r] != r)
            continue;
        source->row_of[r] = row++;
        source->place[r] = NEW(int32_t, k->nins);
        for (int i = 0; i < k->nins; i++)
            source->place[r][i] = -1;
        for (int l = 0; l < lanes; l++)
            for (int i = 0; i < k->nins; i++)
                if (is_on(source, r, i, l))
                    source->place[r][i] = n++;
    }
}

/* Passes all times that will be written to the view, so that it can find their common tick. */
static void note_times(const struct source *source) {
    for (int r = 0; r < source->p->workers; r++)
        for (int i = 0; i < source->p->rank[r].nins; i++) {
            view_note_time(source->view, source->tl->start[r][i]);
            view_note_time(source->view, source->tl->end[r][i]);
        }
}

/* ---- an operation ---- */

static struct view_need view_need_of(const struct source *source, const struct producer *producer) {
    int32_t r = producer->rank, i = producer->i;
    struct view_need need = {.op = -1, .tensor = -1};
    if (r >= 0 && source->rows.leader[r] != r) {
        i = i >= 0 ? source->rows.twin[r][i] : -1;
        r = source->rows.leader[r];
    }
    if (r >= 0) {
        need.row = source->row_of[r];
        need.op = i >= 0 ? source->place[r][i] : -1;
    }
    if (producer->msg < 0)
        return need;
    const struct ends *ends = &source->message[producer->msg];
    const struct rank *k = &source->p->rank[ends->src];
    const struct instr *send = &k->ins[ends->send];
    const struct buf *b = payload(k, send);
    need.tensor = view_tensor(source->view, &source->p->names, b);
    need.batch = b->batch;
    need.from = ends->src;
    need.to = ends->dst;
    need.bytes = moved_bytes(k, send);
    need.sent = source->tl->start[ends->src][ends->send];
    need.arrived = source->tl->end[ends->dst][ends->recv];
    return need;
}

static int list_needs(struct source *source, int r, int i) {
    int32_t from = source->producers.at[r][i], to = source->producers.at[r][i + 1];
    int n = 0;
    GROW(source->need, source->nneeds, (size_t)(to - from));
    for (int32_t f = from; f < to; f++) {
        source->need[n] = view_need_of(source, &source->producers.a[f]);
        n += source->need[n].op >= 0 || source->need[n].tensor >= 0;
    }
    return n;
}

/* Returns the half of the row for a job that overlaps another one. */
static uint32_t overlap_flag(const struct source *source, int r, int i) {
    const double *start = source->tl->start[r];
    if (i + 1 < source->p->rank[r].nins && is_on(source, r, i + 1, 0) && start[i] == start[i + 1])
        return VIEW_UPPER;
    return i > 0 && is_on(source, r, i - 1, 0) && start[i] == start[i - 1] ? VIEW_LOWER : 0;
}

static void put_shown(struct source *source, int r, int i) {
    const struct instr *x = &source->p->rank[r].ins[i];
    const struct names *names = &source->p->names;
    struct names plain = {.slices = names->slices};
    struct instr of = *x;
    if (source->rows.label[r] && x->lane == 0) { /* members of its team share the row: the script's stage */
        of.stage = member_at(names, x->stage).stage;
        names = &plain;
    }
    struct view_op op = {.symbol = view_symbol(source->view, names, &of),
                         .batch = x->batch,
                         .version = is_job(x->op) ? x->inst : -1,
                         .flags =
                             (source->path[r][i] ? VIEW_CRITICAL : 0u) | (x->lane ? 0 : overlap_flag(source, r, i)),
                         .start = source->tl->start[r][i],
                         .end = source->tl->end[r][i],
                         .nneeds = list_needs(source, r, i)};
    op.need = source->need;
    view_put(source->view, &op);
}

/* ---- a row ---- */

static const char *ranks_of(const struct source *source, int leader) {
    struct text t = {0};
    for (int a = leader, b; a < source->p->workers; a = b + 1) {
        b = a;
        if (source->rows.leader[a] != leader)
            continue;
        while (b + 1 < source->p->workers && source->rows.leader[b + 1] == leader)
            b++;
        put(&t, "%s[%d,%d]", a > leader ? "," : "[", a, b);
    }
    put(&t, "]");
    return t.s;
}

/* Returns the largest amount in each of BINS parts of the time. */
static struct usage in_bins(const struct usage *usage, double end) {
    struct usage bins = {.at = NEW(struct usage_step, BINS)};
    for (int b = 0, i = 0; b < BINS; b++) {
        double until = end * (b + 1) / BINS;
        int64_t most = i < usage->n ? usage->at[i].bytes : 0;
        for (; i + 1 < usage->n && usage->at[i + 1].t < until; i++)
            most = usage->at[i + 1].bytes > most ? usage->at[i + 1].bytes : most;
        bins.at[bins.n++] = (struct usage_step){end * b / BINS, most};
    }
    return bins;
}

static void put_row(struct source *source, int r, bool exact) {
    const struct rank *k = &source->p->rank[r];
    const double *start = source->tl->start[r], *end = source->tl->end[r];
    int joins = joins_of(source->p);
    view_row(source->view, ranks_of(source, r), k->arena);
    for (int l = 0; l < k->nlanes && (l == 0 || source->style->with & WITH_LANES); l++) {
        int i = 0;
        while (i < k->nins && !is_on(source, r, i, l))
            i++;
        if (l && i == k->nins) /* a lane without a message */
            continue;
        view_lane(source->view, l ? lane_label(source->p, &k->lane[l]) : "");
        for (; i < k->nins; i++)
            if (is_on(source, r, i, l))
                put_shown(source, r, i);
    }
    struct usage usage = memory_use(k, start, end);
    if (!exact)
        usage = in_bins(&usage, source->tl->makespan);
    view_memory(source->view, &usage);
    if (joins)
        view_joins(source->view, join_times(source->p, source->tl, r), joins);
}

void emit_view(struct text *t, const struct program *p, const struct timeline *tl, const struct report *rep,
               double limit, const struct style *style) {
    struct source source = {.p = p, .tl = tl, .style = style, .path = critical_path(p, tl)};
    struct measure measure = measure_of(tl->makespan, rep->unit, false);
    int64_t plan = 0, instructions = 0;
    for (int r = 0; r < p->workers; r++) {
        plan = p->rank[r].arena > plan ? p->rank[r].arena : plan;
        instructions += p->rank[r].nins;
    }
    struct view_head head = {.measure = measure,
                             .end = tl->makespan,
                             .from = style->from * measure.one,
                             .to = style->to * measure.one,
                             .by = style->by,
                             .sends = style->with & WITH_SENDS,
                             .stages = several_stages(p),
                             .limit = limit,
                             .top = band_top((double)plan, limit),
                             .joins = joins_of(p) == 0 ? NULL : repeated_text(p, tl, &measure),
                             .panels = 1,
                             .title = {p->name},
                             .note = waits_text(rep)};
    source.rows = rows_of(p, tl, !(style->with & WITH_LANES));
    source.view = view_begin(&head);
    rows_share_path(&source.rows, p, source.path);
    note_times(&source);
    find_messages(&source);
    number_places(&source);
    source.producers = producers_of(p);
    view_side(source.view, tl->makespan);
    for (int r = 0; r < p->workers; r++)
        if (source.rows.leader[r] == r)
            put_row(&source, r, instructions <= MOST_STEPS);
    view_end(t, source.view);
}
