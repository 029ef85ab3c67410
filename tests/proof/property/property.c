/* Random schedules, compiled, proved and trained: each must end with the weights and losses of one rank, bit for bit.
 *
 *   property [-n CASES] [-s FIRST_SEED] [-j PROCESSES] [-w WIDTH] [-m MODEL] [-D PARAMETER=VALUE]...
 *
 * A case is tests/papers/formulas/random.lua with its own seed, over random_links.lua. Processes take the seeds in
 * turn. WIDTH is the model's: its gradients are cut into pieces of at least 4 KiB, and a layer of width 64 has four.
 * The first failure ends the run: it is shrunk and printed as scripts, with the command that repeats it. A deadlock
 * caused by caps or order does not count if the compiler reports it.
 *
 * Some cases are not trained, only proved and read back: schedules with updates within the step, because they train
 * differently from one rank; all with -D precision=bf16, because the host trains in fp32; and all of another MODEL,
 * whose sums are not exact. */
#include "property.h"
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char schedule[] = "tests/papers/formulas/random.lua", links[] = "tests/papers/formulas/random_links.lua",
                  exact[] = "schedules/models/integers.lua";
static const char *model = exact;

#define FEATURES(X)                                                                                                    \
    X(LINKS, "links")                                                                                                  \
    X(ORDERS, "added orders")                                                                                          \
    X(STRICT, "strict order")                                                                                          \
    X(CAPS, "caps")                                                                                                    \
    X(SPLIT, "split backward")                                                                                         \
    X(RECOMPUTE, "recompute")                                                                                          \
    X(AWAY, "weights fetched")                                                                                         \
    X(COSTS, "own costs")                                                                                              \
    X(LISTS, "sharded homes")                                                                                          \
    X(ZERO, "zero")                                                                                                    \
    X(ROUNDS, "gradients in rounds")                                                                                   \
    X(BUCKETS, "buckets")                                                                                              \
    X(OFFLOAD, "offload")                                                                                              \
    X(STATE, "state offloaded")                                                                                        \
    X(RELAYS, "relays")                                                                                                \
    X(TEAMS, "teams")                                                                                                  \
    X(UPDATES, "updates")                                                                                              \
    X(SLICES, "slices")
enum {
#define X(name, text) HAS_##name,
    FEATURES(X)
#undef X
        NHAS
};
static const char *const has_text[NHAS] = {
#define X(name, text) text,
    FEATURES(X)
#undef X
};

static struct shared {
    _Atomic int64_t next, counted, deadlocked, failed; /* seeds; failed: the first that failed, or 0 */
    _Atomic int64_t seed[256];                         /* the seed that each process is trying */
    _Atomic int64_t has[NHAS];
} * all;

static const char *fixed[64]; /* parameters that are not random */
static int nfixed;
static char width[32] = "width=16"; /* the model's parameter */

static struct spec *load(int64_t seed, char *why) {
    const char **set = NEW(const char *, nfixed + 3);
    memcpy(set, fixed, sizeof *set * (size_t)nfixed);
    set[nfixed] = format("seed=%lld", (long long)seed);
    set[nfixed + 1] = width;
    set[nfixed + 2] = "mixed=true";
    struct script_args a = {.schedule = schedule, .model = model, .cluster = links, .set = set, .nset = nfixed + 3};
    a.lanes = (enum lanes_per)(seed % 3);
    return load_spec(&a, why);
}

static void count_features(const struct spec *sp) {
    bool has[NHAS] = {
        [HAS_LINKS] = sp->machine.link != NULL, [HAS_ORDERS] = sp->pred != NULL, [HAS_STRICT] = sp->strict};
    has[HAS_CAPS] = sp->limits.cap[0] < INT32_MAX;
    has[HAS_LISTS] = sp->owners.nlists > 0;
    has[HAS_ROUNDS] = sp->limits.grad_slots != NULL;
    has[HAS_TEAMS] = sp->names.member != NULL;
    has[HAS_UPDATES] = sp->updates.every != NULL;
    has[HAS_SLICES] = sp->names.slices > 1;
    for (int s = 0; s < sp->stages; s++) {
        has[HAS_ZERO] |= sp->owners.zero && sp->owners.zero[s];
        has[HAS_BUCKETS] |= sp->limits.bucket[s] > 0 && sp->limits.bucket[s] < INT64_MAX;
        has[HAS_STATE] |= sp->limits.offload_state && sp->limits.offload_state[s];
    }
    for (int i = 0; sp->choices.offload && i < sp->stages * sp->batches; i++)
        has[HAS_OFFLOAD] |= sp->choices.offload[i];
    for (int j = 0; j < sp->njobs; j++) {
        has[HAS_SPLIT] |= sp->job[j].d == OP_W;
        has[HAS_RECOMPUTE] |= sp->job[j].d == OP_R;
        has[HAS_AWAY] |= sp->job[j].home != sp->job[j].rank;
        has[HAS_COSTS] |= !isnan(sp->job[j].cost);
        has[HAS_RELAYS] |= sp->owners.source && sp->owners.source[j] >= 0;
    }
    for (int f = 0; f < NHAS; f++)
        all->has[f] += has[f];
}

/* Runs one process: takes seeds until enough are counted or one has failed. It may die of one, or hang. */
static void work(int me, int64_t cases) {
    char why[4096];
    while (all->counted < cases && !all->failed) {
        int64_t seed = all->seed[me] = all->next++;
        alarm(30);
        const struct spec *sp = load(seed, why);
        if (sp)
            count_features(sp);
        enum verdict v = sp ? try_spec(sp, why) : strstr(why, ": deadlock: ") ? DEADLOCKED : DIES;
        alarm(0);
        if (v > DEADLOCKED) {
            int64_t none = 0;
            atomic_compare_exchange_strong(&all->failed, &none, seed);
            return;
        }
        all->deadlocked += v == DEADLOCKED;
        all->counted += v == GOOD;
        free_all();
    }
}

static void run_all(int processes, int64_t cases) {
    pid_t pid[256];
    fflush(NULL);
    for (int i = 0; i < processes; i++)
        if ((pid[i] = fork()) == 0) {
            work(i, cases);
            fflush(NULL);
            _exit(0);
        }
    for (int left = processes; left > 0; left--) {
        int status, i = 0;
        pid_t done = wait(&status);
        while (i < processes && pid[i] != done)
            i++;
        int64_t none = 0;
        if (status != 0)
            atomic_compare_exchange_strong(&all->failed, &none, all->seed[i]);
    }
}

/* ---- a failure ---- */

static void put_file(const char *name, const char *text) { printf("cat >%s <<'EOF'\n%sEOF\n", name, text); }

static const char *const per[] = {"edge", "peer", "rank"};

static void tell_drawn(int64_t seed, const struct spec *sp) {
    printf("# as it was drawn: build/pianola run %s --model %s --cluster %s --lanes %s --steps %d --compare -D %s "
           "-D mixed=true -D seed=%lld",
           schedule, model, links, per[sp->choices.lanes], STEPS, width, (long long)seed);
    for (int i = 0; i < nfixed; i++)
        printf(" -D %s", fixed[i]);
    printf("\n");
}

static void tell(int64_t seed, const struct spec *sp, const char *why, int tried) {
    const char *cluster = print_cluster(sp);
    printf("smallest of %d tried that fails so: %d workers, %d stages, %d batches, %d jobs\n%s\n\n", tried, sp->workers,
           sp->stages, sp->batches, sp->njobs, why);
    put_file("failing.lua", print_schedule(sp));
    if (cluster)
        put_file("failing_links.lua", cluster);
    printf("build/pianola run failing.lua --model %s%s --lanes %s --steps %d --compare -D %s\n", model,
           cluster ? " --cluster failing_links.lua" : "", per[sp->choices.lanes], STEPS, width);
    tell_drawn(seed, sp);
}

/* Checks that the printed scripts fail as their spec did. */
static bool fails_as_printed(const struct spec *sp, enum verdict v) {
    char folder[] = "/tmp/pianola-property-XXXXXX", why[4096];
    if (!mkdtemp(folder))
        return false;
    const char *set[] = {width};
    char *file = format("%s/failing.lua", folder), *cluster = format("%s/failing_links.lua", folder);
    struct text t = {0};
    put(&t, "%s", print_schedule(sp));
    write_file(file, &t);
    struct script_args a = {.schedule = file, .model = model, .lanes = sp->choices.lanes, .set = set, .nset = 1};
    if (print_cluster(sp)) {
        t.n = 0;
        put(&t, "%s", print_cluster(sp));
        write_file(a.cluster = cluster, &t);
    }
    const struct spec *again = load_spec(&a, why);
    unlink(file);
    unlink(cluster);
    rmdir(folder);
    return again && try_apart(again, why, 10) == v;
}

static void explain(int64_t seed) {
    char why[4096];
    const struct spec *sp = load(seed, why);
    if (!sp) {
        printf("seed %lld: %s does not load\n%s\n", (long long)seed, schedule, why);
        return;
    }
    enum verdict v = try_apart(sp, why, 30);
    printf("seed %lld: a schedule of %d workers, %d stages, %d batches %s\n%s\n", (long long)seed, sp->workers,
           sp->stages, sp->batches, verdict_text[v], why);
    if (v <= DEADLOCKED) {
        printf("it failed before, and not when tried again\n");
        return;
    }
    if (sp->names.member || sp->updates.every || sp->names.slices > 1) { /* print.c cannot print these */
        printf("it has teams, updates or slices, and is not made smaller; try -D batches=1 and the like\n");
        tell_drawn(seed, sp);
        return;
    }
    int tried;
    sp = shrink(sp, v, &tried);
    try_apart(sp, why, 10);
    tell(seed, sp, why, tried);
    if (!fails_as_printed(sp, v))
        printf("# these scripts do NOT fail: the fault depends on more than they say\n");
}

int main(int argc, char **argv) {
    int64_t cases = 5000, first = 1, processes = sysconf(_SC_NPROCESSORS_ONLN);
    for (int option; (option = getopt(argc, argv, "n:s:j:w:m:D:")) != -1;) {
        if (option == 'D' && nfixed < 64)
            fixed[nfixed++] = optarg;
        else if (option == 'w')
            snprintf(width, sizeof width, "width=%s", optarg);
        else if (option == 'm')
            model = optarg;
        else
            *(option == 'n' ? &cases : option == 's' ? &first : &processes) = option == '?' ? 0 : atoll(optarg);
    }
    if (processes < 1 || processes > 256 || cases < 1 || first < 1)
        die("usage: property [-n CASES] [-s FIRST_SEED] [-j PROCESSES] [-w WIDTH] [-m MODEL] [-D PARAMETER=VALUE]...");
    all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    all->next = first;
    train_alone(model == exact ? model : NULL, width, 8);
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    run_all((int)processes, cases);
    clock_gettime(CLOCK_MONOTONIC, &b);
    if (all->failed) {
        explain(all->failed);
        return 1;
    }
    int64_t drawn = all->next - first;
    char why[4096];
    const struct spec *sp = load(first, why);
    bool trained = model == exact && sp && sp->model->rt.precision != BF16;
    printf("%lld random schedules %s; %lld more deadlock, and the compiler says so (%.1f s)\nwith",
           (long long)all->counted,
           trained ? "train as one rank does, bit for bit (with updates: are proved)" : "are proved",
           (long long)all->deadlocked, (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec));
    bool rare = !nfixed && all->deadlocked > drawn / 4;
    for (int f = 0; f < NHAS; f++) {
        printf(" %s %.0f%%%s", has_text[f], 100.0 * (double)all->has[f] / (double)drawn, f < NHAS - 1 ? "," : "\n");
        rare |= !nfixed && all->has[f] < drawn / 20;
    }
    if (rare && cases >= 200)
        printf("the draws have become one-sided: a feature is rare, or deadlocks are many\n");
    return rare && cases >= 200;
}
