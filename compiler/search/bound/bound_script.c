/* Checks whether a certificate's instance is a relaxation of a script's, so that what holds for all schedules of the
 * instance holds for all schedules of the script.
 *
 * Each item of a class stands for a job, and no two items for the same job. Take a schedule of the script, and start
 * each item when its job starts. This is a schedule of the instance for the following reasons, each checked job by job:
 * - An item is on its job's rank and takes no longer. So a rank runs one item at a time, and no item ends later than
 *   its job.
 * - `after`: items k of the two classes stand for jobs of the same microbatch, or for the k-th of their kinds. At least
 *   the lag passes from the start of one to the start of the other, by the times of jobs and messages along some chain
 *   of dependencies. The items of a class are numbered in the order of their starts, which need not be the order of
 *   their microbatches. As bound.h argues, this loses nothing as long as each job of the class has its own predecessor.
 * - `pool`: likewise. Which job belongs to which of the classes before it does not matter, since they are counted
 *   together.
 * - Room. Only forwards take room, each for its activation. Its rank holds the activation until the last backward has
 *   ended there, or, if that is on another rank, until the forward has ended. That item gives back at least as much. So
 *   at any time, an activation that the rank holds counts for at most what its forward takes, and other activations
 *   count for nothing. When a forward starts, the rank holds no more activations than its cap, so there is room for
 *   that many of the largest takes.
 * Nothing else restricts a schedule of the instance. The instance omits everything else that restricts the script's
 * schedules: a fixed order, jobs or dependencies that the certificate omits, and activations that come from other
 * ranks.
 *
 * The file does not say which jobs a class stands for. The class's name gives the stage and the direction. Classes of
 * one name are for kinds of microbatches, which are alike in ranks, times and places of slices, in the order of their
 * first ones. This guess needs no proof: if it is wrong, one of the checks above fails.
 *
 * Times are compared up to a part in 10^12: three ticks of 0.1 are no more than 0.3. */
#include "bound.h"
#include "ir/compile.h"
#include "ir/program.h"
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct mapping {
    const struct bound *b;
    const struct spec *sp;
    const struct costs *costs;
    const struct compile *c;
    const struct graph *graph;
    int32_t **job;     /* per class: the jobs that its items stand for */
    int32_t *class_of; /* per job; -1: none */
    int32_t *kind;     /* per microbatch */
    int32_t nkinds;
    int32_t *order; /* jobs in topological order; each job's index in it */
    int32_t *place;
    double *far; /* per job: the longest path to it */
    int64_t steps;
};

static const char *mapped_name(const struct mapping *m, int32_t j) {
    const struct job *job = &m->sp->job[j];
    return job_name(&m->sp->names, job->s, job->b, job->d);
}

static const char *at_line(const struct mapping *m, int line, const char *why) {
    return format("%s:%d: %s", m->b->file, line, why);
}

static bool lasts(const struct mapping *m, double time, int64_t ticks) {
    return (double)ticks * m->b->tick <= time * (1 + 1e-12);
}

/* ---- kinds of microbatches ---- */

static bool are_alike(const struct costs *costs, int a, int b) {
    const struct spec *sp = costs->spec;
    int slices = slices_of(&sp->names);
    if (a % slices != b % slices)
        return false;
    for (int s = 0; s < sp->stages; s++)
        for (int d = 0; d < NDIRS; d++) {
            int32_t x = job_at(sp, s, a, d), y = job_at(sp, s, b, d);
            if ((x < 0) != (y < 0) ||
                (x >= 0 && (sp->job[x].rank != sp->job[y].rank || job_time(costs, x) != job_time(costs, y))))
                return false;
        }
    return true;
}

static void map_kinds(struct mapping *m) {
    int32_t *first = NEW(int32_t, m->sp->batches);
    m->kind = NEW(int32_t, m->sp->batches);
    for (int b = 0; b < m->sp->batches; b++) {
        int32_t k = 0;
        while (k < m->nkinds && !are_alike(m->costs, first[k], b))
            k++;
        if (k == m->nkinds)
            first[m->nkinds++] = b;
        m->kind[b] = k;
    }
}

/* ---- which jobs a class stands for ---- */

/* Reads F12 as a stage and a direction. */
static bool read_job_name(const struct mapping *m, const char *name, int *s, int *d) {
    char *end;
    for (*d = 0; *d < NDIRS && strncmp(name, op_name[*d], 1) != 0;)
        ++*d;
    if (*d == NDIRS || name[1] < '0' || name[1] > '9')
        return false;
    long stage = strtol(name + 1, &end, 10);
    *s = (int)stage;
    return !*end && stage >= 0 && stage < m->sp->stages;
}

/* Returns the jobs of a kind; NULL: another class stands for them, or there are none. */
static int32_t *jobs_of(const struct mapping *m, int s, int d, int32_t kind, int32_t *n) {
    int32_t *job = NEW(int32_t, m->sp->batches);
    *n = 0;
    for (int b = 0; b < m->sp->batches; b++) {
        int32_t j = m->kind[b] == kind ? job_at(m->sp, s, b, d) : -1;
        if (j >= 0 && m->class_of[j] >= 0)
            return NULL;
        if (j >= 0)
            job[(*n)++] = j;
    }
    return *n ? job : NULL;
}

static void give_jobs(struct mapping *m, int32_t c, int32_t *job) {
    m->job[c] = job;
    for (int32_t i = 0; i < m->b->class[c].items; i++)
        m->class_of[job[i]] = c;
}

static const char *find_jobs(struct mapping *m, int32_t c) {
    const struct bound_class *class = &m->b->class[c];
    int s, d;
    int32_t n, rank = -1, as_many = -1;
    if (!read_job_name(m, class->name, &s, &d))
        return at_line(m, class->line, format("%s is not a job of the script", class->name));
    for (int32_t k = 0; k < m->nkinds; k++) {
        int32_t *job = jobs_of(m, s, d, k, &n);
        if (!job)
            continue;
        if (m->sp->job[*job].rank == class->rank && n == class->items) {
            give_jobs(m, c, job);
            return NULL;
        }
        if (m->sp->job[*job].rank == class->rank)
            as_many = as_many < 0 ? n : as_many;
        rank = rank < 0 ? m->sp->job[*job].rank : rank;
    }
    if (as_many >= 0)
        return at_line(
            m, class->line,
            format("%s has %d items, but the script has %d such jobs", class->name, (int)class->items, (int)as_many));
    return at_line(m, class->line,
                   rank >= 0 ? format("%s is on rank %d, but the script has these jobs on rank %d", class->name,
                                      (int)class->rank, (int)rank)
                             : format("the script has no jobs for %s, or another class covers them", class->name));
}

/* Finds a pool's jobs, in the order of the classes before it, and of their items. */
static const char *find_pool(struct mapping *m, int32_t c) {
    const struct bound_class *class = &m->b->class[c];
    const struct spec *sp = m->sp;
    int s, d;
    if (!read_job_name(m, class->name, &s, &d))
        return at_line(m, class->line, format("%s is not a job of the script", class->name));
    m->job[c] = NEW(int32_t, class->items);
    for (int32_t i = 0, n = 0; i < class->narc; i++)
        for (int32_t k = 0; k < m->b->class[class->arc[i].class].items; k++) {
            const struct job *before = &sp->job[m->job[class->arc[i].class][k]];
            int32_t j = job_at(sp, before->s, before->b, d);
            if (j < 0 || m->class_of[j] >= 0)
                return at_line(m, class->arc_line,
                               format("pool %s has an item for %s, which %s", class->name,
                                      job_name(&sp->names, before->s, before->b, d),
                                      j < 0 ? "the script does not have" : "another class stands for"));
            m->job[c][n++] = j;
            m->class_of[j] = c;
        }
    return NULL;
}

static const char *map_classes(struct mapping *m) {
    const char *why = NULL;
    for (int pools = 0; pools < 2 && !why; pools++)
        for (int32_t c = 0; c < m->b->nclass && !why; c++)
            if (m->b->class[c].pool == pools)
                why = pools ? find_pool(m, c) : find_jobs(m, c);
    return why;
}

/* ---- ranks, times and room ---- */

static const char *check_class_jobs(const struct mapping *m, const struct bound_class *class, const int32_t *job) {
    for (int32_t i = 0; i < class->items; i++) {
        int32_t rank = m->sp->job[job[i]].rank;
        char time[32], most[32];
        if (rank != class->rank)
            return at_line(m, class->line,
                           format("%s is on rank %d, but the script has %s on rank %d", class->name, (int)class->rank,
                                  mapped_name(m, job[i]), (int)rank));
        if (!lasts(m, job_time(m->costs, job[i]), class->time))
            return at_line(m, class->line,
                           format("%s takes %s, but the script's %s takes only %s", class->name,
                                  number((double)class->time * m->b->tick, time), mapped_name(m, job[i]),
                                  number(job_time(m->costs, job[i]), most)));
    }
    return NULL;
}

static const char *check_takes(const struct mapping *m, const struct bound_class *class, const int32_t *job) {
    int32_t n = class->take ? class->items : 0;
    for (int32_t i = 0; i < n; i++) {
        const struct job *f = &m->sp->job[job[i]];
        if (f->d != OP_F)
            return at_line(m, class->line, format("%s takes room, but only forwards may", class->name));
        int32_t last = last_backward(m->sp, f->s, f->b),
                giver = last >= 0 && m->sp->job[last].rank == f->rank ? m->class_of[last] : -1;
        if (class->give < class->take && (giver < 0 || m->b->class[giver].give < class->take))
            return at_line(m, class->line,
                           format("%s takes more room than is given back when %s ends on its rank", class->name,
                                  mapped_name(m, giver >= 0 ? last : job[i])));
    }
    return NULL;
}

static const char *check_rooms(const struct mapping *m) {
    const struct bound *b = m->b;
    int64_t *most = NEW(int64_t, b->ranks), *all = NEW(int64_t, b->ranks);
    for (const struct bound_class *c = b->class; c < b->class + b->nclass; c++) {
        most[c->rank] = c->take > most[c->rank] ? c->take : most[c->rank];
        all[c->rank] += c->take * c->items;
    }
    for (int32_t k = 0; k < b->ranks; k++) {
        int cap = k < m->sp->workers ? m->sp->limits.cap[k] : 0;
        if (b->room[k] < 0 || b->room[k] >= all[k])
            continue;
        if (cap == INT_MAX)
            return at_line(m, b->room_line[k],
                           format("rank %d has no cap in the script: room in bytes is not checked against it", (int)k));
        if (b->room[k] / most[k] < cap)
            return at_line(m, b->room_line[k],
                           format("rank %d has room for %lld activations, but its cap in the script is %d", (int)k,
                                  (long long)(b->room[k] / most[k]), cap));
    }
    return NULL;
}

/* ---- lags ---- */

/* Returns the time from the start of the job before edge e until the job after it may start. */
static double time_of_edge(const struct mapping *m, int32_t e, int32_t to) {
    return job_time(m->costs, m->graph->pred[e]) + edge_time(m->c, e, to);
}

static void sort_jobs(struct mapping *m) {
    const struct graph *g = m->graph;
    int32_t *missing = NEW(int32_t, g->n), n = 0;
    m->order = NEW(int32_t, g->n);
    m->place = NEW(int32_t, g->n);
    m->far = NEW(double, g->n);
    for (int32_t j = 0; j < g->n; j++)
        if ((missing[j] = g->pred_at[j + 1] - g->pred_at[j]) == 0)
            m->order[n++] = j;
    for (int32_t i = 0; i < n; i++) {
        m->place[m->order[i]] = i;
        for (int32_t e = g->succ_at[m->order[i]]; e < g->succ_at[m->order[i] + 1]; e++)
            if (--missing[g->succ[e]] == 0)
                m->order[n++] = g->succ[e];
    }
}

/* Returns the longest path from start to start along dependencies; below 0: there is none. */
static double way(struct mapping *m, int32_t from, int32_t to) {
    const struct graph *g = m->graph;
    for (int32_t i = m->place[from]; i <= m->place[to]; i++) {
        int32_t j = m->order[i];
        m->far[j] = j == from ? 0 : -1;
        m->steps += 1 + g->pred_at[j + 1] - g->pred_at[j];
        for (int32_t e = g->pred_at[j]; e < g->pred_at[j + 1]; e++)
            if (m->place[g->pred[e]] >= m->place[from] && m->far[g->pred[e]] >= 0)
                m->far[j] = fmax(m->far[j], m->far[g->pred[e]] + time_of_edge(m, e, j));
    }
    return m->place[from] <= m->place[to] ? m->far[to] : -1;
}

/* Checks a lag by a single dependency, or else by a chain. */
static const char *check_lag(struct mapping *m, const struct bound_class *class, const struct bound_arc *arc,
                             int32_t from, int32_t to) {
    char lag[32], most[32];
    double time = -1;
    for (int32_t e = m->graph->pred_at[to]; e < m->graph->pred_at[to + 1]; e++)
        if (m->graph->pred[e] == from)
            time = fmax(time, time_of_edge(m, e, to));
    if (time >= 0 && lasts(m, time, arc->lag))
        return NULL;
    time = way(m, from, to);
    if (m->steps > MOST_STEPS)
        die("%s:%d: finding the chains of dependencies takes too long: name the jobs that a job needs directly",
            m->b->file, class->arc_line);
    if (time >= 0 && lasts(m, time, arc->lag))
        return NULL;
    return at_line(m, class->arc_line,
                   time < 0
                       ? format("%s of the script does not need %s", mapped_name(m, to), mapped_name(m, from))
                       : format("%s comes %s after %s, and %s of the script only %s after the start of %s", class->name,
                                number((double)arc->lag * m->b->tick, lag), m->b->class[arc->class].name,
                                mapped_name(m, to), number(time, most), mapped_name(m, from)));
}

static const char *check_lags(struct mapping *m, const struct bound_class *class, const int32_t *job) {
    const char *why = NULL;
    for (int32_t i = 0, n = 0; i < class->narc; i++, n = class->pool ? n : 0)
        for (int32_t k = 0; k < m->b->class[class->arc[i].class].items && !why; k++)
            why = check_lag(m, class, &class->arc[i], m->job[class->arc[i].class][k], job[n++]);
    return why;
}

/* ---- the whole check ---- */

static const char *what_is_not_one_job(const struct spec *sp) {
    return sp->names.member    ? "teams"
           : sp->npairs        ? "pairs of jobs that overlap"
           : sp->updates.every ? "'update'"
                               : NULL;
}

const char *check_script(const struct bound *b, const struct compile *c) {
    const struct spec *sp = c->spec;
    struct mapping m = {.b = b, .c = c, .sp = sp, .costs = c->costs, .graph = c->graph};
    const char *why, *what = what_is_not_one_job(sp);
    if (what)
        return format("certificates cover jobs that each run alone on one rank, but %s has %s", sp->file, what);
    m.job = NEW(int32_t *, b->nclass);
    m.class_of = NEW(int32_t, sp->njobs);
    memset(m.class_of, -1, sizeof *m.class_of * (size_t)sp->njobs);
    map_kinds(&m);
    sort_jobs(&m);
    if ((why = map_classes(&m)))
        return why;
    for (int32_t c = 0; c < b->nclass; c++)
        if ((why = check_class_jobs(&m, &b->class[c], m.job[c])) || (why = check_takes(&m, &b->class[c], m.job[c])) ||
            (why = check_lags(&m, &b->class[c], m.job[c])))
            return why;
    return check_rooms(&m);
}
