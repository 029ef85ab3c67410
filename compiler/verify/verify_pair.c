/* Pairs the instructions that meet: the k-th SEND along an edge with the k-th RECV, and the k-th collective of each
 * member in the group's gather lanes and in its group lanes. Those that meet must agree in name and size. */
#include "check.h"
#include <string.h>

/* ---- messages ---- */

static bool same_name(const struct instr *send, const struct instr *recv) {
    return recv->op == op_row(send->op)->partner && recv->stage == send->stage && recv->batch == send->batch &&
           recv->inst == send->inst;
}

static int64_t message_bytes(const struct rank *k, const struct instr *x) {
    return x->narg ? arg_bytes(k, &k->arg[x->arg]) : -1;
}

static const char *label_of_message(const struct check *check, const struct instr *x) {
    struct text t = {0};
    put_label(&t, &check->p->names, x);
    return t.s;
}

static bool pair(struct check *check, int src, int32_t i, int dst, int32_t j) {
    const struct rank *ks = &check->p->rank[src], *kd = &check->p->rank[dst];
    const struct instr *s = &ks->ins[i], *d = &kd->ins[j];
    check->mate[src][i] = j;
    check->mate[dst][j] = i;
    if (!same_name(s, d))
        return refute(check, CLAIM_SERIAL, src, i, "its place in the order of the edge meets %s on rank %d",
                      label_of_message(check, d), dst);
    if (section_of(ks, i) != section_of(kd, j))
        return refute(check, CLAIM_SERIAL, src, i, "a mark of the period is between it and %s on rank %d",
                      label_of_message(check, d), dst);
    if (s->narg != 1 || d->narg != 1)
        return refute(check, CLAIM_JOBS, src, i, "a message carries one tensor");
    if (message_bytes(ks, s) != message_bytes(kd, d))
        return refute(check, CLAIM_SERIAL, src, i, "sends %lld bytes, but %s on rank %d takes %lld",
                      (long long)message_bytes(ks, s), label_of_message(check, d), dst,
                      (long long)message_bytes(kd, d));
    return true;
}

struct end {
    int32_t r, i;
};

/* Returns all SENDs by destination, in compressed rows; within a row, by rank and issue order. */
static struct end *sends_by_destination(const struct program *p, int32_t *at) {
    for (int r = 0; r < p->workers; r++)
        for (int32_t i = 0; i < p->rank[r].nins; i++)
            if (is_send(p->rank[r].ins[i].op))
                at[p->rank[r].ins[i].peer + 2]++;
    for (int r = 0; r < p->workers; r++)
        at[r + 2] += at[r + 1];
    struct end *send = NEW(struct end, at[p->workers + 1] + 1);
    for (int r = 0; r < p->workers; r++)
        for (int32_t i = 0; i < p->rank[r].nins; i++)
            if (is_send(p->rank[r].ins[i].op))
                send[at[p->rank[r].ins[i].peer + 1]++] = (struct end){r, i};
    return send;
}

bool pair_messages(struct check *check) {
    const struct program *p = check->p;
    int W = p->workers;
    int32_t *at = NEW(int32_t, W + 2), *first = NEW(int32_t, W), *last = NEW(int32_t, W); /* RECVs, by source */
    const struct end *send = sends_by_destination(p, at);
    memset(first, -1, sizeof *first * (size_t)W);
    for (int r = 0; r < W; r++) {
        const struct rank *k = &p->rank[r];
        int32_t *next = check->mate[r]; /* per RECV: the next one from the same source, until it has its SEND */
        for (int32_t i = 0; i < k->nins; i++)
            if (is_recv(k->ins[i].op)) {
                int from = k->ins[i].peer;
                *(first[from] < 0 ? &first[from] : &next[last[from]]) = i;
                last[from] = i;
            }
        for (int32_t n = at[r]; n < at[r + 1]; n++) {
            int32_t j = first[send[n].r];
            if (j < 0)
                return refute(check, CLAIM_SERIAL, send[n].r, send[n].i, "rank %d has no receive for it", r);
            first[send[n].r] = next[j];
            if (!pair(check, send[n].r, send[n].i, r, j))
                return false;
        }
        for (int32_t i = 0; i < k->nins; i++)
            if (is_recv(k->ins[i].op) && first[k->ins[i].peer] >= 0)
                return refute(check, CLAIM_SERIAL, r, first[k->ins[i].peer], "rank %d has no send for it",
                              k->ins[i].peer);
    }
    return true;
}

/* ---- collectives ---- */

/* The groups of each rank, in compressed rows */
struct membership {
    int32_t group, member;
};

static struct membership *memberships(const struct program *p, int32_t *at) {
    for (int g = 0; g < p->ngroups; g++)
        for (int m = 0; m < p->group[g].n; m++)
            at[p->group[g].rank[m] + 2]++;
    for (int r = 0; r < p->workers; r++)
        at[r + 2] += at[r + 1];
    struct membership *all = NEW(struct membership, at[p->workers + 1] + 1);
    for (int g = 0; g < p->ngroups; g++)
        for (int m = 0; m < p->group[g].n; m++)
            all[at[p->group[g].rank[m] + 1]++] = (struct membership){g, m};
    return all;
}

/* Adds the collectives of rank r to their series. member: per group, the rank's index in it; -1: none. */
static bool list_collectives(struct check *check, int r, const int32_t *member) {
    const struct rank *k = &check->p->rank[r];
    for (int32_t i = 0; i < k->nins; i++) {
        if (!is_group(k->ins[i].op))
            continue;
        int group = k->lane[k->ins[i].lane].group;
        if (group < 0 || member[group] < 0)
            return refute(check, CLAIM_SERIAL, r, i, "its rank is not in the group");
        check->mate[r][i] = series_of(check, r, &k->ins[i])->count[member[group]]++;
    }
    for (int32_t i = 0; i < k->nins; i++)
        if (is_group(k->ins[i].op)) {
            struct series *series = series_of(check, r, &k->ins[i]);
            int m = member[series->g - check->p->group];
            series->ins[m] = series->ins[m] ? series->ins[m] : NEW(int32_t, series->count[m]);
            series->ins[m][check->mate[r][i]] = i;
        }
    return true;
}

static bool list_all(struct check *check) {
    const struct program *p = check->p;
    check->series = NEW(struct series, GROUP_LANES * p->ngroups + 1);
    for (int n = 0; n < GROUP_LANES * p->ngroups; n++) {
        const struct group *g = &p->group[n / GROUP_LANES];
        check->series[n] = (struct series){.g = g, .ins = NEW(int32_t *, g->n), .count = NEW(int32_t, g->n)};
    }
    int32_t *at = NEW(int32_t, p->workers + 2), *member = NEW(int32_t, p->ngroups + 1);
    const struct membership *of = memberships(p, at);
    memset(member, -1, sizeof *member * (size_t)p->ngroups);
    for (int r = 0; r < p->workers; r++) {
        for (int j = at[r]; j < at[r + 1]; j++)
            member[of[j].group] = of[j].member;
        if (!list_collectives(check, r, member))
            return false;
        for (int j = at[r]; j < at[r + 1]; j++)
            member[of[j].group] = -1;
    }
    return true;
}

/* Returns the stage of a team's first member, if members have stages of their own. */
static int32_t first_stage(const struct check *check, const struct instr *x) {
    const struct member *member = check->p->names.member;
    bool team = op_lane[x->op] == LANE_TEAM && member && x->stage >= 0 && x->stage < check->p->stages;
    return team && member[x->stage].place > 0 ? x->stage - member[x->stage].place : x->stage;
}

/* Refutes unless two members arrive at the same collective. */
static bool agree(struct check *check, int a, int32_t i, int b, int32_t j) {
    const struct instr *x = &check->p->rank[a].ins[i], *y = &check->p->rank[b].ins[j];
    int64_t here = message_bytes(&check->p->rank[b], y), there = message_bytes(&check->p->rank[a], x);
    if (x->op != y->op || first_stage(check, x) != first_stage(check, y) || x->batch != y->batch ||
        x->inst != y->inst || x->peer != y->peer)
        return refute(check, CLAIM_SERIAL, b, j, "its place in the order of the group meets %s on rank %d",
                      label_of_message(check, x), a);
    if (section_of(&check->p->rank[a], i) != section_of(&check->p->rank[b], j))
        return refute(check, CLAIM_SERIAL, b, j, "a mark of the period is between it and %s on rank %d",
                      label_of_message(check, x), a);
    if (x->algorithm != y->algorithm)
        return refute(check, CLAIM_SERIAL, b, j, "travels by %s, but by %s on rank %d", algorithm_name[y->algorithm],
                      algorithm_name[x->algorithm], a);
    return here == there || refute(check, CLAIM_SERIAL, b, j, "has %lld bytes, but %lld on rank %d", (long long)here,
                                   (long long)there, a);
}

static bool pair_series(struct check *check, struct series *series) {
    const struct group *g = series->g;
    series->n = series->count[0];
    series->first = check->ncollectives;
    check->ncollectives += series->n;
    for (int m = 1; m < g->n; m++)
        for (int32_t nth = 0; nth < series->n || nth < series->count[m]; nth++) {
            if (nth >= series->count[m])
                return refute(check, CLAIM_SERIAL, g->rank[0], series->ins[0][nth], "rank %d never comes to it",
                              g->rank[m]);
            if (nth >= series->n)
                return refute(check, CLAIM_SERIAL, g->rank[m], series->ins[m][nth], "rank %d never comes to it",
                              g->rank[0]);
            if (!agree(check, g->rank[0], series->ins[0][nth], g->rank[m], series->ins[m][nth]))
                return false;
        }
    for (int32_t nth = 0; nth < series->n; nth++) {
        const struct instr *x = &check->p->rank[g->rank[0]].ins[series->ins[0][nth]];
        int m = 0;
        while (x->peer >= 0 && m < g->n && g->rank[m] != x->peer)
            m++;
        if (m == g->n)
            return refute(check, CLAIM_SERIAL, g->rank[0], series->ins[0][nth],
                          "its root, rank %d, is not in the group", x->peer);
    }
    return true;
}

bool pair_collectives(struct check *check) {
    bool ok = list_all(check);
    for (int n = 0; n < GROUP_LANES * check->p->ngroups && ok; n++)
        ok = pair_series(check, &check->series[n]);
    return ok;
}
