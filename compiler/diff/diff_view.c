/* The data of a diff's interactive picture: the operations of A and of B with their counterparts, what they need, and
 * the roots that made them earlier or later. The viewer draws A, B, and B's operations coloured by their shift. */
#include "diff.h"
#include "diff_draw.h"
#include "draw/svg.h"
#include "draw/view.h"
#include <math.h>
#include <string.h>

struct source {
    const struct diff *d;
    struct view *view;
    const struct side *s; /* the side being written */
    int side;
    int32_t **op_at[2], *ins_of[2]; /* as in diff_draw.h */
    struct producers producers[2];
    int32_t *number[2], *place[2]; /* per operation: its number in the side, its place in its row; -1: not drawn */
    struct view_need *need;
    size_t cap;
};

static void number_drawn(struct source *source, int side) {
    const struct side *s = source->d->side[side];
    int n = 0, place = 0;
    source->number[side] = NEW(int32_t, s->n);
    source->place[side] = NEW(int32_t, s->n);
    for (int i = 0; i < s->n; i++) {
        bool drawn = diff_draws(s, i);
        if (i == 0 || s->op[i].rank != s->op[i - 1].rank)
            place = 0;
        source->number[side][i] = drawn ? n++ : -1;
        source->place[side][i] = drawn ? place++ : -1;
        view_note_time(source->view, diff_time(source->d, s->op[i].start));
        view_note_time(source->view, diff_time(source->d, s->op[i].end));
    }
}

static void add_need(struct source *source, int by, int *n) {
    if (by < 0 || source->place[source->side][by] < 0)
        return;
    GROW(source->need, source->cap, (size_t)*n + 1);
    source->need[(*n)++] =
        (struct view_need){.row = source->s->op[by].rank, .op = source->place[source->side][by], .tensor = -1};
}

static int find_needs(struct source *source, int i) {
    int n = 0;
    if (!source->s->waits) {
        add_need(source, diff_waited_for(source->s, i), &n);
        return n;
    }
    const struct producers *producers = &source->producers[source->side];
    const int32_t *at = &producers->at[source->s->op[i].rank][source->ins_of[source->side][i]];
    for (int32_t f = at[0]; f < at[1]; f++) {
        const struct producer *producer = &producers->a[f];
        add_need(source, producer->i >= 0 ? source->op_at[source->side][producer->rank][producer->i] : -1, &n);
    }
    return n;
}

static uint32_t draw_flags(const struct source *source, int i) {
    const struct diff_op *op = &source->s->op[i];
    const struct root *root = diff_root(source->d, source->side, i);
    bool is_root = diff_is_root(root, source->side, i);
    int half = diff_half(source->s, i);
    return (op->critical ? VIEW_CRITICAL : 0u) | (half == 1 ? VIEW_UPPER : 0u) | (half == 2 ? VIEW_LOWER : 0u) |
           (diff_changed(op) || is_root ? 0u : VIEW_FADED) | (op->moved ? VIEW_MOVED : 0u) |
           (op->reordered ? VIEW_REORDERED : 0u) | (op->match < 0 && !op->split ? VIEW_ALONE : 0u);
}

/* Returns 1 + 2 * number + side of the root that made an operation earlier or later; 0: none, or itself. */
static int32_t root_of(const struct source *source, int i) {
    const struct root *root = diff_root(source->d, source->side, i);
    int side = root && root->a < 0;
    int op = root ? side ? root->b : root->a : -1;
    if (!root || diff_is_root(root, source->side, i) || source->number[side][op] < 0)
        return 0;
    return 1 + 2 * source->number[side][op] + side;
}

static void put_diff_op(struct source *source, int i) {
    const struct diff_op *op = &source->s->op[i];
    struct names names = diff_names(op);
    struct instr x = diff_instr(op);
    struct text note = {0};
    double shift = diff_time(source->d, diff_shift(source->d, source->side, i));
    diff_put_note(&note, source->d, source->side, i, view_keeps(source->view, shift));
    struct view_op v = {.symbol = view_symbol(source->view, &names, &x),
                        .batch = op->batch,
                        .version = -1,
                        .flags = draw_flags(source, i),
                        .start = diff_time(source->d, op->start),
                        .end = diff_time(source->d, op->end),
                        .nneeds = find_needs(source, i),
                        .match = op->match >= 0 ? source->number[!source->side][op->match] : -1,
                        .note = view_text(source->view, note.n ? note.s : ""),
                        .root = root_of(source, i),
                        .shift = shift};
    v.need = source->need;
    view_put(source->view, &v);
}

static void put_memory(struct source *source, int r) {
    double *start, *end;
    diff_rank_times(source->d, source->side, r, &start, &end);
    struct usage usage = memory_use(&source->s->p->rank[r], start, end);
    view_memory(source->view, &usage);
}

static void put_side(struct source *source, int side) {
    const struct side *s = source->d->side[side];
    source->side = side;
    source->s = s;
    view_side(source->view, diff_time(source->d, s->makespan));
    for (int r = 0; r < s->workers; r++) {
        const struct diff_lane *lane = diff_job_lane(s, r);
        view_row(source->view, format("[[%d,%d]]", r, r), s->p ? s->p->rank[r].arena : -1);
        view_lane(source->view, "");
        for (int i = lane ? lane->first : 0; lane && i < lane->first + lane->n; i++)
            if (source->number[side][i] >= 0)
                put_diff_op(source, i);
        if (s->p)
            put_memory(source, r);
    }
}

void emit_diff_view(struct text *t, const struct diff *diff) {
    struct source source = {.d = diff};
    double limit = diff_limit(diff);
    double plan = fmax((double)diff->side[0]->peak_bytes, (double)diff->side[1]->peak_bytes);
    struct view_head head = {.measure = diff_measure(diff, false),
                             .end = diff_span(diff),
                             .stages = diff_several_stages(diff->side[0]) || diff_several_stages(diff->side[1]),
                             .limit = limit,
                             .top = band_top(fmax(plan, 0), limit),
                             .panels = 3,
                             .title = {diff->side[0]->name, diff->side[1]->name},
                             .note = ""};
    source.view = view_begin(&head);
    for (int k = 0; k < 2; k++) {
        number_drawn(&source, k);
        if (diff->side[k]->waits)
            diff_number_ops(diff->side[k], &source.op_at[k], &source.ins_of[k], &source.producers[k]);
    }
    for (int k = 0; k < 2; k++)
        put_side(&source, k);
    view_end(t, source.view);
}
