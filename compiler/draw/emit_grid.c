/* The timeline as a picture in a terminal: a row per rank, time to the right, each job a block with its microbatch.
 *
 * Where all times are multiples of one unit that has room, a cell is one unit, two or more columns wide, so that ranks
 * line up and nothing is rounded. Otherwise a cell is one column, which shows what takes most of its time.
 *
 * With colour, a block's colour is its kind (Okabe & Ito's palette, safe for colour-blind readers), and two blocks of a
 * kind that touch differ in shade. Without, its letter is, and a line runs to the block's end.
 *
 * Two jobs that overlap share the block of their time, half each, with a + between where there is room. */
#include "draw.h"
#include <math.h>
#include <string.h>

struct canvas {
    const struct program *p;
    const struct timeline *tl;
    const struct style *style;
    int margin, columns; /* of the names of rows; of the time */
    double from, to;     /* the part of the time that is drawn */
    double step;         /* time of one column */
    int cell;            /* columns of one cell */
    int lane;            /* the one being drawn */
    bool **path;
    int64_t top;         /* bytes: the largest plan */
    bool names;          /* label a block with its job's name, not only its microbatch */
    uint32_t drawn;      /* kinds that were */
    bool paired, plus;   /* two that overlap were; with a + between, where there was room */
    bool cramped;        /* a microbatch's number had no room */
    int32_t *owner;      /* the row being drawn: per column an instruction, or -1 */
    double *most, *used; /* and how much of the column it covers, and all do */
};

/* Instruction i of rank r has a block in a row that is drawn. */
static bool drawn(const struct canvas *c, int r, int i) {
    const struct instr *in = &c->p->rank[r].ins[i];
    double start = c->tl->start[r][i], end = c->tl->end[r][i];
    return (in->lane == 0 || c->style->with & WITH_LANES) && paint_of(in, BY_OP).name && end > start && end > c->from &&
           start < c->to;
}

static bool visible(const struct canvas *c, int r, int i) {
    return c->p->rank[r].ins[i].lane == c->lane && drawn(c, r, i);
}

/* Instruction i runs at the same time as the next, the other of its pair. */
static bool overlaps_next(const struct canvas *c, int r, int i) {
    return c->lane == 0 && i >= 0 && i + 1 < c->p->rank[r].nins && visible(c, r, i) && visible(c, r, i + 1) &&
           c->tl->start[r][i] == c->tl->start[r][i + 1];
}

static int digits(int n) { return snprintf(NULL, 0, "%d", n); }

/* ---- scale ---- */

static double common_divisor(double a, double b, double tiny) {
    while (b > tiny) {
        double rest = fmod(a, b);
        a = b;
        b = b - rest < tiny ? 0 : rest;
    }
    return a;
}

static double clip(const struct canvas *c, double t) { return fmin(fmax(t, c->from), c->to) - c->from; }

/* The largest unit of which all times drawn are multiples. */
static double common_unit(const struct canvas *c) {
    double unit = 0, tiny = c->tl->makespan * 1e-9;
    for (int r = 0; r < c->p->workers; r++)
        for (int i = 0; i < c->p->rank[r].nins; i++)
            if (drawn(c, r, i)) {
                unit = common_divisor(clip(c, c->tl->start[r][i]), unit, tiny);
                unit = common_divisor(clip(c, c->tl->end[r][i]), unit, tiny);
            }
    return unit > 0 ? unit : 1;
}

/* The next round number: 1, 1.5, 2, 2.5, 3, 4, 5, 6, 8 times a power of ten. */
static double round_up(double x) {
    static const double steps[] = {1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10};
    double power = pow(10, floor(log10(x)));
    for (int i = 0;; i++)
        if (steps[i] * power >= x * (1 - 1e-9))
            return steps[i] * power;
}

static void choose_scale(struct canvas *c) {
    double last = c->to - c->from, unit = common_unit(c), cells = ceil(last / unit - 1e-6);
    int room = c->style->width - c->margin, number = digits(c->p->batches - 1);
    int name = digits(c->p->stages - 1) + 1 + number;
    room = room < 8 ? 8 : room;
    c->names = several_stages(c->p);
    c->cell = 1;
    if (cells <= room) {
        int widest = (c->names ? name : number + 1) + 1; /* what a label needs, and a space */
        c->cell = room / (int)fmax(cells, 1);
        c->cell = c->cell > widest ? widest : c->cell;
        c->names = c->names && c->cell >= name + !c->style->color; /* without colour, 1F30B2 would not read well */
        c->step = unit / c->cell;
    } else if (cells < 1e5)
        c->step = unit * ceil(cells / room);
    else
        c->step = round_up(last / room);
    c->columns = (int)ceil(last / c->step - 1e-6);
}

/* ---- rows ---- */

/* Gives each column to the instruction that covers most of it, or to none when idle time does. */
static void paint_row(struct canvas *c, int r) {
    for (int x = 0; x < c->columns; x++) {
        c->owner[x] = -1;
        c->most[x] = c->used[x] = 0;
    }
    for (int i = 0; i < c->p->rank[r].nins; i++) {
        if (!visible(c, r, i))
            continue;
        double from = clip(c, c->tl->start[r][i]) / c->step, to = clip(c, c->tl->end[r][i]) / c->step;
        double half = (to - from) / 2;
        if (overlaps_next(c, r, i))
            to -= half;
        else if (overlaps_next(c, r, i - 1))
            from += half;
        for (int x = (int)from; x < to && x < c->columns; x++) {
            double part = fmin(to, x + 1) - fmax(from, x);
            c->used[x] += part;
            if (part > c->most[x] + 1e-6) {
                c->most[x] = part;
                c->owner[x] = i;
            }
        }
    }
    for (int x = 0; x < c->columns; x++)
        if (c->most[x] + 1e-6 < 1 - c->used[x])
            c->owner[x] = -1;
}

/* A message's: the letter of its operation and its microbatch, F3 or B3; of weights and their gradients the stage: w2.
 */
static int message_label(const struct instr *in, int width, char *buf, size_t size) {
    char letter = op_row(in->op)->letter;
    int n = snprintf(buf, size, "%c%d", letter, in->batch >= 0 ? in->batch : in->stage);
    return n > width ? snprintf(buf, size, "%c", letter) : n;
}

/* The longest label of a job that fits: 1F3, or F3 (just 3 in colour), or F (nothing in colour). */
static int block_label(const struct canvas *c, const struct instr *in, int width, char *buf, size_t size) {
    if (!has_cost(in->op))
        return message_label(in, width, buf, size);
    const char *kind = c->style->color && c->style->by == BY_OP ? "" : op_name[in->op];
    int n = in->batch < 0 ? snprintf(buf, size, "%s", op_name[in->op])
            : c->names    ? snprintf(buf, size, "%d%s%d", in->stage, op_name[in->op], in->batch)
                          : snprintf(buf, size, "%s%d", kind, in->batch);
    if (n > width && c->names && in->batch >= 0)
        n = snprintf(buf, size, "%s%d", kind, in->batch);
    if (n > width)
        n = snprintf(buf, size, "%s", kind);
    return n;
}

static void put_times(struct text *t, const char *s, int n) {
    for (int i = 0; i < n; i++)
        put(t, "%s", s);
}

/* Returns whether there was room for the end. */
static bool put_block(struct text *t, const struct canvas *c, const struct instr *in, int width, bool shade, char end) {
    char label[48];
    int n = block_label(c, in, width, label, sizeof label);
    if (c->style->color) {
        struct paint k = paint_of(in, c->style->by);
        int left = (width - n) / 2;
        put(t, "\033[38;5;%d;48;5;%dm%*s%s", k.text, shade ? k.shade : k.ground, left, "", label);
        if (width > n + left)
            put(t, "%*c", width - n - left, end);
        put(t, "\033[0m");
        return width > n + left;
    }
    put(t, "%s", label);
    if (width > n) {
        put_times(t, c->style->ascii ? "-" : "─", width - n - 1);
        put_bytes(t, &end, 1);
    }
    return width > n;
}

static void put_idle(struct text *t, const struct canvas *c, int from, int to) {
    const char *dot = c->style->ascii ? "." : "·";
    put(t, "%s", c->style->color ? "\033[38;5;245m" : "");
    for (int x = from; x < to; x++)
        put(t, "%s", x % c->cell == (c->cell - 1) / 2 ? dot : " ");
    put(t, "%s", c->style->color ? "\033[0m" : "");
}

static void trim(struct text *t) {
    while (t->n > 0 && t->s[t->n - 1] == ' ')
        t->s[--t->n] = 0;
}

static void put_row(struct text *t, struct canvas *c, int r, const char *name) {
    const struct rank *k = &c->p->rank[r];
    int before = -1; /* the kind that touches on the left */
    bool shade = false;
    paint_row(c, r);
    put(t, "%-*s", c->margin, name);
    for (int x = 0, end; x < c->columns; x = end) {
        int32_t i = c->owner[x];
        for (end = x + 1; end < c->columns && c->owner[end] == i;)
            end++;
        if (i < 0) {
            put_idle(t, c, x, end);
            before = -1;
            continue;
        }
        shade = k->ins[i].op == before && !shade;
        before = k->ins[i].op;
        c->drawn |= has_cost(before) ? 1u << before : 0;
        bool pair = overlaps_next(c, r, i),
             letter = !has_cost(k->ins[i].op) || !c->style->color || c->style->by != BY_OP;
        c->cramped |= k->ins[i].batch >= 0 && end - x < letter + digits(k->ins[i].batch);
        c->paired |= pair;
        c->plus |= put_block(t, c, &k->ins[i], end - x, shade, pair ? '+' : ' ') && pair;
    }
    trim(t);
    put(t, "\n");
}

/* Marks under the row that was drawn last. */
static void put_path(struct text *t, const struct canvas *c, int r) {
    put(t, "%-*s", c->margin, " path");
    for (int x = 0; x < c->columns; x++)
        put(t, "%s", c->owner[x] < 0 || !c->path[r][c->owner[x]] ? " " : c->style->ascii ? "^" : "▔");
    trim(t);
    put(t, "\n");
}

/* Per column the most bytes in use: in eighths of the largest plan, or ninths, as digits. */
static void put_memory(struct text *t, const struct canvas *c, int r) {
    static const char *const bars[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    struct usage u = memory_use(&c->p->rank[r], c->tl->start[r], c->tl->end[r]);
    put(t, "%-*s", c->margin, " memory");
    for (int x = 0, i = 0; x < c->columns; x++) {
        double from = c->from + x * c->step, to = fmin(from + c->step * (1 - 1e-9), c->to);
        while (i + 1 < u.n && u.at[i + 1].t <= from * (1 + 1e-9))
            i++;
        double most = (double)u.at[i].bytes, levels = c->style->ascii ? 9 : 8;
        for (int n = i + 1; n < u.n && u.at[n].t < to; n++)
            most = fmax(most, (double)u.at[n].bytes);
        int bar = c->top > 0 ? (int)ceil(most / (double)c->top * levels) : 0;
        if (c->style->ascii)
            put(t, "%c", bar ? '0' + bar : ' ');
        else
            put(t, "%s", bars[bar]);
    }
    trim(t);
    put(t, "\n");
}

static void put_rank(struct text *t, struct canvas *c, int r) {
    const struct rank *k = &c->p->rank[r];
    c->lane = 0;
    put_row(t, c, r, format("rank %d", r));
    if (c->path)
        put_path(t, c, r);
    if (c->style->with & WITH_LANES)
        for (c->lane = 1; c->lane < k->nlanes; c->lane++)
            put_row(t, c, r, format(" %s", lane_label(c->p, &k->lane[c->lane])));
    if (c->style->with & WITH_MEMORY)
        put_memory(t, c, r);
}

/* Columns of the longest name of a row, and two. */
static int margin_of(const struct canvas *c) {
    int longest = 5 + digits(c->p->workers - 1);
    if (c->style->with & WITH_MEMORY && longest < 7)
        longest = 7;
    for (int r = 0; c->style->with & WITH_LANES && r < c->p->workers; r++)
        for (int l = 1; l < c->p->rank[r].nlanes; l++) {
            int n = (int)strlen(lane_label(c->p, &c->p->rank[r].lane[l])) + 1;
            longest = n > longest ? n : longest;
        }
    return longest + 2;
}

/* ---- what is around the rows ---- */

/* A tick every 1, 2, 5, 10, 20, 50… cells, such that their labels have room. */
static void put_ruler(struct text *t, const struct canvas *c, const struct measure *m) {
    static const int mantissa[] = {1, 2, 5};
    int every = 1;
    for (int i = 0, power = 1; every * c->cell < 8; i++) {
        power *= i % 3 || !i ? 1 : 10;
        every = mantissa[i % 3] * power;
    }
    put(t, "%-*s", c->margin, !strcmp(m->name, "units") ? "time" : m->name);
    int at = 0;
    for (int x = 0; x < c->columns; x += every * c->cell) {
        char label[32];
        int n = snprintf(label, sizeof label, "%.6g", (c->from + x * c->step) / m->one);
        if (x + n > c->columns)
            break;
        put(t, "%*s%s", x - at, "", label);
        at = x + n;
    }
    put(t, "\n");
}

static bool any_takes_no_time(const struct canvas *c) {
    for (int r = 0; r < c->p->workers; r++)
        for (int i = 0; i < c->p->rank[r].nins; i++)
            if (is_job(c->p->rank[r].ins[i].op) && c->tl->start[r][i] == c->tl->end[r][i])
                return true;
    return false;
}

static void put_legend(struct text *t, const struct canvas *c, const struct measure *m) {
    bool plain = !c->style->color;
    put(t, "\n%*s", c->margin, "");
    for (uint8_t op = 0; op < NOPS; op++) {
        if (!has_cost(op) || !(c->drawn >> op & 1))
            continue;
        struct paint k = paint_of(&(struct instr){.op = op}, c->style->by);
        if (!plain)
            put(t, "\033[38;5;%d;48;5;%dm", k.text, k.ground);
        put(t, plain ? "%s %s   " : " %s \033[0m %s   ", op_name[op], k.name);
    }
    if (c->paired)
        put(t, c->plus ? "F3+B1 overlapped   " : "F3B1 overlapped   ");
    put(t, "%s idle\n%*s", c->style->ascii ? "." : "·", c->margin, "");
    char value[32];
    snprintf(value, sizeof value, "%.6g", c->step * c->cell / m->one);
    bool one = !strcmp(value, "1") && !strcmp(m->name, "units");
    put(t, "1 cell = %s %s; %s\n", value, one ? "unit" : m->name,
        c->names ? "1F3 is stage 1, microbatch 3" : "the numbers are microbatches");
    if (any_takes_no_time(c))
        put(t, "%*sjobs that take no time, or none beside the time it is, are not drawn\n", c->margin, "");
    if (c->cramped)
        put(t, "%*sa larger --width, or show's --from and --to, makes room for all numbers\n", c->margin, "");
    if (c->style->by != BY_OP && !plain)
        put(t, "%*scolours: a hue per %s, dark forward, light backward\n", c->margin, "",
            c->style->by == BY_MB ? "microbatch" : "stage");
    if (c->style->with & WITH_MEMORY)
        put(t, "%*smemory in use: %s is %s, the largest plan\n", c->margin, "", c->style->ascii ? "9" : "█",
            bytes_text(c->top, value));
    if (c->path)
        put(t, "%*s%s on the critical path\n", c->margin, "", c->style->ascii ? "^" : "▔");
}

void emit_grid(struct text *out, const struct program *p, const struct timeline *tl, const char *unit,
               const struct style *style) {
    struct canvas c = {.p = p, .tl = tl, .style = style};
    struct measure m = measure_of(tl->makespan, unit, style->ascii);
    c.margin = margin_of(&c);
    c.from = style->from * m.one;
    c.to = style->to > 0 ? fmin(style->to * m.one, tl->makespan) : tl->makespan;
    if (style->with & WITH_PATH)
        c.path = critical_path(p, tl);
    for (int r = 0; r < p->workers; r++)
        c.top = p->rank[r].arena > c.top ? p->rank[r].arena : c.top;
    choose_scale(&c);
    c.owner = NEW(int32_t, c.columns);
    c.most = NEW(double, c.columns);
    c.used = NEW(double, c.columns);
    put_ruler(out, &c, &m);
    for (int r = 0; r < p->workers; r++)
        put_rank(out, &c, r);
    put_legend(out, &c, &m);
}

/* ---- the report ---- */

/* A table whose columns are as wide as what is in them. A group is a heading over its columns. */
enum { COLUMNS = 12 };
static const struct {
    const char *group, *name;
} heading[COLUMNS] = {{"", "rank"},     {"time", "busy"}, {"", "idle"},        {"", "span"},
                      {"peak", "live"}, {"", "memory"},   {"received", "act"}, {"", "grad"},
                      {"", "weight"},   {"", "part"},     {"", "bytes"},       {"stages", "stored"}};

static void fill_row(char cell[COLUMNS][32], int rank, const struct rank_report *k, const struct measure *m) {
    int count[] = {k->activations_received, k->gradients_received, k->weights_received, k->reductions_received};
    snprintf(cell[0], 32, "%d", rank);
    time_text(k->busy, m, cell[1]);
    time_text(k->idle, m, cell[2]);
    time_text(k->span, m, cell[3]);
    snprintf(cell[4], 32, "%d", k->peak_activations);
    bytes_text(k->peak_bytes, cell[5]);
    for (int i = 0; i < 4; i++)
        snprintf(cell[6 + i], 32, "%d", count[i]);
    bytes_text(k->bytes_received, cell[10]);
    snprintf(cell[11], 32, "%d", k->stages_stored);
}

static void put_ranks(struct text *t, const struct report *r, const struct measure *m) {
    const char *time = strcmp(m->name, "units") ? format("time, %s", m->name) : "time"; /* as the ruler's */
    char(*row)[COLUMNS][32] = alloc(sizeof *row * (size_t)r->workers);
    int width[COLUMNS], end = 0, at = 0;
    for (int c = 0; c < COLUMNS; c++)
        width[c] = (int)strlen(heading[c].name);
    for (int i = 0; i < r->workers; i++) {
        fill_row(row[i], i, &r->rank[i], m);
        for (int c = 0; c < COLUMNS; c++)
            width[c] = (int)strlen(row[i][c]) > width[c] ? (int)strlen(row[i][c]) : width[c];
    }
    for (int c = 0; c < COLUMNS; at += width[c++] + 2)
        if (*heading[c].group) { /* over the first of its columns, which is set to the right */
            const char *group = c == 1 ? time : heading[c].group;
            int left = at + width[c] - (int)strlen(heading[c].name);
            put(t, "%*s%s", left - end, "", group);
            end = left + (int)strlen(group);
        }
    put(t, "\n");
    for (int c = 0; c < COLUMNS; c++)
        put(t, "%*s%s", width[c], heading[c].name, c + 1 < COLUMNS ? "  " : "\n");
    for (int i = 0; i < r->workers; i++)
        for (int c = 0; c < COLUMNS; c++)
            put(t, "%*s%s", width[c], row[i][c], c + 1 < COLUMNS ? "  " : "\n");
}

/* Where each rank's bytes are at its peak; columns that are nothing everywhere are left out. */
static void put_held(struct text *t, const struct report *r) {
    int width[NHELD];
    char cell[32];
    for (int h = 0; h < NHELD; h++) {
        width[h] = 0;
        for (int i = 0; i < r->workers; i++)
            if (r->rank[i].held[h] > 0 && (int)strlen(bytes_text(r->rank[i].held[h], cell)) > width[h])
                width[h] = (int)strlen(cell);
        if (width[h] > 0 && (int)strlen(held_name[h]) > width[h])
            width[h] = (int)strlen(held_name[h]);
    }
    int rank = digits(r->workers - 1) > 4 ? digits(r->workers - 1) : 4;
    put(t, "\nmemory at the peak\n%*s", rank, "rank");
    for (int h = 0; h < NHELD; h++)
        if (width[h] > 0)
            put(t, "  %*s", width[h], held_name[h]);
    put(t, "\n");
    for (int i = 0; i < r->workers; i++) {
        put(t, "%*d", rank, i);
        for (int h = 0; h < NHELD; h++)
            if (width[h] > 0)
                put(t, "  %*s", width[h], bytes_text(r->rank[i].held[h], cell));
        put(t, "\n");
    }
}

/* Units go without saying. */
static const char *with_unit(double t, const struct measure *m) {
    char buf[32];
    return format(strcmp(m->name, "units") ? "%s %s" : "%s", time_text(t, m, buf), m->name);
}

void emit_report(struct text *out, const struct report *r, const struct style *style) {
    struct measure m = measure_of(r->makespan, r->unit, style->ascii);
    char a[32];
    put(out, "%s: %d workers, %d stages, %d microbatches", r->schedule, r->workers, r->stages, r->batches);
    if (r->measured)
        put(out, "; measured, %s", r->measured > 1 ? format("the median of %d steps", r->measured) : "one step");
    put(out, "\n\n");
    put_ranks(out, r, &m);
    if (strcmp(r->unit, "F") != 0) /* with a model: bytes are bytes */
        put_held(out, r);
    put(out, "\nmakespan     %s %s\n", time_text(r->makespan, &m, a), m.name);
    put(out, "bubble       %.1f %%\n", 100 * r->bubble);
    put(out, "throughput   %.3f F + backward per rank in the time of one (rho = S B / (L W))\n", r->throughput);
    put(out, "lower bound  %s %s, from ", time_text(r->lower_bound, &m, a), m.name);
    const char *work = with_unit(r->bound_work, &m), *path = with_unit(r->bound_path, &m);
    const char *live = with_unit(r->bound_memory, &m);
    if (r->lower_bound == r->bound_work)
        put(out, "a rank's work (path %s, live activations %s)\n", path, live);
    else if (r->lower_bound == r->bound_path)
        put(out, "the longest path (work %s, live activations %s)\n", work, live);
    else
        put(out, "live activations (work %s, path %s)\n", work, path);
    put(out, "gap          %.1f %%\n", 100 * r->gap);
}
