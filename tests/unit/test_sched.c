/* The scheduler against a slow simulator, written from the text of schedules/language.md ("How jobs are scheduled"),
 * and against known figures. */
#include "random_spec.h"
#include <criterion/criterion.h>

/* ---- the reference: considers everything at every instant ---- */

/* It knows only the stages and jobs of scripts: a team's job is one job, on several ranks. */
enum { WAITING, RUNS, ENDED };

struct naive {
    const struct spec *sp;    /* the script's spec, in which a team's job is one job */
    const struct spec *ranks; /* links, speeds and caps of all ranks, of which each of the script's is sp->tensor */
    const double *exchange;   /* per job: how long its team's exchanges take; NULL: no time */
    int *size, **team;        /* per job: its ranks */
    double *start, *end;      /* INFINITY: not yet */
    uint8_t *state;
    int32_t *moment; /* by job; the same as in struct sched */
    int nmoments;
};

/* Returns when job p's result reaches the member of job j's team at `place`, from p's member at that place; in a
 * smaller team, places wrap around. */
static double arrival(const struct naive *z, int p, int j, int place) {
    const struct job *a = &z->sp->job[p], *b = &z->sp->job[j];
    int from = z->team[p][place % z->size[p]], to = z->team[j][place];
    if (from == to || !z->ranks->machine.link)
        return z->end[p];
    struct link l = z->ranks->machine.link[from * z->ranks->workers + to];
    double most = 0;
    int kind[2];
    for (int n = carried(z->sp, a, b, kind); n > 0; n--)
        most = fmax(most, (double)stage_at(costs_of(z->sp), a->s, a->b)->bytes[kind[n - 1]]);
    return z->end[p] + (l.latency + most / l.bandwidth);
}

/* Returns when it is there on all members, or INFINITY if unknown. */
static double ready_at(const struct naive *z, int j) {
    double t = 0;
    int32_t need[MOST_NEEDS], *pred = z->sp->pred ? z->sp->pred + z->sp->pred_at[j] : need;
    int n = z->sp->pred ? z->sp->pred_at[j + 1] - z->sp->pred_at[j] : needs_by_design(z->sp, &z->sp->job[j], need);
    for (int i = 0; i < n; i++)
        for (int place = 0; place < z->size[j]; place++)
            t = fmax(t, z->state[pred[i]] == ENDED ? arrival(z, pred[i], j, place) : INFINITY);
    return t;
}

static bool computes(const struct naive *z, int j, int rank) {
    for (int i = 0; i < z->size[j]; i++)
        if (z->team[j][i] == rank)
            return true;
    return false;
}

/* Returns the number of live activations on a rank. */
static int live_on(const struct naive *z, int rank) {
    int n = 0;
    for (int s = 0; s < z->sp->stages; s++)
        for (int b = 0; b < z->sp->batches; b++) {
            int f = job_at(z->sp, s, b, OP_F), whole = job_at(z->sp, s, b, OP_B);
            int last = whole >= 0 ? whole : job_at(z->sp, s, b, OP_W);
            int where = z->state[f] == ENDED ? last : f;
            n += z->state[f] != WAITING && z->state[last] != ENDED && computes(z, where, rank);
        }
    return n;
}

/* Returns whether each member of the team has room for `forwards` more forwards. */
static bool room_for(const struct naive *z, int j, int forwards) {
    for (int i = 0; i < z->size[j]; i++)
        if (forwards > 0 && live_on(z, z->team[j][i]) + forwards > z->ranks->limits.cap[z->team[j][i]])
            return false;
    return true;
}

static bool better(const struct job *a, const struct job *b) {
    if (a->prio != b->prio)
        return a->prio < b->prio;
    if (a->b != b->b)
        return a->b < b->b;
    return a->s != b->s ? a->s < b->s : a->d < b->d; /* F < R < I < B < W */
}

static int best_of(const struct naive *z, int a, int b) {
    return a < 0 || (b >= 0 && better(&z->sp->job[b], &z->sp->job[a])) ? b : a;
}

/* Returns whether job j of a strict order can start: no member of its team is busy or has an earlier job. */
static bool is_next(const struct naive *z, int j, double t, const bool *idle) {
    const struct job *job = &z->sp->job[j];
    int with = job->pair ? z->sp->pair[job->pair - 1].second : j;
    int forwards = (job->d == OP_F) + (with != j && z->sp->job[with].d == OP_F);
    bool can = room_for(z, j, forwards) && ready_at(z, j) <= t && ready_at(z, with) <= t;
    for (int i = 0; i < z->size[j]; i++) {
        can &= idle[z->team[j][i]];
        for (int k = 0; k < z->sp->njobs; k++)
            can &= k == j || z->state[k] != WAITING || z->sp->job[k].fill || !computes(z, k, z->team[j][i]) ||
                   !better(&z->sp->job[k], job);
    }
    return can;
}

/* Returns the job that a rank would start at t if it were idle, or -1. */
static int choice(const struct naive *z, int rank, double t, const bool *idle) {
    int other = -1, forward = -1, next = -1; /* ready jobs outside a strict order; the next one of such an order */
    for (int j = 0; j < z->sp->njobs; j++) {
        const struct job *job = &z->sp->job[j];
        if (z->state[j] != WAITING || !computes(z, j, rank))
            continue;
        if (z->sp->strict && !job->fill)
            next = best_of(z, next, j);
        else if (ready_at(z, j) <= t)
            *(job->d == OP_F ? &forward : &other) = best_of(z, job->d == OP_F ? forward : other, j);
    }
    if (next >= 0 && is_next(z, next, t, idle))
        return next;
    return forward >= 0 && room_for(z, forward, 1) ? best_of(z, forward, other) : other;
}

/* Returns the time of the slowest member. */
static double time_of(const struct naive *z, int j) {
    const struct pair *pair = z->sp->job[j].pair ? &z->sp->pair[z->sp->job[j].pair - 1] : NULL;
    double most = 0, exchanges = 0;
    for (int i = 0; i < z->size[j]; i++) {
        double speed = z->ranks->machine.speed ? z->ranks->machine.speed[z->team[j][i]] : 1,
               time = z->sp->job[j].cost / speed;
        if (pair) {
            double a = z->sp->job[pair->first].cost / speed, b = z->sp->job[pair->second].cost / speed;
            time = a + b - z->sp->overlap * fmin(a, b);
        }
        most = fmax(most, time);
    }
    if (z->exchange)
        exchanges = pair ? z->exchange[pair->first] + z->exchange[pair->second] : z->exchange[j];
    return most + exchanges;
}

static void begin(struct naive *z, int j, double t, double time) {
    z->start[j] = t;
    z->end[j] = t + time;
    z->state[j] = RUNS;
}

/* Returns the lowest rank that can start a job, with that job: the rank is idle, and its best job is the best of all of
 * its team, which is idle too. */
static int next_start(const struct naive *z, double t, const bool *idle) {
    for (int r = 0; r < z->ranks->workers; r++) {
        int j = idle[r] ? choice(z, r, t, idle) : -1;
        bool all = j >= 0;
        for (int i = 0; all && i < z->size[j]; i++)
            all = idle[z->team[j][i]] && choice(z, z->team[j][i], t, idle) == j;
        if (all)
            return j;
    }
    return -1;
}

/* Retires everything that ends at t; then ranks start their best jobs until none can. */
static void play_round(struct naive *z, double t) {
    int W = z->ranks->workers;
    bool *idle = NEW(bool, W);
    int *starts = NEW(int, W); /* per rank: 1 + the job that it starts as its team's first member */
    for (int j = 0; j < z->sp->njobs; j++)
        if (z->state[j] == RUNS && z->end[j] == t) {
            z->state[j] = ENDED;
            z->moment[z->nmoments++] = ~j;
        }
    for (int r = 0; r < W; r++)
        idle[r] = true;
    for (int j = 0; j < z->sp->njobs; j++)
        for (int i = 0; z->state[j] == RUNS && i < z->size[j]; i++)
            idle[z->team[j][i]] = false;
    for (int j = next_start(z, t, idle); j >= 0; j = next_start(z, t, idle)) {
        const struct pair *pair = z->sp->job[j].pair ? &z->sp->pair[z->sp->job[j].pair - 1] : NULL;
        double time = time_of(z, j);
        starts[z->team[j][0]] = 1 + j;
        begin(z, pair ? pair->first : j, t, time);
        if (pair)
            begin(z, pair->second, t, time);
        for (int i = 0; i < z->size[j]; i++)
            idle[z->team[j][i]] = false;
    }
    for (int r = 0; r < W; r++)
        if (starts[r])
            z->moment[z->nmoments++] = starts[r] - 1; /* one of a pair stands for both */
}

/* Returns the time of the next round: t again, while something that runs ends at t. */
static double next_round(const struct naive *z, double t) {
    double next = INFINITY;
    for (int j = 0; j < z->sp->njobs; j++) {
        double ready = z->state[j] == WAITING ? ready_at(z, j) : INFINITY;
        if (z->state[j] == RUNS)
            next = fmin(next, z->end[j]);
        else if (ready > t)
            next = fmin(next, ready);
    }
    return next;
}

/* Fills in start, end and moment; returns the number of jobs that could start. */
static int simulate(struct naive *z) {
    int started = 0;
    for (int j = 0; j < z->sp->njobs; j++)
        z->start[j] = z->end[j] = INFINITY;
    for (double t = 0; t < INFINITY; t = next_round(z, t))
        play_round(z, t);
    for (int j = 0; j < z->sp->njobs; j++)
        started += z->state[j] == ENDED ? z->size[j] : 0;
    return started;
}

static struct naive naive_of(const struct spec *sp, const struct spec *ranks) {
    int n = sp->njobs, factor = sp->owners.tensor > 1 ? sp->owners.tensor : 1;
    struct naive z = {.sp = sp, .ranks = ranks, .size = NEW(int, n), .team = NEW(int *, n)};
    z.start = NEW(double, n);
    z.end = NEW(double, n);
    z.state = NEW(uint8_t, n);
    z.moment = NEW(int32_t, 2 * n);
    for (int j = 0; j < n; j++) {
        struct home team =
            sp->job[j].team >= sp->workers ? home_of(sp, &sp->job[j].team) : (struct home){1, &sp->job[j].rank};
        z.size[j] = team.n * factor;
        z.team[j] = NEW(int, z.size[j]);
        for (int i = 0; i < z.size[j]; i++)
            z.team[j][i] = team.rank[i / factor] * factor + i % factor;
    }
    return z;
}

/* Returns the job of a team's member in the spec where each member has its own stage. */
static int32_t member_job(const struct spec *members, const struct job *job, int place) {
    int s = members->names.member ? members->names.first[job->s] : job->s;
    return job_at(members, s + place, job->b, job->d);
}

/* Returns the order of events, member by member: ends by stage, then place; starts by the rank of the first member. */
static int32_t *expected_moments(const struct spec *members, const struct naive *z) {
    int32_t *moment = NEW(int32_t, 2 * members->njobs);
    int n = 0;
    for (int i = 0; i < z->nmoments; i++) {
        int32_t m = z->moment[i], j = m < 0 ? ~m : m;
        const struct pair *pair = z->sp->job[j].pair ? &z->sp->pair[z->sp->job[j].pair - 1] : NULL;
        int first = i; /* neighbouring ends of one stage */
        while (m < 0 && i + 1 < z->nmoments && z->moment[i + 1] < 0 &&
               z->sp->job[~z->moment[i + 1]].s == z->sp->job[j].s && z->end[~z->moment[i + 1]] == z->end[j])
            i++;
        for (int place = 0; place < z->size[j]; place++) {
            for (int e = first; m < 0 && e <= i; e++)
                moment[n++] = ~member_job(members, &z->sp->job[~z->moment[e]], place);
            if (m >= 0)
                moment[n++] = member_job(members, &z->sp->job[pair ? pair->first : j], place);
            if (m >= 0 && pair)
                moment[n++] = member_job(members, &z->sp->job[pair->second], place);
        }
    }
    cr_assert_eq(n, 2 * members->njobs);
    return moment;
}

/* Checks for the same times, and the same order at equal times. */
static void expect_same(const struct spec *sp, const struct sched *sc, const struct naive *z) {
    double last = 0;
    int *n = NEW(int, sp->workers);
    for (int j = 0; j < z->sp->njobs; j++)
        for (int place = 0; place < z->size[j]; place++) {
            int32_t k = member_job(sp, &z->sp->job[j], place);
            const char *name = job_name(&sp->names, sp->job[k].s, sp->job[k].b, sp->job[k].d);
            cr_assert_eq(sp->job[k].rank, z->team[j][place], "%s", name);
            cr_assert_eq(sc->start[k], z->start[j], "%s starts at %g, not %g", name, sc->start[k], z->start[j]);
            cr_assert_eq(sc->end[k], z->end[j], "%s ends at %g, not %g", name, sc->end[k], z->end[j]);
            last = fmax(last, sc->end[k]);
        }
    cr_assert_eq(sc->makespan, last);
    cr_assert(sc->nstarts == sp->njobs && sc->nmoments == 2 * sp->njobs);
    const int32_t *moment = expected_moments(sp, z);
    for (int i = 0; i < sc->nmoments; i++) {
        int32_t j = sc->moment[i];
        cr_assert_eq(j, moment[i], "moment %d is %d, not %d", i, j, moment[i]);
        if (j >= 0) {
            int r = sp->job[j].rank;
            cr_assert(n[r] < sc->norder[r] && sc->order[r][n[r]] == j);
            n[r]++;
        }
    }
}

struct attempt {
    struct spec *sp;
    struct costs *costs;
    struct graph *g;
    struct sched *sc;
};

static void attempt(void *x) {
    struct attempt *a = x;
    a->sc = sched_of(a->sp, a->costs, a->g);
}

enum { FILL = 1 << 20 }; /* a third of the jobs has no place in a strict order */

static void compare_with(struct spec *sp, struct costs *costs, struct naive *z, int seed, int *deadlocks) {
    struct attempt a = {sp, costs, graph_build(costs), NULL};
    int started = simulate(z);
    const char *death = death_of(attempt, &a);
    if (started == sp->njobs) {
        cr_assert_null(death, "seed %d: %s", seed, death);
        expect_same(sp, a.sc, z);
    } else {
        const char *want = format("pianola: error: drawn.lua: deadlock: %d of %d jobs can never start; ",
                                  sp->njobs - started, sp->njobs);
        cr_assert(death && !strncmp(death, want, strlen(want)), "seed %d: %s", seed, death);
        cr_assert(strstr(death, " waits for "), "seed %d: %s", seed, death);
        ++*deadlocks;
    }
}

static void draw_fill(struct spec *sp, int flags) {
    for (int j = 0; flags & FILL && j < sp->njobs; j++)
        sp->job[j].fill = below(3) == 0;
}

static void compare(int first, int n, int flags, int *deadlocks) {
    for (int seed = first; seed < first + n; seed++) {
        struct spec *sp = draw_spec((uint64_t)seed, flags & ~FILL);
        draw_fill(sp, flags);
        struct costs *costs = draw_stages(sp);
        struct naive z = naive_of(sp, sp);
        compare_with(sp, costs, &z, seed, deadlocks);
        free_all();
    }
}

Test(sched, random_greedy_and_strict) {
    int deadlocks = 0;
    compare(0, 60, 0, &deadlocks);
    compare(1000, 60, ORDERS | LATENCY, &deadlocks);
    compare(2000, 60, ORDERS | BANDWIDTH, &deadlocks);
    cr_assert_eq(deadlocks, 0);
}

/* If times vanish beside others, causes still precede effects. Only caps cause deadlocks. */
Test(sched, random_extremes) {
    int deadlocks = 0;
    compare(8000, 200, EXTREME, &deadlocks);
    compare(9000, 200, EXTREME | ORDERS | LATENCY, &deadlocks);
    compare(10000, 200, EXTREME | PAIRS | ORDERS | BANDWIDTH, &deadlocks);
    cr_assert_eq(deadlocks, 0);
    compare(11000, 200, EXTREME | CAPS | LATENCY, &deadlocks);
    compare(12000, 200, EXTREME | PAIRS | CAPS, &deadlocks);
    cr_assert(deadlocks > 20 && deadlocks < 200, "%d", deadlocks);
}

Test(sched, random_pairs) {
    int deadlocks = 0;
    compare(5000, 60, PAIRS, &deadlocks);
    compare(6000, 80, PAIRS | ORDERS | BANDWIDTH, &deadlocks);
    cr_assert_eq(deadlocks, 0);
    compare(7000, 80, PAIRS | CAPS, &deadlocks);
    cr_assert(deadlocks > 5 && deadlocks < 60, "%d", deadlocks);
}

Test(sched, random_caps) {
    int deadlocks = 0;
    compare(3000, 80, CAPS, &deadlocks);
    compare(4000, 80, CAPS | ORDERS | BANDWIDTH, &deadlocks);
    cr_assert(deadlocks > 10 && deadlocks < 80, "%d", deadlocks);
}

Test(sched, random_fill) {
    int deadlocks = 0;
    compare(5000, 120, FILL | ORDERS | BANDWIDTH, &deadlocks);
    cr_assert_eq(deadlocks, 0);
    compare(6000, 120, FILL | CAPS | LATENCY, &deadlocks);
    cr_assert(deadlocks > 10 && deadlocks < 120, "%d", deadlocks);
}

/* Slices: the simulator computes their dependencies itself, as everywhere here, and which tensor arrives last. */
Test(sched, random_slices) {
    int deadlocks = 0;
    compare(13000, 100, SLICES, &deadlocks);
    compare(14000, 100, SLICES | ORDERS | BANDWIDTH, &deadlocks);
    compare(15000, 100, SLICES | PAIRS | LATENCY, &deadlocks);
    compare(16000, 100, SLICES | EXTREME | ORDERS | BANDWIDTH, &deadlocks);
    cr_assert_eq(deadlocks, 0);
}

/* ---- teams ---- */

/* Draws links and speeds of all ranks, exchanges of all jobs, and sizes of the script's stages, for both schedulers. */
static struct costs *draw_machine(struct spec *members, struct naive *z, int flags) {
    int W = members->workers, slow = below(2);
    struct stage *st = NEW(struct stage, z->sp->stages);
    double *exchange = NEW(double, z->sp->njobs);
    members->machine.link = flags & BANDWIDTH ? NEW(struct link, W * W) : NULL;
    for (int i = 0; members->machine.link && i < W * W; i++)
        members->machine.link[i] = (struct link){0.25 * below(9), below(3) ? 1 << below(4) : INFINITY};
    members->machine.speed = NEW(double, W);
    for (int r = 0; r < W; r++)
        members->machine.speed[r] = slow ? 0.5 * (1 << below(3)) : 1;
    struct costs *costs = costs_make(members);
    struct stage *all = costs->stage;
    costs->exchanges = costs->exchanges ? costs->exchanges : NEW(double, members->njobs);
    for (int s = 0; s < z->sp->stages; s++)
        for (int k = 0; k < NKINDS; k++)
            st[s].bytes[k] = 1 + below(6);
    for (int v = 0; v < members->stages; v++)
        memcpy(all[v].bytes, st[members->names.member ? members->names.member[v].stage : v].bytes, sizeof all[v].bytes);
    for (int j = 0; j < z->sp->njobs; j++) {
        exchange[j] = z->size[j] > 1 ? 0.25 * below(5) : 0;
        for (int i = 0; i < z->size[j]; i++) {
            int32_t k = member_job(members, &z->sp->job[j], i);
            costs->exchanges[k] += exchange[j];
            if (members->job[k].pair)
                costs->pair[members->job[k].pair - 1].time += exchange[j];
        }
    }
    costs_of(z->sp)->stage = st;
    z->exchange = exchange;
    return costs;
}

static void compare_teams(int first, int n, int flags, int *deadlocks, int *teams) {
    for (int seed = first; seed < first + n; seed++) {
        struct spec *sp = draw_spec((uint64_t)seed, (flags & ~FILL) | TEAMS), *members = NEW(struct spec, 1);
        draw_fill(sp, flags);
        sp->owners.tensor = 1 + (below(4) == 0);
        *members = *sp;
        members->job = memcpy(NEW(struct job, sp->njobs), sp->job, sizeof *sp->job * (size_t)sp->njobs);
        members->pair = memcpy(NEW(struct pair, sp->npairs + 1), sp->pair ? sp->pair : NEW(struct pair, 1),
                               sizeof *sp->pair * (size_t)sp->npairs);
        expand_teams(members);
        *teams += members->names.member != NULL;
        struct naive z = naive_of(sp, members);
        struct costs *costs = draw_machine(members, &z, flags);
        compare_with(members, costs, &z, seed, deadlocks);
        free_all();
    }
}

Test(sched, random_teams) {
    int deadlocks = 0, teams = 0;
    compare_teams(20000, 100, 0, &deadlocks, &teams);
    compare_teams(21000, 100, ORDERS | BANDWIDTH, &deadlocks, &teams);
    compare_teams(22000, 100, PAIRS | ORDERS | BANDWIDTH, &deadlocks, &teams);
    compare_teams(23000, 100, FILL | BANDWIDTH, &deadlocks, &teams);
    cr_assert_eq(deadlocks, 0);
    cr_assert(teams > 250, "%d", teams);
}

Test(sched, random_teams_with_caps) {
    int deadlocks = 0, teams = 0;
    compare_teams(24000, 200, CAPS, &deadlocks, &teams);
    compare_teams(25000, 200, CAPS | ORDERS | BANDWIDTH, &deadlocks, &teams);
    compare_teams(26000, 200, CAPS | FILL | BANDWIDTH, &deadlocks, &teams);
    compare_teams(27000, 200, CAPS | PAIRS, &deadlocks, &teams);
    cr_assert(deadlocks > 40 && deadlocks < 500, "%d", deadlocks);
    cr_assert(teams > 400, "%d", teams);
}

/* ---- known figures ---- */

static struct sched *run(struct spec *sp) { return sched_of(sp, unit_stages(sp), graph_of(sp)); }

static struct spec *one_f_one_b(void) {
    struct spec *sp = pipeline_spec(4, 8, 2);
    for (int r = 0; r < 4; r++)
        sp->limits.cap[r] = 4 - r;
    return sp;
}

/* GPipe (Huang 2019) and 1F1B (PipeDream-flush, Narayanan 2021): (M + P - 1)(F + B) = 33. */
Test(sched, gpipe_and_1f1b) {
    struct spec *sp = pipeline_spec(4, 8, 0);
    struct sched *sc = run(sp);
    cr_assert_eq(sc->makespan, 33);
    cr_assert_eq(sc->start[job_at(sp, 3, 0, OP_B)], 11, "all forwards of the last rank first");
    sp = one_f_one_b();
    sc = run(sp);
    cr_assert_eq(sc->makespan, 33);
    for (int b = 0; b < 8; b++) {
        cr_assert_eq(sc->start[job_at(sp, 3, b, OP_F)], 3 + 3 * b);
        cr_assert_eq(sc->start[job_at(sp, 3, b, OP_B)], 4 + 3 * b);
        cr_assert_eq(sc->start[job_at(sp, 0, b, OP_B)], 10 + 3 * b);
    }
}

/* With latency c per hop: 33 + 16c and 33 + 6c. */
Test(sched, latency_costs_1f1b_more) {
    for (int c = 0; c <= 2; c++) {
        struct spec *sp[] = {one_f_one_b(), pipeline_spec(4, 8, 0)};
        for (int i = 0; i < 2; i++) {
            sp[i]->machine.link = NEW(struct link, 16);
            for (int k = 0; k < 16; k++)
                sp[i]->machine.link[k] = (struct link){c, INFINITY};
            cr_assert_eq(run(sp[i])->makespan, 33 + (i ? 6 : 16) * c);
        }
    }
}

/* On one rank with n = 0 everywhere: smaller b first, then smaller s, then F before R before I before W. */
Test(sched, ties) {
    struct spec *sp = empty_spec(1, 2, 2);
    for (int s = 0; s < 2; s++)
        for (int b = 0; b < 2; b++)
            for (int d = 0; d < NDIRS; d++)
                if (d != OP_B)
                    add_job(sp, s, b, d, 0, 0);
    static const char *want[] = {"0F0", "0R0", "1F0", "1R0", "1I0", "0I0", "0W0", "1W0",
                                 "0F1", "0R1", "1F1", "1R1", "1I1", "0I1", "0W1", "1W1"};
    struct sched *sc = run(sp);
    for (int i = 0; i < 16; i++) {
        const struct job *j = &sp->job[sc->order[0][i]];
        cr_assert_str_eq(job_name(NULL, j->s, j->b, j->d), want[i], "place %d", i);
    }
    sp = empty_spec(1, 1, 2); /* in strict order, ties alone decide: nothing is ready before its time */
    sp->strict = true;
    for (int b = 0; b < 2; b++)
        for (int d = 0; d < NDIRS; d++)
            if (d != OP_B)
                add_job(sp, 0, b, d, 0, 0);
    sc = run(sp);
    for (int i = 0; i < 8; i++)
        cr_assert_eq(sc->order[0][i], i);
}

Test(sched, whole_costs_give_whole_times) {
    struct spec *sp = pipeline_spec(3, 200, 0);
    for (int j = 0; j < sp->njobs; j++)
        sp->job[j].cost = 1e9 + j % 7;
    struct sched *sc = run(sp);
    for (int j = 0; j < sp->njobs; j++)
        cr_assert(sc->start[j] == floor(sc->start[j]) && sc->end[j] == sc->start[j] + sp->job[j].cost);
}

/* ---- deadlocks ---- */

static const char *deadlock(struct spec *sp) {
    return death_of(attempt, &(struct attempt){sp, unit_stages(sp), graph_of(sp), NULL});
}

/* With a cap of 1, stage 1 of the same rank finds no room while stage 0's activation lives. */
Test(sched, a_full_cap_is_explained) {
    struct spec *sp = empty_spec(1, 2, 2);
    for (int s = 0; s < 2; s++)
        for (int b = 0; b < 2; b++) {
            add_job(sp, s, b, OP_F, 0, 0);
            add_job(sp, s, b, OP_B, 0, 0);
        }
    sp->limits.cap[0] = 1;
    cr_assert_str_eq(deadlock(sp),
                     "pianola: error: drawn.lua: deadlock: 7 of 8 jobs can never start; raise the cap, because\n"
                     "  0B0 waits for 1B0\n  1B0 waits for 1F0\n"
                     "  1F0 waits for room on rank 0, whose cap of 1 is full until 0B0\n");
}

/* 0F1 fills a gap: it waits for room, not for its turn. */
Test(sched, a_job_that_fills_is_explained) {
    struct spec *sp = pipeline_spec(1, 2, 0);
    static int32_t pred[] = {0, 2, 2}, pred_at[] = {0, 0, 2, 2, 3}; /* 0B0 needs 0F0 and 0F1 */
    sp->pred = pred;
    sp->pred_at = pred_at;
    sp->strict = true;
    sp->job[2].fill = true;
    sp->limits.cap[0] = 1;
    cr_assert_str_eq(deadlock(sp),
                     "pianola: error: drawn.lua: deadlock: 3 of 4 jobs can never start; raise the cap, because\n"
                     "  0B0 waits for 0F1\n"
                     "  0F1 waits for room on rank 0, whose cap of 1 is full until 0B0\n");
}

/* Rank 0 wants 0B0 before 0F1, rank 1 wants 1F1 before 1B0. */
Test(sched, a_strict_order_is_explained) {
    struct spec *sp = pipeline_spec(2, 2, 0);
    sp->strict = true;
    static const char *order[] = {"0F0", "0B0", "0F1", "0B1", "1F1", "1F0", "1B0", "1B1"};
    for (int j = 0; j < 8; j++)
        for (int i = 0; i < 8; i++)
            if (!strcmp(job_name(NULL, sp->job[j].s, sp->job[j].b, sp->job[j].d), order[i]))
                sp->job[j].prio = i;
    cr_assert_str_eq(deadlock(sp),
                     "pianola: error: drawn.lua: deadlock: 7 of 8 jobs can never start; change the order, because\n"
                     "  0B0 waits for 1B0\n"
                     "  1B0 waits for 1F1, which comes before it in the order of rank 1\n"
                     "  1F1 waits for 0F1\n"
                     "  0F1 waits for 0B0, which comes before it in the order of rank 0\n");
}
