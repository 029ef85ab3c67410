/* Builds one side of a diff, a list of operations, from a program (with or without times) or from the rows of a
 * timeline. */
#include "base/map.h"
#include "diff.h"
#include <math.h>
#include <string.h>

static struct side *side_new(const char *name, int nops, int nlanes, int workers) {
    struct side *side = NEW(struct side, 1);
    *side = (struct side){.name = name, .n = nops, .nlanes = nlanes, .workers = workers, .peak_bytes = -1};
    side->op = NEW(struct diff_op, nops);
    side->lane = NEW(struct diff_lane, nlanes);
    side->lane_at = NEW(int32_t, workers + 1);
    side->start = NEW(double, nops);
    side->end = NEW(double, nops);
    return side;
}

static bool same_kind(const struct diff_op *x, const struct diff_op *y) {
    return x->op == y->op && x->stage == y->stage && x->batch == y->batch && x->slices == y->slices &&
           x->peer == y->peer && x->number == y->number;
}

/* Numbers equal operations of a rank in their order. */
static void number_equals(struct side *side) {
    struct map map = map_new((size_t)side->n);
    for (int i = 0; i < side->n; i++) {
        struct diff_op *op = &side->op[i];
        uint64_t h =
            hash_add(hash_add(hash_add(hash_add(hash_add(1, op->rank), op->op), op->stage), op->batch), op->peer);
        uint32_t at = map_start(&map, hash_add(h, op->number));
        op->nth = 0;
        for (int k; (k = map.slot[at] - 1) >= 0; at = map_next(&map, at))
            if (side->op[k].rank == op->rank && same_kind(&side->op[k], op)) {
                op->nth = side->op[k].nth + 1;
                break;
            }
        map.slot[at] = i + 1; /* the last of its equals represents all of them */
    }
}

/* The fields that a message's two ends, or a reduction's members, have in common */
struct meeting {
    int32_t op, stage, batch, from, to, number, nth;
};

static struct meeting meeting_of(const struct diff_op *op) {
    if (is_group(op->op))
        return (struct meeting){op->op, op->stage, op->batch, -1, -1, op->number, op->nth};
    bool sends = is_send(op->op);
    return (struct meeting){sends ? op->op : op_row(op->op)->partner,
                            op->stage,
                            op->batch,
                            sends ? op->rank : op->peer,
                            sends ? op->peer : op->rank,
                            op->number,
                            op->nth};
}

/* Joins what a program gives one number. A team's members may be of several stages. */
static void join_numbered(struct side *side) {
    int32_t *last = NEW(int32_t, side->p->nmsgs);
    for (int r = 0; r < side->workers; r++) {
        const int32_t *at = side_ops(side, r);
        for (int i = 0; i < side->p->rank[r].nins; i++) {
            int32_t msg = side->p->rank[r].ins[i].msg, o = at[i];
            side->op[o].ring = o;
            if (msg < 0)
                continue;
            if (last[msg]) {
                side->op[o].ring = side->op[last[msg] - 1].ring;
                side->op[last[msg] - 1].ring = o;
            }
            last[msg] = o + 1;
        }
    }
}

static void join_messages(struct side *side) {
    struct map map = map_new((size_t)side->n);
    for (int i = 0; i < side->n; i++) {
        struct diff_op *op = &side->op[i];
        op->ring = i;
        if (!is_message(op->op))
            continue;
        struct meeting m = meeting_of(op);
        uint64_t h = hash_add(hash_add(hash_add(1, m.op), m.stage), m.batch);
        uint32_t at = map_start(&map, hash_add(hash_add(hash_add(hash_add(h, m.from), m.to), m.number), m.nth));
        for (int k; (k = map.slot[at] - 1) >= 0; at = map_next(&map, at)) {
            struct meeting n = meeting_of(&side->op[k]);
            if (memcmp(&m, &n, sizeof m) == 0) {
                op->ring = side->op[k].ring;
                side->op[k].ring = i;
                break;
            }
        }
        if (!map.slot[at])
            map.slot[at] = i + 1;
    }
}

bool side_leads(const struct side *side, int o) {
    int i = side->op[o].ring;
    while (i > o)
        i = side->op[i].ring;
    return i == o && side->op[o].ring != o;
}

static void finish_side(struct side *side) {
    number_equals(side);
    if (side->p)
        join_numbered(side);
    else
        join_messages(side);
    side_sizes(side);
    bool unknown = false; /* a timeline does not say how many bytes a collective moves over its links */
    for (int i = 0; i < side->n; i++) {
        side->step.sent += is_send(side->op[i].op) ? fmax((double)side->op[i].bytes, 0) : 0;
        unknown |= is_group(side->op[i].op) && !side->p;
    }
    side->step.sent = unknown ? -1 : side->step.sent;
}

/* Returns the bytes that rank r receives in its collectives. */
static double collected_bytes(const struct program *p, int r) {
    const struct rank *k = &p->rank[r];
    double sum = 0;
    for (int i = 0; i < k->nins; i++)
        sum += is_group(k->ins[i].op) ? (double)collective_moved(p, r, &k->ins[i]).received : 0;
    return sum;
}

void side_forget_numbers(struct side *side) {
    for (int i = 0; i < side->n; i++)
        side->op[i].number = -1;
    number_equals(side);
}

/* Returns the update that an instruction belongs to, or the version that it copies; -1 unless updates are jobs. */
static int32_t counted_update(const struct program *p, const struct instr *x) {
    bool numbered = p->update && (x->op == OP_COPY || op_row(x->op)->tensor == K_wgrad);
    return numbered ? x->inst : -1;
}

static void add_rank(struct side *side, const struct program *p, const struct timeline *tl, int r) {
    const struct rank *k = &p->rank[r];
    int first = side->lane_at[r] ? side->lane[side->lane_at[r] - 1].first + side->lane[side->lane_at[r] - 1].n : 0;
    struct lane_lists lists = lane_lists(k);
    for (int l = 0; l < k->nlanes; l++) {
        struct text name = {0};
        put_lane(&name, p, &k->lane[l]);
        side->lane[side->lane_at[r] + l] =
            (struct diff_lane){r, first + lists.at[l], lists.at[l + 1] - lists.at[l], k->lane[l].kind, name.s};
    }
    for (int c = 0; c < k->nins; c++) {
        int i = lists.ins[c], at = first + c;
        const struct instr *x = &k->ins[i];
        side->op[at] = (struct diff_op){.rank = r,
                                        .lane = side->lane_at[r] + x->lane,
                                        .op = x->op,
                                        .stage = x->stage,
                                        .batch = x->batch,
                                        .slices = p->names.slices,
                                        .peer = x->peer,
                                        .match = -1,
                                        .bind = -1,
                                        .number = counted_update(p, x),
                                        .version = p->update && is_job(x->op) ? x->inst : -1,
                                        .bytes = has_bytes(x->op) && x->narg ? moved_bytes(k, x) : -1};
        side->start[at] = tl ? tl->start[r][i] : 0;
        side->end[at] = tl ? tl->end[r][i] : 0;
    }
    side->peak_bytes = k->arena > side->peak_bytes ? k->arena : side->peak_bytes;
}

struct side *side_of_program(const char *name, const struct program *p, const struct timeline *tl) {
    int n = 0, nlanes = 0;
    for (int r = 0; r < p->workers; r++) {
        n += p->rank[r].nins;
        nlanes += p->rank[r].nlanes;
    }
    struct side *side = side_new(name, n, nlanes, p->workers);
    side->p = side->waits = p;
    side->timed = tl != NULL;
    side->launch = tl ? tl->launch : LAUNCH_LANE;
    for (int r = 0; r < p->workers; r++) {
        side->lane_at[r + 1] = side->lane_at[r] + p->rank[r].nlanes;
        add_rank(side, p, tl, r);
    }
    finish_side(side);
    for (int r = 0; r < p->workers; r++)
        side->step.sent += collected_bytes(p, r);
    return side;
}

static bool new_lane(const struct timeline_rows *rows, int i) {
    return i == 0 || rows->row[i].rank != rows->row[i - 1].rank || rows->row[i].lane != rows->row[i - 1].lane;
}

/* Returns the number of slices per microbatch of the timeline: the last slice has the largest number. */
static int count_slices(const struct timeline_rows *rows) {
    int most = 0;
    for (int i = 0; i < rows->n; i++)
        most = rows->row[i].slice + 1 > most ? rows->row[i].slice + 1 : most;
    return most;
}

/* Returns the row's microbatch, or its slice, as operations count it. */
static int counted_batch(const struct timeline_row *row, int slices) {
    return row->slice < 0 ? row->batch : row->batch * slices + row->slice;
}

struct side *side_of_rows(const char *name, struct timeline_rows *rows) {
    int slices = count_slices(rows);
    int nlanes = 0, workers = rows->n ? rows->row[rows->n - 1].rank + 1 : 0;
    if (workers > rows->n)
        die("%s: its last rank is %d, but it has only %d rows: every rank must have one", name, workers - 1, rows->n);
    for (int i = 0; i < rows->n; i++)
        nlanes += new_lane(rows, i);
    struct side *side = side_new(name, rows->n, nlanes, workers);
    side->timed = true;
    side->unit = rows->unit;
    for (int i = 0, l = -1; i < rows->n; i++) {
        const struct timeline_row *row = &rows->row[i];
        if (new_lane(rows, i)) {
            const char *at = row->lane;
            side->lane[++l] = (struct diff_lane){row->rank, i, 0, (uint8_t)lane_kind(&at), row->lane};
            side->lane_at[row->rank + 1] = l + 1;
        }
        side->lane[l].n++;
        side->op[i] = (struct diff_op){.rank = row->rank,
                                       .lane = l,
                                       .op = row->op,
                                       .stage = row->stage,
                                       .batch = counted_batch(row, slices),
                                       .slices = slices,
                                       .peer = row->peer,
                                       .match = -1,
                                       .bind = -1,
                                       .number = -1,
                                       .version = -1,
                                       .bytes = row->bytes};
        side->start[i] = row->start;
        side->end[i] = row->end;
    }
    for (int r = 0; r < workers; r++) /* ranks without rows */
        side->lane_at[r + 1] = side->lane_at[r + 1] ? side->lane_at[r + 1] : side->lane_at[r];
    finish_side(side);
    if (rows->nsteps)
        side_steps(side, rows);
    return side;
}

int32_t *side_ops(const struct side *side, int r) {
    const struct rank *k = &side->waits->rank[r];
    struct lane_lists lists = lane_lists(k);
    int32_t *at = NEW(int32_t, k->nins);
    for (int l = 0; l < k->nlanes; l++)
        for (int32_t c = lists.at[l]; c < lists.at[l + 1]; c++)
            at[lists.ins[c]] = side->lane[side->lane_at[r] + l].first + c - lists.at[l];
    return at;
}

static bool is_row_of(const struct side *side, const struct diff_op *op, const struct timeline_row *row, int slices) {
    return row->rank == op->rank && !strcmp(row->lane, side->lane[op->lane].name) && row->op == op->op &&
           row->stage == op->stage && counted_batch(row, op->slices) == op->batch && slices == op->slices &&
           row->peer == op->peer && row->bytes == op->bytes;
}

bool side_has_rows(const struct side *side, const struct timeline_rows *rows) {
    int slices = count_slices(rows);
    bool same = side->n == rows->n;
    for (int i = 0; same && i < side->n; i++)
        same = is_row_of(side, &side->op[i], &rows->row[i], slices);
    return same;
}

/* Sets the times of a program's instructions, from the timeline next to it or as measured. */
void side_times(struct side *side, const char *file, struct timeline_rows *rows, const char *advice) {
    int slices = count_slices(rows);
    bool same = side->n == rows->n;
    for (int i = 0; same && i < side->n; i++) {
        const struct timeline_row *row = &rows->row[i];
        const struct diff_op *op = &side->op[i];
        same = is_row_of(side, op, row, slices);
        if (!same)
            die("%s%s: this row is not an instruction of the program, which has %s%s on rank %d there; %s", file,
                rows->nsteps ? format(", rank %d's %s in lane %s", row->rank, op_name[row->op], row->lane)
                             : format(":%d", i + 2),
                diff_op_name(op), op->bytes < 0 ? "" : format(" of %lld bytes", (long long)op->bytes), op->rank,
                advice);
        side->start[i] = row->start;
        side->end[i] = row->end;
    }
    if (!same)
        die("%s: %d rows, but the program has %d instructions; %s", file, rows->n, side->n, advice);
    side->timed = true;
    side->unit = rows->unit;
    if (rows->nsteps)
        side_steps(side, rows);
}
