/* Pictures for a terminal: golden ones, and properties at any width. */
#include "compiler.h"
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

struct drawing {
    struct program *p;
    struct timeline *tl;
};

static struct drawing blank(int workers, int stages, int batches, int jobs) {
    struct program *p = NEW(struct program, 1);
    *p = (struct program){.name = "x", .workers = workers, .stages = stages, .batches = batches};
    p->rank = NEW(struct rank, workers);
    struct timeline *tl = NEW(struct timeline, 1);
    tl->start = NEW(double *, workers);
    tl->end = NEW(double *, workers);
    for (int r = 0; r < workers; r++) {
        p->rank[r].ins = NEW(struct instr, jobs);
        p->rank[r].lane = NEW(struct lane, 1);
        p->rank[r].nlanes = 1;
        tl->start[r] = NEW(double, jobs);
        tl->end[r] = NEW(double, jobs);
    }
    return (struct drawing){p, tl};
}

static void draw(struct drawing *d, int rank, int op, int s, int b, double start, double length) {
    struct rank *k = &d->p->rank[rank];
    k->ins[k->nins] = (struct instr){.op = (uint8_t)op, .stage = s, .batch = b, .peer = -1, .inst = -1, .msg = -1};
    d->tl->start[rank][k->nins] = start;
    d->tl->end[rank][k->nins++] = start + length;
    d->tl->makespan = fmax(d->tl->makespan, start + length);
}

/* Returns 1F1B in closed form, with F=1 and B=2 in units of `one`. */
static struct drawing draw_1f1b(int P, int M, double one) {
    struct drawing d = blank(P, P, M, 2 * M);
    for (int s = 0; s < P; s++)
        for (int b = 0, f = 0; b < M; b++) {
            int back = P + 2 * (P - 1 - s) + 3 * b;
            for (; f < P - s && f < M; f++)
                draw(&d, s, OP_F, s, f, (s + f) * one, one);
            draw(&d, s, OP_B, s, b, back * one, 2 * one);
            if (f < M) {
                draw(&d, s, OP_F, s, f, (back + 2) * one, one);
                f++;
            }
        }
    return d;
}

static const char *grid(struct drawing d, const char *unit, int width, bool color, bool ascii) {
    struct text t = {0};
    emit_grid(&t, d.p, d.tl, unit, &(struct style){.width = width, .color = color, .ascii = ascii});
    return t.s;
}

Test(emit_grid, a_1f1b_looks_like_the_papers_figure) {
    cr_assert_str_eq(grid(draw_1f1b(4, 8, 1), "F", 110, false, false),
                     "time    0              5              10             15             20             25         "
                     "    30\n"
                     "rank 0  F0 F1 F2 F3  ·  ·  ·  ·  ·  · B0─── F4 B1─── F5 B2─── F6 B3─── F7 B4───  · B5───  · "
                     "B6───  · B7───\n"
                     "rank 1   · F0 F1 F2  ·  ·  ·  · B0─── F3 B1─── F4 B2─── F5 B3─── F6 B4─── F7 B5───  · B6───  "
                     "· B7───  ·  ·\n"
                     "rank 2   ·  · F0 F1  ·  · B0─── F2 B1─── F3 B2─── F4 B3─── F5 B4─── F6 B5─── F7 B6───  · "
                     "B7───  ·  ·  ·  ·\n"
                     "rank 3   ·  ·  · F0 B0─── F1 B1─── F2 B2─── F3 B3─── F4 B4─── F5 B5─── F6 B6─── F7 B7───  ·  "
                     "·  ·  ·  ·  ·\n"
                     "\n"
                     "        F forward   B full backward   · idle\n"
                     "        1 cell = 1 unit; the numbers are microbatches\n");
}

Test(emit_grid, narrower_and_ascii) {
    cr_assert_str_eq(grid(draw_1f1b(2, 4, 1), "F", 40, false, true), "time    0         5         10\n"
                                                                     "rank 0  F0F1. . B0- F2B1- F3B2- . B3-\n"
                                                                     "rank 1  . F0B0- F1B1- F2B2- F3B3- . .\n"
                                                                     "\n"
                                                                     "        F forward   B full backward   . idle\n"
                                                                     "        1 cell = 1 unit; the numbers are "
                                                                     "microbatches\n");
}

#define FWD  "\033[38;5;15;48;5;25m"
#define FWD2 "\033[38;5;15;48;5;31m"
#define BWD  "\033[38;5;16;48;5;36m"
#define DIM  "\033[38;5;245m"
#define END  "\033[0m"

/* Touching forwards differ in shade; the colour shows the kind, so the number suffices. */
Test(emit_grid, colours) {
    const char *g = grid(draw_1f1b(2, 2, 1), "F", 80, true, false);
    cr_assert_not_null(strstr(g, "rank 0  " FWD " 0 " END FWD2 " 1 " END DIM " ·  · " END BWD "  0   " END DIM
                                 " · " END BWD "  1   " END "\n"),
                       "%s", g);
    cr_assert_not_null(strstr(g, "        " FWD " F " END " forward   " BWD " B " END " full backward   · idle\n"));
}

/* If a rank runs several stages, a block names its stage. */
Test(emit_grid, names_stages_where_there_are_several) {
    struct drawing d = blank(1, 2, 2, 8);
    for (int b = 0; b < 2; b++)
        for (int s = 0; s < 2; s++) {
            draw(&d, 0, OP_F, s, b, 2 * b + s, 1);
            draw(&d, 0, OP_B, 1 - s, b, 5 + 4 * b + 2 * s, 2);
        }
    cr_assert_not_null(strstr(grid(d, "F", 80, false, false), "0F0 1F0 0F1 1F1  ·  1B0──── 0B0──── 1B1──── 0B1────\n"));
    cr_assert_not_null(strstr(grid(d, "F", 80, false, false), "; 1F3 is stage 1, microbatch 3\n"));
    cr_assert_not_null(strstr(grid(d, "F", 48, false, false), "F0 F0 F1 F1  · B0─── B0─── B1─── B1───\n"));
}

/* Two jobs at one time share a block; the + is dropped if it does not fit. */
Test(emit_grid, joins_jobs_that_overlap) {
    struct drawing d = blank(1, 2, 2, 4);
    draw(&d, 0, OP_F, 0, 0, 0, 1);
    draw(&d, 0, OP_F, 0, 1, 1, 2);
    draw(&d, 0, OP_B, 1, 0, 1, 2);
    draw(&d, 0, OP_B, 1, 1, 4, 2);
    cr_assert_not_null(strstr(grid(d, "F", 80, false, true), "0F0 0F1+1B0  .  1B1----\n"));
    cr_assert_not_null(strstr(grid(d, "F", 80, false, true), "  F3+B1 overlapped   . idle\n"));
    cr_assert_not_null(strstr(grid(d, "F", 24, false, true), "F0F1B0. B1-\n"), "%s", grid(d, "F", 24, false, true));
    cr_assert_not_null(strstr(grid(d, "F", 24, false, true), "  F3B1 overlapped   . idle\n"));
    cr_assert_not_null(strstr(grid(d, "F", 80, true, true), FWD2 "0F1+" END BWD "1B0 " END), "%s",
                       grid(d, "F", 80, true, true));
    d.tl->start[0][2] = 2; /* one after the other */
    d.tl->end[0][1] = 2;
    cr_assert_null(strstr(grid(d, "F", 80, false, true), "+"));
    d = blank(1, 1, 2, 4); /* three columns for two jobs: the first gets the odd one */
    draw(&d, 0, OP_F, 0, 0, 0, 1);
    draw(&d, 0, OP_F, 0, 1, 1, 1);
    draw(&d, 0, OP_B, 0, 0, 1, 1);
    draw(&d, 0, OP_B, 0, 1, 2, 1);
    cr_assert_not_null(strstr(grid(d, "F", 80, false, true), "rank 0  F0 F1BB1\n"), "%s",
                       grid(d, "F", 80, false, true));
}

/* With three units a cell, a cell shows what covers most of it, and a number that does not fit is left out. */
Test(emit_grid, quantises_what_is_too_wide) {
    struct drawing d = blank(1, 1, 100, 8);
    draw(&d, 0, OP_F, 0, 10, 0, 2); /* cell 0: mostly F */
    draw(&d, 0, OP_B, 0, 11, 2, 1);
    draw(&d, 0, OP_F, 0, 12, 3, 1);   /* cell 1: mostly idle */
    draw(&d, 0, OP_B, 0, 13, 7, 5);   /* cells 2 and 3 */
    draw(&d, 0, OP_B, 0, 14, 12, 12); /* cells 4 to 7 */
    cr_assert_eq(strcmp(grid(d, "F", 16, false, true), "time    0\n"
                                                       "rank 0  F.B B14\n"
                                                       "\n"
                                                       "        F forward   B full backward   . idle\n"
                                                       "        1 cell = 3 units; the numbers are microbatches\n"
                                                       "        where jobs are shorter than a cell, their letters take "
                                                       "turns, each as often as its share of the time\n"
                                                       "        a larger --width, or show's --from and --to, makes "
                                                       "room for all numbers\n"),
                 0, "%s", grid(d, "F", 16, false, true));
}

Test(emit_grid, scales_seconds) {
    const char *g = grid(draw_1f1b(4, 8, 0.00025), "s", 80, false, false);
    cr_assert_not_null(strstr(g, "ms      0         1.25      2.5       3.75      5         6.25      7.5\n"), "%s", g);
    cr_assert_not_null(strstr(g, "1 cell = 0.25 ms;"));
    struct drawing d = blank(1, 1, 2, 2);
    draw(&d, 0, OP_F, 0, 0, 0, 0.1234567);
    draw(&d, 0, OP_F, 0, 1, 0.1234567, 0.87654);
    cr_assert_not_null(strstr(grid(d, "s", 80, false, true), "1 cell = 15 ms;"), "%s", grid(d, "s", 80, false, true));
    cr_assert_not_null(strstr(grid(draw_1f1b(2, 2, 1e-7), "s", 80, false, true), "us   "));
    cr_assert_not_null(strstr(grid(draw_1f1b(2, 2, 1e9), "FLOP", 80, false, true), "1 cell = 1 GFLOP;"));
}

Test(emit_grid, an_empty_program_has_a_row_per_rank) {
    const char *g = grid(blank(2, 1, 1, 1), "F", 80, false, true);
    cr_assert(strstr(g, "rank 0\n") && strstr(g, "rank 1\n"), "%s", g);
}

static uint64_t seed = 7;

static int below(int n) { /* xorshift64* (Vigna 2016) */
    seed ^= seed >> 12;
    seed ^= seed << 25;
    seed ^= seed >> 27;
    return (int)((seed * 2685821657736338717u) >> 33) % n;
}

/* Returns the columns of a line: escapes count nothing, a UTF-8 sequence one. */
static int columns(const char *s) {
    int n = 0;
    for (; *s && *s != '\n'; s++) {
        if (*s == '\033')
            s += strcspn(s, "m");
        else
            n += ((unsigned char)*s & 0xc0) != 0x80;
    }
    return n;
}

static void check_grid(const char *g, const struct drawing *d, int width, bool color, bool ascii) {
    int rows = 0;
    for (const char *s = g; *s; s += strcspn(s, "\n") + 1) {
        if (strncmp(s, "rank ", 5) && s != g)
            continue;
        cr_assert_leq(columns(s), width, "%.*s", (int)strcspn(s, "\n"), s);
        if (s == g)
            continue;
        cr_assert_neq(s[strcspn(s, "\n") - 1], ' ', "a row ends in spaces");
        for (const char *q = s + 8; !color && *q != '\n'; q++) { /* a job's number is never cut */
            if (*q < '0' || *q > '9' || (q[-1] >= '0' && q[-1] <= '9'))
                continue;
            int b = atoi(q);
            bool found = false;
            for (int i = 0; i < d->p->rank[rows].nins; i++)
                found |= d->p->rank[rows].ins[i].batch == b && *op_name[d->p->rank[rows].ins[i].op] == q[-1];
            cr_assert(found, "rank %d has no %c%d", rows, q[-1], b);
        }
        rows++;
    }
    cr_assert_eq(rows, d->p->workers);
    cr_assert(color || !strchr(g, '\033'));
    for (const char *s = g; ascii && *s; s++)
        cr_assert((unsigned char)*s < 0x80);
}

Test(emit_grid, fits_any_width_and_never_cuts_a_number) {
    static const int ops[] = {OP_F, OP_B, OP_I, OP_W, OP_R};
    for (int round = 0; round < 2000; round++) {
        int workers = 1 + below(9), jobs = 1 + below(40), batches = 1 + below(200), grain = below(3);
        struct drawing d = blank(workers, 1, batches, jobs);
        for (int r = 0; r < workers; r++) {
            double t = 0;
            for (int i = 0; i < jobs; i++) {
                double length = grain == 0 ? 1 + below(3) : grain == 1 ? 0.25 * below(9) : 0.001 + 0.0001 * below(9999);
                t += below(3) ? 0 : length;
                draw(&d, r, ops[below(5)], 0, below(batches), t, length);
                t += length;
            }
        }
        int width = 17 + below(200);
        bool color = below(2), ascii = below(2);
        check_grid(grid(d, grain == 2 ? "s" : "F", width, color, ascii), &d, width, color, ascii);
        free_all();
    }
}

/* ---- the report ---- */

static struct report *report_1f1b(void) {
    static struct rank_report rank[] = {
        {.busy = 24,
         .idle = 9,
         .span = 33,
         .peak_activations = 4,
         .peak_bytes = 7,
         .least_bytes = 7,
         .gradients_received = 8,
         .stages_stored = 1,
         .bytes_received = 8},
        {.busy = 24,
         .idle = 9,
         .span = 30,
         .peak_activations = 3,
         .peak_bytes = 10239,
         .least_bytes = 10239,
         .activations_received = 8,
         .gradients_received = 8,
         .weights_received = 120,
         .reductions_received = 1,
         .stages_stored = 2,
         .bytes_received = 20480},
    };
    static struct report r = {.schedule = "1f1b", .unit = "F", .workers = 2, .stages = 4, .batches = 8, .makespan = 33};
    r.step_batches = 8;
    r.bubble = 9.0 / 33;
    r.throughput = 24.0 / 33;
    r.bound.lower = r.bound.work = 24;
    r.bound.path = 12;
    r.bound.memory = 24;
    r.gap = 0.375;
    r.closed_bubble = NAN;
    r.memory_time.room = 330;
    r.memory_time.held = 260;
    r.memory_time.needed = 240;
    r.rank = rank;
    return &r;
}

static const char *table(const struct report *r, bool ascii) {
    struct text t = {0};
    emit_report(&t, r, &(struct style){.width = 80, .ascii = ascii});
    return t.s;
}

Test(emit_report, is_a_table_and_a_summary) {
    cr_assert_str_eq(
        table(report_1f1b(), false),
        "1f1b: 2 workers, 4 stages, 8 microbatches\n"
        "\n"
        "      time              peak           received                           stages\n"
        "rank  busy  idle  span  live   memory  act  grad  weight  part     bytes  stored\n"
        "   0    24     9    33     4      7 B    0     8       0     0       8 B       1\n"
        "   1    24     9    30     3  10239 B    8     8     120     1  20.0 KiB       2\n"
        "\n"
        "makespan     33 units; 16.5 where F is 1 for a rank's share of the model, as in `compare`\n"
        "bubble       27.3 %\n"
        "throughput   0.727 of the ranks' time is progress: F, B, I and W, but no recomputation\n"
        "lower bound  24 units, from a rank's work (path 12, live activations 24)\n"
        "gap          37.5 %\n"
        "memory-time  of peaks x makespan, 72.7 % is needed, 6.1 % held while waiting, 21.2 % empty\n");
}

Test(emit_report, says_which_bound_it_is) {
    struct report *r = report_1f1b();
    r->bound.lower = r->bound.path = 30;
    cr_assert_not_null(strstr(table(r, true), "30 units, from the longest path (work 24, live activations 24)\n"));
    r->bound.lower = r->bound.memory = 31.5;
    cr_assert_not_null(strstr(table(r, true), "31.5 units, from live activations (work 24, path 30)\n"));
}

Test(emit_report, says_how_much_less_memory_would_do) {
    struct report *r = report_1f1b();
    r->rank[0].least_bytes = 6;
    cr_assert_null(strstr(table(r, true), "--memory")); /* not on the rank with most */
    r->rank[1].least_bytes = 5000;
    const char *s = table(r, true);
    cr_assert_not_null(strstr(s, "memory       10239 B a rank at most; 5000 B would do, with waits (--memory least)\n"),
                       "%s", s);
}

Test(emit_report, times_and_sizes_are_in_units_people_read) {
    struct report *r = report_1f1b();
    r->unit = "s";
    r->makespan = 0.0331234;
    r->rank[0].busy = 0.024;
    r->rank[0].peak_bytes = (int64_t)3 << 30;
    r->rank[1].peak_bytes = INT64_MAX;
    r->rank[1].bytes_received = (1 << 20) - 1;
    const char *s = table(r, false);
    cr_assert(strstr(s, "makespan     33.12 ms\n") && strstr(s, "   0     24  9000  33000 "), "%s", s);
    cr_assert(strstr(s, "3.0 GiB") && strstr(s, "8.0 EiB") && strstr(s, "1.0 MiB"), "%s", s);
    r->makespan = 33e-6;
    cr_assert(strstr(table(r, false), "33 µs\n") && strstr(table(r, true), "33 us\n"));
    r->makespan = 2;
    cr_assert_not_null(strstr(table(r, true), "makespan     2 s\n"));
    r->unit = "FLOP";
    r->makespan = 2.5e13;
    cr_assert_not_null(strstr(table(r, true), "makespan     25 TFLOP\n"));
}

/* Draws two ranks that repeat F and B of one microbatch; the second rank runs an F later. */
static struct drawing draw_period(void) {
    struct drawing d = blank(2, 2, 4, 8);
    for (int r = 0; r < 2; r++)
        for (int b = 0; b < 4; b++) {
            draw(&d, r, OP_F, r, b, 3 * b + r, 1);
            draw(&d, r, OP_B, r, b, 3 * b + 1 + r, 2);
        }
    return d;
}

Test(emit_grid, a_period_has_its_line_under_each_rank) {
    struct drawing d = draw_period();
    d.p->period = 2;
    d.p->repeats = 5;
    d.tl->period = 6;
    for (int r = 0; r < 2; r++) {
        d.p->rank[r].period.begin = 2;
        d.p->rank[r].period.end = 6;
    }
    cr_assert_str_eq(grid(d, "F", 40, false, false), "time    0         5         10\n"
                                                     "rank 0  F0B0─ F1B1─ F2B2─ F3B3─ ·\n"
                                                     " period       ├──────────┤\n"
                                                     "rank 1  · F0B0─ F1B1─ F2B2─ F3B3─\n"
                                                     " period         ├──────────┤\n"
                                                     "\n"
                                                     "        F forward   B full backward   · idle\n"
                                                     "        1 cell = 1 unit; the numbers are microbatches\n"
                                                     "        ├──┤ period: 2 microbatches, 6 units, runs 5 times\n");
    struct text t = {0}; /* from its middle on: it began earlier */
    emit_grid(&t, d.p, d.tl, "F", &(struct style){.width = 40, .ascii = true, .from = 5, .to = 11});
    cr_assert(strstr(t.s, "\n period -----------|\n"), "%s", t.s);
}

Test(emit_grid, steps_are_told_apart) {
    struct drawing d = draw_period();
    d.p->copies = 4;
    const char *s = grid(d, "F", 40, false, true);
    cr_assert(strstr(s, "\n step   |-----|-----|-----|----|\n"), "%s", s);
    cr_assert(strstr(s, "\n step   |-------|-----|-----|----|\n"), "%s", s);
}

/* An update that takes time is drawn as a job with its number; one that takes none is not drawn. */
Test(emit_grid, updates_that_take_time) {
    struct drawing d = blank(1, 1, 2, 4);
    draw(&d, 0, OP_F, 0, 0, 0, 1);
    draw(&d, 0, OP_U, 0, 0, 1, 1);
    draw(&d, 0, OP_F, 0, 1, 2, 1);
    draw(&d, 0, OP_U, 0, 1, 3, 0);
    const char *s = grid(d, "F", 48, false, true);
    cr_assert(strstr(s, "\nrank 0  F0 U0 F1\n"), "%s", s);
    cr_assert(strstr(s, "F forward   U update"), "%s", s);
}
