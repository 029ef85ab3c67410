/* An executor independent of all proofs: it runs a program once, in a random order, on symbolic memory (symbols.h).
 *
 * Time: an instruction starts when it is next in its lane, nothing of its lane is running, and all it waits for has
 * ended. It may then end at any time, with three exceptions. A RECV ends after its SEND has started. A member of a
 * collective ends after all members whose data reach it have started. Each SEND is drawn to be eager, or to end only
 * after its RECV has started.
 *
 * Accesses: at its start an instruction stamps what it only writes. Until its end it reads its inputs piece by piece,
 * and may write the result of a piece at once: a RECV writes what its SEND has read so far, and a sum in place stamps
 * what it has read. At its end its inputs must not have changed since they were read, and its outputs must be as it
 * left them. Otherwise something else accessed those bytes meanwhile: a race.
 *
 * Orders: a uniform choice hardly ever lets one lane run far ahead of another. So lanes have random priorities, one for
 * starting and one for continuing, and the highest acts, apart from some noise and some changes on the way (after
 * Burckhardt 2010, "A Randomized Scheduler with Probabilistic Guarantees of Finding Bugs"). */
#include "executor.h"
#include "symbols.h"
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- a run ---- */

enum state { TO_COME, RUNNING, ENDED };

struct running { /* an instruction in progress: the values read and written so far, by cell of its operands */
    uint64_t *seen, *left;
    uint8_t *read; /* whether the cell has been read, or has arrived */
    int pieces;    /* number of times it has continued */
};
struct runner {
    const struct rank *k;
    uint64_t *mem;         /* [cells] */
    struct running *doing; /* per instruction */
    int32_t *head,
        *next; /* per lane: its first instruction that has not ended, or nins; per instruction: its lane's next */
    uint64_t (*priority)[2]; /* per lane: to start, to continue */
    uint8_t *state;          /* per instruction */
    int32_t ended;           /* instructions that have ended */
    struct half {            /* per workspace */
        int32_t job;         /* the job whose part `parts` comes next, or -1 */
        int parts;
        uint64_t work; /* value in every cell of the workspace, shared by a job's parts */
    } half[2];
};
struct end { /* one end of a message or a collective */
    int32_t rank, ins;
};
struct run {
    const struct promise *want;
    const struct program *p;
    enum how how;
    uint64_t random, stamps, random_of_messages;
    int noise; /* of 16 choices, the number that ignore priorities */
    struct runner *at;
    struct end **meets;      /* per rank and instruction: the next end of the same message or sum, in a ring */
    uint8_t *jobs;           /* enum state */
    int64_t (*size)[NKINDS]; /* for size_error */
    int wrong;
};
static char why[1024];

static bool fail(struct run *z, int r, int32_t i, const char *fmt, ...) {
    if (z->wrong++)
        return false;
    struct text t = {0};
    if (i >= 0)
        put_label(&t, NULL, &z->at[r].k->ins[i]);
    int n = snprintf(why, sizeof why, "rank %d, %s: ", r, i >= 0 ? t.s : "at the beginning or the end");
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why + n, sizeof why - (size_t)n, fmt, ap);
    va_end(ap);
    return false;
}

/* ---- matching: the k-th to leave with the k-th to arrive ---- */

static bool leaves_for(const struct instr *x, int peer) { return op_lane[x->op] == LANE_SEND && x->peer == peer; }
static bool comes_from(const struct instr *x, int peer) {
    return op_lane[x->op] == LANE_RECV && is_message(x->op) && x->peer == peer;
}

static void match_edge(struct run *z, int from, int to) {
    const struct rank *a = &z->p->rank[from], *b = &z->p->rank[to];
    int32_t j = -1;
    for (int32_t i = 0; i <= a->nins && !z->wrong; i++) {
        if (i < a->nins && !leaves_for(&a->ins[i], to))
            continue;
        for (j++; j < b->nins && !comes_from(&b->ins[j], from);)
            j++;
        if ((i < a->nins) != (j < b->nins))
            fail(z, i < a->nins ? from : to, i < a->nins ? i : j, "has no partner");
        else if (i < a->nins) {
            z->meets[from][i] = (struct end){to, j};
            z->meets[to][j] = (struct end){from, i};
        }
    }
}

static int32_t nth_of_group(const struct rank *k, int group, int kind, int n) {
    for (int32_t i = 0; i < k->nins; i++) {
        const struct lane *l = &k->lane[k->ins[i].lane];
        if (is_collective(k->ins[i].op) && l->group == group && l->kind == kind && n-- == 0)
            return i;
    }
    return -1;
}

static void match_group(struct run *z, int group, int kind) {
    const struct group *g = &z->p->group[group];
    for (int n = 0, here = g->n; here > 0 && !z->wrong; n++) {
        here = 0;
        for (int m = 0; m < g->n; m++) {
            int q = g->rank[(m + 1) % g->n];
            int32_t i = nth_of_group(&z->p->rank[g->rank[m]], group, kind, n);
            int32_t j = nth_of_group(&z->p->rank[q], group, kind, n);
            here += i >= 0;
            if ((i < 0) != (j < 0))
                fail(z, i < 0 ? q : g->rank[m], i < 0 ? j : i, "too few take part");
            else if (i >= 0 && (z->p->rank[g->rank[m]].ins[i].op != z->p->rank[q].ins[j].op ||
                                z->p->rank[g->rank[m]].ins[i].peer != z->p->rank[q].ins[j].peer))
                fail(z, g->rank[m], i, "meets another collective");
            else if (i >= 0)
                z->meets[g->rank[m]][i] = (struct end){q, j};
            const struct rank *k = &z->p->rank[g->rank[m]];
            const char *error = i >= 0 ? collective_error(k, &k->ins[i], g->rank[m], m, g->n) : NULL;
            if (error)
                fail(z, g->rank[m], i, "%s", error);
        }
    }
}

static int64_t bytes_carried(const struct rank *k, const struct instr *x) { return arg_bytes(k, &k->arg[x->arg]); }

static void match_all(struct run *z) {
    for (int r = 0; r < z->p->workers; r++)
        for (int32_t i = 0; i < z->p->rank[r].nins; i++)
            z->meets[r][i] = (struct end){r, i};
    for (int a = 0; a < z->p->workers; a++)
        for (int b = 0; b < z->p->workers; b++)
            if (a != b)
                match_edge(z, a, b);
    for (int g = 0; g < z->p->ngroups; g++)
        for (int kind = LANE_GATHER; kind <= LANE_TEAM; kind++)
            match_group(z, g, kind);
    for (int r = 0; r < z->p->workers && !z->wrong; r++)
        for (int32_t i = 0; i < z->p->rank[r].nins && !z->wrong; i++) {
            const struct instr *x = &z->p->rank[r].ins[i];
            struct end e = z->meets[r][i];
            if (!is_message(x->op))
                continue;
            if (x->narg < 1 || z->p->rank[e.rank].ins[e.ins].narg < 1 || e.rank == r)
                fail(z, r, i, "brings nothing to anybody");
            else if (bytes_carried(&z->p->rank[r], x) !=
                     bytes_carried(&z->p->rank[e.rank], &z->p->rank[e.rank].ins[e.ins]))
                fail(z, r, i, "its ends have different bytes");
        }
}

/* ---- one instruction ---- */

/* Returns the first cell of operand a among the cells of its instruction. */
static int64_t cell_of(const struct rank *k, const struct instr *x, int a) {
    int64_t n = 0;
    for (int o = 0; o < a; o++)
        n += span_at(k, x, o).n;
    return n;
}

static bool job_may_start(struct run *z, int r, int32_t i) {
    const struct instr *x = &z->at[r].k->ins[i];
    const struct spec *sp = z->want->sp;
    bool inside = x->stage >= 0 && x->stage < sp->stages && x->batch >= 0 && x->batch < sp->batches;
    int32_t j = inside ? job_at(sp, x->stage, x->batch, x->op) : -1;
    struct half *half = &z->at[r].half[works_apart(z->at[r].k, x)];
    if (j < 0 || sp->job[j].rank != r || z->jobs[j] != (half->job == j ? RUNNING : TO_COME))
        return fail(z, r, i, "no job of this rank, or it runs twice");
    if ((half->job >= 0 && half->job != j) || x->part != (half->job < 0 ? 0 : half->parts))
        return fail(z, r, i, "another job is half done, or another part comes next");
    half->job = x->part < x->last ? j : -1;
    half->parts = x->part + 1;
    for (int32_t e = z->want->g->pred_at[j]; e < z->want->g->pred_at[j + 1]; e++)
        if (z->want->g->pred[e] < sp->njobs && z->jobs[z->want->g->pred[e]] != ENDED)
            return fail(z, r, i, "a job it depends on has not ended");
    z->jobs[j] = RUNNING;
    return true;
}

static void scribble(struct runner *m, struct running *d, int64_t cell, int64_t at, uint64_t symbol) {
    m->mem[at] = d->left[cell] = symbol;
}

/* Returns whether a cell of operand a, in place, also belongs to its source. */
static bool is_source(const struct rank *k, const struct instr *x, int a, int64_t at) {
    int src = operand_of(k, x, ROLE_src);
    if (src < 0 || src == a || !(lies_in(k, x, src, a) || lies_in(k, x, a, src)))
        return false;
    struct span s = span_at(k, x, src);
    return at >= s.at && at < s.at + s.n;
}

static void start(struct run *z, int r, int32_t i) {
    struct runner *m = &z->at[r];
    const struct instr *x = &m->k->ins[i];
    m->state[i] = RUNNING;
    if (x->op <= OP_W && !job_may_start(z, r, i))
        return;
    for (int a = 0; a < x->narg; a++) {
        const char *error = memory_error(m->k, x, a);
        error = error ? error : size_error(z->want, m->k, operand(m->k, x, a).buf, z->size);
        if (error) {
            fail(z, r, i, "%s", error);
            return;
        }
    }
    int64_t n = cell_of(m->k, x, x->narg);
    int32_t work = workspace_of(m->k, x);
    int64_t room = n + (work >= 0 ? span_of(m->k, work).n : 0);
    m->doing[i] =
        (struct running){calloc((size_t)room + 1, 8), calloc((size_t)room + 1, 8), calloc((size_t)room + 1, 1), 0};
    for (int a = 0; a < x->narg; a++) {
        struct span s = span_at(m->k, x, a);
        int64_t first = cell_of(m->k, x, a), kept = kept_of_stash(m->k, x, a), piece = operand(m->k, x, a).piece;
        bool half = access_of(m->k, x, a) == ACC_WRITE && is_half_before(m->k, x, a);
        for (int64_t c = kept; half && c < s.n; c++)
            if (m->mem[s.at + c] != half_made(x, operand(m->k, x, a).role, piece * s.n + c))
                fail(z, r, i, "what the part before made is gone");
        for (int64_t c = 0; access_of(m->k, x, a) == ACC_WRITE && c < s.n; c++)
            if (!is_source(m->k, x, a, s.at + c))
                scribble(m, &m->doing[i], first + c, s.at + c, c < kept ? m->mem[s.at + c] : z->stamps);
    }
    uint64_t *left = &m->half[works_apart(m->k, x)].work;
    for (int64_t c = 0; x->part && c < room - n; c++)
        if (m->mem[span_of(m->k, work).at + c] != *left)
            fail(z, r, i, "the workspace was written between the parts");
    *left = room > n ? z->stamps : *left; /* other jobs leave the workspace as it is */
    for (int64_t c = 0; c < room - n; c++)
        scribble(m, &m->doing[i], n + c, span_of(m->k, work).at + c, z->stamps);
    z->stamps++;
}

static bool is_written_by(const struct runner *m, const struct instr *x, int a) {
    return access_of(m->k, x, a) & ACC_WRITE || spoils(m->k, x, a);
}

/* Reads some of the unread cells, each with probability 1 / of. */
static void read_piece(struct run *z, int r, int32_t i, int of) {
    struct runner *m = &z->at[r];
    const struct instr *x = &m->k->ins[i];
    struct running *d = &m->doing[i];
    for (int a = 0; a < x->narg; a++) {
        struct span s = span_at(m->k, x, a);
        int64_t first = cell_of(m->k, x, a);
        for (int64_t c = 0; access_of(m->k, x, a) & ACC_READ && c < s.n; c++) {
            if (d->read[first + c] || random_below(&z->random, of) > 0)
                continue;
            d->read[first + c] = true;
            d->seen[first + c] = d->left[first + c] = m->mem[s.at + c];
            if (d->seen[first + c] & STAMP && !is_half_before(m->k, x, a))
                fail(z, r, i, "reads byte %lld, which holds nothing", (long long)(s.at + c));
            if (is_written_by(m, x,
                              a)) /* a sum in place, or a collective: a cell that was read may hold anything now */
                scribble(m, d, first + c, s.at + c, z->stamps);
        }
    }
    z->stamps++;
}

/* Lets a RECV write what its SEND has read so far. */
static void write_piece(struct run *z, int r, int32_t i, int of) {
    struct runner *m = &z->at[r];
    struct end from = z->meets[r][i];
    struct running *d = &m->doing[i];
    const struct running *sent = &z->at[from.rank].doing[from.ins];
    struct span s = span_at(m->k, &m->k->ins[i], 0);
    for (int64_t c = 0; z->at[from.rank].state[from.ins] != TO_COME && c < s.n; c++) {
        if (d->read[c] || !sent->read[c] || random_below(&z->random, of) > 0)
            continue;
        if (m->mem[s.at + c] != d->left[c])
            fail(z, r, i, "byte %lld was written meanwhile", (long long)(s.at + c));
        d->read[c] = true;
        scribble(m, d, c, s.at + c, d->seen[c] = sent->seen[c]);
    }
}

static bool receives(const struct instr *x) { return is_message(x->op) && op_lane[x->op] == LANE_RECV; }

static void go_on(struct run *z, int r, int32_t i, int of) {
    if (receives(&z->at[r].k->ins[i]))
        write_piece(z, r, i, of);
    else
        read_piece(z, r, i, of);
    z->at[r].doing[i].pieces++;
}

/* Reads the rest of the inputs at all ends that it meets and that have not finished reading. */
static void read_rest(struct run *z, int r, int32_t i) {
    const struct instr *x = &z->at[r].k->ins[i];
    for (struct end e = z->meets[r][i]; is_message(x->op) && (e.rank != r || e.ins != i); e = z->meets[e.rank][e.ins])
        if (z->at[e.rank].state[e.ins] == RUNNING && !receives(&z->at[e.rank].k->ins[e.ins]))
            read_piece(z, e.rank, e.ins, 1);
    go_on(z, r, i, 1);
}

/* Checks that nothing else has written what it read, or what it wrote or is about to write. */
static void check_alone(struct run *z, int r, int32_t i) {
    struct runner *m = &z->at[r];
    const struct instr *x = &m->k->ins[i];
    const struct running *d = &m->doing[i];
    for (int a = 0; a < x->narg; a++) {
        struct span s = span_at(m->k, x, a);
        int64_t first = cell_of(m->k, x, a);
        bool stash = x->op == OP_I && operand(m->k, x, a).role == ROLE_stash && operand_of(m->k, x, ROLE_wstash) >= 0;
        if (stash && !grows_here(m->k, x, a))
            fail(z, r, i, "the wstash is not at the address of the stash");
        for (int64_t c = 0; access_of(m->k, x, a) && c < s.n && !z->wrong; c++)
            if (!is_source(m->k, x, a, s.at + c) && m->mem[s.at + c] != d->left[first + c])
                fail(z, r, i, "byte %lld was written meanwhile", (long long)(s.at + c));
    }
    int32_t work = workspace_of(m->k, x);
    struct span s = work >= 0 ? span_of(m->k, work) : (struct span){0, 0};
    for (int64_t c = 0; c < s.n && !z->wrong; c++)
        if (m->mem[s.at + c] != d->left[cell_of(m->k, x, x->narg) + c])
            fail(z, r, i, "the workspace was written meanwhile");
}

/* Empties freed bytes; not if lanes run concurrently, because others may still be reading them. */
static void run_frees(struct run *z, int r, int32_t i, bool own) {
    struct runner *m = &z->at[r];
    const struct instr *x = &m->k->ins[i];
    for (uint32_t f = x->free; z->how == SERIALLY && f < x->free + x->nfree; f++) {
        bool written = false;
        for (int a = 0; a < x->narg; a++)
            written |= operand(m->k, x, a).buf == m->k->freed[f] && is_written_by(m, x, a);
        const char *error = written == own ? size_error(z->want, m->k, m->k->freed[f], z->size) : NULL;
        struct span s = span_of(m->k, m->k->freed[f]);
        if (error)
            fail(z, r, i, "%s", error);
        for (int64_t n = 0; written == own && !error && n < s.n; n++)
            m->mem[s.at + n] = z->stamps;
        z->stamps++;
    }
}

/* Returns what each operand of an instruction has read. */
static uint64_t **seen_by(const struct run *z, int r, int32_t i) {
    const struct runner *m = &z->at[r];
    const struct instr *x = &m->k->ins[i];
    uint64_t **seen = calloc((size_t)x->narg + 1, sizeof *seen);
    for (int a = 0; a < x->narg && m->doing[i].seen; a++)
        seen[a] = m->doing[i].seen + cell_of(m->k, x, a);
    return seen;
}

static void finish_collective(struct run *z, int r, int32_t i, uint64_t **made) {
    const struct instr *x = &z->at[r].k->ins[i];
    const struct group *g = &z->p->group[z->at[r].k->lane[x->lane].group];
    struct party *party = calloc((size_t)g->n, sizeof *party);
    int me = 0;
    while (g->rank[me] != r)
        me++;
    struct end e = {r, i};
    for (int n = 0, m = me; n < g->n; n++, m = (m + 1) % g->n, e = z->meets[e.rank][e.ins])
        party[m] = (struct party){z->at[e.rank].k, &z->at[e.rank].k->ins[e.ins], seen_by(z, e.rank, e.ins)};
    make_collective(party, g->n, me, made);
    for (int m = 0; m < g->n; m++)
        free(party[m].seen);
    free(party);
}

/* Computes its results: a collective's from what its members read, a message's from what arrived. */
static void finish_values(struct run *z, int r, int32_t i, uint64_t **made) {
    struct runner *m = &z->at[r];
    const struct instr *x = &m->k->ins[i];
    uint64_t **seen = seen_by(z, r, i);
    for (int a = 0; a < x->narg; a++)
        made[a] = calloc((size_t)span_at(m->k, x, a).n, sizeof **made);
    const char *error = is_message(x->op) ? NULL : make_values(z->want, m->k, x, seen, made);
    if (error)
        fail(z, r, i, "%s", error);
    if (is_collective(x->op))
        finish_collective(z, r, i, made);
    else if (is_message(x->op))
        memcpy(made[0], seen[0], sizeof **made * (size_t)span_at(m->k, x, 0).n);
    free(seen);
}

static void end(struct run *z, int r, int32_t i) {
    struct runner *m = &z->at[r];
    const struct instr *x = &m->k->ins[i];
    uint64_t **made = calloc((size_t)x->narg + 1, sizeof *made);
    read_rest(z, r, i);
    check_alone(z, r, i);
    finish_values(z, r, i, made);
    run_frees(z, r, i, false); /* before the outputs: a wstash takes over its stash's bytes */
    for (int a = 0; a < x->narg; a++) {
        struct span s = span_at(m->k, x, a);
        if (is_written_by(m, x, a))
            memcpy(m->mem + s.at, made[a], sizeof *m->mem * (size_t)s.n);
        free(made[a]);
    }
    free(made);
    run_frees(z, r, i, true);
    if (x->op <= OP_W && x->part == x->last && !z->wrong)
        z->jobs[job_at(z->want->sp, x->stage, x->batch, x->op)] = ENDED;
    m->state[i] = ENDED;
    m->ended++;
    m->head[x->lane] = m->next[i];
}

/* ---- the choice of the next step ---- */

static bool may_start(const struct run *z, int r, int32_t i) {
    const struct runner *m = &z->at[r];
    const struct instr *x = &m->k->ins[i];
    if (z->how == SERIALLY && i != m->ended)
        return false;
    for (uint32_t w = x->wait; w < x->wait + x->nwait; w++)
        if (m->state[m->k->wait[w]] != ENDED)
            return false;
    return true;
}

/* Returns whether a SEND may end before its RECV has started, drawn for each; in one run of four, no SEND may. */
static bool is_eager(const struct run *z, int r, int32_t i) {
    uint64_t draw = z->random_of_messages + (uint64_t)(r * 100003 + i);
    return z->how == BY_LANES && z->random_of_messages % 4 && random_next(&draw) % 2;
}

static bool may_end(const struct run *z, int r, int32_t i) {
    const struct instr *x = &z->at[r].k->ins[i];
    if (!is_message(x->op) || (op_lane[x->op] == LANE_SEND && is_eager(z, r, i)))
        return true;
    for (struct end e = z->meets[r][i]; e.rank != r; e = z->meets[e.rank][e.ins])
        if (z->at[e.rank].state[e.ins] == TO_COME && (!is_collective(x->op) || gives_to(x, e.rank, r)))
            return false;
    return true;
}

/* ---- the whole ---- */

enum { MOST_PIECES = 3 };

/* Returns whether the lane's head can do something now. */
static bool may_act(const struct run *z, int r, int32_t i) {
    const struct runner *m = &z->at[r];
    if (m->state[i] == TO_COME)
        return may_start(z, r, i);
    return m->doing[i].pieces < MOST_PIECES || may_end(z, r, i);
}

static void act(struct run *z, int r, int32_t i) {
    struct runner *m = &z->at[r];
    if (m->state[i] == TO_COME)
        start(z, r, i);
    else if (m->doing[i].pieces < MOST_PIECES && (!may_end(z, r, i) || random_below(&z->random, 2)))
        go_on(z, r, i, 2);
    else
        end(z, r, i);
}

/* Makes one step of a random lane among those that can act. Returns false if none can. */
static bool step(struct run *z) {
    int best_rank = -1, best_lane = 0;
    uint64_t best = 0;
    bool noise = random_below(&z->random, 16) < z->noise;
    for (int r = 0; r < z->p->workers; r++)
        for (int l = 0; l < z->at[r].k->nlanes; l++) {
            int32_t i = z->at[r].head[l];
            if (i == z->at[r].k->nins)
                continue;
            bool runs = z->at[r].state[i] == RUNNING;
            uint64_t priority = noise ? random_next(&z->random) | 1 : z->at[r].priority[l][runs];
            if (priority <= best || !may_act(z, r, i))
                continue;
            best = priority;
            best_rank = r;
            best_lane = l;
        }
    if (best_rank < 0)
        return false;
    struct runner *m = &z->at[best_rank];
    act(z, best_rank, m->head[best_lane]);
    if (random_below(&z->random, 32) == 0)
        m->priority[best_lane][random_below(&z->random, 2)] =
            random_next(&z->random) >> random_below(&z->random, 20) | 1;
    return true;
}

/* Sets weights and optimizer state at their homes, where they are from the start. */
static void fill_homes(struct run *z) {
    for (int r = 0; r < z->p->workers; r++)
        for (int s = 0; s < sets_of(z->want) && !z->wrong; s++) {
            if (!owns(z->want, r, s))
                continue;
            int32_t w = home_weights(z->want, r, s), o = home_state(z->at[r].k, s);
            if (w < 0 || size_error(z->want, z->at[r].k, w, z->size) ||
                (o >= 0 && size_error(z->want, z->at[r].k, o, z->size)))
                fail(z, r, -1, "weight(%d) has no place", s);
            else
                fill_home(z->want, r, s, z->at[r].mem);
        }
    for (int r = 0; r < z->p->workers; r++)
        fill_norm(z->want, r, z->at[r].mem);
}

static const uint64_t *memory_at(void *of, int r) { return ((const struct run *)of)->at[r].mem; }

static void check_end(struct run *z) {
    for (int r = 0; r < z->p->workers && !z->wrong; r++)
        for (int l = 0; l < z->p->rank[r].nlanes && !z->wrong; l++)
            if (z->at[r].head[l] < z->p->rank[r].nins)
                fail(z, r, z->at[r].head[l], "deadlock");
    for (int j = 0; j < z->want->sp->njobs && !z->wrong; j++)
        if (z->jobs[j] != ENDED)
            fail(z, z->want->sp->job[j].rank, -1, "a job has not run");
    for (int r = 0; r < z->p->workers; r++)
        for (int s = 0; s < sets_of(z->want) && !z->wrong; s++) {
            const char *error = owns(z->want, r, s) ? home_error(z->want, r, s, z->at[r].mem) : NULL;
            if (error)
                fail(z, r, -1, "%s", error);
        }
    const char *error = z->wrong || !z->want->costs->post_validation ? NULL : last_norms_error(z->want, memory_at, z);
    if (error)
        fail(z, 0, -1, "%s", error);
}

static void prepare(struct run *z, int r) {
    const struct rank *k = &z->p->rank[r];
    size_t nins = (size_t)k->nins + 1, nlanes = (size_t)k->nlanes;
    struct runner *m = &z->at[r];
    *m = (struct runner){
        .k = k, .half = {{.job = -1}, {.job = -1}}, .mem = calloc((size_t)cells(k) + 1, sizeof *m->mem)};
    m->doing = calloc(nins, sizeof *m->doing);
    m->head = calloc(nlanes, sizeof *m->head);
    m->next = calloc(nins, sizeof *m->next);
    m->priority = calloc(nlanes, sizeof *m->priority);
    m->state = calloc(nins, 1);
    z->meets[r] = calloc(nins, sizeof **z->meets);
    for (int64_t c = 0; c < cells(k); c++)
        m->mem[c] = STAMP;
    for (size_t l = 0; l < nlanes; l++) {
        m->head[l] = k->nins;
        m->priority[l][0] = random_next(&z->random) | 1;
        m->priority[l][1] = random_next(&z->random) | 1;
    }
    for (int32_t i = k->nins - 1; i >= 0; i--) {
        m->next[i] = m->head[k->ins[i].lane];
        m->head[k->ins[i].lane] = i;
    }
}

static void clean_up(struct run *z) {
    for (int r = 0; r < z->p->workers; r++) {
        struct runner *m = &z->at[r];
        for (int32_t i = 0; i < m->k->nins; i++) {
            free(m->doing[i].seen);
            free(m->doing[i].left);
            free(m->doing[i].read);
        }
        void *all[] = {m->mem, m->doing, m->head, m->next, m->priority, m->state, z->meets[r]};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            free(all[i]);
    }
    void *all[] = {z->at, z->meets, z->jobs, z->size};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

const char *execute(const struct promise *wanted, const struct program *p, enum how how, uint64_t seed) {
    struct promise own = promise_for(wanted, p), *want = &own;
    struct run z = {.want = want, .p = p, .how = how, .random = seed, .stamps = STAMP + 1};
    z.noise = random_below(&z.random, 3) * 8;
    z.random_of_messages = random_next(&z.random);
    z.at = calloc((size_t)p->workers, sizeof *z.at);
    z.meets = calloc((size_t)p->workers, sizeof *z.meets);
    z.jobs = calloc((size_t)want->sp->njobs + 1, 1);
    z.size = calloc(size_entries(want), sizeof *z.size);
    for (int r = 0; r < p->workers; r++)
        prepare(&z, r);
    match_all(&z);
    if (!z.wrong)
        fill_homes(&z);
    while (!z.wrong && step(&z))
        ;
    if (!z.wrong)
        check_end(&z);
    clean_up(&z);
    return z.wrong ? why : NULL;
}
