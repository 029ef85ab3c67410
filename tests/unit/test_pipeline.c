/* The pass table, and the shipped schedules compiled: their text reads back and still verifies. */
#include "base/read_file.h"
#include "cli/pipeline.h"
#include "cli/files.h"
#include "diff/diff.h"
#include "random_spec.h"
#include <criterion/criterion.h>
#include <glob.h>
#include <stdlib.h>
#include <unistd.h>

static struct compile compile_file(const char *schedule, const char *model) {
    struct compile c = {.args = {.schedule = schedule, .model = model}};
    compile_all(&c, "");
    return c;
}

static void expect_round_trip(struct compile *c) {
    struct text once = {0}, twice = {0};
    emit_text(&once, c->program);
    struct program *back = read_text("streams.txt", once.s);
    emit_text(&twice, back);
    cr_assert(once.n == twice.n && !memcmp(once.s, twice.s, once.n), "%s does not read back", c->spec->file);
    struct refutation *no = verify(c->costs, c->graph, back, CLAIM_ALL);
    cr_assert_null(no, "%s as read back: %s", c->spec->file, no->why);
}

static int lane_number(const struct program *p, int rank, const char *name) {
    for (int l = 0; l < p->rank[rank].nlanes; l++) {
        struct text t = {0};
        put_lane(&t, p, &p->rank[rank].lane[l]);
        if (!strcmp(t.s, name))
            return l;
    }
    cr_assert_fail("rank %d has no lane %s", rank, name);
    return -1;
}

/* Checks for one row per instruction, ordered by rank, lane and start. */
static void expect_sorted_timeline(const struct compile *c) {
    struct text t = {0};
    emit_tsv(&t, c->program, c->timeline, "F");
    int rows = 0, want = 0, rank = -1, lane = -1;
    double start = 0, last_end = 0;
    for (int r = 0; r < c->program->workers; r++)
        want += c->program->rank[r].nins;
    char *line = strchr(t.s, '\n') + 1;
    for (char *end; (end = strchr(line, '\n')); line = end + 1, rows++) {
        char name[100];
        int r;
        double from, to;
        *end = 0;
        cr_assert_eq(sscanf(line, "%d\t%99[^\t]\t%lf\t%lf\t", &r, name, &from, &to), 4, "%s", line);
        int l = lane_number(c->program, r, name);
        bool next = r == rank && l == lane;
        cr_assert(r > rank || (r == rank && l > lane) || (next && from >= start), "%s", line);
        cr_assert(from <= to && to <= c->timeline->makespan);
        rank = r;
        lane = l;
        start = from;
        last_end = fmax(last_end, to);
    }
    cr_assert_eq(rows, want);
    cr_assert_eq(last_end, c->timeline->makespan);
}

Test(pipeline, every_schedule_that_comes_with_the_program) {
    glob_t g;
    /* leaves out pianola.d.lua, which is not a schedule */
    cr_assert_eq(glob("schedules/*[!.]?.lua", 0, NULL, &g), 0);
    cr_assert_geq(g.gl_pathc, 7);
    for (size_t i = 0; i < 2 * g.gl_pathc; i++) {
        struct compile c = compile_file(g.gl_pathv[i / 2], i % 2 ? "schedules/models/integers.lua" : NULL);
        expect_round_trip(&c);
        expect_sorted_timeline(&c);
        cr_assert_eq(c.report->makespan, c.timeline->step); /* all repetitions */
        free_all();
    }
    globfree(&g);
}

/* Runs the passes from the jobs on, as pipeline.c does. */
static struct compile compile_spec(struct spec *sp) {
    struct compile c = compile_of(sp, draw_stages(sp));
    c.graph = graph_build(c.costs);
    c.sched = sched_of(sp, c.costs, c.graph);
    c.program = lower_of(sp, c.costs, c.graph, c.sched);
    spare_of(sp, c.costs, c.program);
    lanes_sync(c.program);
    c.timeline = sim_of(sp, c.costs, c.program);
    return c;
}

Test(pipeline, random_schedules) {
    for (int seed = 0; seed < 120; seed++) {
        struct compile c =
            compile_spec(draw_spec((uint64_t)seed, ORDERS | BANDWIDTH | COARSE | (seed % 3 ? 0 : PAIRS)));
        expect_round_trip(&c);
        expect_sorted_timeline(&c);
        free_all();
    }
}

/* ---- times that vanish beside others ---- */

static void expect_no_nan(const struct text *t, const char *what, int seed) {
    cr_assert(!strstr(t->s, "nan") && !strstr(t->s, "inf"), "seed %d: %s has a figure that is none", seed, what);
}

/* Prints every format with times, at any scale. */
static void print_all(const struct compile *c, int seed) {
    struct style style = {.width = 80, .with = WITH_LANES | WITH_MEMORY | WITH_PATH | WITH_SENDS};
    struct steps steps = {1, NULL, c->timeline};
    struct text grid = {0}, report = {0}, json = {0}, svg = {0}, chrome = {0}, proto = {0}, hta = {0};
    emit_grid(&grid, c->program, c->timeline, "F", &style);
    emit_report(&report, c->report, &style);
    emit_json(&json, c->report);
    emit_html(&svg, c->program, c->timeline, c->report, INFINITY, &style, "show");
    emit_chrome(&chrome, c->program, &steps, "F");
    emit_pftrace(&proto, c->program, &steps, "F");
    emit_hta(&hta, c->program, &steps, "F", 0);
    expect_no_nan(&grid, "the grid", seed);
    expect_no_nan(&report, "the report", seed);
    expect_no_nan(&json, "report.json", seed);
    cr_assert(!strstr(json.s, "null"), "seed %d", seed);
    *strstr(svg.s, "<script>") = 0;
    for (const char *p = svg.s; (p = strpbrk(p, "\"MLHV ")); p++) /* where a coordinate may begin */
        cr_assert(strncmp(p + 1, "nan", 3) && strncmp(p + 1, "-nan", 4) && strncmp(p + 1, "inf ", 4), "seed %d", seed);
    expect_no_nan(&chrome, "the trace", seed);
    expect_no_nan(&hta, "HTA's trace", seed);
}

/* The timeline reads back as the program's, and nothing differs. */
static void diff_with_itself(const struct compile *c, int seed) {
    struct text t = {0}, json = {0}, text = {0};
    emit_tsv(&t, c->program, c->timeline, "F");
    struct side *a = side_of_program("a", c->program, c->timeline), *b = side_of_rows("b", read_tsv("b", t.s));
    cr_assert_str_eq(b->unit, "F");
    struct diff *d = diff_make(a, b);
    cr_assert(diff_same(d), "seed %d", seed);
    emit_diff_json(&json, d);
    emit_diff(&text, d, false, true);
    expect_no_nan(&json, "the diff", seed);
    expect_no_nan(&text, "the diff", seed);
}

static struct compile compile_extreme(int seed, int flags) {
    struct compile c = compile_spec(draw_spec((uint64_t)seed, EXTREME | flags));
    for (int s = 0; s < c.spec->stages; s++)
        c.costs->stage[s].update = seed % 2 ? 0 : 1e-20;
    c.timeline = sim_of(c.spec, c.costs, c.program);
    c.report = report_of(c.spec, c.costs, c.graph, c.program, c.timeline);
    return c;
}

Test(pipeline, random_extremes_are_proved_and_printed, .timeout = 600) {
    int nothing = 0;
    for (int seed = 0; seed < 3000; seed++) {
        struct compile c = compile_extreme(seed, ORDERS | BANDWIDTH | COARSE | (seed % 3 ? 0 : PAIRS));
        struct report *r = c.report;
        nothing += r->makespan == 0;
        cr_assert(isfinite(r->makespan) && r->makespan >= r->bound.lower * (1 - 1e-9), "seed %d", seed);
        cr_assert(r->bubble >= 0 && r->bubble <= 1 && r->throughput >= 0 && r->gap >= 0, "seed %d", seed);
        struct refutation *no = verify(c.costs, c.graph, c.program, CLAIM_ALL);
        cr_assert_null(no, "seed %d: %s", seed, no->why);
        if (seed % 10 == 0) {
            expect_round_trip(&c);
            expect_sorted_timeline(&c);
            print_all(&c, seed);
            diff_with_itself(&c, seed);
        }
        free_all();
    }
    cr_assert_gt(nothing, 100);
}

/* With weights at home the program runs as scheduled, so its peak is what the scheduler counted. */
Test(pipeline, peaks_of_random_extremes) {
    for (int seed = 0; seed < 500; seed++) {
        struct compile c = compile_extreme(seed, AT_HOME | LATENCY | (seed % 3 ? 0 : PAIRS));
        const struct spec *sp = c.spec;
        int *live = NEW(int, sp->workers), *most = NEW(int, sp->workers);
        for (int i = 0; i < c.sched->nmoments; i++) {
            int32_t m = c.sched->moment[i];
            const struct job *j = &sp->job[m >= 0 ? m : ~m];
            live[j->rank] += (m >= 0 && j->d == OP_F) - (m < 0 && (j->d == OP_B || j->d == OP_W));
            most[j->rank] = live[j->rank] > most[j->rank] ? live[j->rank] : most[j->rank];
        }
        for (int r = 0; r < sp->workers; r++)
            cr_assert_eq(c.report->rank[r].peak_activations, most[r], "seed %d: rank %d", seed, r);
        free_all();
    }
}

/* ---- compiling from existing results ---- */

static char ran[200];
static void note(const char *pass) { strcat(strcat(ran, " "), pass); }

/* Compiles the same jobs for one rank, as `run` does: all passes except those whose results are given. */
Test(pipeline, goes_on_from_a_spec_and_its_stages) {
    struct compile whole = compile_file("schedules/zbv.lua", NULL);
    struct compile rest = compile_of(whole.spec, whole.costs);
    struct text a = {0}, b = {0};
    rest.done = note;
    compile_all(&rest, "");
    cr_assert_str_eq(ran, " graph sched period offload fit prefetch spare lanes verify sim steady report");
    emit_text(&a, whole.program);
    emit_text(&b, rest.program);
    cr_assert_str_eq(a.s, b.s);
    cr_assert_eq(rest.report->makespan, whole.report->makespan);
}

/* ---- -d: the program after a pass ---- */

/* Compiles 1f1b and returns what compile_all prints with these letters. */
static char *printed(struct compile *c, const char *letters) {
    FILE *f = tmpfile();
    fflush(stdout);
    int screen = dup(STDOUT_FILENO);
    cr_assert(f && screen >= 0 && dup2(fileno(f), STDOUT_FILENO) >= 0);
    *c = (struct compile){.args = {.schedule = "schedules/1f1b.lua"}};
    compile_all(c, letters);
    fflush(stdout);
    dup2(screen, STDOUT_FILENO);
    close(screen);
    long n = ftell(f);
    cr_assert_geq(n, 0);
    char *s = alloc((size_t)n + 1);
    rewind(f);
    cr_assert_eq(fread(s, 1, (size_t)n, f), (size_t)n);
    fclose(f);
    return s;
}

static int count(const char *s, const char *word) {
    int n = 0;
    for (; (s = strstr(s, word)); s++)
        n++;
    return n;
}

Test(pipeline, dumps_after_each_pass) {
    struct compile c;
    char *lower_text = printed(&c, "l"), *mem_text = printed(&c, "m"), *lanes_text = printed(&c, "w");
    struct text t = {0};
    emit_text(&t, c.program);
    cr_assert_str_eq(lanes_text, t.s, "the last pass that changes the program");
    cr_assert(strstr(lower_text, "\nact(0,0) - 1\n") && !strstr(lower_text, "wait("));
    cr_assert(!strstr(mem_text, " - ") && !strstr(mem_text, "wait("));
    cr_assert_gt(count(lanes_text, "wait("), 50);
    cr_assert_str_eq(printed(&c, "wl"), format("%s%s", lower_text, lanes_text), "in the order of the passes");
    cr_assert_str_eq(printed(&c, ""), "");
}

static void dump_unknown(void *c) { compile_all(c, "lx"); }

Test(pipeline, an_unknown_letter_is_told_before_anything_runs) {
    struct compile c = {.args = {.schedule = "there is no such file.lua"}};
    cr_assert_str_eq(
        death_of(dump_unknown, &c),
        "pianola: error: -dx: no pass has that letter; there are -dl (lower), -dm (mem), -dw (lanes) and -dt (what the "
        "searches tried)\n");
}

/* ---- files are written completely or not at all ---- */

static void write_nowhere(void *t) { write_file("/no such folder/out.txt", t); }

Test(pipeline, write_file) {
    char dir[] = "/tmp/pianola_pipeline_XXXXXX";
    cr_assert_not_null(mkdtemp(dir));
    const char *path = format("%s/out.txt", dir);
    struct text t = {0};
    put(&t, "first, and longer\n");
    write_file(path, &t);
    t.n = 6;
    write_file(path, &t);
    size_t size;
    cr_assert_str_eq(read_file(path, &size), "first,");
    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(rmdir(dir), 0, "nothing else is left there");
    cr_assert_str_eq(death_of(write_nowhere, &t),
                     "pianola: error: /no such folder/out.txt: No such file or directory\n");
}
