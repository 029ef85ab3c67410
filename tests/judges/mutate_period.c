/* Updates, versions and the period. */
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

/* A reader of one version takes another that its rank has: its weights at home, or another stay. */
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

static const char *move_mark(struct place *m) {
    int by = draw(m, 2) ? 1 : -1;
    bool end = draw(m, 2), both = draw(m, 3) == 0, all = draw(m, 3) == 0;
    for (int pass = 0; pass < 2; pass++)
        for (int r = 0; r < m->p->workers; r++) {
            struct rank *k = &m->p->rank[r];
            int begin = k->begin + (both || !end ? by : 0), stop = k->end + (both || end ? by : 0);
            if (r != m->r && !all)
                continue;
            if (begin < 0 || begin > stop || stop > k->nins)
                return NULL;
            if (pass) {
                k->begin = begin;
                k->end = stop;
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
    case MUT_MOVE_MARK: return move_mark(m);
    default: return other_period(m);
    }
}
