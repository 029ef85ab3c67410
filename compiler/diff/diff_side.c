/* One side of a diff: a program, with times or without, or the rows of a timeline, as a list of operations. */
#include "base/map.h"
#include "diff.h"
#include <math.h>
#include <string.h>

static struct side *side_new(const char *name, int nops, int nlanes, int workers) {
    struct side *s = NEW(struct side, 1);
    *s = (struct side){.name = name, .n = nops, .nlanes = nlanes, .workers = workers, .peak_bytes = -1};
    s->op = NEW(struct diff_op, nops);
    s->lane = NEW(struct diff_lane, nlanes);
    s->lane_at = NEW(int32_t, workers + 1);
    s->start = NEW(double, nops);
    s->end = NEW(double, nops);
    return s;
}

static bool same_kind(const struct diff_op *x, const struct diff_op *y) {
    return x->op == y->op && x->stage == y->stage && x->batch == y->batch && x->peer == y->peer;
}

/* Numbers equals of a rank in their order. */
static void number_equals(struct side *s) {
    struct map map = map_new((size_t)s->n);
    for (int i = 0; i < s->n; i++) {
        struct diff_op *o = &s->op[i];
        uint64_t h = hash_add(hash_add(hash_add(hash_add(hash_add(1, o->rank), o->op), o->stage), o->batch), o->peer);
        uint32_t at = map_start(&map, h);
        for (int k; (k = map.slot[at] - 1) >= 0; at = map_next(&map, at))
            if (s->op[k].rank == o->rank && same_kind(&s->op[k], o)) {
                o->nth = s->op[k].nth + 1;
                break;
            }
        map.slot[at] = i + 1; /* the last of its equals stands for all */
    }
}

/* What a message's two ends, or a reduction's members, have in common. */
struct meeting {
    int32_t op, stage, batch, from, to, nth;
};

static struct meeting meeting_of(const struct diff_op *o) {
    if (is_group(o->op))
        return (struct meeting){o->op, o->stage, o->batch, -1, -1, o->nth};
    bool sends = is_send(o->op);
    return (struct meeting){sends ? o->op : op_row(o->op)->partner,
                            o->stage,
                            o->batch,
                            sends ? o->rank : o->peer,
                            sends ? o->peer : o->rank,
                            o->nth};
}

static void join_messages(struct side *s) {
    struct map map = map_new((size_t)s->n);
    for (int i = 0; i < s->n; i++) {
        struct diff_op *o = &s->op[i];
        o->ring = i;
        if (!is_message(o->op))
            continue;
        struct meeting m = meeting_of(o);
        uint64_t h = hash_add(hash_add(hash_add(1, m.op), m.stage), m.batch);
        uint32_t at = map_start(&map, hash_add(hash_add(hash_add(h, m.from), m.to), m.nth));
        for (int k; (k = map.slot[at] - 1) >= 0; at = map_next(&map, at)) {
            struct meeting n = meeting_of(&s->op[k]);
            if (memcmp(&m, &n, sizeof m) == 0) {
                o->ring = s->op[k].ring;
                s->op[k].ring = i;
                break;
            }
        }
        if (!map.slot[at])
            map.slot[at] = i + 1;
    }
}

bool side_leads(const struct side *s, int o) {
    int i = s->op[o].ring;
    while (i > o)
        i = s->op[i].ring;
    return i == o && s->op[o].ring != o;
}

static void finish_side(struct side *s) {
    number_equals(s);
    join_messages(s);
    for (int i = 0; i < s->n; i++)
        if (is_send(s->op[i].op))
            s->sent += fmax((double)s->op[i].bytes, 0);
}

static void add_rank(struct side *s, const struct program *p, const struct timeline *tl, int r) {
    const struct rank *k = &p->rank[r];
    int first = s->lane_at[r] ? s->lane[s->lane_at[r] - 1].first + s->lane[s->lane_at[r] - 1].n : 0;
    struct lane_lists lists = lane_lists(k);
    for (int l = 0; l < k->nlanes; l++) {
        struct text name = {0};
        put_lane(&name, p, &k->lane[l]);
        s->lane[s->lane_at[r] + l] =
            (struct diff_lane){r, first + lists.at[l], lists.at[l + 1] - lists.at[l], k->lane[l].kind, name.s};
    }
    for (int c = 0; c < k->nins; c++) {
        int i = lists.ins[c], at = first + c;
        const struct instr *x = &k->ins[i];
        const struct buf *b = payload(k, x);
        s->op[at] = (struct diff_op){.rank = r,
                                     .lane = s->lane_at[r] + x->lane,
                                     .op = x->op,
                                     .stage = x->stage,
                                     .batch = x->batch,
                                     .peer = x->peer,
                                     .match = -1,
                                     .bind = -1,
                                     .bytes = b ? b->bytes : -1};
        s->start[at] = tl ? tl->start[r][i] : 0;
        s->end[at] = tl ? tl->end[r][i] : 0;
    }
    s->peak_bytes = k->arena > s->peak_bytes ? k->arena : s->peak_bytes;
}

struct side *side_of_program(const char *name, const struct program *p, const struct timeline *tl) {
    int n = 0, nlanes = 0;
    for (int r = 0; r < p->workers; r++) {
        n += p->rank[r].nins;
        nlanes += p->rank[r].nlanes;
    }
    struct side *s = side_new(name, n, nlanes, p->workers);
    s->p = s->waits = p;
    s->timed = tl != NULL;
    for (int r = 0; r < p->workers; r++) {
        s->lane_at[r + 1] = s->lane_at[r] + p->rank[r].nlanes;
        add_rank(s, p, tl, r);
    }
    finish_side(s);
    return s;
}

static bool new_lane(const struct timeline_rows *t, int i) {
    return i == 0 || t->row[i].rank != t->row[i - 1].rank || t->row[i].lane != t->row[i - 1].lane;
}

struct side *side_of_rows(const char *name, struct timeline_rows *t) {
    int nlanes = 0, workers = t->n ? t->row[t->n - 1].rank + 1 : 0;
    if (workers > t->n)
        die("%s: its last rank is %d, but it has %d rows only: a rank without any is no rank", name, workers - 1, t->n);
    for (int i = 0; i < t->n; i++)
        nlanes += new_lane(t, i);
    struct side *s = side_new(name, t->n, nlanes, workers);
    s->timed = true;
    s->unit = t->unit;
    for (int i = 0, l = -1; i < t->n; i++) {
        const struct timeline_row *x = &t->row[i];
        if (new_lane(t, i)) {
            const char *at = x->lane;
            s->lane[++l] = (struct diff_lane){x->rank, i, 0, (uint8_t)lane_kind(&at), x->lane};
            s->lane_at[x->rank + 1] = l + 1;
        }
        s->lane[l].n++;
        s->op[i] = (struct diff_op){.rank = x->rank,
                                    .lane = l,
                                    .op = x->op,
                                    .stage = x->stage,
                                    .batch = x->batch,
                                    .peer = x->peer,
                                    .match = -1,
                                    .bind = -1,
                                    .bytes = x->bytes};
        s->start[i] = x->start;
        s->end[i] = x->end;
    }
    for (int r = 0; r < workers; r++) /* ranks without rows */
        s->lane_at[r + 1] = s->lane_at[r + 1] ? s->lane_at[r + 1] : s->lane_at[r];
    finish_side(s);
    if (t->nsteps)
        side_steps(s, t);
    return s;
}

int32_t *side_ops(const struct side *s, int r) {
    const struct rank *k = &s->waits->rank[r];
    struct lane_lists lists = lane_lists(k);
    int32_t *at = NEW(int32_t, k->nins);
    for (int l = 0; l < k->nlanes; l++)
        for (int32_t c = lists.at[l]; c < lists.at[l + 1]; c++)
            at[lists.ins[c]] = s->lane[s->lane_at[r] + l].first + c - lists.at[l];
    return at;
}

/* The times of a program's instructions, from the timeline beside it or as measured. */
void side_times(struct side *s, const char *file, struct timeline_rows *t) {
    const char *advice =
        t->nsteps ? "give -D, --model, --cluster and --lanes as it was measured with" : "compile both again";
    bool same = s->n == t->n;
    for (int i = 0; same && i < s->n; i++) {
        const struct timeline_row *x = &t->row[i];
        const struct diff_op *o = &s->op[i];
        same = x->rank == o->rank && !strcmp(x->lane, s->lane[o->lane].name) && x->op == o->op &&
               x->stage == o->stage && x->batch == o->batch && x->peer == o->peer && x->bytes == o->bytes;
        if (!same)
            die("%s%s: this row is no instruction of the program, which has %s%s on rank %d there; %s", file,
                t->nsteps ? format(", rank %d's %s in lane %s", x->rank, op_name[x->op], x->lane)
                          : format(":%d", i + 2),
                diff_op_name(o), o->bytes < 0 ? "" : format(" of %lld bytes", (long long)o->bytes), o->rank, advice);
        s->start[i] = x->start;
        s->end[i] = x->end;
    }
    if (!same)
        die("%s: %d rows, but the program has %d instructions; %s", file, t->n, s->n, advice);
    s->timed = true;
    s->unit = t->unit;
    if (t->nsteps)
        side_steps(s, t);
}
