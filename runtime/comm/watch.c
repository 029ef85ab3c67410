#include "watch.h"
#include "store/fault.h"
#include "store/seconds.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LAST = 8 };                             /* instructions of each lane in a flight record */
static const double AFTER_SIGNAL = 0.3;        /* seconds without an instruction's end after which the rank counts as
                                                * stuck */
static const double LOOK = 0.05, LOOKS = 20.0; /* seconds between checks of the watch, and checks per deadline */

/* Current position of a rank. */
struct place {
    int rank;
    const char *phase;     /* NULL: nothing is timed */
    struct replay *replay; /* replay of the step under way, or NULL */
    int64_t pass;          /* pass that the rank is in, counted like replay's passes; before a step begins, its first */
    double since;          /* start of the phase or of the pass */
    double since_device;   /* the same start by the device's clock */
    double heard;          /* time of a signal, or when an instruction last ended after it; 0: no signal */
    int64_t done;          /* instructions done at that time */
    bool told;
    const char *hint;
};
static struct watch {
    struct watch_args a;
    pthread_t thread;
    pthread_mutex_t lock; /* guards the fields below; the thread that ends the process keeps it */
    struct place one;     /* place of the process's only rank */
    struct place *place;  /* places of ranks that are threads, else NULL */
    struct place *at;     /* the place that the watch checks */
    bool meeting;         /* ranks still meet: a signal ends the process */
    int signal;
} w = {.lock = PTHREAD_MUTEX_INITIALIZER};
/* Key to the place of a thread's rank; unset if the process has one rank. It is not a thread-local variable, because
 * the stand-in for CUDA uses those for a block's shared memory. */
static pthread_key_t own_key;
static pthread_once_t own_once = PTHREAD_ONCE_INIT;
static void make_own_key(void) { pthread_key_create(&own_key, NULL); }

static struct place *own_place(void) {
    struct place *own = w.place ? pthread_getspecific(own_key) : NULL;
    return own ? own : &w.one;
}
static struct place *first_place(void) { return w.place ? w.place : &w.one; }
static struct place *last_place(void) { return first_place() + (w.place ? w.a.ranks - 1 : 0); }

/* ---- progress of the replay ---- */

static const struct rt_rank *stream(const struct replay *re) { return &re->program->rank[re->rank]; }
/* Returns how many passes the device is ahead of the watched one; negative if it has not begun that pass. */
static int32_t lead(const struct replay *re) {
    uint32_t passes = re->reached ? __atomic_load_n(&re->reached[stream(re)->nlanes], __ATOMIC_ACQUIRE)
                                  : (uint32_t)__atomic_load_n(&re->passes, __ATOMIC_ACQUIRE);
    return (int32_t)(passes - (uint32_t)w.at->pass);
}

static int32_t cursor(const struct replay *re, int l) {
    if (!re->reached)
        return __atomic_load_n(&re->cursor[l], __ATOMIC_ACQUIRE);
    return stream(re)->lane_at[l] + (lead(re) < 0 ? 0 : (int32_t)__atomic_load_n(&re->reached[l], __ATOMIC_ACQUIRE));
}

/* Returns the instruction that lane l has reached, or -1 at its end. */
static int32_t head(const struct replay *re, int l) {
    const struct rt_rank *k = stream(re);
    int32_t c = cursor(re, l);
    return c == k->lane_at[l + 1] ? -1 : k->lane_ins[c];
}

static bool instr_ended(const struct replay *re, int32_t i) {
    int32_t h = head(re, stream(re)->ins[i].lane);
    return h < 0 || h > i;
}

static bool may_run(const struct replay *re, const struct rt_instr *x) {
    const struct rt_rank *k = stream(re);
    for (int32_t n = 0, before; (before = wait_of(k, x, n)) >= 0; n++)
        if (!instr_ended(re, before))
            return false;
    return true;
}

static int64_t done(const struct replay *re) {
    int64_t n = 0;
    for (int l = 0; l < stream(re)->nlanes; l++)
        n += cursor(re, l) - stream(re)->lane_at[l];
    return n;
}

/* Returns the instruction that holds the rank up: the job that runs, else the first message, in issue order, that could
 * proceed; -1: none. */
static int32_t blocked(const struct replay *re) {
    int32_t running = re->reached ? -1 : __atomic_load_n(&re->running, __ATOMIC_ACQUIRE), first = running;
    for (int l = 0; l < stream(re)->nlanes && running < 0; l++) {
        int32_t h = head(re, l);
        if (h >= 0 && (first < 0 || h < first) && may_run(re, &stream(re)->ins[h]))
            first = h;
    }
    return first;
}

/* ---- names ---- */

/* Names an instruction. A message's name includes its tensor: "RECV_F act(2,5) from rank 2". A job or an addition has
 * just its name. */
void instr_name(char *out, size_t n, const struct rt_program *p, const struct rt_instr *x, const int32_t *groups) {
    int32_t slices = p->model->slices;
    const char *tensor = is_message(x->op) ? kind_row(op_row(x->op)->tensor)->name : NULL;
    char batch[32] = "";
    if (x->batch >= 0 && slices > 0 && x->op != OP_U)
        snprintf(batch, sizeof batch, tensor ? ",%d.%d" : " %d.%d", x->batch / slices, x->batch % slices);
    else if (x->batch >= 0)
        snprintf(batch, sizeof batch, tensor ? ",%d" : " %d", x->batch);
    int at = snprintf(out, n, tensor ? "%s %s(%s%s)" : "%s %s%s%s", op_row(x->op)->name, tensor ? tensor : "",
                      stage_name(p, x->stage).s, batch);
    if (has_peer(x->op))
        snprintf(out + at, n - (size_t)at, " %s rank %d", is_send(x->op) ? "to" : "from", x->peer);
    if (!is_group(x->op))
        return;
    if (has_root(x->op))
        at += snprintf(out + at, n - (size_t)at, " %s rank %d", x->op == OP_REDUCE ? "to" : "from", x->root);
    if (!groups)
        return;
    const char *between = " with ranks ";
    for (const int32_t *m = group_at(groups, x->group); *m >= 0 && (size_t)at < n; m++, between = ",")
        at += snprintf(out + at, n - (size_t)at, "%s%d", between, *m);
}

/* Writes the place: "waits at 412 RECV_F act(2,5) from rank 2"; without a step under way, the phase's text. */
static void write_place(char *out, size_t n) {
    int32_t i = w.at->replay ? blocked(w.at->replay) : -1;
    if (i < 0) {
        snprintf(out, n, "%s", w.at->phase ? w.at->phase : "was at its end");
        return;
    }
    const struct rt_instr *x = &stream(w.at->replay)->ins[i];
    int at = snprintf(out, n, is_message(x->op) ? "waits at %d " : "is at %d ", i + 1);
    instr_name(out + at, n - (size_t)at, w.at->replay->program, x, w.a.group);
}

/* Writes the step, "step 3", or the pass in it: "step 3, repetition 7 of 10". */
static void put_pass(char *out, size_t n) {
    const struct rt_program *p = w.at->replay->program;
    int64_t step = (w.at->pass - 1) / passes_of(p), pass = (w.at->pass - 1) % passes_of(p);
    static const char *const side[NSECTIONS] = {"the beginning of ", "", "the end of "};
    if (p->period > 0 && section_at(p, pass) == PERIOD)
        snprintf(out, n, "step %lld, repetition %lld of %lld", (long long)step + 1, (long long)pass,
                 (long long)p->repeats);
    else
        snprintf(out, n, "%sstep %lld", p->period > 0 ? side[section_at(p, pass)] : "", (long long)step + 1);
}

/* ---- the flight record ---- */

static void write_lane(FILE *f, const struct replay *re, int l) {
    const struct rt_rank *k = stream(re);
    int32_t at = cursor(re, l), from = at - k->lane_at[l] < LAST ? k->lane_at[l] : at - LAST;
    char name[512];
    fprintf(f, "\nlane %s: %d of %d done\n", (w.a.lane ? w.a.lane : stream(re)->lane)[l], at - k->lane_at[l],
            k->lane_at[l + 1] - k->lane_at[l]);
    for (int32_t c = from; c < at; c++) {
        double start = 0, end = 0;
        bool known = re->device->stamp((struct replay *)re, k->lane_ins[c], &start, &end);
        instr_name(name, sizeof name, re->program, &k->ins[k->lane_ins[c]], w.a.group);
        if (known)
            fprintf(f, "  %10.6f  %10.6f  %d %s\n", start - w.at->since_device, end - w.at->since_device,
                    k->lane_ins[c] + 1, name);
        else
            fprintf(f, "  %24d %s\n", k->lane_ins[c] + 1, name);
    }
    int32_t h = head(re, l);
    if (h < 0)
        return;
    const struct rt_instr *x = &k->ins[h];
    instr_name(name, sizeof name, re->program, x, w.a.group);
    fprintf(f, "                    next  %d %s", h + 1, name);
    const char *between = ", after ";
    for (int32_t n = 0, before; (before = wait_of(k, x, n)) >= 0; n++)
        if (!instr_ended(re, before)) {
            fprintf(f, "%s%d", between, before + 1);
            between = ", ";
        }
    fputc('\n', f);
}

static void write_flight(const char *place, const char *why) {
    char path[4096];
    snprintf(path, sizeof path, "%s/flight-rank%d.txt", w.a.flight, w.at->rank);
    FILE *f = fopen(path, "w");
    if (f) {
        fprintf(f, "rank %d of %s %s: %s\n", w.at->rank, w.a.program, place, why);
        if (w.at->replay) {
            char pass[96];
            put_pass(pass, sizeof pass);
            fprintf(f,
                    "%s, %.3f s after it began. Times are seconds since then; numbers are positions in the table of "
                    "rank%d.cu, from 1.\n",
                    pass, seconds() - w.at->since, w.at->rank);
            for (int l = 0; l < stream(w.at->replay)->nlanes; l++)
                write_lane(f, w.at->replay, l);
        }
    }
    if (!f || ferror(f) || fclose(f) != 0)
        fprintf(stderr, "pianola: rank %d: no flight record: %s: %s\n", w.at->rank, path, strerror(errno));
    else
        fprintf(stderr, "pianola: rank %d: flight record in %s\n", w.at->rank, path);
}

/* Updates the place if the device has gone on to a later pass, of this step or of the next. */
static void follow_passes(void) {
    int32_t passes = w.at->replay ? lead(w.at->replay) : 0;
    if (passes <= 0)
        return;
    w.at->pass += passes;
    w.at->since = seconds();
    w.at->since_device = w.at->replay->device->clock(w.at->replay);
}

static void say_why(const char *why) {
    char place[600];
    follow_passes();
    write_place(place, sizeof place);
    fprintf(stderr, "pianola: rank %d %s: %s\n", w.at->rank, place, why);
    write_flight(place, why);
    fflush(stderr);
}

/* Prints the JSON error: the late rank's place and the reason, then the places of the others. */
static void tell_fault(struct place *late, const char *why) {
    char text[16384], place[600];
    w.at = late;
    write_place(place, sizeof place);
    size_t n = (size_t)snprintf(text, sizeof text, "rank %d %s: %s", late->rank, place, why);
    for (w.at = first_place(); w.at <= last_place(); w.at++)
        if (w.at != late && w.at->phase && n < sizeof text) {
            write_place(place, sizeof place);
            n += (size_t)snprintf(text + n, sizeof text - n, "\nrank %d %s", w.at->rank, place);
        }
    w.at = late;
    fault_tell(text);
}

/* Reports every rank's place and ends the process. Keeps the lock, so that no other thread reports anything now. */
static _Noreturn void fail_locked(const char *why) {
    struct place *late = w.at;
    say_why(why);
    for (w.at = first_place(); w.at <= last_place(); w.at++)
        if (w.at != late && w.at->phase)
            say_why(why);
    tell_fault(late, why);
    if (w.a.saved)
        fprintf(stderr,
                "pianola: rank %d: to continue from the newest checkpoint in %s, start %s again with --resume\n",
                w.at->rank, w.a.saved, w.place ? "the run" : "all ranks");
    if (w.a.abort)
        w.a.abort();
    _exit(1);
}

void watch_fail(const char *why) {
    pthread_mutex_lock(&w.lock);
    w.at = own_place();
    fail_locked(why);
}

/* ---- the thread ---- */

/* Records the signal. A thread that waits for signals would not work, because libraries start threads that do not block
 * them. */
static void signalled(int signal) {
    int none = 0;
    if (!__atomic_compare_exchange_n(&w.signal, &none, signal, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        _exit(128 + signal); /* the second time */
}

static const char *signal_name(void) { return w.signal == SIGINT ? "SIGINT" : "SIGTERM"; }

/* Ends the process: there is no step to finish, and the missing ranks may never come. */
static _Noreturn void leave_meeting(void) {
    char place[600];
    write_place(place, sizeof place);
    fprintf(stderr, "pianola: rank %d %s: %s has come, before anything began\n", w.at->rank, place, signal_name());
    _exit(128 + w.signal);
}

/* Reports where the rank is stuck after a signal, since a SIGKILL may follow. */
static void look_after_signal(void) {
    char why[64];
    int64_t n = w.at->replay ? done(w.at->replay) : -1;
    if (w.at->heard == 0 || n != w.at->done) {
        w.at->done = n;
        w.at->heard = seconds();
    }
    if (w.at->told || !w.at->phase || seconds() < w.at->heard + AFTER_SIGNAL)
        return;
    bool in_job =
        w.at->replay && !w.at->replay->reached && __atomic_load_n(&w.at->replay->running, __ATOMIC_ACQUIRE) >= 0;
    if (in_job)
        return;
    w.at->told = true;
    snprintf(why, sizeof why, "%s has come", signal_name());
    say_why(why);
}

static void look_at_deadline(void) {
    char pass[96], why[1200];
    follow_passes();
    if (!w.at->phase || seconds() < w.at->since + w.a.deadline)
        return;
    if (w.at->replay) {
        put_pass(pass, sizeof pass);
        snprintf(why, sizeof why, "%s has taken %g s (--deadline)%s%s", pass, w.a.deadline, w.at->hint ? "; " : "",
                 w.at->hint ? w.at->hint : "");
    } else
        snprintf(why, sizeof why, "%g s have passed (--deadline)", w.a.deadline);
    fail_locked(why);
}

static void look_at_place(void) {
    if (w.a.deadline > 0)
        look_at_deadline();
    if (watch_signal() && w.meeting)
        leave_meeting();
    if (watch_signal() && !w.place) /* threads get no SIGKILL of their own */
        look_after_signal();
}

static void *watch_thread(void *arg) {
    double every = w.a.deadline > 0 && w.a.deadline / LOOKS < LOOK ? w.a.deadline / LOOKS : LOOK;
    const struct timespec pause = {0, (long)(1e9 * every)};
    for (;;) {
        nanosleep(&pause, NULL);
        pthread_mutex_lock(&w.lock);
        for (w.at = first_place(); w.at <= last_place(); w.at++)
            look_at_place();
        pthread_mutex_unlock(&w.lock);
    }
    return arg;
}

static void on_signals(void (*handler)(int)) {
    struct sigaction act = {.sa_flags = SA_RESTART};
    act.sa_handler = handler;
    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
}

bool watch_start(const struct watch_args *args) {
    w.a = *args;
    w.one.rank = args->rank;
    pthread_once(&own_once, make_own_key);
    w.place = args->ranks > 0 ? calloc((size_t)args->ranks, sizeof *w.place) : NULL;
    for (int r = 0; r < args->ranks && w.place; r++)
        w.place[r].rank = r;
    on_signals(signalled);
    if (args->ranks > 0 && (!w.place || args->deadline == 0))
        return w.place;
    return pthread_create(&w.thread, NULL, watch_thread, NULL) == 0;
}

void watch_stop(void) {
    on_signals(SIG_DFL);
    pthread_mutex_lock(&w.lock); /* so the watching thread is not checking ranks now; it ends when it sleeps next */
    if (w.a.deadline > 0)
        pthread_cancel(w.thread);
    free(w.place); /* the next run may have more ranks, and no watch */
    w.place = NULL;
    pthread_mutex_unlock(&w.lock);
    if (w.a.deadline > 0)
        pthread_join(w.thread, NULL);
}

void watch_rank(int rank) {
    if (w.place)
        pthread_setspecific(own_key, &w.place[rank]);
}

static void begin_phase(const char *phase, struct replay *re, int64_t step) {
    struct place *place = own_place();
    pthread_mutex_lock(&w.lock);
    place->phase = phase;
    place->replay = re;
    place->pass = re ? step * passes_of(re->program) + 1 : 0;
    place->since = seconds();
    place->since_device = re ? re->device->clock(re) : 0;
    pthread_mutex_unlock(&w.lock);
}

void watch_meeting(bool meeting) {
    pthread_mutex_lock(&w.lock);
    w.meeting = meeting;
    pthread_mutex_unlock(&w.lock);
}

void watch_phase(const char *what) { begin_phase(what, NULL, 0); }
void watch_step(struct replay *re, int64_t step) { begin_phase("waits for all ranks to end the step", re, step); }

void watch_end(void) {
    begin_phase("waits for all ranks to end", NULL, 0);
    pthread_mutex_lock(&w.lock);
    own_place()->told = true;
    pthread_mutex_unlock(&w.lock);
}

void watch_leave(void) { begin_phase(NULL, NULL, 0); }

void watch_hint(const char *hint) {
    pthread_mutex_lock(&w.lock);
    own_place()->hint = hint;
    pthread_mutex_unlock(&w.lock);
}

int watch_signal(void) { return __atomic_load_n(&w.signal, __ATOMIC_ACQUIRE); }
