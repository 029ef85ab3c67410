/* Reading timelines: their contents, round trips, every error, and the time for a long one. */
#include "random_spec.h"
#include <criterion/criterion.h>
#include <time.h>

#define HEAD "rank\tlane\tstart\tend\top\tstage\tbatch\tpeer\tbytes\n"

static struct timeline_rows *rows_of(const char *body) { return read_tsv("t.tsv", format(HEAD "%s", body)); }

/* An update that is a job has its number in the column of microbatches; one that ends the step has none. */
Test(read_tsv, updates_with_numbers) {
    struct timeline_rows *t = rows_of("0\tcompute\t0\t1\tU\t0\t5\t\t\n"
                                      "0\tcompute\t1\t2\tU\t1\t\t\t\n");
    cr_assert(t->row[0].batch == 5 && t->row[1].batch == -1);
}

Test(read_tsv, columns) {
    struct timeline_rows *t = rows_of("0\tcompute\t0\t1.5\tF\t0\t7\t\t\n"
                                      "0\tcompute\t1.5\t1.5\tU\t0\t\t\t\n"
                                      "0\tsend 12\t1e-05\t2e+20\tSEND_F\t0\t7\t12\t4096\n"
                                      "0\trecv 12\t0\t0\tADD\t1\t\t12\t\n"
                                      "3\tgroup 0,3\t0.1\t0.30000000000000004\tALL_REDUCE\t2\t\t\t9000000000000\n");
    cr_assert_eq(t->n, 5);
    const struct timeline_row *r = t->row;
    cr_assert(r[0].rank == 0 && r[4].rank == 3 && r[0].start == 0 && r[0].end == 1.5 && r[4].end == 0.1 + 0.2);
    cr_assert(r[2].start == 1e-05 && r[2].end == 2e20);
    cr_assert_str_eq(r[1].lane, "compute");
    cr_assert_eq(r[1].batch, -1);
    cr_assert_eq(rows_of("0\tcompute\t1\t2\tU\t0\t3\t\t\n")->row->batch, 3);
    cr_assert_str_eq(r[2].lane, "send 12");
    cr_assert_str_eq(r[4].lane, "group 0,3");
    cr_assert_eq(r[0].op, OP_F);
    cr_assert_eq(r[3].op, OP_ADD);
    cr_assert(r[0].stage == 0 && r[0].batch == 7 && r[0].peer == -1 && r[0].bytes == -1);
    cr_assert(r[1].batch == -1 && r[2].peer == 12 && r[2].bytes == 4096);
    cr_assert(r[3].peer == 12 && r[3].bytes == -1 && r[3].batch == -1);
    cr_assert(r[4].stage == 2 && r[4].peer == -1 && r[4].bytes == 9000000000000);
}

/* The lanes of a rank, in order; group lanes have no order, and all their ranks tell them apart. */
Test(read_tsv, all_lanes) {
    struct timeline_rows *t = rows_of("1\tcompute\t5\t5\tZERO\t0\t\t\t\n"
                                      "1\tsend 0\t4\t4\tSERVE\t0\t\t0\t1\n"
                                      "1\tsend 2\t3\t3\tSEND_T\t0\t1\t2\t1\n"
                                      "1\trecv 0\t2\t2\tFETCH\t0\t\t0\t1\n"
                                      "1\trecv 10\t2\t2\tRECV_W\t0\t1\t10\t1\n"
                                      "1\tgroup 1,2\t1\t1\tALL_REDUCE\t0\t\t\t1\n"
                                      "1\tgroup 0,1\t0\t0\tALL_REDUCE\t1\t\t\t1\n"
                                      "1\tgroup 0,1,2\t0\t0\tALL_REDUCE\t1\t\t\t1\n"
                                      "2\tcompute\t0\t0\tI\t0\t0\t\t\n"
                                      "2\tgroup 1,2\t0\t0\tALL_REDUCE\t0\t\t\t1\n");
    cr_assert_eq(t->n, 10);
    cr_assert_str_eq(t->row[7].lane, "group 0,1,2");
}

/* The compiler's output reads back: every row of random programs, column by column. */
Test(read_tsv, reads_what_is_written) {
    int rows = 0, with_bytes = 0;
    for (uint64_t seed = 1; seed <= 60; seed++, free_all()) {
        struct spec *sp = draw_spec(seed, BANDWIDTH | COARSE);
        struct costs *costs = draw_stages(sp);
        struct graph *g = graph_of(sp);
        struct program *p = lower_of(sp, costs, g, sched_of(sp, costs, g));
        mem_of(sp, p);
        lanes_sync(p);
        struct timeline *tl = sim_of(sp, costs, p);
        struct text text = {0}, again = {0};
        emit_tsv(&text, p, tl, seed % 2 ? "s" : "FLOP");
        struct timeline_rows *t = read_tsv("t.tsv", text.s);
        cr_assert_str_eq(t->unit, seed % 2 ? "s" : "FLOP");
        put(&again, "%.*s\tunit\n", (int)strlen(HEAD) - 1, HEAD);
        for (int i = 0; i < t->n; i++) {
            const struct timeline_row *r = &t->row[i];
            char a[32], b[32];
            put(&again, "%d\t%s\t%s\t%s\t%s\t%d\t", r->rank, r->lane, number(r->start, a), number(r->end, b),
                op_name[r->op], r->stage);
            put(&again, r->batch < 0 ? "\t" : "%d\t", r->batch);
            put(&again, r->peer < 0 ? "\t" : "%d\t", r->peer);
            put(&again, r->bytes < 0 ? "" : "%lld", (long long)r->bytes);
            put(&again, "\t%s\n", t->unit);
            with_bytes += r->bytes >= 0;
        }
        cr_assert_str_eq(again.s, text.s, "seed %d", (int)seed);
        rows += t->n;
    }
    cr_assert(rows > 1000 && with_bytes > 100 && with_bytes < rows);
}

/* Returns the error of reading it, or NULL. */
static const char *error_of(const char *src) {
    static jmp_buf trap;
    static const char *volatile said;
    said = diag_text;
    diag_trap = &trap;
    if (!setjmp(trap)) {
        read_tsv("t.tsv", src);
        said = NULL;
    }
    diag_trap = NULL;
    return said;
}

/* Reads good rows followed by a bad one, and checks the error's line, column and message. */
static void refused(const char *body, int line, int col, const char *wanted) {
    const char *said = error_of(format(HEAD "%s", body));
    cr_assert(said, "%s is accepted", body);
    char place[32];
    snprintf(place, sizeof place, "t.tsv:%d: error: ", line);
    cr_assert_eq(strncmp(said, place, strlen(place)), 0, "%s\nis not at %s", said, place);
    cr_assert(strstr(said, wanted), "%s\ndoes not say: %s", said, wanted);
    const char *caret = strrchr(said, '^'), *begin = strstr(said, "      | ");
    cr_assert(col == 0 || (caret && begin && caret - begin - 8 == col - 1), "%s\nis not at column %d", said, col);
}

#define F0 "0\tcompute\t0\t2\tF\t0\t0\t\t\n"
#define S1 "0\tsend 1\t0\t2\tSEND_F\t0\t0\t1\t4\n"

Test(read_tsv, errors_name_the_column) {
    static const struct {
        const char *body;
        int line, col;
        const char *wanted;
    } bad[] = {
        {F0 "x\tcompute\t2\t3\tF\t0\t1\t\t\n", 3, 1, "rank in column 'rank', a number from 0"},
        {"-1\tcompute\t2\t3\tF\t0\t1\t\t\n", 2, 1, "column 'rank'"},
        {"00\tcompute\t2\t3\tF\t0\t1\t\t\n", 2, 1, "column 'rank'"},
        {"9999999999\tcompute\t2\t3\tF\t0\t1\t\t\n", 2, 1, "column 'rank'"},
        {"0 compute\t2\t3\tF\t0\t1\t\t\n", 2, 2, "column 'rank': expected a tab"},
        {"1\tcompute\t2\t3\tF\t0\t1\t\t\n" F0, 3, 1, "a row of rank 1 comes before this one"},
        {"0\tcompile\t2\t3\tF\t0\t1\t\t\n", 2, 3, "column 'lane': expected \"compute\""},
        {"0\tcompute \t2\t3\tF\t0\t1\t\t\n", 2, 10, "column 'lane': expected a tab"},
        {"0\tsend x\t2\t3\tF\t0\t1\t\t\n", 2, 8, "rank in column 'lane'"},
        {"0\tsend 0\t2\t3\tF\t0\t1\t\t\n", 2, 3, "no lane to or from itself"},
        {S1 F0, 3, 3, "this lane belongs before the row above"},
        {"0\tsend 2\t0\t0\tSERVE\t0\t\t2\t4\n" S1, 3, 3, "this lane belongs before the row above"},
        {"0\trecv 1\t0\t0\tFETCH\t0\t\t1\t4\n" S1, 3, 3, "this lane belongs before the row above"},
        {"0\tgroup 0\t0\t0\tALL_REDUCE\t0\t\t\t4\n", 2, 9, "at least two ranks"},
        {"0\tgroup 1,2\t0\t0\tALL_REDUCE\t0\t\t\t4\n", 2, 9, "one of them rank 0"},
        {"0\tgroup 0,0\t0\t0\tALL_REDUCE\t0\t\t\t4\n", 2, 9, "occurs twice"},
        {"0\tgroup 0,1\t0\t0\tALL_REDUCE\t0\t\t\t4\n0\tgroup 0,2\t0\t0\tALL_REDUCE\t0\t\t\t4\n"
         "0\tgroup 0,1\t0\t0\tALL_REDUCE\t0\t\t\t4\n",
         4, 9, "had rows before"},
        {F0 "0\tcompute\t1.\t3\tF\t0\t1\t\t\n", 3, 11, "column 'start': expected a time"},
        {"0\tcompute\t-1\t3\tF\t0\t1\t\t\n", 2, 11, "column 'start'"},
        {"0\tcompute\tinf\t3\tF\t0\t1\t\t\n", 2, 11, "column 'start'"},
        {"0\tcompute\t1e999\t3\tF\t0\t1\t\t\n", 2, 11, "column 'start'"},
        {"0\tcompute\t0x1\t3\tF\t0\t1\t\t\n", 2, 12, "column 'start': expected a tab"},
        {"0\tcompute\t1e\t3\tF\t0\t1\t\t\n", 2, 11, "column 'start'"},
        {"0\tcompute\t01\t3\tF\t0\t1\t\t\n", 2, 11, "column 'start'"},
        {"0\tcompute\t1\t0\tF\t0\t1\t\t\n" F0, 2, 13, "column 'end': expected a time not before the start"},
        {"0\tcompute\t1\t3\tF\t0\t1\t\t\n" F0, 3, 11, "column 'start': rows are sorted by rank, lane and start"},
        {"0\tcompute\t1\t\tF\t0\t1\t\t\n", 2, 13, "column 'end'"},
        {"0\tcompute\t1\t2\tFF\t0\t1\t\t\n", 2, 15, "\"FF\" is not an operation in column 'op'"},
        {"0\tsend 1\t1\t2\tSEND_f\t0\t1\t1\t\n", 2, 14, "did you mean \"SEND_F\"?"},
        {"0\tcompute\t1\t2\tSEND_F\t0\t1\t1\t4\n", 2, 15, "SEND_F does not run in the lane compute"},
        {"0\tsend 1\t1\t2\tRECV_F\t0\t1\t1\t4\n", 2, 14, "RECV_F does not run in the lane send 1"},
        {"0\tcompute\t1\t2\tF\t\t1\t\t\n", 2, 17, "the stage in column 'stage'"},
        {"0\tcompute\t1\t2\tF\t0\t\t\t\n", 2, 19, "the microbatch in column 'batch', a number from 0"},
        {"0\tcompute\t1\t2\tZERO\t0\t1\t\t\n", 2, 22,
         "nothing instead of the microbatch in column 'batch': ZERO has none"},
        {"0\tcompute\t1\t2\tF\t0\t1\t1\t\n", 2, 21, "nothing instead of the peer in column 'peer': F has none"},
        {"0\tsend 1\t1\t2\tSEND_F\t0\t1\t\t4\n", 2, 25, "the peer in column 'peer'"},
        {"0\tsend 1\t1\t2\tSEND_F\t0\t1\t2\t4\n", 2, 25, "column 'peer': expected 1, the lane's peer"},
        {"0\tsend 1\t1\t2\tSEND_F\t0\t1\t1\t\n", 2, 27, "the bytes in column 'bytes'"},
        {"0\tcompute\t1\t2\tF\t0\t1\t\t4\n", 2, 22, "nothing instead of the bytes in column 'bytes': F has none"},
        {"0\trecv 1\t1\t2\tADD\t0\t\t1\t4\n", 2, 23, "nothing instead of the bytes in column 'bytes': ADD has none"},
        {"0\tcompute\t1\t2\tF\t0\t1\t\t\t\n", 2, 22, "expected the end of the line"},
        {"0\tsend 1\t1\t2\tSEND_F\t0\t1\t1\t4 \n", 2, 28, "expected the end of the line"},
        {"0\tcompute\t1\t2\tF\t0\t1\t\n", 2, 21, "column 'peer': expected a tab"},
        {"0\tcompute\t1\t2\tF\t0\t1\t\t", 2, 22, "is it cut off?"},
        {"", 2, 0, "expected rows: a timeline without rows was cut off"},
        {F0 "\n", 3, 0, "column 'rank'"}, /* an empty line has no place for a caret */
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refused(bad[i].body, bad[i].line, bad[i].col, bad[i].wanted);
}

/* Older files lack the last column, and so name no unit. */
Test(read_tsv, units) {
    static const char row[] = "0\tcompute\t0\t2\tF\t0\t0\t\t",
                      head[] = "rank\tlane\tstart\tend\top\tstage\tbatch\tpeer\tbytes";
    cr_assert_null(read_tsv("t.tsv", format("%s\n%s\n", head, row))->unit);
    cr_assert_str_eq(read_tsv("t.tsv", format("%s\tunit\n%s\tF\n", head, row))->unit, "F");
    cr_assert_str_eq(read_tsv("t.tsv", format("step\t%s\tunit\n1\t%s\ts\n", head, row))->unit, "s");
    static const char *const bad[] = {"", "\t", "\tms", "\tFL", "\tF\t", "\t\tF"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        cr_assert_not_null(error_of(format("%s\tunit\n%s%s\n", head, row, bad[i])), "%s", bad[i]);
    const char *cpu = format("step\t%s\tunit\tcpu\tcores\n1\t%s\ts\t", head, row);
    struct timeline_rows *timed = read_tsv("t.tsv", format("%s0.25\t2\n", cpu));
    cr_assert(timed->row[0].cpu == 0.25 && timed->cores == 2);
    timed = read_tsv("t.tsv", format("%s\t\n", cpu));
    cr_assert(isnan(timed->row[0].cpu) && timed->cores == 0);
    cr_assert(strstr(error_of(format("%sx\t2\n", cpu)), "column 'cpu': expected seconds"));
    cr_assert(strstr(error_of(format("%s1\n", cpu)), "column 'cpu': expected a tab"));
    cr_assert(strstr(error_of(format("%s1\tx\n", cpu)), "column 'cores': expected a number of cores"));
    cr_assert(strstr(error_of(format("%s1\t2\n1\t%s\ts\t1\t3\n", cpu, "0\tcompute\t8\t9\tF\t0\t1\t\t")),
                     "column 'cores': expected the same number"));
    const char *units = error_of(format("step\t%s\tunit\n1\t%s\tF\n", head, row));
    cr_assert(units && strstr(units, "t.tsv:2: error: column 'unit': expected s: a measured timeline is in seconds"));
    const char *two = error_of(format("%s\tunit\n%s\tF\n%s\ts\n", head, row, row));
    cr_assert(two && strstr(two, "t.tsv:3: error: column 'unit': expected F, FLOP or s, the same in all rows"));
}

Test(read_tsv, header) {
    static const char *const bad[] = {"", "rank\tlane\n", "rank lane start end op stage batch peer bytes\n",
                                      "rank\tlane\tstart\tend\top\tstage\tbatch\tpeer\tbytes"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const char *said = error_of(bad[i]);
        cr_assert(said && strstr(said, "t.tsv:1: error: expected the header of a timeline"), "%s", bad[i]);
    }
}

/* Every prefix of a timeline reads or dies; no read passes its end (the copy is exact to the byte). */
Test(read_tsv, cut_off) {
    const char *whole = HEAD F0 S1 "0\trecv 1\t0\t0.5\tRECV_B\t0\t0\t1\t4\n"
                                   "0\tgroup 0,1\t1e-05\t2\tALL_REDUCE\t0\t\t\t4\n";
    int read = 0;
    for (size_t n = 0; n <= strlen(whole); n++) {
        char *part = malloc(n + 1);
        memcpy(part, whole, n);
        part[n] = 0;
        read += error_of(part) == NULL;
        free(part);
    }
    cr_assert_eq(read, 4, "%d beginnings were read; those after each whole row should be", read);
}

static double seconds_for(int rows) {
    struct text t = {0};
    put(&t, HEAD);
    for (int i = 0; i < rows; i++)
        put(&t, "0\tcompute\t%d.123456789\t%d.987654321\tF\t3\t%d\t\t\n", i, i, i);
    struct timespec a, b;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
    cr_assert_eq(read_tsv("t.tsv", t.s)->n, rows);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
    free_all();
    return (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
}

/* Also for groups: each of many lanes is looked up among the earlier ones. */
Test(read_tsv, linear) {
    double few = seconds_for(20000), many = seconds_for(200000);
    cr_assert(many < 40 * few + 0.05, "20,000 rows take %.3f s, 200,000 take %.3f s", few, many);
    struct text t = {0};
    put(&t, HEAD);
    for (int i = 1; i <= 60000; i++)
        put(&t, "0\tgroup 0,%d\t0\t1\tALL_REDUCE\t3\t\t\t8\n", i);
    clock_t begin = clock();
    cr_assert_eq(read_tsv("t.tsv", t.s)->n, 60000);
    cr_assert(clock() - begin < CLOCKS_PER_SEC);
}
