/* Writes the data of an interactive picture, as view.h and viewer/data.js describe. Every number is written as its
 * difference from the value that earlier operations predict, so a repetitive schedule takes very little space. */
#include "view.h"
#include "columns.h"
#include "view_times.h"
#include "base/put_json.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    SYMBOL,
    BATCH,
    VERSION,
    FLAGS,
    NEEDS,
    MATCH,
    NOTE,
    ROOT,
    SHIFT,
    NEED_ROW,
    NEED_OP,
    NEED_TENSOR,
    NEED_BATCH,
    NEED_BYTES,
    NEED_FROM,
    NEED_TO,
    GAP,
    LENGTH,
    NEED_AFTER,
    NEED_TOOK,
    MEMORY_TIME,
    MEMORY_BYTES,
    NCOLUMNS
};
static const char *const column_name[NCOLUMNS] = {
    "symbol", "batch",    "version",    "flags",       "needs",       "match",        "note",      "root",
    "shift",  "need_row", "need_op",    "need_tensor", "need_batch",  "need_bytes",   "need_from", "need_to",
    "gap",    "length",   "need_after", "need_took",   "memory_time", "memory_bytes",
};
enum { SLOTS = 8, NFIELDS = NEEDS + 1, NRELATIONS = SHIFT - MATCH + 1 };

/* ---- state ---- */

/* Numbers of the last operation with a symbol, which predict the next operation's */
struct last {
    int64_t field[NFIELDS], index;
    int64_t relation[NRELATIONS], step[NRELATIONS]; /* step: by how much they differed from the ones before */
    int64_t need[SLOTS][GAP - NEED_ROW];
};

/* The current position in the data */
struct reached {
    int32_t before[2];               /* symbols of the last two operations of the lane */
    int32_t row, place, index, lane; /* the row in its side; the operation in its row, in its side; the lane's first */
    int32_t rows, rows0;             /* rows of all sides; before this one */
    bool row_open, lane_open, side_open;
    int nsides;
};

struct view {
    const struct view_head *head;
    struct text symbols, tensors, notes, sides;
    struct column column[NCOLUMNS];
    struct view_times *times;
    struct table symbol, tensor, context, note; /* note: hashes of the notes' texts */
    struct last *last;                          /* per symbol */
    int32_t *next; /* per context, that is, the two symbols before: the symbol that followed */
    size_t last_cap, next_cap;
    struct reached at;
    struct tick {
        double grain; /* what might be the tick */
        bool exact;   /* all times are multiples of it */
    } binary, decimal;
};

struct view *view_begin(const struct view_head *head) {
    struct view *view = NEW(struct view, 1);
    int exponent = 0;
    frexp(head->end, &exponent); /* exact on all machines, unlike log2 */
    view->head = head;
    view->times = view_times_begin();
    view->binary = (struct tick){ldexp(1, exponent), true};
    view->decimal = (struct tick){head->measure.one, true};
    while (view->decimal.grain < head->end)
        view->decimal.grain *= 10;
    return view;
}

/* Returns whether a time is a multiple of the grain, but for the rounding of sums of decimal fractions, which is far
 * less than what a diff calls a change. */
static bool is_multiple(const struct view *view, double t, double grain) {
    double off = fabs(t / grain - round(t / grain));
    return off < 1e-3 && off * grain <= 1e-11 * view->head->end;
}

void view_note_time(struct view *view, double t) {
    double least = view->head->end / (1 << 30);
    struct tick *binary = &view->binary, *decimal = &view->decimal;
    while (binary->exact && fmod(t, binary->grain) != 0)
        if (binary->grain > least)
            binary->grain /= 2;
        else
            binary->exact = false;
    while (decimal->exact && !is_multiple(view, t, decimal->grain))
        if (decimal->grain > 10 * least)
            decimal->grain /= 10;
        else
            decimal->exact = false;
}

static bool ticks_are_exact(const struct view *view) { return view->binary.exact || view->decimal.exact; }

static double view_tick(const struct view *view) {
    return view->decimal.exact && !view->binary.exact ? view->decimal.grain : view->binary.grain;
}

static int32_t ticks(const struct view *view, double t) { return (int32_t)llround(t / view_tick(view)); }

bool view_keeps(const struct view *view, double t) {
    char exact[32], shown[32];
    time_text(t, &view->head->measure, exact);
    time_text(ticks(view, t) * view_tick(view), &view->head->measure, shown);
    return strcmp(exact, shown) == 0;
}

/* ---- names ---- */

int32_t view_symbol(struct view *view, const struct names *names, const struct instr *x) {
    int32_t inst = is_job(x->op) ? -1 : x->inst, member = names->member ? x->stage : -1;
    int32_t stage = has_cost(x->op) ? member_at(names, x->stage).stage : x->stage;
    int32_t key[KEY_SIZE] = {
        x->op, stage, x->part << 8 | x->last, inst, x->peer, x->batch >= 0, x->op == OP_U ? 0 : names->slices, member};
    size_t n = view->symbol.n;
    int32_t symbol = table_number(&view->symbol, key);
    if (view->symbol.n == n)
        return symbol;
    struct text before = {0}, after = {0}, batch = {0};
    struct instr of = *x;
    of.batch = x->batch < 0 ? -1 : 7; /* a digit to split the name at */
    put_batch(&batch, x->op == OP_U ? NULL : names, 7);
    const char *name = short_name(names, &of), *letter = is_job(x->op) ? op_name[x->op] : " ", *at = "";
    if (of.batch >= 0) {
        at = strstr(name, letter);
        at = is_job(x->op) ? at + strlen(letter) : strchr(at + 1, ' ') + 1;
        put_bytes(&before, name, (size_t)(at - name));
        at += batch.n;
    } else
        put_word(&before, name);
    put(&after, "%s", at);
    put(&view->symbols, "%s[%d,", view->symbols.n ? "," : "", has_cost(x->op) ? x->op : NOPS);
    put_string(&view->symbols, before.n ? before.s : "");
    put(&view->symbols, ",");
    put_string(&view->symbols, after.n ? after.s : "");
    put(&view->symbols, ",%d,%d]", stage, x->op == OP_U ? 0 : names->slices);
    GROW(view->last, view->last_cap, view->symbol.n);
    view->last[symbol] = (struct last){0};
    view->last[symbol].field[BATCH] = -1;
    return symbol;
}

int32_t view_tensor(struct view *view, const struct names *names, const struct buf *b) {
    int32_t key[KEY_SIZE] = {b->kind, b->stage, b->inst, b->batch >= 0};
    size_t n = view->tensor.n;
    int32_t tensor = table_number(&view->tensor, key);
    if (view->tensor.n == n)
        return tensor;
    struct text name = {0};
    put_buf(&name, names, b);
    char *comma = b->batch >= 0 ? strchr(name.s, ',') : NULL;
    const char *after = comma ? strchr(comma, ')') : "";
    put(&view->tensors, "%s[%s,", n ? "," : "",
        quoted(comma ? format("%.*s", (int)(comma + 1 - name.s), name.s) : name.s));
    put(&view->tensors, "%s,%d]", quoted(after), names->slices);
    return tensor;
}

int32_t view_text(struct view *view, const char *note) {
    uint64_t hash = 0;
    for (const char *s = note; *s; s++)
        hash = hash_add(hash, *s);
    int32_t key[KEY_SIZE] = {(int32_t)(hash >> 32), (int32_t)hash, (int32_t)strlen(note)};
    size_t n = view->note.n;
    int32_t number = table_number(&view->note, key);
    if (view->note.n > n)
        put(&view->notes, "%s%s", n ? "," : "", quoted(note));
    return number;
}

/* ---- rows ---- */

static void close_lane(struct view *view) {
    if (view->at.lane_open)
        put(&view->sides, ",%d]", view->at.place - view->at.lane);
    view->at.lane_open = false;
}

static void close_row(struct view *view) {
    close_lane(view);
    if (view->at.row_open)
        put(&view->sides, "]}");
    view->at.row_open = false;
}

static void close_side(struct view *view) {
    close_row(view);
    if (view->at.side_open)
        put(&view->sides, "]}");
    view->at.side_open = false;
}

void view_side(struct view *view, double end) {
    close_side(view);
    put(&view->sides, "%s{\"end\":%lld,\"rows\":[", view->at.nsides++ ? "," : "", (long long)ticks(view, end));
    view->at.side_open = true;
    view->at.index = 0;
    view->at.row = -1;
    view->at.rows0 = view->at.rows;
}

void view_row(struct view *view, const char *ranks, int64_t plan) {
    close_row(view);
    view->at.row++;
    view->at.rows++;
    view->at.place = 0;
    view_times_row(view->times);
    put(&view->sides, "%s{\"ranks\":%s,\"plan\":%lld,\"lanes\":[", view->at.row ? "," : "", ranks, (long long)plan);
    view->at.row_open = true;
}

void view_lane(struct view *view, const char *name) {
    bool first = !view->at.lane_open;
    close_lane(view);
    put(&view->sides, "%s[%s", first ? "" : ",", quoted(name));
    view->at.lane_open = true;
    view->at.lane = view->at.place;
    view->at.before[0] = view->at.before[1] = -1;
    view_times_lane(view->times);
}

/* ---- operations ---- */

static void put_next_symbol(struct view *view, int32_t symbol) {
    int32_t key[KEY_SIZE] = {view->at.before[0], view->at.before[1]};
    size_t n = view->context.n;
    int32_t context = table_number(&view->context, key);
    GROW(view->next, view->next_cap, view->context.n);
    bool expected = view->context.n == n && view->next[context] == symbol;
    column_put(&view->column[SYMBOL], expected ? 0 : symbol + 1);
    view->next[context] = symbol;
    view->at.before[0] = view->at.before[1];
    view->at.before[1] = symbol;
}

static void put_op_need(struct view *view, int64_t *last, const struct view_op *op, const struct view_need *need,
                        int64_t moved) {
    bool by = need->tensor >= 0;
    int64_t now[GAP - NEED_ROW] = {need->row - view->at.row, need->op, need->tensor + 1};
    view_times_need(view->times, view->at.rows0 + need->row, need->op);
    if (by) {
        int64_t message[] = {need->batch - op->batch, need->bytes, need->from - view->at.row, need->to - view->at.row};
        memcpy(&now[NEED_BATCH - NEED_ROW], message, sizeof message);
        view_times_message(view->times, ticks(view, need->sent), ticks(view, need->arrived));
    }
    for (int f = 0; f < (by ? GAP : NEED_BATCH) - NEED_ROW; f++) {
        bool place = f == NEED_OP - NEED_ROW;
        column_put(&view->column[NEED_ROW + f], now[f] - last[f] - (place ? moved : 0));
        last[f] = now[f];
    }
}

static void put_relations(struct view *view, struct last *last, const struct view_op *op) {
    const int64_t relation[NRELATIONS] = {op->match - view->at.index, op->note, op->root, ticks(view, op->shift)};
    for (int r = 0; r < NRELATIONS; r++) {
        int64_t step = relation[r] - last->relation[r];
        column_put(&view->column[MATCH + r], step - last->step[r]);
        last->relation[r] = relation[r];
        last->step[r] = step;
    }
}

void view_put(struct view *view, const struct view_op *op) {
    struct last *last = &view->last[op->symbol];
    int64_t moved = view->at.place - last->index;
    put_next_symbol(view, op->symbol);
    view_times_op(view->times, op->symbol, ticks(view, op->start), ticks(view, op->end));
    int64_t field[NFIELDS] = {[BATCH] = op->batch, [VERSION] = op->version, [FLAGS] = op->flags, [NEEDS] = op->nneeds};
    column_put(&view->column[BATCH], op->batch - last->field[BATCH] - 1);
    for (int f = VERSION; f <= NEEDS; f++)
        column_put(&view->column[f], field[f] - last->field[f]);
    last->field[BATCH] = op->batch;
    memcpy(&last->field[VERSION], &field[VERSION], sizeof *field * (NFIELDS - VERSION));
    for (int i = 0; i < op->nneeds; i++)
        put_op_need(view, last->need[i < SLOTS ? i : SLOTS - 1], op, &op->need[i], moved);
    if (view->head->panels > 1)
        put_relations(view, last, op);
    last->index = view->at.place++;
    view->at.index++;
}

/* ---- needs and memory of a row ---- */

static void begin_list(struct view *view, const char *name) {
    close_lane(view);
    put(&view->sides, "],\"%s\":[", name);
}

void view_joins(struct view *view, const double *at, int n) {
    begin_list(view, "joins");
    for (int i = 0; i < n; i++)
        put(&view->sides, "%s%lld", i ? "," : "", (long long)ticks(view, at[i]));
}

void view_memory(struct view *view, const struct usage *usage) {
    int64_t before = 0, length = 0, bytes = 0;
    int n = 0;
    for (int i = 0; i < usage->n; i++) {
        int64_t t = ticks(view, usage->at[i].t);
        if (usage->at[i].bytes == bytes)
            continue;
        column_put(&view->column[MEMORY_TIME], t - before - length);
        column_put(&view->column[MEMORY_BYTES], usage->at[i].bytes - bytes);
        length = t - before;
        before = t;
        bytes = usage->at[i].bytes;
        n++;
    }
    begin_list(view, "memory");
    put(&view->sides, "%d", n);
}

/* ---- the whole ---- */

static void put_kinds(struct text *t) {
    static const char message[] = "[\"\",\"message\",\"#e69f00\",0.6]";
    put(t, "\"kinds\":[");
    for (uint8_t op = 0; op < NOPS; op++) {
        struct paint paint = paint_of(&(struct instr){.op = op}, BY_OP);
        if (has_cost(op))
            put(t, "[\"%s\",\"%s\",\"#%06x\",%g],", op_name[op], paint.name, paint.fill, lightness_of(op));
        else
            put(t, "0,");
    }
    put(t, "%s]", message);
}

/* Writes the tick in the ruler's unit; a decimal one as it is meant, such as 0.001. */
static const char *tick_text(const struct view *view, char buf[32]) {
    double tick = view_tick(view) / view->head->measure.one;
    if (view->binary.exact || !view->decimal.exact)
        return number(tick, buf);
    snprintf(buf, 32, "%.0e", tick);
    return buf;
}

static void put_view_head(struct text *t, const struct view *view) {
    static const char *const by[] = {[BY_OP] = "op", [BY_MB] = "mb", [BY_STAGE] = "stage"};
    const struct view_head *head = view->head;
    char a[32], b[32], c[32];
    put(t, "{\"unit\":%s,\"tick\":%s", quoted(head->measure.name), tick_text(view, a));
    put(t, ",\"end\":%lld,\"from\":%lld,\"to\":%lld", (long long)ticks(view, head->end),
        (long long)ticks(view, head->from),
        (long long)ticks(view, head->to > 0 ? fmin(head->to, head->end) : head->end));
    put(t, ",\"by\":\"%s\",\"sends\":%s,\"stages\":%s", by[head->by], head->sends ? "true" : "false",
        head->stages ? "true" : "false");
    put(t, ",\"limit\":%s,\"top\":%s,\"joins\":%s,\"panels\":%d", number_or_null(head->limit, b),
        number_or_null(head->top, c), head->joins ? quoted(head->joins) : "null", head->panels);
    put(t, ",\"titles\":[%s", quoted(head->title[0]));
    put(t, "%s%s],", head->title[1] ? "," : "", head->title[1] ? quoted(head->title[1]) : "");
    put(t, "\"note\":%s,", quoted(head->note));
    put_kinds(t);
}

void view_end(struct text *t, struct view *view) {
    const struct view_time_columns times = {&view->column[GAP], &view->column[LENGTH], &view->column[NEED_AFTER],
                                            &view->column[NEED_TOOK]};
    close_side(view);
    view_times_end(view->times, ticks_are_exact(view) ? 0 : 2, &times);
    put_view_head(t, view);
    put(t, ",\"symbols\":[");
    put_bytes(t, view->symbols.s, view->symbols.n);
    put(t, "],\"tensors\":[");
    put_bytes(t, view->tensors.s, view->tensors.n);
    put(t, "],\"notes\":[");
    put_bytes(t, view->notes.s, view->notes.n);
    put(t, "],\"sides\":[");
    put_bytes(t, view->sides.s, view->sides.n);
    put(t, "],\"columns\":{");
    for (int c = 0; c < NCOLUMNS; c++) {
        put(t, "%s\"%s\":\"", c ? "," : "", column_name[c]);
        column_write(t, &view->column[c]);
        put(t, "\"");
    }
    put(t, "}}\n");
}
