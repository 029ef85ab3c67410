/* Breaks exchanges of teams, at one member or at all of them alike. */
#include "mutate_parts.h"

/* Finds the next team collective, or the next part of a job with one, from the drawn place on; -1: none. */
static int find(struct place *m, bool collective) {
    for (int n = 0; n < m->k->nins; n++) {
        int i = (m->i + n) % m->k->nins;
        const struct instr *x = &m->k->ins[i];
        bool job = x->op <= OP_W && x->last && m->p->exchange &&
                   m->p->exchange[(int64_t)x->stage * NDIRS + x->op].n == x->last;
        if (collective ? op_lane[x->op] == LANE_TEAM : job)
            return i;
    }
    return -1;
}

static struct arg *arg_of(struct rank *k, const struct instr *x, int role) {
    for (struct arg *a = k->arg + x->arg; a < k->arg + x->arg + x->narg; a++)
        if (a->role == (uint32_t)role)
            return a;
    return NULL;
}

/* Returns whether x is the collective with this message, at the drawn member or at any. */
static bool is_end(const struct place *m, int r, const struct instr *x, int32_t msg, bool all) {
    return op_lane[x->op] == LANE_TEAM && x->msg == msg && (all || r == m->r);
}

static struct buf renamed(const struct buf *b, int batch, int inst) {
    struct buf like = *b;
    like.batch = batch;
    like.inst = inst;
    return like;
}

/* Gives an exchange another microbatch or number, in its name, its operands, or both. */
static const char *rename_exchange(struct place *m, int i, bool batch) {
    bool all = draw(m, 2), label = draw(m, 2), operands = !label || draw(m, 2);
    int32_t msg = m->k->ins[i].msg;
    int by = draw(m, 2) ? 2 : 1, n = batch ? draw(m, m->p->batches) : 0;
    if (batch && n == m->k->ins[i].batch)
        return NULL;
    for (int r = 0; r < m->p->workers; r++) {
        struct rank *k = &m->p->rank[r];
        for (int j = 0; j < k->nins; j++) {
            struct instr *x = &k->ins[j];
            if (!is_end(m, r, x, msg, all))
                continue;
            for (uint32_t a = x->arg; a < x->arg + x->narg && operands; a++) {
                struct buf like = renamed(&k->buf[k->arg[a].buf], batch ? n : k->buf[k->arg[a].buf].batch,
                                          k->buf[k->arg[a].buf].inst + (batch ? 0 : by));
                k->arg[a].buf = buffer_like(k, &like);
            }
            x->batch = label && batch ? n : x->batch;
            x->inst += label && !batch ? by : 0;
        }
    }
    return format("%s%s%s", all ? "all members, " : "", label ? "name " : "", operands ? "operands" : "");
}

/* Changes the operation at all members, with the operands that it takes, as far as they exist. */
static const char *other_kind(struct place *m, int i) {
    int op = OP_ALL_REDUCE_A + draw(m, OP_ALL_TO_ALL_A - OP_ALL_REDUCE_A + 1);
    int32_t msg = m->k->ins[i].msg;
    if (op == m->k->ins[i].op)
        return NULL;
    for (int r = 0; r < m->p->workers; r++)
        for (struct instr *x = m->p->rank[r].ins; x < m->p->rank[r].ins + m->p->rank[r].nins; x++)
            if (is_end(m, r, x, msg, true))
                x->op = (uint8_t)op;
    return op_name[op];
}

/* Reorders the members of the lane's group, on all ranks alike. */
static const char *permute(struct place *m, int i) {
    struct group *g = &m->p->group[m->k->lane[m->k->ins[i].lane].group];
    int32_t *rank = NEW(int32_t, g->n);
    for (int n = 0; n < g->n; n++)
        rank[n] = g->rank[(n + 1) % g->n];
    g->rank = rank;
    return "members in a round";
}

static const char *drop_order(struct place *m, int i) {
    struct instr *x = &m->k->ins[i];
    for (int w = 0; w < x->nwait; w++) {
        const struct instr *on = &m->k->ins[m->k->wait[x->wait + (uint32_t)w]];
        bool team = op_lane[on->op] == LANE_TEAM || op_lane[x->op] == LANE_TEAM;
        if (team && on->stage == x->stage && on->batch == x->batch) {
            drop_wait(m->k, x, w);
            return "";
        }
    }
    return NULL;
}

/* Swaps what a part gives and gets, or takes it from the next part. */
static const char *other_side(struct place *m, int i) {
    struct instr *x = &m->k->ins[i];
    struct arg *give = arg_of(m->k, x, ROLE_give), *got = arg_of(m->k, x, ROLE_got);
    struct instr *next = NULL;
    for (int j = i + 1; j < m->k->nins && !next; j++)
        if (m->k->ins[j].op == x->op && m->k->ins[j].stage == x->stage && m->k->ins[j].batch == x->batch)
            next = &m->k->ins[j];
    struct arg *later = next ? arg_of(m->k, next, draw(m, 2) ? ROLE_got : ROLE_give) : NULL;
    struct arg *one = draw(m, 2) && got ? got : give, *other = later && (draw(m, 2) || !got || !give) ? later : got;
    if (!one || !other || one == other)
        return NULL;
    int32_t buf = one->buf;
    one->buf = other->buf;
    if (draw(m, 2))
        other->buf = buf;
    return role_name[one->role];
}

static const char *swap_parts(struct place *m, int i) {
    for (int j = i + 1; j < m->k->nins; j++) {
        struct instr *x = &m->k->ins[i], *y = &m->k->ins[j];
        if (y->op != x->op || y->stage != x->stage || y->batch != x->batch || y->part == x->part)
            continue;
        if (draw(m, 2)) { /* their part numbers */
            uint8_t part = x->part;
            x->part = y->part;
            y->part = part;
        } else
            exchange(m->k, i, j);
        return "";
    }
    return NULL;
}

/* Frees a mid at an earlier instruction that names it. */
static const char *free_early(struct place *m, int i) {
    struct rank *k = m->k;
    struct instr *x = &k->ins[i], *last = NULL;
    struct arg *a = arg_of(k, x, x->op <= OP_W ? ROLE_give : draw(m, 2) ? ROLE_src : ROLE_t);
    for (int j = i + 1; a && j < k->nins; j++)
        for (int f = 0; f < k->ins[j].nfree; f++)
            if (k->freed[k->ins[j].free + (uint32_t)f] == a->buf) {
                last = &k->ins[j];
                drop_free(k, last, f);
                add_free(k, x, a->buf);
                return "";
            }
    return NULL;
}

/* Moves a job to the other workspace, in all of its parts or one. */
static const char *other_workspace(struct place *m, int i) {
    struct rank *k = m->k;
    struct instr job = k->ins[i];
    bool all = draw(m, 2);
    int changed = 0;
    struct buf second = {.kind = K_work, .stage = -1, .batch = -1, .inst = 1, .grows = -1, .off = -1};
    int32_t work = -1;
    for (int32_t b = 0; b < k->nbufs; b++)
        work = k->buf[b].kind == K_work && k->buf[b].inst == 1 ? b : work;
    work = work < 0 && arg_of(k, &job, ROLE_work) == NULL && !draw(m, 4) ? buffer_like(k, &second) : work;
    for (int j = 0; j < k->nins; j++) {
        struct instr *x = &k->ins[j];
        if (x->op != job.op || x->stage != job.stage || x->batch != job.batch || (!all && j != i))
            continue;
        struct arg *list = NEW(struct arg, x->narg + 1), *has = arg_of(k, x, ROLE_work);
        int n = 0;
        for (uint32_t a = x->arg; a < x->arg + x->narg; a++)
            if (&k->arg[a] != has)
                list[n++] = k->arg[a];
        if (!has && work >= 0)
            list[n++] = (struct arg){.role = ROLE_work, .buf = work};
        changed += n != x->narg;
        set_operands(k, x, list, n);
    }
    return changed ? all ? "all parts" : "one part" : NULL;
}

/* Names another member's stage. */
static const char *other_member(struct place *m, int i) {
    struct instr *x = &m->k->ins[i];
    const struct member *member = m->p->names.member ? &m->p->names.member[x->stage] : NULL;
    if (!member || member->place < 0)
        return NULL;
    x->stage = x->stage - member->place + (member->place + 1) % member->size;
    return "";
}

/* Returns the given part of the job that x is a part of, or NULL if the rank has none. */
static struct instr *part_of_job(struct rank *k, const struct instr *x, int part) {
    for (struct instr *y = k->ins; y < k->ins + k->nins; y++)
        if (y->op == x->op && y->stage == x->stage && y->batch == x->batch && y->last == x->last && y->part == part)
            return y;
    return NULL;
}

/* Swaps two jobs; the first to run writes the gradient, as before. */
static void swap_jobs(struct rank *k, struct instr one, struct instr other) {
    for (int part = 0; part <= one.last; part++) {
        struct instr *x = part_of_job(k, &one, part), *y = part_of_job(k, &other, part), was;
        if (!x || !y)
            return;
        was = *x;
        *x = *y;
        x->first = was.first;
        was.first = y->first;
        *y = was;
    }
}

/* Swaps two contributions to one gradient. */
static const char *swap_contributions(struct place *m) {
    const struct instr *one = NULL;
    for (int n = 0, i = m->i; n < m->k->nins; n++, i = (i + 1) % m->k->nins) {
        const struct instr *x = &m->k->ins[i];
        bool adds = (x->op == OP_W || x->op == OP_B) && !x->part;
        if (adds && one && x->op == one->op && x->stage == one->stage && x->last == one->last) {
            swap_jobs(m->k, *one, *x);
            return "";
        }
        one = adds && !one ? x : one;
    }
    return NULL;
}

const char *mutate_team(struct place *m, enum mutation how) {
    bool part = how == MUT_TEAM_SIDES || how == MUT_TEAM_PARTS || how == MUT_TEAM_WORK;
    bool either = how == MUT_TEAM_WAIT || how == MUT_TEAM_FREE;
    if (how == MUT_TEAM_SUM)
        return swap_contributions(m);
    int i = find(m, either ? draw(m, 2) : !part);
    if (i < 0)
        return NULL;
    switch (how) {
    case MUT_TEAM_WAIT: return drop_order(m, i);
    case MUT_TEAM_BATCH: return rename_exchange(m, i, true);
    case MUT_TEAM_NUMBER: return rename_exchange(m, i, false);
    case MUT_TEAM_KIND: return other_kind(m, i);
    case MUT_TEAM_ORDER: return permute(m, i);
    case MUT_TEAM_SIDES: return other_side(m, i);
    case MUT_TEAM_PARTS: return swap_parts(m, i);
    case MUT_TEAM_FREE: return free_early(m, i);
    case MUT_TEAM_WORK: return other_workspace(m, i);
    default: return other_member(m, i);
    }
}
