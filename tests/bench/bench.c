/* make bench: measures how fast a schedule becomes a verified program, and the overhead of the replay.
 *
 * Each size compiles in its own process, which gives its own peak memory. Compare figures within one run only. */
#include "cli/pipeline.h"
#include "passes/runtime_program.h"
#include "diff/diff.h"
#include "device/replay.h"
#include "process/train.h"
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double last;
static void pass_done(const char *pass) {
    double t = now();
    printf(" %s %.3f", pass, t - last);
    last = t;
}

static int64_t instructions(const struct program *p) {
    int64_t n = 0;
    for (int r = 0; r < p->workers; r++)
        n += p->rank[r].nins;
    return n;
}

static void compile_size(const char *schedule, int workers, int jobs) {
    fflush(stdout);
    if (fork() > 0) {
        wait(NULL);
        return;
    }
    const char *set[] = {format("workers=%d", workers), format("batches=%d", jobs / 2 / workers)};
    struct compile c = {.args = {.schedule = schedule, .set = set, .nset = 2}, .done = pass_done};
    printf("%8d jobs, %2d ranks:", c.args.nset ? jobs / 2 / workers * 2 * workers : 0, workers);
    double begin = last = now();
    compile_all(&c, "");
    double took = now() - begin;
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    printf("\n%8s %.2f s, %.0f jobs/s, %lld instructions, peak %ld MB\n", "", took, jobs / took,
           (long long)instructions(c.program), use.ru_maxrss / 1024);
    exit(0);
}

/* Compares two schedules of the same jobs, compiled before the clock starts. */
static void diff_size(const char *one, const char *other, const char *batches) {
    fflush(stdout);
    if (fork() > 0) {
        wait(NULL);
        return;
    }
    struct side *side[2];
    struct text text = {0};
    double took = 0;
    for (int k = 0; k < 2; k++) {
        const char *set[] = {"workers=64", batches};
        struct compile c = {.args = {.schedule = k ? other : one, .set = set, .nset = 2}};
        compile_all(&c, "");
        double begin = now();
        side[k] = side_of_program(c.args.schedule, c.program, c.timeline);
        took += now() - begin;
    }
    double begin = now();
    struct diff *d = diff_make(side[0], side[1]);
    emit_diff(&text, d, false, false);
    took += now() - begin;
    printf("diff, %s and %s: %d and %d operations, %.2f s, %.2g s per million\n", one, other, side[0]->n, side[1]->n,
           took, took * 2e6 / (side[0]->n + side[1]->n));
    exit(0);
}

/* A device on which everything completes at once, so that only the replay core's own cost is measured. */
static bool yes(struct replay *z, const struct rt_instr *x) {
    (void)z, (void)x;
    return true;
}
static bool ended(struct replay *z, const struct rt_instr *x, int32_t i) {
    (void)x;
    (void)z, (void)i;
    return true;
}
static void nothing(struct replay *z, const struct rt_instr *x) { (void)z, (void)x; }
static void note(struct replay *z, int32_t i, double start, double end) { (void)z, (void)i, (void)start, (void)end; }
static double stopped(struct replay *z) {
    (void)z;
    return 0;
}
static void stay(struct replay *z) { (void)z; }
static const struct device null_device = {
    .wait = ended, .launch = nothing, .meet = yes, .record = note, .clock = stopped, .idle = stay};

static void replay_core(const char *schedule, const char *workers) {
    const char *set[] = {format("workers=%s", workers), "batches=64"};
    struct compile c = {
        .args = {.schedule = schedule, .model = "schedules/models/integers.lua", .set = set, .nset = 2}};
    compile_all(&c, "");
    const struct rt_program *p = runtime_program(c.costs, c.program);
    struct replay z = {.device = &null_device, .program = p, .rank = 1};
    const struct rt_rank *k = &p->rank[1];
    z.cursor = NEW(int32_t, k->nlanes);
    z.blocked = NEW(bool, k->nlanes);
    enum { STEPS = 2000 };
    double begin = now();
    for (z.step = 0; z.step < STEPS; z.step++)
        replay_step(&z);
    printf("replay core, %s, rank 1: %.0f ns per instruction (%d instructions, %d lanes)\n", c.spec->name,
           1e9 * (now() - begin) / STEPS / k->nins, k->nins, k->nlanes);
}

/* Tiny layers: a step is nearly all messages, waits and wake-ups. */
static void in_process(const char *schedule, const char *workers) {
    const char *set[] = {format("workers=%s", workers), "batches=8"};
    struct compile c = {
        .args = {.schedule = schedule, .model = "schedules/models/integers.lua", .set = set, .nset = 2}};
    compile_all(&c, "");
    const struct rt_program *p = runtime_program(c.costs, c.program);
    char why[256];
    enum { STEPS = 500 };
    struct data *data = data_open(&c.spec->model->rt, NULL, 1, why, sizeof why);
    struct rt_run run = {.program = p, .data = data, .flags = {.seed = 1, .steps = STEPS}};
    run.loss = NEW(float, STEPS);
    run.makespan = NEW(double, STEPS);
    double begin = now();
    char **arena = host_train(&run);
    printf("in process, %s, %s ranks on %ld cores: %.2f us per instruction and rank, layers included\n", c.spec->name,
           workers, sysconf(_SC_NPROCESSORS_ONLN),
           1e6 * (now() - begin) / STEPS / ((double)instructions(c.program) / c.spec->workers));
    host_free(p, arena);
    data_close(data);
}

int main(void) {
    host_blas();
    for (int jobs = 10000; jobs <= 1000000; jobs *= 10) {
        compile_size("schedules/1f1b.lua", 8, jobs);
        compile_size("schedules/1f1b.lua", 64, jobs);
    }
    for (int k = 0; k < 2; k++) {
        diff_size("schedules/1f1b.lua", "schedules/zb_h1.lua", k ? "batches=2600" : "batches=260");
        diff_size("schedules/1f1b.lua", "schedules/gpipe.lua", k ? "batches=2600" : "batches=260");
    }
    replay_core("schedules/1f1b.lua", "4");
    in_process("schedules/serial.lua", "1");
    in_process("schedules/1f1b.lua", "2");
    in_process("schedules/1f1b.lua", "4");
    return 0;
}
