/* The predicted timeline of ranks that share cores, as threads of one machine do.
 *
 * A job is an amount of work: the seconds it takes alone, in the threads it uses. The operating system divides the
 * cores equally: while the jobs that run use more threads than there are cores, each job's rate is cores / threads in
 * use, and else 1. So all running jobs progress equally, and one clock measures the work that each has done since a
 * common moment (the virtual time of fair queueing: Parekh & Gallager 1993). A job ends when this clock has advanced by
 * its work, whatever the rate was meanwhile. A heap has the ends on that clock, another the ends of messages in
 * seconds: n log n in all. A waiting rank blocks and uses no core. Messages and copies to host memory use links, not
 * cores.
 *
 * With machine.serial, a rank is one thread that does all of its work, like the replay on a CPU
 * (runtime/device/replay.c): of the instructions that can start, it takes the one issued first. The side that comes
 * last to a message moves its bytes, on its own core. If there are more ranks than cores, they take turns, as in
 * runtime/process/turns.c: a rank keeps its core until it has to wait for another rank, and then the rank that has been
 * ready for the longest time gets it.
 *
 * A job's duration depends on the other ranks, so a walk in the global order (sim.c) cannot compute it. Here time
 * advances from event to event. An instruction starts when everything that it would wait for in sim.c has ended. */
#include "base/heap.h"
#include "sim.h"
#include <assert.h>
#include <math.h>
#include <string.h>

struct place {
    int32_t rank, i;
};

enum event { FREES, ENDS, RUNS }; /* a lane becomes free; an instruction ends; a rank that got a core runs */
struct due {
    double t;
    int64_t nth; /* breaks ties */
    struct place place;
    enum event event;
};
static inline bool due_before(struct due a, struct due b) { return a.t != b.t ? a.t < b.t : a.nth < b.nth; }
HEAP(dues, struct due, due_before)

/* A rank that is one thread: what it can start, in the order of issue. */
static inline bool issued_before(int32_t a, int32_t b) { return a < b; }
HEAP(queue, int32_t, issued_before)
struct thread {
    struct queue queue;
    bool busy;
    bool waits; /* for its turn */
    bool has;   /* its turn */
};

struct shared {
    const struct shared_run *run;
    const struct spec *sp;
    struct sim sim; /* for the durations */
    const struct program *p;
    struct follows *follows;
    int32_t **need;   /* per instruction: number of instructions that it follows and that have not ended in this pass */
    int32_t *left;    /* per rank: instructions of the pass that have not ended */
    int64_t *pass;    /* per rank */
    int32_t *came;    /* per message: sides that are ready */
    struct place *of; /* of[of_at[m] .. of_at[m + 1]): the instructions of message m */
    int32_t *of_at;
    struct place *ready; /* a stack of instructions to start now */
    size_t nready, ready_capacity;
    struct thread *thread; /* per rank; NULL: lanes work side by side */
    struct queued {
        int free;            /* cores for ranks that are threads */
        int *rank, first, n; /* a ring of ranks that wait for their turns, longest first */
    } turns;
    struct dues running, moving; /* by the clock of work, and by time */
    double now, work;            /* the time; the clock of work */
    int64_t nth;
    int32_t *joined; /* per repetition: ranks whose lanes have joined after it */
    bool enough;
};

bool cores_are_shared(const struct spec *sp) {
    return sp->machine.serial ||
           (sp->machine.cores > 0 && sp->machine.cores < (double)sp->workers * sp->machine.threads);
}

static void find_sides(struct shared *s) {
    const struct program *p = s->p;
    s->of_at = NEW(int32_t, p->nmsgs + 2);
    for (int r = 0; r < p->workers; r++)
        for (int i = 0; i < p->rank[r].nins; i++)
            if (p->rank[r].ins[i].msg >= 0)
                s->of_at[p->rank[r].ins[i].msg + 2]++;
    for (int m = 0; m <= p->nmsgs; m++)
        s->of_at[m + 1] += s->of_at[m];
    s->of = NEW(struct place, s->of_at[p->nmsgs + 1]);
    for (int r = 0; r < p->workers; r++)
        for (int i = 0; i < p->rank[r].nins; i++)
            if (p->rank[r].ins[i].msg >= 0)
                s->of[s->of_at[p->rank[r].ins[i].msg + 1]++] = (struct place){r, i};
}

/* ---- time ---- */

/* Returns how much work a running job does per second. */
static double rate(const struct shared *s) {
    double threads = (double)s->running.n * s->sp->machine.threads;
    return s->sp->machine.cores > 0 && threads > s->sp->machine.cores ? s->sp->machine.cores / threads : 1;
}

static void push_moving(struct shared *s, double t, struct place place, enum event event) {
    dues_push(&s->moving, (struct due){t, s->nth++, place, event});
}

/* Returns where an instruction's times go. */
static int64_t index_of(const struct shared *s, struct place at) {
    const struct rank *k = &s->p->rank[at.rank];
    int64_t pass = s->pass[at.rank];
    if (!s->run->appends)
        return at.i;
    if (!s->p->period)
        return pass * k->nins + at.i;
    int64_t repeated = pass == 0 ? 0 : (pass > s->run->copies ? s->run->copies : pass) - 1;
    return at.i + repeated * (k->period.end - k->period.begin);
}

static void set_start(struct shared *s, struct place at) { s->run->tl->start[at.rank][index_of(s, at)] = s->now; }

static void set_end(struct shared *s, struct place at) {
    s->run->tl->end[at.rank][index_of(s, at)] = s->now;
    s->run->tl->makespan = fmax(s->run->tl->makespan, s->now);
}

/* ---- instructions ---- */

static void become_ready(struct shared *s, struct place at) {
    GROW(s->ready, s->ready_capacity, s->nready + 1);
    s->ready[s->nready++] = at;
}

static void let_follow(struct shared *s, struct place at, bool frees) {
    const struct follows *f = &s->follows[at.rank];
    for (int32_t n = f->at[at.i]; n < f->at[at.i + 1]; n++) {
        int32_t next = frees ? ~f->next[n] : f->next[n];
        if (next >= 0 && --s->need[at.rank][next] == 0)
            become_ready(s, (struct place){at.rank, next});
    }
}

static void end_pass(struct shared *s, int r);

static void end_instruction(struct shared *s, struct place at) {
    if (s->thread || s->p->rank[at.rank].ins[at.i].msg < 0)
        let_follow(s, at, true);
    let_follow(s, at, false);
    if (--s->left[at.rank] == 0)
        end_pass(s, at.rank);
}

static int paired(const struct shared *s, struct place at) {
    return sim_leads_pair(&s->sim, &s->p->rank[at.rank].ins[at.i]) ? 2 : 1;
}

static void run_on_core(struct shared *s, struct place at, double work) {
    dues_push(&s->running, (struct due){s->work + work, s->nth++, at, ENDS});
    if (s->thread)
        s->thread[at.rank].busy = true;
}

/* Starts a job, an update, a sum or a copy to host memory. */
static void start_alone(struct shared *s, struct place at) {
    const struct instr *x = &s->p->rank[at.rank].ins[at.i];
    double took = sim_noise(&s->sim, at.rank, at.i) * sim_duration(&s->sim, at.rank, x);
    for (int n = 0; n < paired(s, at); n++)
        set_start(s, (struct place){at.rank, at.i + n});
    if (is_copy(x->op) && !s->thread)
        push_moving(s, s->now + took, at, ENDS);
    else
        run_on_core(s, at, took);
}

static void start_message(struct shared *s, const struct place *side) {
    bool sends = is_send(s->p->rank[side->rank].ins[side->i].op);
    struct place src = side[!sends], dst = side[sends];
    struct message_times m = sim_message(&s->sim, src.rank, src.i);
    set_start(s, src);
    s->run->tl->start[dst.rank][index_of(s, dst)] = s->now + m.late;
    push_moving(s, s->now + m.took, src, FREES);
    push_moving(s, s->now + m.took, src, ENDS);
    push_moving(s, s->now + m.took, dst, FREES);
    push_moving(s, s->now + m.late + m.took, dst, ENDS);
}

static void start_collective(struct shared *s, const struct place *member, int n) {
    double end = s->now + sim_collective(&s->sim, member->rank, member->i);
    for (int i = 0; i < n; i++) {
        set_start(s, member[i]);
        push_moving(s, end, member[i], FREES);
        push_moving(s, end, member[i], ENDS);
    }
}

/* Returns the work of moving a message or a collective, for a rank that is one thread. */
static double moving_work(const struct shared *s, struct place at, bool group) {
    const double *measured = s->sp->machine.message;
    if (measured)
        return sim_noise(&s->sim, at.rank, at.i) * measured[s->p->rank[at.rank].ins[at.i].msg];
    struct message_times m =
        group ? (struct message_times){0, sim_collective(&s->sim, at.rank, at.i)} : sim_message(&s->sim, at.rank, at.i);
    return m.late + m.took;
}

/* Lets a rank take part in a message, which starts when the last side has come. */
static void meet(struct shared *s, struct place at) {
    const struct instr *x = &s->p->rank[at.rank].ins[at.i];
    int n = s->of_at[x->msg + 1] - s->of_at[x->msg];
    const struct place *side = &s->of[s->of_at[x->msg]];
    if (++s->came[x->msg] < n)
        return;
    s->came[x->msg] = 0;
    if (s->thread) {
        for (int i = 0; i < n; i++)
            set_start(s, side[i]);
        run_on_core(s, at, moving_work(s, at, is_group(x->op)));
    } else if (is_group(x->op))
        start_collective(s, side, n);
    else
        start_message(s, side);
}

static void start(struct shared *s, struct place at) {
    int64_t pass = s->pass[at.rank];
    s->sim.draw = random_bits(s->run->draw, (uint64_t)(pass > s->run->copies ? s->run->copies : pass));
    if (s->p->rank[at.rank].ins[at.i].msg >= 0)
        meet(s, at);
    else
        start_alone(s, at);
}

/* ---- turns ---- */

/* Gives a rank a core, on which it runs after the time of a handoff; at the start of a step, at once. */
static void begin_turn(struct shared *s, int r) {
    s->thread[r].has = true;
    if (s->now == 0 || s->sp->machine.handoff == 0)
        return;
    s->thread[r].busy = true;
    push_moving(s, s->now + s->sp->machine.handoff, (struct place){r, -1}, RUNS);
}

/* Gives a rank that is ready its turn, or queues it. */
static void ask_core(struct shared *s, int r) {
    struct thread *thread = &s->thread[r];
    if (s->turns.free > 0) {
        s->turns.free--;
        begin_turn(s, r);
    } else if (!thread->waits) {
        s->turns.rank[(s->turns.first + s->turns.n++) % s->p->workers] = r;
        thread->waits = true;
    }
}

/* Ends rank r's turn. Returns the rank that has waited longest for one, or -1. */
static int leave_core(struct shared *s, int r) {
    struct queued *turns = &s->turns;
    s->thread[r].has = false;
    turns->free++;
    if (turns->n == 0)
        return -1;
    int next = turns->rank[turns->first];
    turns->first = (turns->first + 1) % s->p->workers;
    turns->n--;
    s->thread[next].waits = false;
    return next;
}

/* Starts what a rank's thread can start in its turn. If that is nothing, ends the turn and serves the next rank. */
static void serve(struct shared *s, int r) {
    while (r >= 0) {
        struct thread *thread = &s->thread[r];
        if (!thread->has && thread->queue.n > 0)
            ask_core(s, r);
        while (thread->has && !thread->busy && thread->queue.n > 0)
            start(s, (struct place){r, queue_pop(&thread->queue)});
        r = thread->has && !thread->busy ? leave_core(s, r) : -1;
    }
}

static int count_turns(const struct spec *sp) {
    double most = sp->machine.cores > 0 ? ceil(sp->machine.cores / sp->machine.threads) : sp->workers;
    return (int)fmin(fmax(most, 1), sp->workers);
}

/* ---- passes ---- */

static int64_t count_passes(const struct shared *s) { return s->run->copies + (s->p->period ? 2 : 0); }

static int32_t section_begin(const struct shared *s, int r, int64_t pass) {
    const struct rank *k = &s->p->rank[r];
    return !s->p->period || pass == 0 ? 0 : pass <= s->run->copies ? k->period.begin : k->period.end;
}

static int32_t section_end(const struct shared *s, int r, int64_t pass) {
    const struct rank *k = &s->p->rank[r];
    return !s->p->period || pass > s->run->copies ? k->nins : pass == 0 ? k->period.begin : k->period.end;
}

/* Notes that a rank's lanes have joined after a repetition; ends the run when repetitions have settled. */
static void note_join(struct shared *s, int r) {
    struct followed *all = s->run->followed;
    int64_t n = s->pass[r] + (s->p->period ? 0 : 1); /* repetitions that have ended */
    if (!all || n > MOST_REPETITIONS || n > s->run->copies)
        return;
    if (!all->at[n])
        all->at[n] = NEW(double, s->p->workers);
    all->at[n][r] = s->now;
    if (++s->joined[n] < s->p->workers || n == 0)
        return;
    all->n = (int)n;
    s->enough |= sim_settles(all, s->p->workers);
}

static void begin_pass(struct shared *s, int r) {
    int32_t begin = section_begin(s, r, s->pass[r]), end = section_end(s, r, s->pass[r]);
    s->left[r] = end - begin;
    memcpy(s->need[r] + begin, s->follows[r].need + begin, sizeof **s->need * (size_t)(end - begin));
    for (int32_t i = end - 1; i >= begin; i--)
        if (s->need[r][i] == 0)
            become_ready(s, (struct place){r, i});
}

static void end_pass(struct shared *s, int r) {
    do {
        note_join(s, r);
        if (++s->pass[r] == count_passes(s))
            return;
        begin_pass(s, r);
    } while (s->left[r] == 0);
}

static void begin_run(struct shared *s) {
    for (int r = 0; r < s->p->workers; r++) {
        begin_pass(s, r);
        if (s->left[r] == 0)
            end_pass(s, r);
    }
}

/* ---- the run ---- */

static void start_ready(struct shared *s) {
    while (s->nready > 0 && !s->thread)
        start(s, s->ready[--s->nready]);
    for (size_t i = 0; i < s->nready; i++)
        queue_push(&s->thread[s->ready[i].rank].queue, s->ready[i].i);
    for (size_t i = 0; i < s->nready; i++) /* starting nothing makes anything ready */
        serve(s, s->ready[i].rank);
    s->nready = 0;
}

/* Ends the sides of a message, the jobs of a pair, or a single instruction. */
static void end_together(struct shared *s, const struct place *at, int n) {
    for (int k = 0; k < n; k++)
        set_end(s, at[k]);
    for (int k = 0; k < n; k++)
        end_instruction(s, at[k]);
}

static void finish_work(struct shared *s) {
    struct due due = dues_pop(&s->running);
    struct place pair[2] = {due.place, {due.place.rank, due.place.i + 1}};
    int32_t msg = s->p->rank[due.place.rank].ins[due.place.i].msg;
    s->work = s->running.n > 0 ? fmax(due.t, s->work) : 0; /* resets the clock when idle, to stay precise */
    if (s->thread)
        s->thread[due.place.rank].busy = false;
    if (msg >= 0)
        end_together(s, &s->of[s->of_at[msg]], s->of_at[msg + 1] - s->of_at[msg]);
    else
        end_together(s, pair, paired(s, due.place));
    start_ready(s);
    if (s->thread)
        serve(s, due.place.rank);
}

static void finish_move(struct shared *s) {
    struct due due = dues_pop(&s->moving);
    if (due.event == FREES) {
        let_follow(s, due.place, true);
        return;
    }
    if (due.event == RUNS) {
        s->thread[due.place.rank].busy = false;
        serve(s, due.place.rank);
        return;
    }
    set_end(s, due.place);
    end_instruction(s, due.place);
}

/* Advances to the next event. */
static void advance_time(struct shared *s) {
    double speed = rate(s);
    double job = s->running.n > 0 ? s->now + fmax(s->running.a[0].t - s->work, 0) / speed : INFINITY;
    double move = s->moving.n > 0 ? s->moving.a[0].t : INFINITY;
    if (move <= job) {
        s->work += s->running.n > 0 ? (move - s->now) * speed : 0;
        s->now = move;
        finish_move(s);
    } else {
        s->now = job;
        finish_work(s);
    }
}

static void run_shared_sim(struct shared *s) {
    begin_run(s);
    start_ready(s);
    while (!s->enough && s->running.n + s->moving.n > 0) {
        advance_time(s);
        start_ready(s);
    }
    for (int r = 0; r < s->p->workers; r++)
        assert(s->enough || s->pass[r] == count_passes(s)); /* verify has proved it */
}

void run_shared(const struct shared_run *run) {
    const struct program *p = run->c->program;
    struct shared s = {.run = run, .sp = run->c->spec, .p = p, .sim = sim_begin(run->c, run->tl)};
    s.sim.noise = run->noise;
    s.follows = NEW(struct follows, p->workers);
    s.need = NEW(int32_t *, p->workers);
    s.left = NEW(int32_t, p->workers);
    s.pass = NEW(int64_t, p->workers);
    s.came = NEW(int32_t, p->nmsgs);
    s.joined = NEW(int32_t, MOST_REPETITIONS + 1);
    for (int r = 0; r < p->workers; r++) {
        s.follows[r] = follows_of(&s.sim, r);
        s.need[r] = NEW(int32_t, p->rank[r].nins);
    }
    if (s.sp->machine.serial) {
        s.thread = NEW(struct thread, p->workers);
        s.turns.rank = NEW(int, p->workers);
        s.turns.free = count_turns(s.sp);
    }
    find_sides(&s);
    run->tl->makespan = 0;
    run_shared_sim(&s);
}

/* ---- repetition and noise ---- */

/* Returns the end of a step, skipping repetitions once they settle. */
static double whole_step(const struct compile *c, const struct followed *all) {
    int64_t repeats = c->program->repeats, skipped = 0;
    if (repeats > all->n)
        skipped = (repeats - all->n) / all->cycle;
    struct shared_run run = {.c = c, .tl = sim_timeline(c, c->program), .copies = repeats - skipped * all->cycle};
    run_shared(&run);
    return run.tl->makespan + (double)skipped * all->later;
}

void shared_steady(const struct compile *c) {
    const struct program *p = c->program;
    struct followed all = {.at = {NEW(double, p->workers)}};
    int64_t nins = 0;
    for (int r = 0; r < p->workers; r++)
        nins += p->rank[r].nins;
    int most = nins > LARGE ? 2 : MOST_REPETITIONS;
    struct shared_run run = {.c = c, .tl = sim_timeline(c, p), .copies = most, .followed = &all};
    if (p->period && p->repeats < most)
        run.copies = p->repeats;
    run_shared(&run);
    if (!all.cycle)
        sim_take_mean(&all, p->workers);
    c->timeline->period = all.later / all.cycle;
    if (p->period)
        c->timeline->step = whole_step(c, &all);
}

double shared_noisy(const struct sim *sim, const struct compile *c, uint64_t draw) {
    struct shared_run run = {.c = c, .tl = sim->tl, .copies = c->program->repeats, .noise = sim->noise, .draw = draw};
    struct scratch scratch = scratch_begin();
    run_shared(&run);
    scratch_end(scratch);
    return sim->tl->makespan;
}
