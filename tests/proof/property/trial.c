/* Takes one schedule from its spec to trained weights.
 *
 * The result of one rank depends only on the number of microbatches: the model's fingerprint is the same for any cut,
 * and integers.lua makes every sum exact in any order. So it is computed once per number, as one stage. */
#include "property.h"
#include "process/train.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

const char *const verdict_text[] = {"is good",          "deadlocks", "dies", "does not verify", "does not read back",
                                    "trains otherwise", "crashes",   "hangs"};

static struct result {
    uint64_t weights;
    float loss[STEPS];
} alone[MAX_BATCHES + 1];
static bool exact; /* whether the model's sums are exact: then any schedule must train to `alone` */

/* ---- passes ---- */

struct passes {
    const struct spec *sp;
    struct costs *costs;
    struct graph *g;
    struct program *p;
};

static void compile(struct passes *c, const struct spec *sp) {
    c->sp = sp;
    c->costs = costs_make(sp);
    c->g = graph_build(c->costs);
    c->p = lower_of(sp, c->costs, c->g, sched_of(sp, c->costs, c->g));
    spare_of(sp, c->costs, c->p);
    lanes_sync(c->p);
}

/* Inserts a bug. first: a gradient forgets earlier sums; wait: a lane does not wait for another; name: two buffers
 * share a name. */
static void break_program(struct program *p, const char *fault) {
    if (!strcmp(fault, "name")) {
        p->rank[0].buf[1] = p->rank[0].buf[0];
        return;
    }
    for (int r = 0; r < p->workers; r++)
        for (int i = 0; i < p->rank[r].nins; i++) {
            struct instr *x = &p->rank[r].ins[i];
            bool adds = x->op == OP_B || x->op == OP_W;
            if (!strcmp(fault, "first") && adds && !x->first) {
                x->first = true;
                return;
            }
            if (!strcmp(fault, "wait") && x->nwait) {
                x->nwait--;
                return;
            }
        }
}

/* ---- training ---- */

static bool train(const struct passes *c, struct result *out, char *why) {
    struct rt_program *p = runtime_program(c->costs, c->p);
    struct data *data = data_open(&c->sp->model->rt, NULL, 1, why, 4096);
    if (!data)
        return false;
    double makespan[STEPS];
    struct rt_run run = {.program = p, .data = data, .flags = {.seed = 1, .steps = STEPS}, .loss = out->loss};
    run.makespan = makespan;
    char **arena = host_train(&run);
    data_close(data);
    if (!arena) {
        snprintf(why, 4096, "no memory to train");
        return false;
    }
    out->weights = hash_trained(p, arena);
    host_free(p, arena);
    return true;
}

void train_alone(const char *model, const char *width, int most_batches) {
    exact = model != NULL;
    host_blas();
    for (int b = 1; exact && b <= most_batches; b++, free_all()) {
        char why[4096], *batches = format("batches=%d", b);
        const char *set[] = {batches, "stages=1", width};
        struct script_args a = {.schedule = "schedules/serial.lua", .model = model, .set = set, .nset = 3};
        struct passes c;
        compile(&c, script_load(&a));
        if (!train(&c, &alone[b], why)) {
            fprintf(stderr, "%s\n", why);
            exit(2);
        }
    }
}

/* ---- a trial ---- */

static char *text_of(const struct program *p) {
    struct text t = {0};
    emit_text(&t, p);
    return t.s;
}

/* Returns whether the arena ends where the last buffer does, or at the next page at most. */
static bool is_filled(const struct program *p) {
    for (int r = 0; r < p->workers; r++) {
        int64_t end = 0;
        for (const struct buf *b = p->rank[r].buf; b < p->rank[r].buf + p->rank[r].nbufs; b++)
            end = b->off + b->bytes > end ? b->off + b->bytes : end;
        if (end > p->rank[r].arena || end + 4096 <= p->rank[r].arena)
            return false;
    }
    return true;
}

static enum verdict judge(const struct spec *sp, char *why) {
    struct passes c;
    const char *fault = getenv("PIANOLA_FAULT");
    fault = fault ? fault : "";
    compile(&c, sp);
    if (!strcmp(fault, "wait"))
        break_program(c.p, fault);
    struct refutation *no = verify(c.costs, c.g, c.p, CLAIM_ALL);
    if (no) {
        snprintf(why, 4096, "%s", no->why);
        return REFUTED;
    }
    if (!strcmp(fault, "name"))
        break_program(c.p, fault);
    char *text = text_of(c.p);
    const char *misread = text_misread(c.p, text);
    no = misread ? NULL : verify_text(read_text("streams.txt", text));
    if (misread || no) {
        snprintf(why, 4096, "%s", misread ? misread : no->why);
        return UNREAD;
    }
    struct timeline *tl = sim_of(c.sp, c.costs, c.p);
    struct report *report = report_of(c.sp, c.costs, c.g, c.p, tl);
    if (report->makespan < report->bound.lower * (1 - 1e-9)) {
        snprintf(why, 4096, "makespan %g is below the lower bound %g", report->makespan, report->bound.lower);
        return DIFFERS;
    }
    double rounding = 1e-9 * report->memory_time.room; /* times next to much longer ones */
    if (report->memory_time.needed > report->memory_time.held + rounding ||
        report->memory_time.held > report->memory_time.room + rounding) {
        snprintf(why, 4096, "activations need %g, are held for %g, and there is room for %g",
                 report->memory_time.needed, report->memory_time.held, report->memory_time.room);
        return DIFFERS;
    }
    if (!is_filled(c.p)) {
        snprintf(why, 4096, "an arena is larger than its buffers need");
        return DIFFERS;
    }
    if (!exact || c.sp->updates.every || c.sp->model->rt.precision == BF16) /* the host trains in fp32 alone */
        return GOOD;
    if (!strcmp(fault, "first"))
        break_program(c.p, fault);
    struct result got, *want = &alone[c.sp->batches / slices_of(&c.sp->names)];
    if (!train(&c, &got, why))
        return DIES;
    bool sliced = c.sp->names.slices > 1; /* a loss is the mean of its slices' losses, which rounds differently */
    if (got.weights == want->weights && (sliced || !memcmp(got.loss, want->loss, sizeof got.loss)))
        return GOOD;
    snprintf(why, 4096, "weights %016llx, losses %.9g %.9g %.9g; one rank has %016llx, %.9g %.9g %.9g",
             (unsigned long long)got.weights, got.loss[0], got.loss[1], got.loss[2], (unsigned long long)want->weights,
             want->loss[0], want->loss[1], want->loss[2]);
    return DIFFERS;
}

enum verdict try_spec(const struct spec *sp, char *why) {
    jmp_buf trap;
    volatile enum verdict v;
    diag_trap = &trap;
    if (!setjmp(trap))
        v = judge(sp, why);
    else {
        v = strstr(diag_text, ": deadlock: ") ? DEADLOCKED : DIES;
        snprintf(why, 4096, "%s", diag_text);
    }
    diag_trap = NULL;
    return v;
}

struct spec *load_spec(const struct script_args *a, char *why) {
    jmp_buf trap;
    struct spec *volatile sp = NULL;
    diag_trap = &trap;
    if (!setjmp(trap))
        sp = script_load(a);
    else
        snprintf(why, 4096, "%s", diag_text);
    diag_trap = NULL;
    return sp;
}

enum verdict try_apart(const struct spec *sp, char *why, int seconds) {
    static char *shared; /* verdict, and the error */
    if (!shared)
        shared = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    memset(shared, 0, 8192);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        alarm((unsigned)seconds);
        if (!freopen("/dev/null", "w", stderr))
            _exit(2);
        shared[0] = (char)try_spec(sp, shared + 1);
        _exit(0);
    }
    int status;
    while (waitpid(child, &status, 0) < 0)
        ;
    snprintf(why, 4096, "%s", shared + 1);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return (enum verdict)shared[0];
    bool hung = WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM;
    if (hung)
        snprintf(why, 4096, "still running after %d seconds", seconds);
    else if (WIFSIGNALED(status))
        snprintf(why, 4096, "signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        snprintf(why, 4096, "exit code %d", WEXITSTATUS(status));
    return hung ? HANGS : CRASHES;
}
