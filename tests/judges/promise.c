/* Computes what the homes' weights must hold after a step, from the job graph alone. Every job's values follow from the
 * jobs it depends on, and a stage's gradient is the sum over its jobs. The graph is the compiler's, or comes from a
 * program's text. */
#include "symbols.h"
#include <string.h>

static const uint8_t role_read[NKINDS] = {
    [K_act] = ROLE_x,         [K_grad] = ROLE_dy, [K_stash] = ROLE_stash, [K_input] = ROLE_input,
    [K_wstash] = ROLE_wstash, [K_token] = ROLE_t, [K_kv] = ROLE_kv,       [K_dkv] = ROLE_dkv};
static const uint8_t role_made[NKINDS] = {
    [K_act] = ROLE_y,         [K_grad] = ROLE_dx, [K_stash] = ROLE_stash, [K_input] = ROLE_input,
    [K_wstash] = ROLE_wstash, [K_token] = ROLE_t, [K_kv] = ROLE_own,      [K_dkv] = ROLE_dpast};

/* ---- tensors that a job gets from its dependencies ---- */

static bool is_back(const struct job *j) { return j->d == OP_B || j->d == OP_I; }

/* Returns whether they are slices of one microbatch, on a stage with attention. */
static bool share_keys(const struct costs *costs, const struct job *a, const struct job *b) {
    int slices = costs->spec->names.slices;
    return slices && a->s == b->s && a->b / slices == b->b / slices && (!costs->attends || costs->attends[a->s]);
}

bool gets(const struct costs *costs, int32_t from, int32_t to, int kind) {
    const struct spec *sp = costs->spec;
    const struct job *a = &sp->job[from], *b = &sp->job[to];
    bool again = job_at(sp, b->s, b->b, OP_R) >= 0, own = a->s == b->s && a->b == b->b;
    switch (kind) {
    case K_act: return a->d == OP_F && b->d == OP_F && a->s != b->s && a->b == b->b;
    case K_grad: return is_back(a) && is_back(b) && a->s != b->s && a->b == b->b;
    case K_input: return own && a->d == OP_F && b->d == OP_R;
    case K_stash: return own && a->d == (again ? OP_R : OP_F) && is_back(b);
    case K_wstash: return own && a->d == OP_I && b->d == OP_W;
    case K_kv:
        return share_keys(costs, a, b) && a->d == OP_F && (is_back(b) ? a->b <= b->b : a->b < b->b && b->d != OP_W);
    case K_dkv: return share_keys(costs, a, b) && is_back(a) && is_back(b) && a->b == b->b + 1;
    case K_token:
        for (int k = 0; k < NKINDS; k++)
            if (k != K_token && gets(costs, from, to, k))
                return false;
        return true;
    default: return false;
    }
}

/* Returns whether e is the first edge between its two jobs, which may have one per tensor. */
static bool is_new(const struct graph *g, int32_t j, int32_t e) {
    for (int32_t i = g->pred_at[j]; i < e; i++)
        if (g->pred[i] == g->pred[e])
            return false;
    return true;
}

static void promise_job(struct promise *p, uint64_t (*made)[NROLES], bool *known, int32_t j) {
    const struct job *job = &p->sp->job[j];
    static const uint8_t reads[] = {ROLE_w, ROLE_v, ROLE_u}, adds[] = {ROLE_dw, ROLE_dv, ROLE_du};
    int32_t version = p->version ? p->version[j] : 0;
    uint64_t in[NROLES] = {0};
    for (int i = 0; i < 3; i++) {
        int set = set_used(p, job->d, job->s, reads[i]);
        in[reads[i]] = set < 0 ? 0 : mix(i == 1 ? weight_value(set) : version_value(set, version));
    }
    for (int32_t e = p->g->pred_at[j]; e < p->g->pred_at[j + 1]; e++) {
        int32_t from = p->g->pred[e];
        if (from >= p->sp->njobs)
            continue; /* an update: versions say which of its results are read */
        if (!known[from])
            promise_job(p, made, known, from);
        for (int kind = 0; kind < NKINDS && is_new(p->g, j, e); kind++)
            if (kind != K_token && kind != K_kv && gets(p->costs, from, j, kind))
                in[role_read[kind]] += mix(made[from][role_made[kind]]);
    }
    for (int q = 0; q < p->sp->names.slices; q++) {
        int32_t from = job_at(p->sp, job->s, job->b - job->b % p->sp->names.slices + q, OP_F);
        if (gets(p->costs, from, j, K_kv))
            in[ROLE_kv] = read_too(ROLE_kv, in[ROLE_kv], made[from][ROLE_own]);
    }
    memcpy(p->in[j], in, sizeof in);
    job_values(job->d, job->s, job->b, in, made[j]);
    known[j] = true;
    for (int i = 0; i < 3; i++) {
        int set = set_used(p, job->d, job->s, adds[i]);
        if (set < 0)
            continue;
        p->sum[set] += made[j][adds[i]];
        p->parts[set]++;
        if (p->update_sum)
            p->update_sum[set][job->b / p->sp->updates.every[set]] += made[j][adds[i]];
    }
}

static struct promise work_out(struct promise p) {
    p.sum = NEW(uint64_t, sets_of(&p));
    p.parts = NEW(int, sets_of(&p));
    p.in = alloc(sizeof *p.in * (size_t)p.sp->njobs);
    uint64_t(*made)[NROLES] = alloc(sizeof *made * (size_t)p.sp->njobs);
    bool *known = NEW(bool, p.sp->njobs);
    for (int32_t j = 0; j < p.sp->njobs; j++)
        if (!known[j])
            promise_job(&p, made, known, j);
    return p;
}

/* ---- versions ---- */

/* Returns the fewest updates, among the sets x reads that are at home on rank r, that have been issued; -1: no home. */
static int32_t fewest(const struct promise *want, int r, const struct instr *x, const int32_t *updates) {
    const int set[] = {set_used(want, x->op, x->stage, ROLE_w), set_used(want, x->op, x->stage, ROLE_u)};
    int32_t least = -1;
    for (int i = 0; i < 2; i++)
        if (set[i] >= 0 && owns(want, r, set[i]) && (least < 0 || updates[set[i]] < least))
            least = updates[set[i]];
    return least;
}

/* Reads the versions that jobs declare, or -1. For a job on a home of what it reads, also counts the updates issued
 * there before it. */
static void read_declared(const struct promise *want, const struct program *p, int32_t *says, int32_t *newest) {
    const struct spec *sp = want->sp;
    for (int r = 0; r < p->workers; r++) {
        int32_t *updates = NEW(int32_t, sets_of(want));
        for (const struct instr *x = p->rank[r].ins; x < p->rank[r].ins + p->rank[r].nins; x++) {
            bool inside = x->stage >= 0 && x->stage < sp->stages && x->batch >= 0 && x->batch < sp->batches;
            int32_t j = inside && x->op <= OP_W ? job_at(sp, x->stage, x->batch, x->op) : -1;
            if (x->op == OP_U && x->stage >= 0 && x->stage < sets_of(want))
                updates[x->stage]++;
            if (j < 0 || says[j] >= 0)
                continue;
            says[j] = x->inst;
            newest[j] = fewest(want, r, x, updates);
        }
    }
}

/* Makes members read the newest version that all of them have; -1 for all if one has none at home. */
static void agree_on_newest(const struct spec *sp, int32_t *newest) {
    const struct member *m = sp->names.member;
    for (int32_t j = 0; m && j < sp->njobs; j++) {
        const struct job *job = &sp->job[j];
        int size = m[job->s].place == 0 ? m[job->s].size : 1;
        int32_t least = newest[j];
        for (int i = 1; i < size; i++) {
            int32_t other = newest[job_at(sp, job->s + i, job->b, job->d)];
            least = other < least ? other : least;
        }
        for (int i = 0; i < size; i++)
            newest[job_at(sp, job->s + i, job->b, job->d)] = least;
    }
}

/* Returns the version that job j must read, or -1 for the one that it declares. */
static int32_t version_of(const struct spec *sp, int32_t j, const int32_t *says, const int32_t *newest) {
    const struct job *job = &sp->job[j];
    int rule = sp->updates.reads ? sp->updates.reads[j] : READ_LATEST, m = sp->updates.every[job->s], own = job->b / m;
    int32_t forward = job_at(sp, job->s, job->b, OP_F), input = job_at(sp, 0, job->b, OP_F);
    if (!sp->updates.reads)
        return -1;
    if (rule >= 0)
        return own > rule ? own - rule : 0;
    if (rule == READ_FORWARD && j != forward)
        return says[forward];
    if (rule == READ_INPUT && j != input)
        return (int32_t)((int64_t)says[input] * sp->updates.every[0] / m);
    return newest[j];
}

struct promise promise_for(const struct promise *want, const struct program *p) {
    struct promise made = *want;
    const struct spec *sp = want->sp;
    made.program = p;
    if (!sp->updates.every)
        return made;
    int32_t *says = NEW(int32_t, sp->njobs), *newest = NEW(int32_t, sp->njobs);
    memset(says, -1, sizeof *says * (size_t)sp->njobs);
    memset(newest, -1, sizeof *newest * (size_t)sp->njobs);
    read_declared(want, p, says, newest);
    agree_on_newest(sp, newest);
    made.version = NEW(int32_t, sp->njobs);
    for (int32_t j = 0; j < sp->njobs; j++) {
        const struct job *job = &sp->job[j];
        bool reads = set_used(want, job->d, job->s, ROLE_w) >= 0 || set_used(want, job->d, job->s, ROLE_u) >= 0;
        int32_t must = reads ? version_of(sp, j, says, newest) : -1;
        int place = sp->names.member ? sp->names.member[job->s].place : 0;
        made.version[j] = must >= 0 ? must : reads ? says[j] : -1;
        if (place > 0) /* the version of the first member, whose job comes earlier */
            made.version[j] = made.version[job_at(sp, job->s - place, job->b, job->d)];
    }
    made.update_sum = NEW(uint64_t *, sets_of(want));
    for (int s = 0; s < sets_of(want); s++)
        made.update_sum[s] = NEW(uint64_t, sp->batches / sp->updates.every[s]);
    return work_out(made);
}

const char *false_version(const struct promise *want, const struct instr *x) {
    int32_t j = want->version && x->op <= OP_W ? job_at(want->sp, x->stage, x->batch, x->op) : -1;
    return j >= 0 && x->op != OP_W && x->inst != want->version[j] ? "it declares another version than it must read"
                                                                  : NULL;
}

/* ---- homes ---- */

static bool is_listed(const struct homes *h, struct home home) {
    for (int l = 0; l < h->lists; l++)
        if (h->rank[l * h->size] == home.rank[0])
            return true;
    return false;
}

/* Returns the lists of homes that w() named for a set: by the first ranks, for the jobs of one stage. For a set that a
 * team shares, the lists of its members follow one another. */
static struct homes homes_by_script(const struct promise *p, int set) {
    const struct spec *sp = p->sp;
    struct homes h = {0, 1, 0, NEW(int32_t, sp->workers)};
    int zero = 0;
    for (int s = 0; s < sp->stages && !is_without_weights(p, set); s++)
        for (int r = 0; r < sp->workers && is_home_of(p, set, s); r++)
            for (int32_t j = 0; j < sp->njobs; j++) {
                const struct job *job = &sp->job[j];
                struct home home = job->s == s ? home_of(sp, &job->home) : (struct home){0, NULL};
                if (home.n == 0 || home.rank[0] != r || is_listed(&h, home))
                    continue;
                h.size = home.n;
                zero = sp->owners.zero ? sp->owners.zero[s] : 0;
                memcpy(h.rank + h.lists++ * h.size, home.rank, sizeof *h.rank * (size_t)h.size);
            }
    h.zero = h.lists > 1 ? zero : 0;
    return h;
}

static void own(struct promise *p) {
    p->home = NEW(bool, p->sp->workers *sets_of(p));
    for (int s = 0; s < sets_of(p); s++)
        for (int i = 0; i < p->homes[s].lists * p->homes[s].size; i++)
            p->home[p->homes[s].rank[i] * sets_of(p) + s] = true;
}

struct promise promise_of(const struct costs *costs, const struct graph *g) {
    struct promise p = {.sp = costs->spec, .costs = costs, .g = g};
    p.homes = NEW(struct homes, sets_of(&p));
    for (int s = 0; s < sets_of(&p); s++)
        p.homes[s] = homes_by_script(&p, s);
    own(&p);
    return work_out(p);
}

/* ---- from a program's text ---- */

/* Lists the jobs, each on the rank that runs it. */
static const char *find_jobs(const struct program *p, struct spec *sp) {
    int cells = p->stages * p->batches * NDIRS;
    int32_t *rank = NEW(int32_t, cells);
    memset(rank, -1, sizeof *rank * (size_t)cells);
    for (int r = 0; r < p->workers; r++)
        for (const struct instr *x = p->rank[r].ins; x < p->rank[r].ins + p->rank[r].nins; x++) {
            int32_t *at = x->op <= OP_W ? &rank[(x->stage * p->batches + x->batch) * NDIRS + x->op] : NULL;
            if (at && *at >= 0 && (!x->last || *at != r)) /* the judge counts parts */
                return format("%s runs twice", job_name(NULL, x->stage, x->batch, x->op));
            if (at)
                *at = r;
        }
    sp->at = NEW(int32_t, cells);
    sp->job = NEW(struct job, cells);
    for (int c = 0; c < cells; c++) {
        sp->at[c] = rank[c] < 0 ? -1 : sp->njobs;
        if (rank[c] >= 0)
            sp->job[sp->njobs++] = (struct job){
                .s = c / NDIRS / p->batches, .b = c / NDIRS % p->batches, .d = (uint8_t)(c % NDIRS), .rank = rank[c]};
    }
    for (const int32_t *at = sp->at; at < sp->at + cells; at += NDIRS)
        if (at[OP_F] < 0 || (at[OP_B] < 0) == (at[OP_I] < 0) || (at[OP_I] < 0) != (at[OP_W] < 0))
            return "a microbatch lacks a job at a stage, or has a full backward and a split one";
    return NULL;
}

/* Returns the job that makes what j reads of its own stage, or -1. */
static int32_t own_source(const struct spec *sp, const struct job *j) {
    int32_t again = job_at(sp, j->s, j->b, OP_R), forward = job_at(sp, j->s, j->b, OP_F);
    switch (j->d) {
    case OP_F: return -1;
    case OP_R: return forward;
    case OP_W: return job_at(sp, j->s, j->b, OP_I);
    default: return again >= 0 ? again : forward;
    }
}

/* Returns the stage whose act (or grad) s reads: its predecessor or successor in the chain, at the member in the same
 * place. Places wrap around in a smaller team. Returns -1 if there is none. */
static int next_to(const struct spec *sp, int s, int step) {
    const struct member *member = sp->names.member, *me = member ? &member[s] : NULL;
    if (!me)
        return s + step < sp->stages ? s + step : -1;
    int at = me->place < 0 ? 0 : me->place;
    for (int t = 0; t < sp->stages; t++)
        if (member[t].stage == me->stage + step && (member[t].place < 0 || member[t].place == at % member[t].size))
            return t;
    return -1;
}

/* Lists the default dependencies of schedules/language.md in a chain of stages. */
static int default_needs(const struct costs *costs, const struct job *j, int32_t *out) {
    const struct spec *sp = costs->spec;
    int n = 0, slices = sp->names.slices;
    if (own_source(sp, j) >= 0)
        out[n++] = own_source(sp, j);
    int before = next_to(sp, j->s, -1), behind = next_to(sp, j->s, 1);
    if (j->d == OP_F && before >= 0)
        out[n++] = job_at(sp, before, j->b, OP_F);
    if ((j->d == OP_B || j->d == OP_I) && behind >= 0) {
        int32_t whole = job_at(sp, behind, j->b, OP_B);
        out[n++] = whole >= 0 ? whole : job_at(sp, behind, j->b, OP_I);
    }
    for (int q = 0; j->d != OP_W && q < slices; q++) { /* keys and values of other slices */
        int b = j->b - j->b % slices + q;
        int32_t f = job_at(sp, j->s, b, OP_F), whole = job_at(sp, j->s, b, OP_B);
        int32_t back = whole >= 0 ? whole : job_at(sp, j->s, b, OP_I), me = (int32_t)(j - sp->job);
        if (gets(costs, f, me, K_kv))
            out[n++] = f;
        if (gets(costs, back, me, K_dkv))
            out[n++] = back;
    }
    return n;
}

static void add_need(struct graph *g, int32_t j, int32_t from) {
    if (!has_edge(g, j, from)) /* a job named twice is needed once */
        g->pred[g->pred_at[j + 1]++] = from;
}

/* Reads the one line of job j. It names only jobs that run, among them the source of what j reads of its stage. */
static const char *read_needs(const struct program *p, const struct costs *costs, struct graph *g, int32_t j,
                              bool *repeats) {
    const struct spec *sp = costs->spec;
    const struct job *job = &sp->job[j];
    const struct need *line = NULL;
    for (const struct need *n = p->need; n < p->need + p->nneeds; n++)
        if (n->job.s == job->s && n->job.b == job->b && n->job.d == job->d) {
            if (line)
                return format("%s has two lines of needs", job_name(NULL, job->s, job->b, job->d));
            line = n;
        }
    if (!line)
        return format("%s has no line of needs", job_name(NULL, job->s, job->b, job->d));
    int32_t own = own_source(sp, job);
    for (int32_t e = line[0].pred; e < line[1].pred; e++) {
        const struct job_name *name = &p->pred[e];
        int32_t from = job_at(sp, name->s, name->b, name->d);
        if (from < 0)
            return format("%s needs a job that is not there", job_name(NULL, job->s, job->b, job->d));
        *repeats |= has_edge(g, j, from);
        bool order_only = is_back(job) && sp->job[from].d == OP_F && sp->job[from].s == job->s &&
                          sp->job[from].b == job->b && !gets(costs, from, j, K_kv);
        if (from == own || !order_only) /* with recompute, F is an order that R keeps */
            add_need(g, j, from);
    }
    for (int q = 0; q < sp->names.slices; q++) {
        int b = job->b - job->b % sp->names.slices + q;
        int32_t f = job_at(sp, job->s, b, OP_F), whole = job_at(sp, job->s, b, OP_B);
        int32_t back = whole >= 0 ? whole : job_at(sp, job->s, b, OP_I);
        if ((gets(costs, f, j, K_kv) && !has_edge(g, j, f)) || (gets(costs, back, j, K_dkv) && !has_edge(g, j, back)))
            return format("%s does not need another slice", job_name(NULL, job->s, job->b, job->d));
    }
    return own < 0 || has_edge(g, j, own) ? NULL
                                          : format("%s does not need its own", job_name(NULL, job->s, job->b, job->d));
}

static bool is_acyclic(const struct graph *g) {
    bool *done = NEW(bool, g->n);
    for (int left = g->n, before = -1; left != before;) {
        before = left;
        for (int j = 0; j < g->n; j++) {
            bool ready = !done[j];
            for (int32_t e = g->pred_at[j]; ready && e < g->pred_at[j + 1]; e++)
                ready = done[g->pred[e]];
            left -= ready;
            done[j] |= ready;
        }
        if (left == 0)
            return true;
    }
    return g->n == 0;
}

static const char *find_needs(const struct program *p, const struct costs *costs, struct graph *g, bool *repeats) {
    const struct spec *sp = costs->spec;
    const char *why = NULL;
    g->n = sp->njobs;
    g->pred_at = NEW(int32_t, g->n + 1);
    int32_t *need = NEW(int32_t, 4 + 2 * sp->names.slices);
    g->pred = NEW(int32_t, (4 + 2 * sp->names.slices) * g->n + (p->nneeds ? p->need[p->nneeds].pred : 0) + 1);
    for (int32_t j = 0; j < g->n && !why; j++) {
        g->pred_at[j + 1] = g->pred_at[j];
        if (p->nneeds)
            why = read_needs(p, costs, g, j, repeats);
        else
            for (int n = default_needs(costs, &sp->job[j], need), i = 0; i < n; i++)
                add_need(g, j, need[i]);
    }
    for (int32_t n = 0; n < p->nneeds && !why; n++)
        if (job_at(sp, p->need[n].job.s, p->need[n].job.b, p->need[n].job.d) < 0)
            why = "a line of needs is of a job that is not there";
    return why || is_acyclic(g) ? why : "jobs need each other in a cycle";
}

/* Returns whether each home of a stage's own set, if it has one, is a home of another set too. */
static bool has_homes_of(const struct program *p, int s, int set) {
    const struct homes *own = &p->homes[s], *all = &p->homes[set];
    for (int l = 0; l < own->lists && !(p->bare && p->bare[s]); l++) {
        bool found = false;
        for (int m = 0; m < all->lists && all->size == own->size; m++)
            found |=
                !memcmp(own->rank + l * own->size, all->rank + m * all->size, sizeof *own->rank * (size_t)own->size);
        if (!found)
            return false;
    }
    return true;
}

/* Reports false homes of a set that belongs to no single stage, or NULL. It is at home where the stages that use it
 * are, if they have weights of their own. A table has replicas as stage 0 has. */
static const char *false_homes(const struct promise *want, const struct program *p, int set) {
    const struct homes *h = &p->homes[set];
    int lists = 0;
    bool known = true, table = set < p->stages + p->names.tables;
    for (int s = 0; s < p->stages; s++)
        if (is_home_of(want, set, s)) {
            known &= !p->bare || !p->bare[s];
            if (!has_homes_of(p, s, set) || (table && known && p->homes[s].zero != h->zero))
                return table ? "the table is not at home with stage 0" : "a member's home lacks what its team shares";
        }
    for (int l = 0; l < h->lists; l++)
        for (int s = 0, found = 0; s < p->stages && !found; s++)
            for (int m = 0; m < p->homes[s].lists && is_home_of(want, set, s) && !found; m++)
                lists += found = p->homes[s].rank[m * p->homes[s].size] == h->rank[l * h->size];
    return known && lists != h->lists ? "a set behind the stages has a home of its own" : NULL;
}

/* Reads a set's line of homes. Without lines, a home is a rank with weights that are no fetched copy. */
static const char *homes_of_text(const struct promise *want, const struct program *p, int set, struct homes *out) {
    if (p->bare && p->bare[set]) {
        *out = (struct homes){0, 1, 0, NULL};
        return NULL;
    }
    if (p->homes) {
        *out = p->homes[set];
        out->zero = out->lists > 1 ? out->zero : 0;
        return set < p->stages ? NULL : false_homes(want, p, set);
    }
    *out = (struct homes){0, 1, 0, NEW(int32_t, p->workers)};
    for (int r = 0; r < p->workers; r++)
        if (home_buffer(&p->rank[r], K_weight, set) >= 0)
            out->rank[out->lists++] = r;
    return out->lists ? NULL : "a stage has no home";
}

static bool takes_norms(const struct program *p) {
    bool takes = false;
    for (int r = 0; r < p->workers; r++)
        for (int i = 0; i < p->rank[r].nins; i++)
            takes |= p->rank[r].ins[i].op == OP_NORM;
    return takes;
}

/* Returns whether some rank sums norms before it computes any: these are of the previous step. */
static bool validates_afterwards(const struct program *p) {
    for (int r = 0; r < p->workers; r++) {
        int i = 0;
        while (i < p->rank[r].nins && p->rank[r].ins[i].op != OP_NORM && p->rank[r].ins[i].op != OP_ALL_REDUCE_N)
            i++;
        if (i < p->rank[r].nins && p->rank[r].ins[i].op == OP_ALL_REDUCE_N)
            return takes_norms(p);
    }
    return false;
}

bool promise_of_text(const struct program *p, struct promise *out, const char **why) {
    struct spec *sp = NEW(struct spec, 1);
    struct costs *costs = NEW(struct costs, 1);
    struct graph *g = NEW(struct graph, 1);
    bool repeats = false;
    *sp = (struct spec){.name = p->name, .workers = p->workers, .stages = p->stages, .batches = p->batches};
    sp->names = p->names;
    *costs = (struct costs){.spec = sp, .exchange = p->exchange, .bare = p->bare, .unembedding = p->unembedding};
    costs->attends = p->attends;
    costs->whole = p->names.whole;
    sp->updates.every = p->update;
    costs->clip = takes_norms(p);
    costs->post_validation = validates_afterwards(p);
    if ((int64_t)p->stages * p->batches > 100000) /* a changed number: the file has fewer lines */
        *why = "there are not so many jobs";
    else
        *why = find_jobs(p, sp);
    *why = *why ? *why : team_error(sp);
    *why = *why ? *why : find_needs(p, costs, g, &repeats);
    if (*why)
        return false;
    *out = (struct promise){.sp = sp, .costs = costs, .g = g, .repeats = repeats};
    out->homes = NEW(struct homes, sets_of(out));
    for (int set = 0; set < sets_of(out) && !*why; set++)
        *why = homes_of_text(out, p, set, &out->homes[set]);
    if (*why)
        return false;
    own(out);
    *out = work_out(*out);
    return true;
}
