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
 * last to a message moves its bytes, on its own core.
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

/* The followers of an instruction on its rank: next[at[i] .. at[i + 1]), once it has ended or, for ~next, once its lane
 * is free again. */
struct follows {
    int32_t *at, *next;
    int32_t *need; /* per instruction: number of instructions of its section that it follows */
};

enum event { FREES, ENDS }; /* a lane becomes free; an instruction ends */
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
    struct thread *thread;       /* per rank; NULL: lanes work side by side */
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

/* ---- what follows what ---- */

/* A pass over what instructions follow: counts, or fills in. frees: until the lane is free. */
typedef void note(struct follows *f, int32_t before, int32_t i, bool frees);

static void count_follower(struct follows *f, int32_t before, int32_t i, bool frees) {
    (void)frees;
    f->at[before + 2]++;
    f->need[i]++;
}

static void add_follower(struct follows *f, int32_t before, int32_t i, bool frees) {
    f->next[f->at[before + 1]++] = frees ? ~i : i;
}

/* Notes what instructions of rank r follow within their sections. Of an overlapped pair, the first follows what either
 * does, and starts both. */
static void walk_rank(const struct sim *sim, int r, struct follows *f, note *note) {
    const struct rank *k = &sim->p->rank[r];
    struct scratch scratch = scratch_begin();
    int32_t *last = NEW(int32_t, k->nlanes); /* per lane: 1 + its last instruction so far */
    for (int32_t i = 0; i < k->nins; i++) {
        const struct instr *x = &k->ins[i];
        bool second = i > 0 && sim_leads_pair(sim, x - 1);
        int section = section_of(k, i), beside = sim->sibling[r][x->lane];
        int32_t at = second ? i - 1 : i, before = second ? -1 : last[x->lane] - 1;
        int32_t other = beside >= 0 ? last[beside] - 1 : -1;
        if (before >= 0 && section_of(k, before) == section)
            note(f, before, at, sim_follows_edge(k, x));
        if (other >= 0 && section_of(k, other) == section)
            note(f, other, at, false);
        for (uint32_t w = x->wait; w < x->wait + x->nwait; w++)
            if (section_of(k, k->wait[w]) == section)
                note(f, k->wait[w], at, false);
        last[x->lane] = i + 1;
    }
    scratch_end(scratch);
}

static struct follows follows_of(const struct sim *sim, int r) {
    int32_t n = sim->p->rank[r].nins;
    struct follows f = {.at = NEW(int32_t, n + 2), .need = NEW(int32_t, n)};
    walk_rank(sim, r, &f, count_follower);
    for (int32_t i = 0; i <= n; i++)
        f.at[i + 1] += f.at[i];
    f.next = NEW(int32_t, f.at[n + 1]);
    walk_rank(sim, r, &f, add_follower);
    for (int32_t i = 1; i < n; i++)
        if (sim_leads_pair(sim, &sim->p->rank[r].ins[i - 1]))
            f.need[i] = 1; /* it never starts by itself */
    return f;
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

/* Starts what a rank's thread can start. */
static void serve(struct shared *s, int r) {
    struct thread *thread = &s->thread[r];
    while (!thread->busy && thread->queue.n > 0)
        start(s, (struct place){r, queue_pop(&thread->queue)});
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
    for (; s->nready > 0; s->nready--)
        serve(s, s->ready[s->nready - 1].rank);
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
    if (s.sp->machine.serial)
        s.thread = NEW(struct thread, p->workers);
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
