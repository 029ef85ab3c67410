/* Kills and stops ranks at random moments. Each time, all others must fail within the deadline and report where they
 * were. Nothing of the run is left, and it resumes from its newest checkpoint, sometimes under another schedule, to the
 * weights of an undisturbed run.
 *
 *     kill ROOM FAULTS SEED WORKERS     that many faults, WORKERS at a time
 *     kill ROOM FAULTS SEED 0           only the fault of that number, with all output
 *
 * ROOM holds the compiled programs: see programs[]. The files of a failed one stay in ROOM/fault-<number>. */
#include "moment.h"
#include <dirent.h>
#include <regex.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STEPS = 48, EVERY = 3, OVER_MPI = 5 /* one fault in five */ };
static const double DEADLINE = 2, MPI_DEADLINE = 3, SLACK = 5, RESUMED = 90; /* seconds */

#define TEXT "/usr/share/common-licenses/GPL-3"
static const struct program programs[] = {
    {"1f1b", "1f1b", 4, NULL, 0}, {"gpipe", "gpipe", 2, NULL, 0},   {"ddp", "ddp", 4, NULL, 0},
    {"fsdp", "fsdp", 4, NULL, 0}, {"serial", "serial", 1, NULL, 0}, {"gpt", "1f1b", 2, TEXT, 1},
};
enum { SERIAL = 4, GPT = 5, NPROGRAMS = 6, ALIKE = 2 };

/* Sums over all workers. */
static struct totals {
    int passed, failed, killed, stopped, over_mpi, moment[NMOMENTS], missed, slow;
    int torn;    /* left a half written, or half removed, checkpoint */
    int writing; /* survivors reported that they were writing one */
    int placed;  /* some survivor named an instruction and its peer */
    int late;    /* a rank's death over TCP was noticed only by the deadline */
    int hung;    /* mpirun itself hung after all its ranks had ended, an error of Open MPI, and was ended here */
    int resumed, elsewhere;
    double longest[2]; /* from the fault to the last end: killed, stopped */
    char weights[ALIKE][20];
} * all;

static const char *room;
static int seed, first_meeting;

/* ---- chance ---- */

static uint64_t state;
static uint64_t next(void) { /* splitmix64 (Steele, Lea & Flood 2014) */
    uint64_t z = state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}
static int below(int n) { return (int)(next() % (uint64_t)n); }
static double uniform(void) { return (double)(next() >> 11) * 0x1p-53; }

/* ---- one fault ---- */

struct fault {
    int number;
    const struct program *p;
    bool mpi, stop;
    int victim;
    struct moment m;
    char folder[PLACE - 64], saved[PLACE - 32];
    int from; /* step at which to resume */
    char why[512];
};

static bool wrong(struct fault *f, const char *format, ...) {
    va_list list;
    va_start(list, format);
    vsnprintf(f->why, sizeof f->why, format, list);
    va_end(list);
    return false;
}

static struct moment choose_moment(const struct fault *f) {
    struct moment m = {.kind = IN_STEPS};
    int chance = below(100), left = (STEPS - f->from) / EVERY;
    m.kind = chance < 15 ? IN_START : chance < 50 ? IN_STEPS : chance < 93 ? IN_CHECKPOINT : AT_END;
    m.step = m.kind == AT_END ? STEPS : (f->from / EVERY + 1 + below(left > 2 ? left - 2 : 1)) * EVERY;
    m.event = below(3 * f->p->ranks + 4); /* a stage's file, or the manifest, is created, closed and renamed */
    m.delay = m.kind == IN_START        ? uniform() * (f->mpi ? 1.5 : 0.06)
              : m.kind == IN_STEPS      ? uniform()
              : m.kind == IN_CHECKPOINT ? uniform() * 0.0005
                                        : uniform() * (f->mpi ? 0.1 : 0.005);
    return m;
}

/* Returns the newest of the folder's checkpoints; torn: whether one has no manifest. */
static int newest(const char *saved, bool *torn) {
    DIR *d = opendir(saved);
    int newest = 0, step;
    *torn = false;
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[2 * PLACE];
        if (sscanf(e->d_name, "step-%d", &step) != 1)
            continue;
        snprintf(path, sizeof path, "%s/%s/manifest.json", saved, e->d_name);
        bool whole = access(path, F_OK) == 0;
        *torn = *torn || !whole;
        newest = whole && step > newest ? step : newest;
    }
    if (d)
        closedir(d);
    return newest;
}

/* Returns whether the text has a line of this pattern; stores its first group, a number, in *number. */
static bool says(const char *text, const char *pattern, int *number) {
    regex_t r;
    regmatch_t m[2] = {{-1, -1}, {-1, -1}};
    if (regcomp(&r, pattern, REG_EXTENDED | REG_NEWLINE) != 0)
        give_up("no pattern", pattern);
    bool found = regexec(&r, text, 2, m, 0) == 0;
    regfree(&r);
    if (found && number && m[1].rm_so >= 0)
        *number = atoi(text + m[1].rm_so);
    return found;
}

static bool says_place(const char *text) {
    return says(text,
                "^pianola: rank [0-9]+ waits at [0-9]+ [A-Z]+(_[A-Z]+)* [a-z]+\\([0-9]+(,[0-9]+)?\\)"
                "( (to|from) rank [0-9]+( with ranks [0-9,]+)?| with ranks [0-9,]+): .",
                NULL);
}

/* Checks that rank k's message on stderr is repeated, word for word, at the top of its flight record. */
static bool same_record(struct fault *f, const struct run *r, int k) {
    char line[1024], *end;
    snprintf(line, sizeof line, "%s", run_said(r, "flight-rank%d.txt", k));
    if ((end = strchr(line, '\n')))
        *end = 0;
    char head[64];
    int n = snprintf(head, sizeof head, "rank %d of %s ", k, f->p->schedule);
    if (strncmp(line, head, (size_t)n) != 0)
        return wrong(f, "rank %d has no flight record: '%s'", k, line);
    char said[1100];
    snprintf(said, sizeof said, "pianola: rank %d %s\n", k, line + n);
    return strstr(run_said(r, "err%d", k), said) || wrong(f, "rank %d: its flight record says '%s'", k, line);
}

/* Checks messages: over TCP every rank prints one; under mpirun, which may kill the others, at least one does. */
static bool check_words(struct fault *f, const struct run *r, bool done, bool *placed, bool *writing) {
    char own[64];
    bool late = false;
    for (int k = 0; k < r->npids; k++) {
        bool victim = !r->mpi && k == f->victim;
        const char *text = run_said(r, "err%d", k);
        *placed = *placed || says_place(text);
        *writing = *writing || strstr(text, "writes a checkpoint");
        late = late || (!f->mpi && !f->stop && f->m.kind != IN_START && strstr(text, "(--deadline)"));
        snprintf(own, sizeof own, "^pianola: rank %d .*: .", k);
        if (victim && (!f->stop || r->code[k] == 128 + SIGKILL))
            continue;
        if (r->code[k] == 0 && !done)
            return wrong(f, "rank %d ended well", k);
        if (r->code[k] != 0 && !r->mpi && r->code[k] != 1 && r->code[k] != 2)
            return wrong(f, "rank %d ended with %d", k, r->code[k]);
        if (r->code[k] != 0 && !says(text, r->mpi ? "^pianola: rank [0-9]+ .*: ." : own, NULL) &&
            !(r->mpi && (done || f->m.kind == IN_START)))
            return wrong(f, "rank %d ended with %d and did not say why", k, r->code[k]);
        if (r->code[k] == 1 && !r->mpi && !same_record(f, r, k))
            return false;
    }
    __atomic_add_fetch(&all->late, late, __ATOMIC_RELAXED);
    return true;
}

/* Waits for all others to end, then for the stopped one: by itself once continued, or by force. */
static bool check_end(struct fault *f, struct run *r) {
    double begin = now(), limit = (f->mpi ? MPI_DEADLINE : DEADLINE) + SLACK;
    int victim = f->mpi ? -1 : f->victim;
    bool ended = run_wait(r, victim, limit), torn;
    if (!ended && f->mpi && f->stop && run_left(r) == 2 && newest(f->saved, &torn) == STEPS) {
        kill(run_rank(r, f->victim), SIGCONT); /* mpirun waits for the one rank that had nothing left to do */
        ended = run_wait(r, victim, SLACK);
    }
    if (!ended && f->mpi && run_left(r) == 1 && r->code[0] == RUNS_ON) {
        __atomic_add_fetch(&all->hung, 1, __ATOMIC_RELAXED);
        kill(r->pid[0], SIGKILL);
        ended = run_wait(r, victim, SLACK);
        begin = now(); /* mpirun's time does not count as the ranks' */
    }
    if (!ended)
        return wrong(f, "%d processes still run %.0f s later", run_left(r), limit);
    double took = now() - begin;
    if (took > all->longest[f->stop])
        all->longest[f->stop] = took; /* a lost update does little harm */
    if (!f->mpi && r->code[f->victim] == RUNS_ON)
        kill(r->pid[f->victim], below(2) ? SIGCONT : SIGKILL);
    for (double end = now() + SLACK; !run_ended(r, -1) || run_left(r) > 0; nap(0.01))
        if (now() > end)
            return wrong(f, "%d processes are left", run_left(r));
    return true;
}

static void note(const struct fault *f, bool torn, bool placed, bool writing) {
    __atomic_add_fetch(f->stop ? &all->stopped : &all->killed, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&all->over_mpi, f->mpi, __ATOMIC_RELAXED);
    __atomic_add_fetch(&all->moment[f->m.kind], 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&all->torn, torn, __ATOMIC_RELAXED);
    __atomic_add_fetch(&all->writing, writing && !torn, __ATOMIC_RELAXED);
    __atomic_add_fetch(&all->placed, placed, __ATOMIC_RELAXED);
}

/* Checks a run without a fault: it succeeds, unless this machine was too busy for the deadline. */
static bool check_missed(struct fault *f, const struct run *r, int step) {
    bool well = step == STEPS, slow = false;
    for (int k = 0; k < r->npids; k++) {
        well = well && r->code[k] == 0;
        slow = slow || strstr(run_said(r, "err%d", k), "(--deadline)");
    }
    __atomic_add_fetch(&all->missed, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&all->slow, !well && slow, __ATOMIC_RELAXED);
    return well || slow || wrong(f, "it ended by itself");
}

/* Runs up to the fault and its end. */
static bool disturb(struct fault *f, int turn) {
    struct run r;
    char logs[PLACE];
    bool torn, placed = false, writing = false;
    snprintf(logs, sizeof logs, "%s/run%d", f->folder, turn);
    mkdir(logs, 0777);
    struct start s = {f->p, f->mpi, room, logs, f->saved, first_meeting + f->number, STEPS, EVERY, 0, "--resume"};
    s.deadline = f->mpi ? MPI_DEADLINE : DEADLINE;
    int watch = moment_watch(f->saved);
    run_start(&r, &s);
    pid_t pid = moment_come(&r, watch, f->saved, &f->m, f->victim);
    bool came = pid && kill(pid, f->stop ? SIGSTOP : SIGKILL) == 0;
    bool ok = check_end(f, &r);
    if (!ok)
        run_kill(&r);
    came = came && r.code[f->mpi ? 0 : f->victim] != 0; /* unless it had just ended */
    f->from = newest(f->saved, &torn);
    if (!ok || !came)
        return ok && check_missed(f, &r, f->from);
    if (f->m.kind != IN_START && f->from < f->m.step - EVERY * (f->m.kind == IN_CHECKPOINT))
        return wrong(f, "the newest checkpoint is of step %d: one is lost", f->from);
    if (!check_words(f, &r, f->from == STEPS, &placed, &writing))
        return false;
    note(f, torn, placed, writing);
    return true;
}

/* Resumes as this program to the end: starts at the step of the folder, and reaches the same weights. */
static bool resume(struct fault *f, const struct program *p, bool mpi) {
    struct run r;
    char logs[PLACE], pattern[64];
    int from = 0;
    bool torn;
    snprintf(logs, sizeof logs, "%s/resumed", f->folder);
    mkdir(logs, 0777);
    struct start s = {p, mpi, room, logs, f->saved, first_meeting + f->number, STEPS, EVERY, RESUMED, "--resume"};
    run_start(&r, &s);
    if (!run_wait(&r, -1, RESUMED)) {
        run_kill(&r);
        return wrong(f, "resumed as %s: it hangs", p->name);
    }
    for (int k = 0; k < r.npids; k++)
        if (r.code[k] != 0)
            return wrong(f, "resumed as %s: rank %d ended with %d", p->name, k, r.code[k]);
    const char *text = run_said(&r, "out", 0);
    says(text, "^resumed +from step ([0-9]+)", &from);
    if (from != f->from)
        return wrong(f, "resumed as %s: from step %d, not %d", p->name, from, f->from);
    snprintf(pattern, sizeof pattern, "^weights +%s .* after %d steps", all->weights[p->like], STEPS);
    if (!says(text, pattern, NULL))
        return wrong(f, "resumed as %s: not the weights %s", p->name, all->weights[p->like]);
    if (newest(f->saved, &torn) != STEPS || (torn && from < STEPS))
        return wrong(f, "resumed as %s: half a checkpoint is left", p->name);
    __atomic_add_fetch(&all->resumed, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&all->elsewhere, p != f->p, __ATOMIC_RELAXED);
    return true;
}

static const struct program *choose(int like) {
    if (like)
        return &programs[GPT];
    return &programs[below(SERIAL)];
}

static void remove_folder(const char *path) {
    char command[2 * PLACE];
    snprintf(command, sizeof command, "rm -rf '%s'", path);
    if (system(command) != 0)
        give_up("cannot remove", path);
}

/* Tries a fault, sometimes more in the resumed run, and the end. */
static bool try(struct fault *f) {
    state = (uint64_t)seed * 1000003 + (uint64_t)f->number;
    int like = f->number % 6 == 1;
    bool ok = true;
    snprintf(f->folder, sizeof f->folder, "%s/fault-%d", room, f->number);
    snprintf(f->saved, sizeof f->saved, "%s/saved", f->folder);
    remove_folder(f->folder);
    mkdir(f->folder, 0777);
    mkdir(f->saved, 0777);
    for (int turn = 0; ok && f->from < STEPS && (turn == 0 || (turn < 3 && below(5) == 0)); turn++) {
        f->p = choose(like);
        f->mpi = f->number % OVER_MPI == 0;
        f->stop = (f->number + turn) % 2;
        f->victim = below(f->p->ranks);
        f->m = choose_moment(f);
        ok = disturb(f, turn);
    }
    const struct program *p = like || below(2) ? f->p : &programs[below(SERIAL + 1)];
    return ok && resume(f, p, f->mpi && below(2));
}

static void report(const struct fault *f, bool ok, bool loud) {
    char command[2 * PLACE];
    printf("fault %d of seed %d: %s over %s, rank %d %s %s (step %d, event %d): %s\n", f->number, seed, f->p->name,
           f->mpi ? "MPI" : "TCP", f->victim, f->stop ? "stopped" : "killed", moment_names[f->m.kind], f->m.step,
           f->m.event, ok ? "fine" : f->why);
    fflush(stdout);
    snprintf(command, sizeof command, "cd '%s' && tail -n 12 run*/err* run*/out resumed/err* resumed/out 2>/dev/null",
             f->folder);
    if ((!ok || loud) && system(command) < 0)
        printf("(no logs)\n");
}

static void one(int number, bool loud) {
    struct fault f = {.number = number};
    bool ok = try(&f);
    __atomic_add_fetch(ok ? &all->passed : &all->failed, 1, __ATOMIC_RELAXED);
    if (!ok || loud)
        report(&f, ok, loud);
    if (ok)
        remove_folder(f.folder);
}

/* Runs without disturbance, to get the weights that all others must reach. */
static void undisturbed(void) {
    for (int i = 0; i < NPROGRAMS; i++) {
        struct fault f = {.number = 0};
        const struct program *p = &programs[i];
        struct run r;
        regmatch_t m[2];
        regex_t pattern;
        if (p->like == (i ? programs[i - 1].like : -1))
            continue;
        snprintf(f.folder, sizeof f.folder, "%s/undisturbed", room);
        snprintf(f.saved, sizeof f.saved, "%s/saved", f.folder);
        remove_folder(f.folder);
        mkdir(f.folder, 0777);
        struct start s = {p, false, room, f.folder, f.saved, first_meeting, STEPS, STEPS, RESUMED, NULL};
        run_start(&r, &s);
        bool ended = run_wait(&r, -1, RESUMED);
        const char *text = run_said(&r, "out", 0);
        regcomp(&pattern, "^weights +([0-9a-f]+)", REG_EXTENDED | REG_NEWLINE);
        if (!ended || regexec(&pattern, text, 2, m, 0) != 0)
            give_up("does not run undisturbed:", p->name);
        snprintf(all->weights[p->like], sizeof *all->weights, "%.*s", (int)(m[1].rm_eo - m[1].rm_so),
                 text + m[1].rm_so);
        regfree(&pattern);
        remove_folder(f.folder);
    }
}

static void print(void) {
    int n = all->killed + all->stopped, at_checkpoint = all->torn + all->writing;
    printf("%d faults: %d ranks killed, %d stopped; %d over MPI; %d missed, of these %d too slow for the deadline\n", n,
           all->killed, all->stopped, all->over_mpi, all->missed, all->slow);
    for (int i = 0; i < NMOMENTS; i++)
        printf("%s%s %d", i ? ", " : "", moment_names[i], all->moment[i]);
    printf("\nhit a checkpoint: %d, of these %d left half written; named an instruction: %d\n", at_checkpoint,
           all->torn, all->placed);
    printf("resumed: %d, of these %d as another program; ends took at most %.1f s (killed), %.1f s (stopped)\n",
           all->resumed, all->elsewhere, all->longest[0], all->longest[1]);
    if (n > 50 && (at_checkpoint * 5 < n || all->placed * 4 < n || all->missed * 4 > n)) {
        printf("too few faults hit a checkpoint or a step\n");
        all->failed++;
    }
    if (all->late * 20 > all->killed + 20) {
        printf("%d deaths were noticed by the deadline only\n", all->late);
        all->failed++;
    }
    if (all->hung)
        printf("mpirun hung %d times once all its ranks had gone\n", all->hung);
    if (all->hung * 20 > all->over_mpi + 20) {
        printf("too often\n");
        all->failed++;
    }
    printf("%d passed, %d failed\n", all->passed, all->failed);
}

int main(int argc, char **argv) {
    int faults = argc == 5 ? atoi(argv[2]) : 0, workers = argc == 5 ? atoi(argv[4]) : 0;
    if (argc != 5) {
        fprintf(stderr, "usage: kill ROOM FAULTS SEED WORKERS\n");
        return 2;
    }
    room = argv[1];
    seed = atoi(argv[3]);
    first_meeting = (int)getpid() * 1024; /* 21 of its bits become an address */
    all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED)
        give_up("no memory for", "the totals");
    undisturbed();
    if (workers == 0)
        one(faults, true);
    for (int w = 0; w < workers; w++)
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            prctl(PR_SET_CHILD_SUBREAPER, 1); /* adopts what mpirun leaves */
            for (int i = w; i < faults; i += workers)
                one(i, false);
            exit(0);
        }
    while (wait(NULL) > 0)
        ;
    if (all->passed + all->failed < (workers ? faults : 1))
        all->failed++; /* a worker gave up */
    print();
    return all->failed != 0;
}
