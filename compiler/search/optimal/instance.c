/* Turns a script's jobs into classes of items: see instance.h. */
#include "instance.h"
#include "ir/compile.h"
#include <limits.h>
#include <math.h>
#include <string.h>

enum {
    MANY_TICKS = 1 << 20, /* for the longest time; beyond this, times are rounded */
    MOST_TICKS = 1 << 29  /* limit of any time: the words of a state hold twice that */
};

static const double NEARLY = 1e-9; /* relative: two times that differ by less count as equal */

void refuse_other_jobs(const struct spec *sp) {
    const char *why = sp->names.member    ? "teams"
                      : sp->updates.every ? "'update' within the step"
                      : sp->npairs        ? "pairs such as \"0F5+7B2\""
                                          : NULL;
    if (why)
        die("%s: the best order is searched for jobs that each run alone on one rank, and this script has %s", sp->file,
            why);
}

static void refuse_schedule(const struct costs *costs) {
    const struct spec *sp = costs->spec;
    refuse_other_jobs(sp);
    for (int32_t j = 0; j < sp->njobs; j++)
        if (!(job_time(costs, j) > 0))
            die("%s: %s takes no time; let every job take some, however little", sp->file,
                job_name(&sp->names, sp->job[j].s, sp->job[j].b, sp->job[j].d));
}

/* ---- kinds of microbatches ---- */

struct kinds {
    int n, slices;
    int32_t *of;    /* per whole microbatch */
    int32_t *first; /* per kind: its first microbatch */
};

/* Returns whether jobs of microbatches a and b, counted whole, differ only in their number. */
static bool alike(const struct costs *costs, const struct graph *graph, int slices, int a, int b) {
    const struct spec *sp = costs->spec;
    for (int s = 0; s < sp->stages; s++)
        for (int q = 0; q < slices * NDIRS; q++) {
            int32_t x = job_at(sp, s, a * slices + q / NDIRS, q % NDIRS),
                    y = job_at(sp, s, b * slices + q / NDIRS, q % NDIRS);
            if (x < 0 && y < 0)
                continue;
            if (x < 0 || y < 0 || sp->job[x].rank != sp->job[y].rank || costs->computes[x] != costs->computes[y] ||
                graph->pred_at[x + 1] - graph->pred_at[x] != graph->pred_at[y + 1] - graph->pred_at[y])
                return false;
            for (int32_t e = graph->pred_at[x], f = graph->pred_at[y]; e < graph->pred_at[x + 1]; e++, f++) {
                const struct job *u = &sp->job[graph->pred[e]], *v = &sp->job[graph->pred[f]];
                if (u->s != v->s || u->d != v->d || u->b - a * slices != v->b - b * slices)
                    return false;
            }
        }
    return true;
}

/* Marks microbatches that wait for another one, and those that they wait for: each is a kind of its own. */
static bool *find_tied(const struct spec *sp, const struct graph *graph, int slices) {
    bool *tied = NEW(bool, sp->batches / slices);
    for (int32_t j = 0; j < sp->njobs; j++)
        for (int32_t e = graph->pred_at[j]; e < graph->pred_at[j + 1]; e++) {
            int a = sp->job[j].b / slices, b = sp->job[graph->pred[e]].b / slices;
            tied[a] |= a != b;
            tied[b] |= a != b;
        }
    return tied;
}

static struct kinds find_kinds(const struct costs *costs, const struct graph *graph) {
    const struct spec *sp = costs->spec;
    struct kinds kinds = {.slices = slices_of(&sp->names)};
    int batches = sp->batches / kinds.slices;
    kinds.of = NEW(int32_t, batches);
    kinds.first = NEW(int32_t, batches);
    const bool *tied = find_tied(sp, graph, kinds.slices);
    for (int b = 0; b < batches; b++) {
        int k = tied[b] ? kinds.n : 0;
        while (k < kinds.n && (tied[kinds.first[k]] || !alike(costs, graph, kinds.slices, kinds.first[k], b)))
            k++;
        if (k == kinds.n)
            kinds.first[kinds.n++] = b;
        kinds.of[b] = k;
    }
    return kinds;
}

/* ---- ticks ---- */

/* Euclid's algorithm, which treats nearly equal lengths as equal. */
static double common_measure(double a, double b, double least) {
    while (b > least) {
        double rest = fmod(a, b);
        a = b;
        b = b - rest <= least ? 0 : rest;
    }
    return a;
}

struct times {
    double least, most; /* least: the shortest job */
    double tick;
};
static void measure_tick(struct times *times, double t) {
    if (t > 0)
        times->tick =
            times->tick > 0 ? common_measure(fmax(t, times->tick), fmin(t, times->tick), NEARLY * times->most) : t;
}

static struct times find_times(const struct compile *c) {
    const struct spec *sp = c->spec;
    const struct graph *graph = c->graph;
    struct times times = {.least = INFINITY};
    for (int32_t j = 0; j < sp->njobs; j++) {
        times.least = fmin(times.least, job_time(c->costs, j));
        times.most = fmax(times.most, job_time(c->costs, j));
        for (int32_t e = graph->pred_at[j]; e < graph->pred_at[j + 1]; e++)
            times.most = fmax(times.most, edge_time(c, e, j));
    }
    for (int32_t j = 0; j < sp->njobs; j++) {
        measure_tick(&times, job_time(c->costs, j));
        for (int32_t e = graph->pred_at[j]; e < graph->pred_at[j + 1]; e++)
            measure_tick(&times, edge_time(c, e, j));
    }
    return times;
}

/* Chooses the tick. A job takes at least one tick; with none it could not be distinguished from a finished job. */
static void choose_tick(struct instance *in, const struct compile *c) {
    struct times times = find_times(c);
    in->rounded = times.most / times.tick > MANY_TICKS || times.least < times.tick * 0.5;
    in->tick = in->rounded ? fmin(times.most / 1024, times.least) : times.tick;
    if (times.most / in->tick > MOST_TICKS)
        die("%s: a job takes %g, and another job or a message takes %g: too far apart to search for the best order",
            c->spec->file, times.least, times.most);
}

static int64_t ticks_of(const struct instance *in, double t) {
    double n = t / in->tick;
    return !in->rounded && fabs(n - rint(n)) <= NEARLY * fmax(1, n) * 16 ? (int64_t)rint(n) : (int64_t)floor(n);
}

/* ---- classes ---- */

struct building {
    const struct compile *c;
    const struct spec *sp;
    const struct graph *graph;
    struct instance *in;
    struct kinds kinds;
    const int64_t *room; /* room in bytes; NULL: caps limit instead */
    int32_t *class_of;   /* per job */
    int32_t *first;      /* per class: its first job */
    size_t cap, cap_first;
};

static int32_t new_class(struct building *build, int32_t j) {
    struct instance *in = build->in;
    const struct job *job = &build->sp->job[j];
    GROW(in->class, build->cap, (size_t)in->n + 1);
    GROW(build->first, build->cap_first, (size_t)in->n + 1);
    in->class[in->n] =
        (struct class){.s = job->s, .d = job->d, .rank = job->rank, .time = ticks_of(in, job_time(build->c->costs, j))};
    build->first[in->n] = j;
    return in->n++;
}

/* Returns the job of the kind's first microbatch that corresponds to j. */
static int32_t first_like(const struct building *build, int32_t j) {
    const struct job *job = &build->sp->job[j];
    int slices = build->kinds.slices, first = build->kinds.first[build->kinds.of[job->b / slices]];
    return job_at(build->sp, job->s, first * slices + job->b % slices, job->d);
}

/* Returns the room that a job takes on its rank, and keeps. In bytes, any program's plan needs at least as much, since
 * it also has messages and gaps. I's wstash grows in place of the stash. */
static int64_t taken_by(const struct building *build, const struct job *job) {
    if (!build->room)
        return job->d == OP_F;
    const int64_t *bytes = stage_at(build->c->costs, job->s, job->b)->bytes;
    bool again = job_at(build->sp, job->s, job->b, OP_R) >= 0;
    int64_t more = bytes[K_wstash] - bytes[K_stash];
    switch (job->d) {
    case OP_F: return again ? bytes[K_input] : bytes[K_stash];
    case OP_R: return bytes[K_stash];
    case OP_I: return more > 0 ? more : 0;
    default: return 0;
    }
}

/* Returns the room that the last backward of a microbatch on a stage gives back. */
static int64_t given_by(const struct building *build, int s, int b) {
    int64_t sum = 0;
    for (int d = 0; d < NDIRS; d++) {
        int32_t j = job_at(build->sp, s, b, d);
        sum += j >= 0 ? taken_by(build, &build->sp->job[j]) : 0;
    }
    return sum;
}

/* Returns whether j is a weight gradient that waits for one job only and that nothing waits for. A script's own pred()
 * may say otherwise. */
static bool can_pool(const struct building *build, int32_t j) {
    const struct graph *graph = build->graph;
    return build->sp->job[j].d == OP_W && graph->succ_at[j] == graph->succ_at[j + 1] &&
           graph->pred_at[j + 1] - graph->pred_at[j] == 1;
}

/* Returns the class of weight gradients on j's rank with which j's class forms a pool; -1: none. */
static int32_t pool_for(const struct building *build, int32_t j) {
    const struct job *job = &build->sp->job[j];
    if (!can_pool(build, j))
        return -1;
    for (int32_t c = 0; c < build->in->n; c++) {
        const struct class *class = &build->in->class[c];
        if (class->rank == job->rank && can_pool(build, build->first[c]) &&
            job_time(build->c->costs, build->first[c]) == job_time(build->c->costs, j) &&
            given_by(build, class->s, build->sp->job[build->first[c]].b) == given_by(build, job->s, job->b))
            return c;
    }
    return -1;
}

static void make_classes(struct building *build) {
    const struct spec *sp = build->sp;
    build->class_of = NEW(int32_t, sp->njobs);
    for (int32_t j = 0; j < sp->njobs; j++) {
        int32_t like = first_like(build, j), c = like == j ? pool_for(build, j) : build->class_of[like];
        bool joins = like == j && c >= 0;
        c = c < 0 ? new_class(build, j) : c;
        build->in->class[c].pool |= joins;
        build->in->class[c].items++;
        build->class_of[j] = c;
    }
    for (struct class *class = build->in->class; class < build->in->class + build->in->n; class ++) {
        class->job = NEW(int32_t, class->items);
        class->items = 0;
    }
    for (int32_t j = 0; j < sp->njobs; j++) {
        struct class *class = &build->in->class[build->class_of[j]];
        class->job[class->items++] = j;
    }
}

static void add_lag(struct class *class, int32_t from, int64_t ticks) {
    for (int i = 0; i < class->nlags; i++)
        if (class->lag[i].from == from) {
            class->lag[i].ticks = ticks > class->lag[i].ticks ? ticks : class->lag[i].ticks;
            return;
        }
    class->lag[class->nlags++] = (struct lag){from, ticks};
}

static void find_lags(struct building *build) {
    const struct graph *graph = build->graph;
    for (int32_t j = 0; j < build->sp->njobs; j++) {
        struct class *class = &build->in->class[build->class_of[j]];
        if (first_like(build, j) != j)
            continue;
        int npreds = graph->pred_at[j + 1] - graph->pred_at[j];
        struct lag *old = class->lag;
        class->lag = NEW(struct lag, class->nlags + npreds);
        if (class->nlags)
            memcpy(class->lag, old, sizeof *old * (size_t) class->nlags);
        for (int32_t e = graph->pred_at[j]; e < graph->pred_at[j + 1]; e++) {
            const struct class *from = &build->in->class[build->class_of[graph->pred[e]]];
            add_lag(class, build->class_of[graph->pred[e]],
                    from->time + ticks_of(build->in, edge_time(build->c, e, j)));
        }
    }
}

/* Returns whether a microbatch's jobs on the stage run on one rank. With a cap, dies if they do not. */
static bool stays(const struct building *build, const struct job *f, int32_t last) {
    const struct spec *sp = build->sp;
    const int64_t *room = build->in->room;
    if (sp->job[last].rank == f->rank)
        return true;
    if (!build->room && (room[f->rank] < INT64_MAX || room[sp->job[last].rank] < INT64_MAX))
        die("%s: %s runs on rank %d and its backward on rank %d: with a cap, the best order is searched where both "
            "run on one rank",
            sp->file, job_name(&sp->names, f->s, f->b, f->d), f->rank, sp->job[last].rank);
    return false;
}

/* Sets what each class takes and gives. An activation is live from the start of F to the end of its backward, on their
 * rank. */
static void limit_activations(struct building *build) {
    struct instance *in = build->in;
    const struct spec *sp = build->sp;
    in->room = NEW(int64_t, in->ranks);
    for (int r = 0; r < in->ranks; r++)
        in->room[r] = build->room                                     ? build->room[r]
                      : sp->limits.cap && sp->limits.cap[r] < INT_MAX ? sp->limits.cap[r]
                                                                      : INT64_MAX;
    for (int32_t j = 0; j < sp->njobs; j++) {
        const struct job *job = &sp->job[j], *f = &sp->job[job_at(sp, job->s, job->b, OP_F)];
        int32_t last = last_backward(sp, job->s, job->b);
        int64_t takes = taken_by(build, job);
        if (!takes || !stays(build, f, last) || in->room[f->rank] == INT64_MAX)
            continue;
        struct class *class = &in->class[build->class_of[j]];
        class->take = takes;
        class->until = build->class_of[last];
        class->by = sp->job[last].d == OP_W ? build->class_of[job_at(sp, job->s, job->b, OP_I)] : class->until;
        in->class[class->until].give = given_by(build, job->s, job->b);
    }
}

/* ---- heads and tails ---- */

/* Sorts classes topologically: each comes after those that its lags name. */
static int *sort_classes(const struct instance *in) {
    int *order = NEW(int, in->n), *left = NEW(int, in->n), n = 0;
    for (int c = 0; c < in->n; c++)
        left[c] = in->class[c].nlags;
    for (int done = 0, before = -1; n < in->n && before != n; done = n) {
        before = n;
        for (int c = 0; c < in->n; c++)
            if (left[c] == 0) {
                order[n++] = c;
                left[c] = -1;
            }
        for (int i = done; i < n; i++)
            for (int c = 0; c < in->n; c++)
                for (int l = 0; l < in->class[c].nlags; l++)
                    left[c] -= in->class[c].lag[l].from == order[i];
    }
    return order;
}

static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
/* Sets heads, tails and reaches. A pool's first item waits for only one of its classes. */
static void find_heads_and_tails(struct instance *in) {
    const int *order = sort_classes(in);
    for (int i = 0; i < in->n; i++) {
        struct class *class = &in->class[order[i]];
        int64_t head = class->pool ? INT64_MAX : 0;
        class->reach = class->time;
        for (int l = 0; l < class->nlags; l++) {
            struct class *from = &in->class[class->lag[l].from];
            int64_t ready = from->head + class->lag[l].ticks;
            head = class->pool ? least(head, ready) : most(head, ready);
            from->reach = most(from->reach, class->lag[l].ticks);
        }
        class->head = head;
    }
    for (int i = in->n - 1; i >= 0; i--) {
        const struct class *class = &in->class[order[i]];
        for (int l = 0; l < class->nlags; l++) {
            struct class *from = &in->class[class->lag[l].from];
            from->tail = most(from->tail, class->lag[l].ticks - from->time + class->time + class->tail);
        }
    }
}

static void sort_by_tail(struct instance *in, int r) { /* longest first; few, and stable */
    for (int a = in->of_rank_at[r] + 1; a < in->of_rank_at[r + 1]; a++)
        for (int b = a; b > in->of_rank_at[r] && in->class[in->of_rank[b]].tail > in->class[in->of_rank[b - 1]].tail;
             b--) {
            int c = in->of_rank[b];
            in->of_rank[b] = in->of_rank[b - 1];
            in->of_rank[b - 1] = c;
        }
}

static void list_by_rank(struct instance *in) {
    in->of_rank = NEW(int, in->n);
    in->of_rank_at = NEW(int, in->ranks + 1);
    in->one_taker = NEW(bool, in->ranks);
    for (int r = 0, n = 0; r < in->ranks; r++) {
        int takers = 0;
        for (int c = 0; c < in->n; c++)
            if (in->class[c].rank == r) {
                in->of_rank[n++] = c;
                takers += in->class[c].take > 0;
            }
        in->of_rank_at[r + 1] = n;
        in->one_taker[r] = takers <= 1;
        sort_by_tail(in, r);
    }
}

struct instance *instance_of(const struct compile *c) {
    return instance_in_bytes(c, NULL);
}

struct instance *instance_in_bytes(const struct compile *c, const int64_t *room) {
    refuse_schedule(c->costs);
    struct building build = {.c = c,
                             .sp = c->spec,
                             .graph = c->graph,
                             .in = NEW(struct instance, 1),
                             .kinds = find_kinds(c->costs, c->graph),
                             .room = room};
    build.in->ranks = c->spec->workers;
    build.in->bytes = room;
    choose_tick(build.in, c);
    make_classes(&build);
    find_lags(&build);
    limit_activations(&build);
    find_heads_and_tails(build.in);
    list_by_rank(build.in);
    build.in->class_of = build.class_of;
    return build.in;
}

int64_t serial_time(const struct instance *in) {
    int64_t sum = 0;
    for (int c = 0; c < in->n; c++)
        sum += in->class[c].reach * in->class[c].items;
    return sum;
}

void minimise_span(struct instance *in) {
    const int *order = sort_classes(in);
    in->span = true;
    in->tail_to = NEW(int64_t, in->n * in->ranks);
    for (int i = 0; i < in->n * in->ranks; i++)
        in->tail_to[i] = in->class[i / in->ranks].rank == i % in->ranks ? 0 : -1;
    for (int i = in->n - 1; i >= 0; i--) {
        const struct class *class = &in->class[order[i]];
        for (int l = 0; l < class->nlags && !class->pool; l++) {
            int64_t between = class->lag[l].ticks - in->class[class->lag[l].from].time + class->time;
            int64_t *from = &in->tail_to[class->lag[l].from * in->ranks], *to = &in->tail_to[order[i] * in->ranks];
            for (int r = 0; r < in->ranks; r++)
                from[r] = to[r] < 0 ? from[r] : most(from[r], between + to[r]);
        }
    }
}

int64_t span_bound(const struct instance *in, int r) {
    int64_t bound = 0;
    for (int i = in->of_rank_at[r]; i < in->of_rank_at[r + 1]; i++) {
        int64_t work = 0, to = in->tail_to[in->of_rank[i] * in->ranks + r];
        for (int k = in->of_rank_at[r]; k < in->of_rank_at[r + 1]; k++)
            if (in->tail_to[in->of_rank[k] * in->ranks + r] >= to)
                work += in->class[in->of_rank[k]].time * in->class[in->of_rank[k]].items;
        bound = most(bound, work + to);
    }
    return bound;
}

/* Returns the least time from the start of an item of `from` to the end of the item that gives its room back. A pool's
 * items follow no particular items, but together they start no earlier than if each followed its own. */
static int64_t residence(const struct instance *in, const int *order, int from) {
    const struct class *class = &in->class[from], *until = &in->class[class->until];
    int64_t *behind = NEW(int64_t, in->n);
    for (int i = 0; i < in->n; i++) {
        int c = order[i];
        behind[c] = c == from ? 0 : -1;
        for (int l = 0; l < in->class[c].nlags && !in->class[c].pool; l++) {
            const struct lag *lag = &in->class[c].lag[l];
            if (behind[lag->from] >= 0)
                behind[c] = most(behind[c], behind[lag->from] + lag->ticks);
        }
    }
    for (int l = 0; l < until->nlags && until->pool; l++)
        if (until->lag[l].from == class->by)
            return behind[class->by] + until->lag[l].ticks + until->time;
    return behind[class->until] + until->time;
}

struct steady steady_bound(const struct instance *in, int batches) {
    struct steady bound = {0};
    const int *order = sort_classes(in);
    for (int r = 0; r < in->ranks; r++) {
        int64_t work = 0, held = 0;
        for (int i = in->of_rank_at[r]; i < in->of_rank_at[r + 1]; i++) {
            const struct class *class = &in->class[in->of_rank[i]];
            work += class->time * class->items;
            held += class->take ? class->take * class->items * residence(in, order, in->of_rank[i]) : 0;
        }
        bound.work = fmax(bound.work, (double)work / batches);
        if (in->room[r] < INT64_MAX)
            bound.memory = fmax(bound.memory, (double)held / (double)in->room[r] / batches);
    }
    return bound;
}

int64_t work_bound(const struct instance *in) {
    int64_t bound = 0;
    for (int r = 0; r < in->ranks; r++)
        for (int a = in->of_rank_at[r]; a < in->of_rank_at[r + 1]; a++) {
            int64_t head = in->class[in->of_rank[a]].head, work = 0;
            for (int i = in->of_rank_at[r]; i < in->of_rank_at[r + 1]; i++) {
                const struct class *class = &in->class[in->of_rank[i]];
                work += class->head >= head ? class->time * class->items : 0;
                bound = work > 0 ? most(bound, head + work + class->tail) : bound;
            }
        }
    return bound;
}
