/* Reads timeline.tsv as emit_tsv writes it, and also without the column `unit`, which earlier versions lacked. Also
 * reads measured timelines: these have a leading column `step`, and repeat the same rows for each step, except for the
 * times, which are in seconds. They may end with the columns `cpu`, the CPU seconds of each instruction, and `cores`,
 * the number of cores that the ranks shared, and `handoff`, the mean seconds until a rank that got a core ran.
 *
 * The format is strict: tab-separated columns, empty only if they do not apply, and rows by step, rank, lane and start.
 * Reads in one pass, with memory proportional to the number of lines. */
#include "read_text.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char header[] = "rank\tlane\tstart\tend\top\tstage\tbatch\tpeer\tbytes";

/* limits that let one number identify a slice of a microbatch */
enum { MOST_SLICE = 1023, MOST_BATCH = INT32_MAX / (MOST_SLICE + 1) - 1 };

struct table {
    struct reader in;
    struct timeline_rows *rows;
    int n, first; /* rows read; the current step's first row */
    bool units;   /* whether there is a column `unit`; */
    bool cpu;     /* and columns cpu and cores after it */
    bool handoff; /* and a column handoff */
    size_t cap_step;
    const char *lane; /* the previous row's lane: its text in the source, its length, and a copy in the arena */
    size_t nlane;
    const char *lane_name;
    int kind, peer;    /* that lane's kind and peer; peer -1: none */
    struct map groups; /* group lanes, by their first row */
};

/* Consumes the tab that ends a column. */
static void column_end(struct reader *in, const char *column) {
    if (*in->p != '\t')
        FAIL(in, in->p,
             "column '%s': expected a tab after it; the columns are rank, lane, start, end, op, stage, batch, peer, "
             "bytes, unit; a measured timeline has step before them",
             column);
    in->p++;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* Returns the end of an unsigned number as number() writes it: 12, 0.25, 1e-05, 1.5e+20. NULL: not one. */
static const char *number_end(const char *p) {
    const char *s = p;
    while (is_digit(*s))
        s++;
    if (s == p || (*p == '0' && s > p + 1))
        return NULL;
    if (*s == '.') {
        if (!is_digit(*++s))
            return NULL;
        while (is_digit(*s))
            s++;
    }
    if (*s == 'e') {
        s++;
        s += *s == '+' || *s == '-';
        if (!is_digit(*s))
            return NULL;
        while (is_digit(*s))
            s++;
    }
    return s;
}

/* Larger than any prediction, yet small enough that sums of such times are finite */
static const double MOST_READ = 1e250;

static double read_decimal(struct reader *in, const char *column, const char *what) {
    const char *end = number_end(in->p);
    double x = end ? strtod(in->p, NULL) : NAN;
    if (!(x <= MOST_READ))
        FAIL(in, in->p, "column '%s': expected %s, a number from 0 to 1e250", column, what);
    in->p = end;
    return x;
}

static double read_time(struct reader *in, const char *column) {
    double x = read_decimal(in, column, "a time");
    column_end(in, column);
    return x;
}

/* ---- lanes ---- */

static int by_rank(const void *x, const void *y) {
    int a = *(const int *)x, b = *(const int *)y;
    return (a > b) - (a < b);
}

/* Reads a group's ranks: each once, including this rank; each lane occurs only once per rank. */
static void read_group(struct table *table, int rank, const char *lane) {
    struct reader *in = &table->in;
    const char *at = in->p;
    int n = 0, *member = NULL;
    size_t cap = 0;
    uint64_t hash = hash_add(0, rank);
    bool mine = false;
    do {
        int r = (int)read_integer(in, "a rank of the group in column 'lane'", 0, INT32_MAX - 1);
        GROW(member, cap, (size_t)n + 1);
        member[n++] = r;
        hash = hash_add(hash, r);
        mine |= r == rank;
    } while (read_if(in, ","));
    sort(member, (size_t)n, sizeof *member, by_rank);
    for (int i = 1; i < n; i++)
        if (member[i] == member[i - 1])
            FAIL(in, at, "column 'lane': rank %d occurs twice in the group", member[i]);
    if (n < 2 || !mine)
        FAIL(in, at, "column 'lane': expected a group of at least two ranks, one of them rank %d", rank);
    uint32_t slot = map_start(&table->groups, hash);
    for (int i; (i = table->groups.slot[slot] - 1) >= 0; slot = map_next(&table->groups, slot)) {
        const struct timeline_row *row = &table->rows->row[i];
        size_t len = (size_t)(in->p - lane);
        if (i >= table->first && row->rank == rank && !strncmp(row->lane, lane, len) && !row->lane[len])
            FAIL(in, at, "column 'lane': this lane of rank %d had rows before; rows are sorted by rank, lane and start",
                 rank);
    }
    table->groups.slot[slot] = table->n + 1;
}

/* Reads the lane, which is the previous row's or follows it. Returns whether it is a new one. */
static bool read_lane(struct table *table, int rank, bool new_rank) {
    struct reader *in = &table->in;
    const char *at = in->p;
    if (!new_rank && !strncmp(table->lane, at, table->nlane) && at[table->nlane] == '\t') {
        in->p += table->nlane + 1;
        return false;
    }
    int kind = read_lane_kind(in, "column 'lane': "), peer = -1;
    if (lanekind_row(kind)->of == OF_PEER) {
        peer = (int)read_integer(in, "a rank in column 'lane'", 0, INT32_MAX);
        if (peer == rank)
            FAIL(in, at, "column 'lane': a rank has no lane to or from itself");
    }
    if (!new_rank &&
        (kind < table->kind || (kind == table->kind && peer <= table->peer && lanekind_row(kind)->of != OF_GROUP)))
        FAIL(in, at, "column 'lane': rows are sorted by rank, lane and start; this lane belongs before the row above");
    if (lanekind_row(kind)->of == OF_GROUP)
        read_group(table, rank, at);
    table->lane = at;
    table->nlane = (size_t)(in->p - at);
    table->lane_name = format("%.*s", (int)table->nlane, at);
    table->kind = kind;
    table->peer = peer;
    column_end(in, "lane");
    return true;
}

/* ---- columns that may be empty ---- */

/* Reads a number if the column applies to the row's operation; else the column must be empty, and -1 is returned. */
static int64_t read_applying(struct reader *in, int op, const char *what, bool applies, int64_t most) {
    bool empty = *in->p == '\t' || *in->p == '\n' || !*in->p;
    if (!applies && !empty)
        FAIL(in, in->p, "expected nothing instead of %s: %s has none", what, op_name[op]);
    return applies ? read_integer(in, what, 0, most) : -1;
}

/* Reads the unit, which must be the previous row's. */
static void read_unit(struct table *table) {
    static const char *const unit[] = {"FLOP", "F", "s"};
    struct reader *in = &table->in;
    const char *at = in->p;
    column_end(in, "bytes");
    int u = 0;
    while (u < 3 && !read_if(in, unit[u]))
        u++;
    if (u == 3 || (table->n > 0 && strcmp(table->rows->unit, unit[u]) != 0))
        FAIL(in, at + 1, "column 'unit': expected F, FLOP or s, the same in all rows");
    if (table->rows->step && unit[u][0] != 's')
        FAIL(in, at + 1, "column 'unit': expected s: a measured timeline is in seconds");
    table->rows->unit = unit[u];
}

/* Reads a number that is the same in all rows, or empty in all. */
static double read_constant(struct table *table, const char *name, const char *what, double before) {
    struct reader *in = &table->in;
    const char *at = in->p;
    double x = *at == '\t' || *at == '\n' || !*at ? 0 : read_decimal(in, name, what);
    if (table->n > 0 && x != before)
        FAIL(in, at, "column '%s': expected the same number in all rows, or none", name);
    return x;
}

/* Reads the columns cpu, cores and handoff, each of which may be empty. */
static void read_cpu(struct table *table, struct timeline_row *row) {
    struct reader *in = &table->in;
    column_end(in, "unit");
    row->cpu = *in->p == '\t' ? NAN : read_decimal(in, "cpu", "seconds");
    column_end(in, "cpu");
    table->rows->cores = read_constant(table, "cores", "a number of cores", table->rows->cores);
    if (!table->handoff)
        return;
    column_end(in, "cores");
    table->rows->handoff = read_constant(table, "handoff", "seconds", table->rows->handoff);
}

/* ---- steps ---- */

static void end_step(struct table *table) {
    struct timeline_rows *rows = table->rows;
    if (rows->nsteps <= 1)
        rows->n = table->n;
    else if (table->n - table->first != rows->n)
        FAIL(&table->in, table->in.p, "step %d has %d rows, but step %d had %d: every step must have all instructions",
             rows->step[rows->nsteps - 1], table->n - table->first, rows->step[0], rows->n);
}

/* Reads the step, which is the previous row's or a later one. */
static void read_step(struct table *table) {
    struct timeline_rows *rows = table->rows;
    const char *at = table->in.p;
    int step = (int)read_integer(&table->in, "a step in column 'step'", 1, INT32_MAX);
    int last = rows->nsteps ? rows->step[rows->nsteps - 1] : 0;
    if (step < last)
        FAIL(&table->in, at,
             "column 'step': rows are sorted by step, rank, lane and start; a row of step %d comes before this one",
             last);
    if (step > last) {
        if (last)
            end_step(table);
        table->first = table->n;
        GROW(rows->step, table->cap_step, (size_t)rows->nsteps + 1);
        rows->step[rows->nsteps++] = step;
    }
    column_end(&table->in, "step");
}

/* Checks that each row of a later step equals the first step's, except for the times. */
static void check_row(struct table *table) {
    struct timeline_rows *rows = table->rows;
    if (rows->nsteps <= 1)
        return;
    const struct timeline_row *row = &rows->row[table->n], *was = &rows->row[table->n - table->first];
    if (table->n - table->first >= rows->n || row->rank != was->rank || strcmp(row->lane, was->lane) != 0 ||
        row->op != was->op || row->stage != was->stage || row->batch != was->batch || row->slice != was->slice ||
        row->peer != was->peer || row->bytes != was->bytes)
        FAIL(&table->in, table->in.start,
             "step %d has a different instruction here than step %d: every step must have the same ones",
             rows->step[rows->nsteps - 1], rows->step[0]);
}

/* Checks that either all microbatches have slices or none. */
static void check_slices(struct table *table, const struct timeline_row *row) {
    for (const struct timeline_row *x = row - 1; x >= table->rows->row + table->first; x--)
        if (x->batch >= 0 && x->op != OP_U) {
            if ((x->slice < 0) != (row->slice < 0))
                FAIL(&table->in, table->in.p, "column 'batch': slices in some rows, such as 3.1, but not in all");
            return;
        }
}

static void read_row(struct table *table) {
    struct reader *in = &table->in;
    struct timeline_row *row = &table->rows->row[table->n];
    if (table->rows->step)
        read_step(table);
    const struct timeline_row *above = table->n > table->first ? row - 1 : NULL;
    const char *at = in->p;
    row->rank = (int)read_integer(in, "a rank in column 'rank'", 0, INT32_MAX);
    if (above && row->rank < above->rank)
        FAIL(in, at, "column 'rank': rows are sorted by rank, lane and start; a row of rank %d comes before this one",
             above->rank);
    column_end(in, "rank");
    bool new_lane = read_lane(table, row->rank, !above || above->rank != row->rank);
    row->lane = table->lane_name;
    at = in->p;
    row->start = read_time(in, "start");
    if (!new_lane && row->start < above->start)
        FAIL(in, at, "column 'start': rows are sorted by rank, lane and start; the row above starts later");
    at = in->p;
    row->end = read_time(in, "end");
    if (row->end < row->start)
        FAIL(in, at, "column 'end': expected a time not before the start");
    at = in->p;
    int op = read_name(in, "an operation in column 'op'", op_name, NOPS);
    row->op = (uint8_t)op;
    if (!lane_takes(table->kind, op))
        FAIL(in, at, "column 'op': %s does not run in the lane %s", op_name[op], row->lane);
    column_end(in, "op");
    row->stage = (int)read_applying(in, op, "the stage in column 'stage'", true, INT32_MAX);
    column_end(in, "stage");
    bool numbered = op_has_batch(op) || (op == OP_U && *in->p != '\t'); /* an update that is a job has a number */
    row->batch = (int)read_applying(in, op, "the microbatch in column 'batch'", numbered, MOST_BATCH);
    row->slice = row->batch >= 0 && op != OP_U && read_if(in, ".")
                     ? (int)read_integer(in, "the slice in column 'batch'", 0, MOST_SLICE)
                     : -1;
    if (above && row->batch >= 0 && op != OP_U)
        check_slices(table, row);
    column_end(in, "batch");
    at = in->p;
    row->peer = (int)read_applying(in, op, "the peer in column 'peer'", has_peer(op) || has_root(op), INT32_MAX);
    if (row->peer != table->peer && lanekind_row(table->kind)->of == OF_PEER)
        FAIL(in, at, "column 'peer': expected %d, the lane's peer", table->peer);
    column_end(in, "peer");
    row->bytes = read_applying(in, op, "the bytes in column 'bytes'", has_bytes(op), INT64_MAX);
    if (table->units)
        read_unit(table);
    row->cpu = NAN;
    if (table->cpu)
        read_cpu(table, row);
    check_row(table);
    read_end(in);
    table->n++;
}

struct timeline_rows *read_tsv(const char *file, const char *src) {
    struct timeline_rows *rows = NEW(struct timeline_rows, 1);
    struct table table = {.in = {.file = file, .src = src, .p = src, .start = src, .line = 1}, .rows = rows};
    if (read_if(&table.in, "step\t"))
        GROW(rows->step, table.cap_step, 1);
    bool good = read_if(&table.in, header);
    table.units = read_if(&table.in, "\tunit");
    table.cpu = rows->step && table.units && read_if(&table.in, "\tcpu\tcores");
    table.handoff = table.cpu && read_if(&table.in, "\thandoff");
    if (!good || !read_if(&table.in, "\n"))
        FAIL(
            &table.in, table.in.start,
            "expected the header of a timeline: rank, lane, start, end, op, stage, batch, peer, bytes, unit, "
            "separated by tabs; a measured timeline has step before them, and may have cpu, cores, handoff after them");
    table.in.start = table.in.p;
    table.in.line = 2;
    size_t lines = 0;
    for (const char *p = table.in.p; (p = strchr(p, '\n')); p++)
        lines++;
    rows->row = NEW(struct timeline_row, lines + 1);
    table.groups = map_new(lines);
    while (*table.in.p)
        read_row(&table);
    if (table.n == 0)
        FAIL(&table.in, table.in.p, "expected rows: a timeline without rows was cut off");
    end_step(&table);
    return rows;
}
