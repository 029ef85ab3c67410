/* Sends weights to the ranks that read them.
 *
 * The k-th fetches of a set by several ranks travel together if that delays none of them: each rank must have room
 * before the first one needs the weights. They are gathered if the ranks own the shards, and broadcast if the weights
 * have one home. All others travel one by one, shards too. So do relayed weights: a rank keeps its own copy until it
 * has sent it on.
 *
 * A transfer starts as late as possible without delaying any job, given its time and the times of later transfers in
 * its lane, so that its buffer opens no earlier than it must. If a transfer takes no time, because the times of
 * messages are not given, it starts as soon as there is room. */
#include "lower.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- fetches that travel together ---- */

struct moments moments_in(const struct build *build) {
    const struct sched *sc = build->sc;
    int n = build->costs->njobs, begin = 0;
    struct moments moments = {NEW(int32_t, n), NEW(int32_t, n), NEW(int32_t, n), NEW(double, sc->nmoments)};
    for (int i = 0; i < sc->nmoments; i++) {
        int32_t j = sc->moment[i];
        moments.time[i] = j >= 0 ? sc->start[j] : sc->end[~j];
        if (j < 0) {
            moments.end[~j] = i;
            continue;
        }
        bool follows = i > 0 && sc->moment[i - 1] >= 0 && moments.time[i - 1] == moments.time[i];
        moments.start[j] = i;
        moments.begin[j] = begin = follows ? begin : i;
    }
    return moments;
}

struct ranked { /* a fetch, and the key that it shares with fetches that may travel with it */
    int32_t set, home, relayed, version, inst, rank, fetch;
};

static int by_key(const void *x, const void *y) {
    const int32_t *a = x, *b = y;
    for (int i = 0; i < 6; i++)
        if (a[i] != b[i])
            return a[i] < b[i] ? -1 : 1;
    return 0;
}

static bool same_key(const struct ranked *a, const struct ranked *b) {
    return a->set == b->set && a->home == b->home && a->relayed == b->relayed && a->version == b->version &&
           a->inst == b->inst;
}

/* Returns the moment from which on a slot is free and the home has the version. */
static int32_t room_from(const struct build *build, const struct moments *moments, const struct fetch *f) {
    int32_t room = f->beside >= 0 ? moments->begin[f->beside] : f->after < 0 ? 0 : moments->end[f->after] + 1;
    int place = f->version > 0 ? place_at(build, f->home, f->set) : -1;
    int32_t made = place >= 0 ? moments->end[update_at(build->costs, f->set, f->version - 1, place)] + 1 : 0;
    return made > room ? made : room;
}

/* Returns the op by which all these fetches may travel together: none must arrive before another has room. Otherwise
 * returns OP_FETCH. */
static int together(const struct build *build, const struct moments *moments, const struct ranked *fetch, int n) {
    struct home home = home_of(build->sp, &fetch->home);
    int32_t from = 0, due = build->sc->nmoments;
    bool members = true;
    for (int i = 0; i < n; i++) {
        const struct fetch *f = &build->weights.fetches.a[fetch[i].fetch];
        int32_t start = moments->start[f->first], room = room_from(build, moments, f);
        int place = place_at(build, f->rank, f->set);
        due = start < due ? start : due;
        from = room > from ? room : from;
        members &= place >= 0 && homes_of(build->costs, f->set)->rank[place - place % home.n] == home.rank[0];
    }
    if (from > due || fetch->relayed)
        return OP_FETCH;
    return home.n > 1 ? members && n == home.n ? OP_ALL_GATHER : OP_FETCH : n > 1 ? OP_BROADCAST : OP_FETCH;
}

/* ---- times ---- */

/* Returns the time of a transfer. */
static double transfer_time(struct build *build, const struct transfer *transfer) {
    const struct fetch *f = &build->weights.fetches.a[transfer->fetch[0]];
    const struct spec *sp = build->sp;
    struct home home = home_of(sp, &f->home);
    int64_t bytes = build->costs->stage[f->set].bytes[home.n > 1 ? K_wshard : K_weight];
    double most = 0;
    if (f->source >= 0)
        return link_time(sp, f->source, f->rank, (double)build->costs->stage[f->set].bytes[K_weight]);
    if (transfer->op == OP_FETCH) {
        for (int i = 0; i < home.n; i++)
            most = fmax(most, link_time(sp, home.rank[i], f->rank, (double)bytes));
        return most;
    }
    const struct group *g = &build->p->group[transfer->group];
    int64_t whole = build->costs->stage[f->set].bytes[K_weight];
    return collective_time(sp, transfer->op, cheaper_algorithm(sp, transfer->op, g, whole), g, whole);
}

static int by_due(const void *x, const void *y) {
    const struct transfer *a = x, *b = y;
    return a->due != b->due ? (a->due > b->due) - (a->due < b->due)
                            : (a->fetch[0] > b->fetch[0]) - (a->fetch[0] < b->fetch[0]);
}

/* Returns the first moment from `least` on that is not before time t. */
static int32_t moment_at(const struct moments *moments, double t, int32_t least, int32_t most) {
    while (least < most) {
        int32_t mid = least + (most - least) / 2;
        if (moments->time[mid] < t)
            least = mid + 1;
        else
            most = mid;
    }
    return least;
}

/* Returns the time by which the transfer must have arrived, for its jobs and for its relays. A relay itself should
 * leave before the last use of the copy that it sends, because the copy's slot is then reused. relay: per fetch, the
 * start of its first relay. */
static double deadline(const struct build *build, const struct moments *moments, const struct transfer *transfer,
                       const double *relay) {
    const struct fetch *f = &build->weights.fetches.a[transfer->fetch[0]];
    double due = moments->time[transfer->due];
    for (int i = 0; i < transfer->n; i++)
        due = fmin(due, relay[transfer->fetch[i]]);
    return f->from >= 0 ? fmin(due, build->sc->end[build->weights.fetches.a[f->from].last]) : due;
}

/* Chooses moments from the transfer that is due last to the one that is due first, since each must leave time for later
 * ones in its lane. A relayed fetch is due before its relays are. */
static void choose_moments(struct build *build, const struct moments *moments) {
    struct transfers *transfers = &build->weights.transfers;
    if (build->choices->prefetch != SOLVED)
        return;
    double *relay = NEW(double, build->weights.fetches.n);
    for (int i = 0; i < build->weights.fetches.n; i++)
        relay[i] = INFINITY;
    int lanes = build->sp->workers + build->p->ngroups; /* one lane for everything that a rank fetches one by one, which
                                                         * is the safe assumption */
    double *next = NEW(double, lanes);
    for (int i = 0; i < lanes; i++)
        next[i] = INFINITY;
    for (int i = transfers->n - 1; i >= 0; i--) {
        struct transfer *transfer = &transfers->a[i];
        int lane = transfer->op == OP_FETCH ? build->weights.fetches.a[transfer->fetch[0]].rank
                                            : build->sp->workers + transfer->group;
        double took = transfer_time(build, transfer), due = deadline(build, moments, transfer, relay);
        double start = fmin(due, next[lane]) - took;
        if (took > 0)
            transfer->moment = moment_at(moments, start, transfer->moment, transfer->due);
        next[lane] = fmax(start, moments->time[transfer->moment]);
        int32_t from = build->weights.fetches.a[transfer->fetch[0]].from;
        if (from >= 0)
            relay[from] = fmin(relay[from], next[lane]);
    }
}

/* Delays relays until after their sources are issued. Transfers are sorted by due. */
static void follow_sources(struct build *build) {
    struct transfers *transfers = &build->weights.transfers;
    int32_t *moment = NEW(int32_t, build->weights.fetches.n);
    for (struct transfer *transfer = transfers->a; transfer < transfers->a + transfers->n; transfer++) {
        int32_t from = build->weights.fetches.a[transfer->fetch[0]].from;
        if (from >= 0 && moment[from] > transfer->moment)
            transfer->moment = moment[from];
        for (int i = 0; i < transfer->n; i++)
            moment[transfer->fetch[i]] = transfer->moment;
    }
}

static int by_moment(const void *x, const void *y) {
    const struct transfer *a = x, *b = y;
    return a->moment != b->moment ? (a->moment > b->moment) - (a->moment < b->moment) : by_due(x, y);
}

/* ---- the plan ---- */

static struct ranked *sorted_fetches(const struct build *build) {
    struct ranked *ranked = NEW(struct ranked, build->weights.fetches.n);
    for (int32_t i = 0; i < build->weights.fetches.n; i++) {
        const struct fetch *f = &build->weights.fetches.a[i];
        ranked[i] = (struct ranked){f->set, f->home, f->source >= 0, f->version, f->inst, f->rank, i};
    }
    sort(ranked, (size_t)build->weights.fetches.n, sizeof *ranked, by_key);
    return ranked;
}

static void add_transfer(struct build *build, const struct moments *moments, int op, const int32_t *fetch, int n) {
    struct transfers *transfers = &build->weights.transfers;
    struct transfer *transfer = &transfers->a[transfers->n++];
    *transfer = (struct transfer){.op = (uint8_t)op, .fetch = fetch, .n = n, .group = -1, .due = INT32_MAX};
    int32_t *rank = NEW(int32_t, n + 1);
    for (int i = 0; i < n; i++) {
        const struct fetch *f = &build->weights.fetches.a[fetch[i]];
        int32_t room = room_from(build, moments, f), due = moments->start[f->first];
        transfer->moment = room > transfer->moment ? room : transfer->moment;
        transfer->due = due < transfer->due ? due : transfer->due;
        rank[i] = f->rank;
    }
    struct home home = home_of(build->sp, &build->weights.fetches.a[fetch[0]].home);
    if (op == OP_ALL_GATHER)
        transfer->group = intern_group(build, home.rank, home.n);
    if (op != OP_BROADCAST)
        return;
    int at = n; /* position of the root among the readers, which are sorted */
    for (; at > 0 && rank[at - 1] > home.rank[0]; at--)
        rank[at] = rank[at - 1];
    rank[at] = home.rank[0];
    transfer->group = intern_group(build, rank, n + 1);
}

/* Gives each broadcast of a set from one root its own number, which distinguishes them in the text. Without this, two
 * broadcasts could share a number if they carry different versions. The readers' buffers have this number too, so a new
 * one exceeds all numbers that any rank uses for the set. */
static void number_broadcasts(struct build *build) {
    const struct transfers *transfers = &build->weights.transfers;
    struct fetch *fetch = build->weights.fetches.a;
    int32_t *next = NEW(int32_t, sets_of(build->sp)), n = 0;
    struct ranked *ranked = NEW(struct ranked, transfers->n);
    for (int i = 0; i < build->weights.fetches.n; i++)
        next[fetch[i].set] = fetch[i].inst >= next[fetch[i].set] ? fetch[i].inst + 1 : next[fetch[i].set];
    for (int32_t i = 0; i < transfers->n; i++) {
        const struct fetch *f = &fetch[transfers->a[i].fetch[0]];
        if (transfers->a[i].op == OP_BROADCAST)
            ranked[n++] = (struct ranked){.set = f->set, .home = f->home, .inst = f->inst, .fetch = i};
    }
    sort(ranked, (size_t)n, sizeof *ranked, by_key);
    for (int32_t i = 1; i < n; i++) {
        const struct transfer *transfer = &transfers->a[ranked[i].fetch];
        if (!same_key(&ranked[i - 1], &ranked[i]))
            continue;
        for (int k = 0; k < transfer->n; k++)
            fetch[transfer->fetch[k]].inst = next[ranked[i].set];
        next[ranked[i].set]++;
    }
}

void plan_transfers(struct build *build) {
    struct transfers *transfers = &build->weights.transfers;
    int n = build->weights.fetches.n;
    if (n == 0)
        return;
    struct moments moments = moments_in(build);
    const struct ranked *ranked = sorted_fetches(build);
    int32_t *fetch = NEW(int32_t, n);
    transfers->a = NEW(struct transfer, n);
    for (int i = 0, end; i < n; i = end) {
        for (end = i; end < n && same_key(&ranked[i], &ranked[end]); end++)
            fetch[end] = ranked[end].fetch;
        int op = together(build, &moments, &ranked[i], end - i);
        if (op == OP_FETCH)
            for (int k = i; k < end; k++)
                add_transfer(build, &moments, op, &fetch[k], 1);
        else
            add_transfer(build, &moments, op, &fetch[i], end - i);
    }
    sort(transfers->a, (size_t)transfers->n, sizeof *transfers->a, by_due);
    choose_moments(build, &moments);
    follow_sources(build);
    sort(transfers->a, (size_t)transfers->n, sizeof *transfers->a, by_moment);
    if (build->sp->updates.every)
        number_broadcasts(build);
}

/* ---- the instructions ---- */

static int32_t open_fetched(struct build *build, int32_t i) {
    const struct fetch *f = &build->weights.fetches.a[i];
    return build->weights.fetched[i] = open_buf(build, f->rank, K_weight, f->set, -1, f->inst, f->uses);
}

static void gather_set(struct build *build, const struct transfer *transfer) {
    for (int i = 0; i < transfer->n; i++) {
        const struct fetch *f = &build->weights.fetches.a[transfer->fetch[i]];
        int32_t whole = open_fetched(build, transfer->fetch[i]);
        issue_collective(build, f->rank, OP_ALL_GATHER, f->set, f->inst, -1, transfer->group);
        add_operand(build, f->rank, ROLE_src, owner_at(build, f->rank, f->set)->weight);
        add_operand(build, f->rank, ROLE_w, whole);
        set_algorithm(build, f->rank);
    }
}

/* Ends the use of a home's copy of a version by a message, at time t. Jobs that have started may still read the
 * copy. */
static void end_version(struct build *build, double t, int r, int32_t buf) {
    end_shared_use(build, t, fmax(t, build->clock.busy[r]), r, buf);
}

static void broadcast(struct build *build, const struct transfer *transfer, double t) {
    const struct fetch *first = &build->weights.fetches.a[transfer->fetch[0]];
    int root = first->home, src = -1;
    for (int i = 0; i < transfer->n; i++) /* one reader each */
        src = read_version(build, root, first->set, first->version);
    issue_collective(build, root, OP_BROADCAST, first->set, first->inst, root, transfer->group);
    add_operand(build, root, ROLE_src, src);
    set_algorithm(build, root);
    for (int i = 0; i < transfer->n && is_copy_of_version(build->p, root, &build->p->rank[root].buf[src]); i++)
        end_version(build, t, root, src);
    for (int i = 0; i < transfer->n; i++) {
        const struct fetch *f = &build->weights.fetches.a[transfer->fetch[i]];
        int32_t whole = open_fetched(build, transfer->fetch[i]);
        issue_collective(build, f->rank, OP_BROADCAST, f->set, f->inst, root, transfer->group);
        add_operand(build, f->rank, ROLE_w, whole);
        set_algorithm(build, f->rank);
    }
}

/* Issues a fetch from another rank's copy, at time t. */
static void relay(struct build *build, int32_t i, double t) {
    const struct fetch *f = &build->weights.fetches.a[i];
    int32_t copy = f->from < 0 ? owner_at(build, f->source, f->set)->weight : build->weights.fetched[f->from];
    issue(build, f->source, OP_SERVE, f->set, -1, f->rank, f->inst);
    add_operand(build, f->source, ROLE_t, copy);
    if (f->from >= 0)
        end_shared_use(build, t, build->sc->end[build->weights.fetches.a[f->from].last], f->source, copy);
    int32_t whole = open_fetched(build, i);
    issue(build, f->rank, OP_FETCH, f->set, -1, f->source, f->inst);
    add_operand(build, f->rank, ROLE_t, whole);
}

/* Issues a fetch from the only home, or from each shard's home. */
static void fetch(struct build *build, int32_t i, double t) {
    const struct fetch *f = &build->weights.fetches.a[i];
    struct home home = home_of(build->sp, &f->home);
    int32_t whole = open_fetched(build, i);
    for (int m = 0; m < home.n; m++) {
        int from = home.rank[m];
        int32_t weights = read_version(build, from, f->set, f->version);
        if (from == f->rank) {
            issue(build, from, OP_COPY, f->set, -1, -1, f->inst);
            add_operand(build, from, ROLE_src, weights);
            add_piece(build, from, ROLE_w, whole, m, home.n);
            continue;
        }
        issue(build, from, OP_SERVE, f->set, -1, f->rank, f->inst);
        add_operand(build, from, ROLE_t, weights);
        if (is_copy_of_version(build->p, from, &build->p->rank[from].buf[weights]))
            end_version(build, t, from, weights);
        issue(build, f->rank, OP_FETCH, f->set, -1, from, f->inst);
        add_piece(build, f->rank, ROLE_t, whole, m, home.n);
    }
}

void issue_transfers(struct build *build, int32_t moment) {
    struct transfers *transfers = &build->weights.transfers;
    int32_t j = build->sc->moment[moment];
    double t = j >= 0 ? build->sc->start[j] : build->sc->end[~j];
    for (; transfers->next < transfers->n && transfers->a[transfers->next].moment <= moment; transfers->next++) {
        const struct transfer *transfer = &transfers->a[transfers->next];
        switch (transfer->op) {
        case OP_ALL_GATHER: gather_set(build, transfer); break;
        case OP_BROADCAST: broadcast(build, transfer, t); break;
        default:
            if (build->weights.fetches.a[transfer->fetch[0]].source >= 0)
                relay(build, transfer->fetch[0], t);
            else
                fetch(build, transfer->fetch[0], t);
        }
    }
}

void read_weights(struct build *build, int32_t j) {
    static const uint8_t role[NSETS] = {[SET_OWN] = ROLE_w, [SET_TABLE] = ROLE_v, [SET_SHARED] = ROLE_u};
    const struct job *job = &build->costs->job[j];
    for (int which = 0; which < NSETS; which++) {
        int32_t set = set_read(build->costs, job, which), f = build->weights.fetches.of_job[(int64_t)j * NSETS + which];
        if (set >= 0)
            add_operand(
                build, job->rank, role[which],
                f >= 0 ? build->weights.fetched[f]
                       : read_version(build, job->rank, set, build->sp->updates.every ? build->sc->version[j] : 0));
    }
}
