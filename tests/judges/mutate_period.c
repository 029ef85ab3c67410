/* Breaks updates, versions and the period. */
#include "mutate_parts.h"

static const char *other_version(struct place *m) {
    struct instr *x = m->x;
    int by = draw(m, 2) ? 1 : -1;
    bool all = draw(m, 3) == 0;
    if (!is_job(x->op) || x->inst < 0 || x->inst + by < 0)
        return NULL;
    for (int r = 0; r < m->p->workers; r++)
        for (struct instr *y = m->p->rank[r].ins; y < m->p->rank[r].ins + m->p->rank[r].nins; y++)
            if (y == x || (all && is_job(y->op) && y->stage == x->stage && y->batch == x->batch && y->inst >= 0))
                y->inst = y->inst + by < 0 ? 0 : y->inst + by;
    return format("by %d%s", by, all ? ", all of its microbatch" : "");
}

static const char *other_update(struct place *m) {
    struct instr *x = m->x;
    int old = x->batch, stage = x->stage, now = old + (draw(m, 2) ? 1 : -1);
    bool all = draw(m, 2);
    if (x->op != OP_U || now < 0 || now >= m->p->batches / m->p->update[stage])
        return NULL;
    for (int r = 0; r < m->p->workers; r++)
        for (struct instr *y = m->p->rank[r].ins; y < m->p->rank[r].ins + m->p->rank[r].nins; y++)
            if (y == x || (all && y->op == OP_U && y->stage == stage && y->batch == old))
                y->batch = now;
    return format("%d", now);
}

/* Lets a reader of one version read another that its rank has: its weights at home, or another stay. */
static const char *newest_weights(struct place *m) {
    for (uint32_t a = m->x->arg; a < m->x->arg + m->x->narg; a++) {
        struct arg *o = &m->k->arg[a];
        const struct buf *b = &m->k->buf[o->buf];
        int from = draw(m, m->k->nbufs);
        for (int n = 0; b->kind == K_weight && n < m->k->nbufs; n++) {
            int at = (from + n) % m->k->nbufs;
            if (at == o->buf || m->k->buf[at].kind != K_weight || m->k->buf[at].stage != b->stage)
                continue;
            o->buf = at;
            return label_of(m->k, m->i);
        }
    }
    return NULL;
}

/* Returns the version in a buffer of weights when instruction i of its rank is issued, or -1 for fetched weights. */
static int version_in(const struct place *m, int32_t buf) {
    const struct buf *b = &m->k->buf[buf];
    int updates = 0;
    if (b->inst >= 0)
        return is_copy_of_version(m->p, m->r, b) ? b->inst : -1;
    for (const struct instr *y = m->k->ins; y < m->x; y++)
        updates += y->op == OP_U && y->stage == b->stage;
    return updates;
}

/* Draws weights of the same set on the rank, with that version, or with any other if it is -1. Returns -1 if none. */
static int32_t other_weights(struct place *m, int32_t buf, int version) {
    int from = draw(m, m->k->nbufs);
    for (int n = 0; n < m->k->nbufs; n++) {
        int at = (from + n) % m->k->nbufs;
        bool same_set = m->k->buf[at].kind == K_weight && m->k->buf[at].stage == m->k->buf[buf].stage;
        if (same_set &&
            (version < 0 ? version_in(m, at) >= 0 && version_in(m, at) != m->x->inst : version_in(m, at) == version))
            return at;
    }
    return -1;
}

/* Lets a job read another version in all of its parts, and declare it. */
static const char *agreed_version(struct place *m) {
    const struct instr x = *m->x;
    int version = -1;
    for (uint32_t a = x.arg; is_job(x.op) && x.inst >= 0 && a < x.arg + x.narg; a++) {
        struct arg *o = &m->k->arg[a];
        int32_t old = o->buf, now = m->k->buf[old].kind == K_weight ? other_weights(m, old, version) : -1;
        if (now < 0)
            continue;
        version = version_in(m, now);
        for (struct instr *y = m->k->ins; y < m->k->ins + m->k->nins; y++) {
            if (y->op != x.op || y->stage != x.stage || y->batch != x.batch)
                continue;
            y->inst = version;
            for (uint32_t b = y->arg; b < y->arg + y->narg; b++)
                if (m->k->arg[b].role == o->role)
                    m->k->arg[b].buf = now;
        }
    }
    return version < 0 ? NULL : format("%s: %d", label_of(m->k, m->i), version);
}

static const char *move_mark(struct place *m) {
    int by = draw(m, 2) ? 1 : -1;
    bool end = draw(m, 2), both = draw(m, 3) == 0, all = draw(m, 3) == 0;
    for (int pass = 0; pass < 2; pass++)
        for (int r = 0; r < m->p->workers; r++) {
            struct rank *k = &m->p->rank[r];
            int begin = k->period.begin + (both || !end ? by : 0), stop = k->period.end + (both || end ? by : 0);
            if (r != m->r && !all)
                continue;
            if (begin < 0 || begin > stop || stop > k->nins)
                return NULL;
            if (pass) {
                k->period.begin = begin;
                k->period.end = stop;
            }
        }
    return format("%s by %d%s", both ? "both" : end ? "the end" : "the begin", by, all ? ", everywhere" : "");
}

static const char *other_period(struct place *m) {
    int now = 1 + draw(m, m->p->batches);
    for (int s = 0; s < m->p->stages; s++)
        if (now % m->p->update[s])
            return NULL;
    if (now == m->p->period)
        return NULL;
    m->p->period = now;
    return format("%d", now);
}

const char *mutate_period(struct place *m, enum mutation how) {
    if (!m->p->update || (!m->p->period && (how == MUT_MOVE_MARK || how == MUT_OTHER_PERIOD)))
        return NULL;
    switch (how) {
    case MUT_OTHER_VERSION: return other_version(m);
    case MUT_OTHER_UPDATE: return other_update(m);
    case MUT_NEWEST_WEIGHTS: return newest_weights(m);
    case MUT_AGREED_VERSION: return agreed_version(m);
    case MUT_MOVE_MARK: return move_mark(m);
    default: return other_period(m);
    }
}
