/* What must be in the homes' weights after a step, from the job graph alone: every job's values follow from those of
 * the jobs it depends on, and a stage's gradient is the sum over its jobs. The graph is the compiler's, or comes from a
 * program's text. */
#include "symbols.h"
#include <string.h>

static const uint8_t role_read[NKINDS] = {[K_act] = ROLE_x,       [K_grad] = ROLE_dy,       [K_stash] = ROLE_stash,
                                          [K_input] = ROLE_input, [K_wstash] = ROLE_wstash, [K_token] = ROLE_t};
static const uint8_t role_made[NKINDS] = {[K_act] = ROLE_y,       [K_grad] = ROLE_dx,       [K_stash] = ROLE_stash,
                                          [K_input] = ROLE_input, [K_wstash] = ROLE_wstash, [K_token] = ROLE_t};

static void promise_job(struct promise *p, uint64_t (*made)[NROLES], bool *known, int32_t j) {
    const struct job *job = &p->sp->job[j];
    bool unembeds = p->sp->tied && job->s == p->sp->unembedding, embeds = p->sp->tied && job->s == 0;
    int32_t version = p->version ? p->version[j] : 0;
    uint64_t in[NROLES] = {[ROLE_w] = job->d == OP_W ? 0 : mix(version_value(job->s, version))};
    if ((unembeds && job->d != OP_W) || (embeds && (job->d == OP_F || job->d == OP_R)))
        in[ROLE_v] = mix(weight_value(p->sp->stages));
    for (int32_t e = p->g->pred_at[j]; e < p->g->pred_at[j + 1]; e++) {
        int32_t from = p->g->pred[e];
        if (from >= p->sp->njobs)
            continue; /* an update: versions say what is read of it */
        int kind = edge_kind(&p->sp->job[from], job);
        if (!known[from])
            promise_job(p, made, known, from);
        if (kind != K_token)
            in[role_read[kind]] += mix(made[from][role_made[kind]]);
    }
    memcpy(p->in[j], in, sizeof in);
    job_values(job->d, job->s, job->b, in, made[j]);
    known[j] = true;
    if (job->d == OP_B || job->d == OP_W) {
        p->sum[job->s] += made[j][ROLE_dw];
        p->parts[job->s]++;
        if (p->update_sum)
            p->update_sum[job->s][job->b / p->sp->update[job->s]] += made[j][ROLE_dw];
        if (unembeds || embeds) {
            p->sum[p->sp->stages] += made[j][ROLE_dv];
            p->parts[p->sp->stages]++;
        }
    }
}

static struct promise work_out(struct promise p) {
    p.sum = NEW(uint64_t, p.sp->stages + 1);
    p.parts = NEW(int, p.sp->stages + 1);
    p.in = alloc(sizeof *p.in * (size_t)p.sp->njobs);
    uint64_t(*made)[NROLES] = alloc(sizeof *made * (size_t)p.sp->njobs);
    bool *known = NEW(bool, p.sp->njobs);
    for (int32_t j = 0; j < p.sp->njobs; j++)
        if (!known[j])
            promise_job(&p, made, known, j);
    return p;
}

/* ---- versions ---- */

/* What the program says that each job reads, -1 if it says nothing; and, where the job runs on a home of its stage, how
 * many updates have been issued there before it. */
static void read_declared(const struct promise *want, const struct program *p, int32_t *says, int32_t *newest) {
    const struct spec *sp = want->sp;
    for (int r = 0; r < p->workers; r++) {
        int32_t *updates = NEW(int32_t, sp->stages);
        for (const struct instr *x = p->rank[r].ins; x < p->rank[r].ins + p->rank[r].nins; x++) {
            bool inside = x->stage >= 0 && x->stage < sp->stages && x->batch >= 0 && x->batch < sp->batches;
            int32_t j = inside && x->op <= OP_W ? job_at(sp, x->stage, x->batch, x->op) : -1;
            if (inside && x->op == OP_U)
                updates[x->stage]++;
            if (j < 0 || says[j] >= 0)
                continue;
            says[j] = x->inst;
            newest[j] = owns(want, r, x->stage) ? updates[x->stage] : -1;
        }
    }
}

/* What job j must read; -1: what it says. */
static int32_t version_of(const struct spec *sp, int32_t j, const int32_t *says, const int32_t *newest) {
    const struct job *job = &sp->job[j];
    int rule = sp->reads ? sp->reads[j] : READ_LATEST, m = sp->update[job->s], own = job->b / m;
    int32_t forward = job_at(sp, job->s, job->b, OP_F), input = job_at(sp, 0, job->b, OP_F);
    if (!sp->reads)
        return -1;
    if (rule >= 0)
        return own > rule ? own - rule : 0;
    if (rule == READ_FORWARD && j != forward)
        return says[forward];
    if (rule == READ_INPUT && j != input)
        return (int32_t)((int64_t)says[input] * sp->update[0] / m);
    return newest[j];
}

struct promise promise_for(const struct promise *want, const struct program *p) {
    struct promise made = *want;
    const struct spec *sp = want->sp;
    made.program = p;
    if (!sp->update)
        return made;
    int32_t *says = NEW(int32_t, sp->njobs), *newest = NEW(int32_t, sp->njobs);
    memset(says, -1, sizeof *says * (size_t)sp->njobs);
    memset(newest, -1, sizeof *newest * (size_t)sp->njobs);
    read_declared(want, p, says, newest);
    made.version = NEW(int32_t, sp->njobs);
    for (int32_t j = 0; j < sp->njobs; j++) {
        int32_t must = version_of(sp, j, says, newest);
        made.version[j] = must >= 0 ? must : says[j];
    }
    made.update_sum = NEW(uint64_t *, sp->stages);
    for (int s = 0; s < sp->stages; s++)
        made.update_sum[s] = NEW(uint64_t, sp->batches / sp->update[s]);
    return work_out(made);
}

const char *false_version(const struct promise *want, const struct instr *x) {
    int32_t j = want->version && x->op <= OP_W ? job_at(want->sp, x->stage, x->batch, x->op) : -1;
    return j >= 0 && x->op != OP_W && x->inst != want->version[j] ? "it declares another version than it must read"
                                                                  : NULL;
}

/* ---- homes ---- */

/* Whether w() named this list, for stage s, before job j. */
static bool was_named(const struct spec *sp, int s, int32_t j, struct home home) {
    for (int32_t i = 0; i < j; i++)
        if (sp->job[i].s == s && home_of(sp, &sp->job[i].home).rank[0] == home.rank[0])
            return true;
    return false;
}

/* The lists that w() named for stage s, by their first ranks. */
static struct homes homes_of_stage(const struct spec *sp, int s) {
    struct homes h = {0, 0, 0, NEW(int32_t, sp->workers)};
    for (int r = 0; r < sp->workers; r++)
        for (int32_t j = 0; j < sp->njobs; j++) {
            struct home home = home_of(sp, &sp->job[j].home);
            if (sp->job[j].s != s || home.rank[0] != r || was_named(sp, s, j, home))
                continue;
            h.size = home.n;
            memcpy(h.rank + h.lists++ * h.size, home.rank, sizeof *h.rank * (size_t)h.size);
        }
    h.zero = sp->zero && h.lists > 1 ? sp->zero[s] : 0;
    return h;
}

static void own(struct promise *p) {
    p->home = NEW(bool, p->sp->workers *sets_of(p));
    for (int s = 0; s < sets_of(p); s++)
        for (int i = 0; i < p->homes[s].lists * p->homes[s].size; i++)
            p->home[p->homes[s].rank[i] * sets_of(p) + s] = true;
}

struct promise promise_of(const struct spec *sp, const struct graph *g) {
    struct promise p = {.sp = sp, .g = g};
    p.homes = NEW(struct homes, sets_of(&p));
    for (int s = 0; s < sets_of(&p); s++) /* the table is at home with stage 0 */
        p.homes[s] = homes_of_stage(sp, s < sp->stages ? s : 0);
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
                return format("%s runs twice", job_name(x->stage, x->batch, x->op));
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

/* The job that makes what j reads of its own stage, or -1. */
static int32_t own_source(const struct spec *sp, const struct job *j) {
    int32_t again = job_at(sp, j->s, j->b, OP_R), forward = job_at(sp, j->s, j->b, OP_F);
    switch (j->d) {
    case OP_F: return -1;
    case OP_R: return forward;
    case OP_W: return job_at(sp, j->s, j->b, OP_I);
    default: return again >= 0 ? again : forward;
    }
}

/* The default dependencies of schedules/README.md, in a chain of stages. */
static int default_needs(const struct spec *sp, const struct job *j, int32_t out[2]) {
    int n = 0;
    if (own_source(sp, j) >= 0)
        out[n++] = own_source(sp, j);
    if (j->d == OP_F && j->s > 0)
        out[n++] = job_at(sp, j->s - 1, j->b, OP_F);
    if ((j->d == OP_B || j->d == OP_I) && j->s + 1 < sp->stages) {
        int32_t whole = job_at(sp, j->s + 1, j->b, OP_B);
        out[n++] = whole >= 0 ? whole : job_at(sp, j->s + 1, j->b, OP_I);
    }
    return n;
}

static void add_need(struct graph *g, int32_t j, int32_t from) {
    if (!has_edge(g, j, from)) /* a job named twice is needed once */
        g->pred[g->pred_at[j + 1]++] = from;
}

/* Reads the one line of job j: it names only jobs that run, and the source of what j reads of its own stage. */
static const char *read_needs(const struct program *p, const struct spec *sp, struct graph *g, int32_t j,
                              bool *repeats) {
    const struct job *job = &sp->job[j];
    const struct need *line = NULL;
    for (const struct need *n = p->need; n < p->need + p->nneeds; n++)
        if (n->job.s == job->s && n->job.b == job->b && n->job.d == job->d) {
            if (line)
                return format("%s has two lines of needs", job_name(job->s, job->b, job->d));
            line = n;
        }
    if (!line)
        return format("%s has no line of needs", job_name(job->s, job->b, job->d));
    int32_t own = own_source(sp, job);
    for (int32_t e = line[0].pred; e < line[1].pred; e++) {
        const struct job_name *name = &p->pred[e];
        int32_t from = job_at(sp, name->s, name->b, name->d);
        if (from < 0)
            return format("%s needs a job that is not there", job_name(job->s, job->b, job->d));
        *repeats |= has_edge(g, j, from);
        if (from == own || edge_kind(&sp->job[from], job) != K_stash) /* with recompute, F is an order only */
            add_need(g, j, from);
    }
    return own < 0 || has_edge(g, j, own) ? NULL : format("%s does not need its own", job_name(job->s, job->b, job->d));
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

static const char *find_needs(const struct program *p, const struct spec *sp, struct graph *g, bool *repeats) {
    const char *why = NULL;
    g->n = sp->njobs;
    g->pred_at = NEW(int32_t, g->n + 1);
    g->pred = NEW(int32_t, 2 * g->n + (p->nneeds ? p->need[p->nneeds].pred : 0) + 1);
    for (int32_t j = 0; j < g->n && !why; j++) {
        int32_t need[2];
        g->pred_at[j + 1] = g->pred_at[j];
        if (p->nneeds)
            why = read_needs(p, sp, g, j, repeats);
        else
            for (int n = default_needs(sp, &sp->job[j], need), i = 0; i < n; i++)
                add_need(g, j, need[i]);
    }
    for (int32_t n = 0; n < p->nneeds && !why; n++)
        if (job_at(sp, p->need[n].job.s, p->need[n].job.b, p->need[n].job.d) < 0)
            why = "a line of needs is of a job that is not there";
    return why || is_acyclic(g) ? why : "jobs need each other in a cycle";
}

/* What its line of homes says; without lines, a rank with weights that are no fetched copy. */
static const char *homes_of_text(const struct program *p, int set, struct homes *out) {
    if (p->homes) {
        const struct homes *h = &p->homes[set], *first = &p->homes[0];
        bool same = h->lists == first->lists && h->size == first->size && h->zero == first->zero &&
                    !memcmp(h->rank, first->rank, sizeof *h->rank * (size_t)(h->lists * h->size));
        *out = *h;
        out->zero = h->lists > 1 ? h->zero : 0;
        return set < p->stages || same ? NULL : "the table is not at home with stage 0";
    }
    *out = (struct homes){0, 1, 0, NEW(int32_t, p->workers)};
    for (int r = 0; r < p->workers; r++)
        if (home_buffer(&p->rank[r], K_weight, set) >= 0)
            out->rank[out->lists++] = r;
    return out->lists ? NULL : "a stage has no home";
}

bool promise_of_text(const struct program *p, struct promise *out, const char **why) {
    struct spec *sp = NEW(struct spec, 1);
    struct graph *g = NEW(struct graph, 1);
    bool repeats = false;
    *sp = (struct spec){.name = p->name, .workers = p->workers, .stages = p->stages, .batches = p->batches};
    sp->tied = p->tied;
    sp->unembedding = p->unembedding;
    sp->update = p->update;
    if ((int64_t)p->stages * p->batches > 100000) /* a number that was changed; there are not so many lines */
        *why = "there are not so many jobs";
    else
        *why = find_jobs(p, sp);
    *why = *why ? *why : find_needs(p, sp, g, &repeats);
    if (*why)
        return false;
    *out = (struct promise){.sp = sp, .g = g, .repeats = repeats};
    out->homes = NEW(struct homes, sets_of(out));
    for (int set = 0; set < sets_of(out) && !*why; set++)
        *why = homes_of_text(p, set, &out->homes[set]);
    if (*why)
        return false;
    own(out);
    *out = work_out(*out);
    return true;
}
