/* The timeline as a picture in a terminal: one row per rank, time to the right, each job a block with its
 * microbatch.
 *
 * If all times are multiples of a unit wide enough to draw, a cell is one unit, in one or more columns. So ranks line
 * up and nothing is rounded. Otherwise a cell is one column and shows what takes most of its time. Where several kinds
 * of jobs, or jobs and idle time, share one column after another, they take turns in proportion to their shares.
 *
 * With colour, a block's colour shows its kind (Okabe & Ito's palette, safe for colour-blind readers), and two adjacent
 * blocks of a kind differ in shade. Without colour, its letter does, and a line extends to the block's end.
 *
 * Two jobs that overlap share the block of their time, half each, with a + between if there is room. */
#include "draw.h"
#include <math.h>
#include <string.h>

struct canvas {
    const struct program *p;
    const struct timeline *tl;
    const struct style *style;
    int margin, columns; /* width in columns of the row names; of the time axis */
    double from, to;     /* interval of time to draw */
    double step;         /* time of one column */
    int cell;            /* columns per cell */
    int lane;            /* the lane being drawn */
    bool **path;
    int64_t top;                  /* bytes of the largest plan */
    bool names;                   /* label blocks with the job's name, not only its microbatch */
    uint32_t drawn;               /* kinds drawn so far */
    bool paired, plus;            /* whether overlapping jobs were drawn; whether with a + between */
    bool cramped;                 /* whether some microbatch's number did not fit */
    int32_t *owner;               /* for the current row: an instruction per column, or -1 */
    bool mixed;                   /* whether kinds took turns */
    double (*share)[NOPS + 1];    /* per column: the share of each kind, and of idle time */
    int32_t (*longest)[NOPS + 1]; /* per column: the instruction of each kind that covers most of it, or -1 */
    double (*cover)[NOPS + 1];    /* per column: how much that covers */
};

/* Returns whether instruction i of rank r is a visible block. */
static bool drawn(const struct canvas *canvas, int r, int i) {
    const struct instr *in = &canvas->p->rank[r].ins[i];
    double start = canvas->tl->start[r][i], end = canvas->tl->end[r][i];
    return (in->lane == 0 || canvas->style->with & WITH_LANES) && paint_of(in, BY_OP).name && end > start &&
           end > canvas->from && start < canvas->to;
}

static bool is_on_lane(const struct canvas *canvas, int r, int i) {
    return canvas->p->rank[r].ins[i].lane == canvas->lane && drawn(canvas, r, i);
}

/* Returns whether instruction i overlaps the next one, the other of its pair. */
static bool overlaps_next(const struct canvas *canvas, int r, int i) {
    return canvas->lane == 0 && i >= 0 && i + 1 < canvas->p->rank[r].nins && is_on_lane(canvas, r, i) &&
           is_on_lane(canvas, r, i + 1) && canvas->tl->start[r][i] == canvas->tl->start[r][i + 1];
}

/* ---- scale ---- */

static double common_step(double a, double b, double tiny) {
    while (b > tiny) {
        double rest = fmod(a, b);
        a = b;
        b = b - rest < tiny ? 0 : rest;
    }
    return a;
}

static double clip(const struct canvas *canvas, double t) {
    return fmin(fmax(t, canvas->from), canvas->to) - canvas->from;
}

/* Returns the largest unit that divides all drawn times. */
static double common_unit(const struct canvas *canvas) {
    double unit = 0, tiny = canvas->tl->makespan * 1e-9;
    for (int r = 0; r < canvas->p->workers; r++)
        for (int i = 0; i < canvas->p->rank[r].nins; i++)
            if (drawn(canvas, r, i)) {
                unit = common_step(clip(canvas, canvas->tl->start[r][i]), unit, tiny);
                unit = common_step(clip(canvas, canvas->tl->end[r][i]), unit, tiny);
            }
    return unit > 0 ? unit : 1;
}

/* Returns the next round number: 1, 1.5, 2, 2.5, 3, 4, 5, 6, 8 times a power of ten. */
static double round_number(double x) {
    static const double steps[] = {1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10};
    double power = pow(10, floor(log10(x)));
    for (int i = 0;; i++)
        if (steps[i] * power >= x * (1 - 1e-9))
            return steps[i] * power;
}

static void fit_columns(struct canvas *canvas) {
    double last = canvas->to - canvas->from, unit = common_unit(canvas), cells = ceil(last / unit - 1e-6);
    int room = canvas->style->width - canvas->margin, slices = canvas->p->names.slices;
    int number = decimal_digits(canvas->p->batches / slices_of(&canvas->p->names) - 1) +
                 (slices ? 1 + decimal_digits(slices - 1) : 0);
    int name = decimal_digits(canvas->p->stages - 1) + 1 + number;
    room = room < 8 ? 8 : room;
    canvas->names = several_stages(canvas->p);
    canvas->cell = 1;
    if (cells <= room) {
        int widest = (canvas->names ? name : number + 1) + 1; /* width of a label and a space */
        canvas->cell = room / (int)fmax(cells, 1);
        canvas->cell = canvas->cell > widest ? widest : canvas->cell;
        canvas->names = canvas->names &&
                        canvas->cell >= name + !canvas->style->color; /* 1F30B2 would be hard to read without colour */
        canvas->step = unit / canvas->cell;
    } else if (cells < 1e5)
        canvas->step = unit * ceil(cells / room);
    else
        canvas->step = round_number(last / room);
    canvas->columns = (int)ceil(last / canvas->step - 1e-6);
}

/* ---- rows ---- */

/* Adds to each column the share of it that instruction i covers. */
static void cover_columns(struct canvas *canvas, int r, int32_t i) {
    double from = clip(canvas, canvas->tl->start[r][i]) / canvas->step,
           to = clip(canvas, canvas->tl->end[r][i]) / canvas->step;
    double half = (to - from) / 2;
    uint8_t op = canvas->p->rank[r].ins[i].op;
    if (overlaps_next(canvas, r, i))
        to -= half;
    else if (overlaps_next(canvas, r, i - 1))
        from += half;
    for (int x = (int)from; x < to && x < canvas->columns; x++) {
        double part = fmin(to, x + 1) - fmax(from, x);
        canvas->share[x][op] += part;
        canvas->share[x][NOPS] -= part;
        if (part > canvas->cover[x][op] + 1e-6) {
            canvas->cover[x][op] = part;
            canvas->longest[x][op] = i;
        }
    }
}

/* Assigns each column to a kind, or to idle time (NOPS). Every kind is owed its shares of the columns so far, and the
 * one owed most gets the column. A column with only one kind settles all debts. */
static void share_columns(struct canvas *canvas) {
    double owed[NOPS + 1] = {0};
    int before = NOPS;
    for (int x = 0; x < canvas->columns; x++) {
        int best = NOPS, kinds = 0;
        for (int k = 0; k <= NOPS; k++) {
            double share = canvas->share[x][k];
            owed[k] += share;
            kinds += share > 1e-6;
            if (share > 1e-6 && (canvas->share[x][best] <= 1e-6 || owed[k] > owed[best] + 1e-6))
                best = k;
        }
        canvas->mixed |= kinds > 1 && best != before && owed[best] > canvas->share[x][best] + 1e-6;
        before = best;
        owed[best] -= 1;
        if (kinds <= 1)
            memset(owed, 0, sizeof owed);
        canvas->owner[x] = canvas->longest[x][best];
    }
}

/* Assigns each column to an instruction, or to none. */
static void paint_row(struct canvas *canvas, int r) {
    memset(canvas->share, 0, sizeof *canvas->share * (size_t)canvas->columns);
    memset(canvas->cover, 0, sizeof *canvas->cover * (size_t)canvas->columns);
    memset(canvas->longest, -1, sizeof *canvas->longest * (size_t)canvas->columns);
    for (int x = 0; x < canvas->columns; x++)
        canvas->share[x][NOPS] = 1;
    for (int i = 0; i < canvas->p->rank[r].nins; i++)
        if (is_on_lane(canvas, r, i))
            cover_columns(canvas, r, i);
    share_columns(canvas);
}

/* Returns a microbatch's number in the script: 3, or 3.1. */
static const char *batch_text(const struct canvas *canvas, const struct instr *in) {
    struct text t = {0};
    put_batch(&t, in->op == OP_U ? NULL : &canvas->p->names, in->batch);
    return t.s;
}

/* Writes a message's label: its operation's letter with the microbatch, F3 or B3, or for weights and their gradients
 * with the stage, w2. */
static int message_label(const struct canvas *canvas, const struct instr *in, int width, char *buf, size_t size) {
    char letter = op_row(in->op)->letter, stage[16];
    snprintf(stage, sizeof stage, "%d", in->stage);
    int n = snprintf(buf, size, "%c%s", letter, in->batch >= 0 ? batch_text(canvas, in) : stage);
    return n > width ? snprintf(buf, size, "%c", letter) : n;
}

/* Writes the longest label that fits a job: 1F3, or F3 (just 3 in colour), or F (nothing in colour). */
static int block_label(const struct canvas *canvas, const struct instr *in, int width, char *buf, size_t size) {
    if (!has_cost(in->op))
        return message_label(canvas, in, width, buf, size);
    const char *kind = canvas->style->color && canvas->style->by == BY_OP ? "" : op_name[in->op];
    int n = in->batch < 0   ? snprintf(buf, size, "%s", op_name[in->op])
            : canvas->names ? snprintf(buf, size, "%d%s%s", in->stage, op_name[in->op], batch_text(canvas, in))
                            : snprintf(buf, size, "%s%s", kind, batch_text(canvas, in));
    if (n > width && canvas->names && in->batch >= 0)
        n = snprintf(buf, size, "%s%s", kind, batch_text(canvas, in));
    if (n > width)
        n = snprintf(buf, size, "%s", kind);
    return n;
}

static void put_n_times(struct text *t, const char *s, int n) {
    for (int i = 0; i < n; i++)
        put(t, "%s", s);
}

/* Writes a block. Returns whether the end character fitted. */
static bool put_block(struct text *t, const struct canvas *canvas, const struct instr *in, int width, bool shade,
                      char end) {
    char label[48];
    int n = block_label(canvas, in, width, label, sizeof label);
    if (canvas->style->color) {
        struct paint paint = paint_of(in, canvas->style->by);
        int left = (width - n) / 2;
        put(t, "\033[38;5;%d;48;5;%dm%*s%s", paint.text, shade ? paint.shade : paint.ground, left, "", label);
        if (width > n + left)
            put(t, "%*c", width - n - left, end);
        put(t, "\033[0m");
        return width > n + left;
    }
    put(t, "%s", label);
    if (width > n) {
        put_n_times(t, canvas->style->ascii ? "-" : "─", width - n - 1);
        put_bytes(t, &end, 1);
    }
    return width > n;
}

static void put_idle(struct text *t, const struct canvas *canvas, int from, int to) {
    const char *dot = canvas->style->ascii ? "." : "·";
    put(t, "%s", canvas->style->color ? "\033[38;5;245m" : "");
    for (int x = from; x < to; x++)
        put(t, "%s", x % canvas->cell == (canvas->cell - 1) / 2 ? dot : " ");
    put(t, "%s", canvas->style->color ? "\033[0m" : "");
}

static void trim_end(struct text *t) {
    while (t->n > 0 && t->s[t->n - 1] == ' ')
        t->s[--t->n] = 0;
}

static void put_named_row(struct text *t, struct canvas *canvas, int r, const char *name) {
    const struct rank *k = &canvas->p->rank[r];
    int before = -1; /* kind of the adjacent block on the left */
    bool shade = false;
    paint_row(canvas, r);
    put(t, "%-*s", canvas->margin, name);
    for (int x = 0, end; x < canvas->columns; x = end) {
        int32_t i = canvas->owner[x];
        for (end = x + 1; end < canvas->columns && canvas->owner[end] == i;)
            end++;
        if (i < 0) {
            put_idle(t, canvas, x, end);
            before = -1;
            continue;
        }
        shade = k->ins[i].op == before && !shade;
        before = k->ins[i].op;
        canvas->drawn |= has_cost(before) ? 1u << before : 0;
        bool pair = overlaps_next(canvas, r, i),
             letter = !has_cost(k->ins[i].op) || !canvas->style->color || canvas->style->by != BY_OP;
        canvas->cramped |= k->ins[i].batch >= 0 && end - x < letter + decimal_digits(k->ins[i].batch);
        canvas->paired |= pair;
        canvas->plus |= put_block(t, canvas, &k->ins[i], end - x, shade, pair ? '+' : ' ') && pair;
    }
    trim_end(t);
    put(t, "\n");
}

/* Marks the critical path under the last row. */
static void put_path(struct text *t, const struct canvas *canvas, int r) {
    put(t, "%-*s", canvas->margin, " path");
    for (int x = 0; x < canvas->columns; x++)
        put(t, "%s",
            canvas->owner[x] < 0 || !canvas->path[r][canvas->owner[x]] ? " "
            : canvas->style->ascii                                     ? "^"
                                                                       : "▔");
    trim_end(t);
    put(t, "\n");
}

/* Marks, under this rank's row, where repetitions of the period or of the step begin and end. */
static void put_repetitions(struct text *t, const struct canvas *canvas, int r) {
    bool ascii = canvas->style->ascii;
    int n = joins_of(canvas->p) - 1;
    const double *join = join_times(canvas->p, canvas->tl, r);
    put(t, "%-*s", canvas->margin, canvas->p->period ? " period" : " step");
    for (int i = 0, x = 0; i < n; i++) {
        int from = (int)lround(clip(canvas, join[i]) / canvas->step);
        int to = (int)lround(clip(canvas, join[i + 1]) / canvas->step);
        put_n_times(t, " ", from - x);
        for (x = x > from ? x : from; x < to; x++) {
            bool begins = x == from && join[i] >= canvas->from,
                 ends = i == n - 1 && x == to - 1 && join[n] <= canvas->to;
            put(t, "%s", begins ? ascii ? "|" : "├" : ends ? ascii ? "|" : "┤" : ascii ? "-" : "─");
        }
    }
    trim_end(t);
    put(t, "\n");
}

/* Writes the peak bytes in use per column, in eighths of the largest plan (bars) or ninths (digits). */
static void put_memory_row(struct text *t, const struct canvas *canvas, int r) {
    static const char *const bars[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    struct usage usage = memory_use(&canvas->p->rank[r], canvas->tl->start[r], canvas->tl->end[r]);
    put(t, "%-*s", canvas->margin, " memory");
    for (int x = 0, i = 0; x < canvas->columns; x++) {
        double from = canvas->from + x * canvas->step, to = fmin(from + canvas->step * (1 - 1e-9), canvas->to);
        while (i + 1 < usage.n && usage.at[i + 1].t <= from * (1 + 1e-9))
            i++;
        double most = (double)usage.at[i].bytes, levels = canvas->style->ascii ? 9 : 8;
        for (int n = i + 1; n < usage.n && usage.at[n].t < to; n++)
            most = fmax(most, (double)usage.at[n].bytes);
        int bar = canvas->top > 0 ? (int)ceil(most / (double)canvas->top * levels) : 0;
        if (canvas->style->ascii)
            put(t, "%c", bar ? '0' + bar : ' ');
        else
            put(t, "%s", bars[bar]);
    }
    trim_end(t);
    put(t, "\n");
}

static void put_rank_rows(struct text *t, struct canvas *canvas, int r) {
    const struct rank *k = &canvas->p->rank[r];
    canvas->lane = 0;
    put_named_row(t, canvas, r, format("rank %d", r));
    if (canvas->path)
        put_path(t, canvas, r);
    if (joins_of(canvas->p) > 0)
        put_repetitions(t, canvas, r);
    if (canvas->style->with & WITH_LANES)
        for (canvas->lane = 1; canvas->lane < k->nlanes; canvas->lane++)
            put_named_row(t, canvas, r, format(" %s", lane_label(canvas->p, &k->lane[canvas->lane])));
    if (canvas->style->with & WITH_MEMORY)
        put_memory_row(t, canvas, r);
}

/* Returns the width of the longest row name, plus two. */
static int margin_of(const struct canvas *canvas) {
    int longest = 5 + decimal_digits(canvas->p->workers - 1);
    if (canvas->style->with & WITH_MEMORY && longest < 7)
        longest = 7;
    for (int r = 0; canvas->style->with & WITH_LANES && r < canvas->p->workers; r++)
        for (int l = 1; l < canvas->p->rank[r].nlanes; l++) {
            int n = (int)strlen(lane_label(canvas->p, &canvas->p->rank[r].lane[l])) + 1;
            longest = n > longest ? n : longest;
        }
    return longest + 2;
}

/* ---- ruler and legend ---- */

/* Writes a tick every 1, 2, 5, 10, 20, 50… cells, as labels need room. */
static void put_ruler(struct text *t, const struct canvas *canvas, const struct measure *measure) {
    static const int mantissa[] = {1, 2, 5};
    int every = 1;
    for (int i = 0, power = 1; every * canvas->cell < 8; i++) {
        power *= i % 3 || !i ? 1 : 10;
        every = mantissa[i % 3] * power;
    }
    put(t, "%-*s", canvas->margin, !strcmp(measure->name, "units") ? "time" : measure->name);
    int at = 0;
    for (int x = 0; x < canvas->columns; x += every * canvas->cell) {
        char label[32];
        int n = snprintf(label, sizeof label, "%.6g", (canvas->from + x * canvas->step) / measure->one);
        if (x + n > canvas->columns)
            break;
        put(t, "%*s%s", x - at, "", label);
        at = x + n;
    }
    put(t, "\n");
}

static bool any_takes_no_time(const struct canvas *canvas) {
    for (int r = 0; r < canvas->p->workers; r++)
        for (int i = 0; i < canvas->p->rank[r].nins; i++)
            if (is_job(canvas->p->rank[r].ins[i].op) && canvas->tl->start[r][i] == canvas->tl->end[r][i])
                return true;
    return false;
}

/* Explains the lines under the ranks' rows. */
static void put_repeated(struct text *t, const struct canvas *canvas, const struct measure *measure) {
    const struct program *p = canvas->p;
    const char *line = canvas->style->ascii ? "|--|" : "├──┤";
    char time[32];
    if (p->period == 0) {
        put(t, "%*s%s a step; a rank begins one when its own lanes have finished the one before\n", canvas->margin, "",
            line);
        return;
    }
    put(t, "%*s%s period: %d microbatch%s, ", canvas->margin, "", line, p->period, p->period > 1 ? "es" : "");
    if (canvas->tl->period > 0)
        put(t, "%s %s, ", time_text(canvas->tl->period, measure, time), measure->name);
    put(t, "runs %lld time%s\n", (long long)p->repeats, p->repeats > 1 ? "s" : "");
}

static void put_letters_legend(struct text *t, const struct canvas *canvas, const struct measure *measure) {
    bool plain = !canvas->style->color;
    put(t, "\n%*s", canvas->margin, "");
    for (uint8_t op = 0; op < NOPS; op++) {
        if (!has_cost(op) || !(canvas->drawn >> op & 1))
            continue;
        struct paint paint = paint_of(&(struct instr){.op = op}, canvas->style->by);
        if (!plain)
            put(t, "\033[38;5;%d;48;5;%dm", paint.text, paint.ground);
        put(t, plain ? "%s %s   " : " %s \033[0m %s   ", op_name[op], paint.name);
    }
    if (canvas->paired)
        put(t, canvas->plus ? "F3+B1 overlapped   " : "F3B1 overlapped   ");
    put(t, "%s idle\n%*s", canvas->style->ascii ? "." : "·", canvas->margin, "");
    char value[32];
    snprintf(value, sizeof value, "%.6g", canvas->step * canvas->cell / measure->one);
    bool one = !strcmp(value, "1") && !strcmp(measure->name, "units");
    bool updates = canvas->p->update && canvas->drawn >> OP_U & 1;
    put(t, "1 cell = %s %s; %s%s\n", value, one ? "unit" : measure->name,
        canvas->p->names.slices
            ? (canvas->names ? "1F3.2 is stage 1, microbatch 3, slice 2" : "3.2 is slice 2 of microbatch 3")
        : canvas->names ? "1F3 is stage 1, microbatch 3"
                        : "the numbers are microbatches",
        updates ? ", of U updates" : "");
    if (any_takes_no_time(canvas))
        put(t, "%*sjobs that take no time, or next to none, are not drawn\n", canvas->margin, "");
    if (canvas->mixed)
        put(t,
            "%*swhere jobs are shorter than a cell, their letters take turns, each as often as its share of the time\n",
            canvas->margin, "");
    if (canvas->cramped)
        put(t, "%*sa larger --width, or show's --from and --to, makes room for all numbers\n", canvas->margin, "");
    if (canvas->style->by != BY_OP && !plain)
        put(t, "%*scolours: a hue per %s, dark forward, light backward\n", canvas->margin, "",
            canvas->style->by == BY_MB ? "microbatch" : "stage");
    if (canvas->style->with & WITH_MEMORY)
        put(t, "%*smemory in use: %s is %s, the largest plan\n", canvas->margin, "", canvas->style->ascii ? "9" : "█",
            bytes_text(canvas->top, value));
    if (joins_of(canvas->p) > 0)
        put_repeated(t, canvas, measure);
    if (canvas->path)
        put(t, "%*s%s on the critical path\n", canvas->margin, "", canvas->style->ascii ? "^" : "▔");
}

void emit_grid(struct text *out, const struct program *p, const struct timeline *tl, const char *unit,
               const struct style *style) {
    struct canvas canvas = {.p = p, .tl = tl, .style = style};
    struct measure measure = measure_of(tl->makespan, unit, style->ascii);
    canvas.margin = margin_of(&canvas);
    canvas.from = style->from * measure.one;
    canvas.to = style->to > 0 ? fmin(style->to * measure.one, tl->makespan) : tl->makespan;
    if (style->with & WITH_PATH)
        canvas.path = critical_path(p, tl);
    for (int r = 0; r < p->workers; r++)
        canvas.top = p->rank[r].arena > canvas.top ? p->rank[r].arena : canvas.top;
    fit_columns(&canvas);
    canvas.owner = NEW(int32_t, canvas.columns);
    canvas.share = alloc(sizeof *canvas.share * (size_t)canvas.columns);
    canvas.longest = alloc(sizeof *canvas.longest * (size_t)canvas.columns);
    canvas.cover = alloc(sizeof *canvas.cover * (size_t)canvas.columns);
    put_ruler(out, &canvas, &measure);
    for (int r = 0; r < p->workers; r++)
        put_rank_rows(out, &canvas, r);
    put_letters_legend(out, &canvas, &measure);
}
