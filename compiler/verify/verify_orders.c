/* What must have ended before an instruction starts, on every machine.
 *
 * The machine model, "start-end": S(x) and E(x) are the start and the end of instruction x. All accesses of x lie
 * anywhere between the two, in pieces. These orders hold, and no others:
 *   1. E(w) before S(x) for the instruction w before x in its lane, and for each w that x waits for;
 *   2. S(x) before E(x);
 *   3. S(SEND) before E(RECV) of the same message;
 *   4. S(m) before E(n) for members m and n of a collective where data flow from m to n: of a REDUCE, all.
 * A SEND may end before its RECV starts, as eager messages do, or not; a collective may touch a member's buffer as soon
 * as that member has started.
 *
 * The claim: of two accesses of a rank to a byte, one of which writes, by j and i in this issue order, E(j) comes
 * before S(i) by a chain of these orders. Why that is enough: the serial walk (verify.c) is one way through all of
 * them, so they have no cycle. Take any run of any such machine, and the first access in it that finds something else
 * than it found in the walk, or is found at the same time as one it conflicts with. What it reads was written by
 * accesses that conflict with it; each of them is wholly before it, or wholly after it, as in the walk, since the
 * chains hold in both; those before it found what they did in the walk; and what a RECV or a REDUCE writes is what its
 * SEND or the members read, which comes before. So there is no first such access: every buffer holds what it held in
 * the walk. Why it is needed: where no chain leads from E(j) to S(i), putting everything that S(i) needs first gives a
 * run, of a machine that keeps no other order, in which i has started and j has not ended.
 *
 * Chains within a rank are kept as vector clocks, one per lane: how far each other lane of the rank must have come.
 * Those clocks decide all that our compiler makes. What they leave open, where only a detour through other ranks keeps
 * two accesses apart, is asked at the end of all. A search backwards, of NEAR steps at most, finds the detours that are
 * short, as those of bytes that are used again soon are. For the rest, so many lanes at a time as a clock has places, a
 * sweep over all ranks carries how far these must have come along lanes, waits and messages. So the work is linear in
 * the questions, and in the instructions times the lanes that a search did not do for. */
#include "check.h"
#include <string.h>

enum { PLACES = 16, NEAR = 256 }; /* lanes in one sweep; steps of a search */

struct orders {
    struct check *z;
    int r;
    const struct rank *k;
    int32_t *clock;   /* [lane][lane] of the rank at hand: how far the other has come when the lane's last ended */
    int32_t *shot;    /* per awaited instruction: the clock of its lane at its end */
    int32_t *awaited; /* per instruction: 1 + its place in shot; 0: nobody waits for it */
    size_t shot_cap;
    struct question *question; /* by rank, and in issue order */
    size_t n, cap, many;
    struct search *search; /* made when first needed */
    struct sweep *sweep;
};

struct orders *orders_begin(struct check *z) {
    struct orders *o = NEW(struct orders, 1);
    int64_t lanes = 0, most = 0;
    o->z = z;
    for (int r = 0; r < z->p->workers; r++) {
        const struct rank *k = &z->p->rank[r];
        lanes = k->nlanes > lanes ? k->nlanes : lanes;
        most = k->nins > most ? k->nins : most;
        o->many += (size_t)k->nins;
    }
    o->clock = NEW(int32_t, lanes * lanes + 1);
    o->awaited = NEW(int32_t, most + 1);
    return o;
}

/* ---- within a rank ---- */

/* Numbers the instructions that others wait for; returns how many. */
static int32_t number_awaited(const struct rank *k, int32_t *awaited) {
    int32_t n = 0;
    memset(awaited, 0, sizeof *awaited * (size_t)k->nins);
    for (size_t w = 0; w < k->nwaits; w++)
        if (!awaited[k->wait[w]])
            awaited[k->wait[w]] = ++n;
    return n;
}

void orders_rank(struct orders *o, int r) {
    o->r = r;
    o->k = &o->z->p->rank[r];
    size_t L = (size_t)o->k->nlanes;
    GROW(o->shot, o->shot_cap, (size_t)number_awaited(o->k, o->awaited) * L + 1);
    memset(o->clock, -1, sizeof *o->clock * L * L);
}

void orders_start(struct orders *o, int32_t i) {
    const struct instr *x = &o->k->ins[i];
    int L = o->k->nlanes;
    int32_t *clock = o->clock + (int64_t)x->lane * L;
    for (uint32_t w = x->wait; w < x->wait + x->nwait; w++) {
        if (o->k->wait[w] >= i)
            continue; /* it has no past yet: refuted as a deadlock where that is asked */
        const int32_t *then = o->shot + (int64_t)(o->awaited[o->k->wait[w]] - 1) * L;
        for (int l = 0; l < L; l++)
            clock[l] = then[l] > clock[l] ? then[l] : clock[l];
    }
    clock[x->lane] = i; /* of its own lane, all before it have ended */
}

void orders_end(struct orders *o, int32_t i) {
    int L = o->k->nlanes;
    if (o->awaited[i])
        memcpy(o->shot + (int64_t)(o->awaited[i] - 1) * L, o->clock + (int64_t)o->k->ins[i].lane * L,
               sizeof *o->clock * (size_t)L);
}

bool ordered_here(const struct orders *o, int32_t i, int32_t j) {
    return o->clock[(int64_t)o->k->ins[i].lane * o->k->nlanes + o->k->ins[j].lane] >= j;
}

/* ---- through other ranks ---- */

void orders_ask(struct orders *o, struct question q) {
    GROW(o->question, o->cap, o->n + 1);
    o->question[o->n++] = q;
}

struct clock {
    int32_t at[PLACES]; /* per lane asked about: the newest of its instructions that must have ended; -1: none */
};

struct sweep {
    struct check *z;
    const struct orders *o;
    int32_t *base;      /* per rank: the number of its first lane */
    int32_t *place;     /* per lane of all ranks: its place in the clocks of this sweep, or -1 */
    struct clock *lane; /* per lane of all ranks: what has ended when its last instruction has */
    int32_t **slot;     /* per rank and instruction: where kept has its clock, or 0 */
    struct clock *kept; /* what must have ended before it ends; of a REDUCE, its first member's is of all */
    size_t nkept;
    int32_t *at, *todo;   /* per rank: the next instruction; the ranks that may go on */
    int32_t *asked, *end; /* per rank: the next of its questions; where they end */
    int32_t *came;        /* per group: members that stand at its next reduction */
    bool *stands;         /* per rank: the next instruction has started, and waits for others to */
    int ntodo;
    size_t worst; /* the first question whose answer is no, or their number */
};

static void learn(struct clock *c, const struct clock *from) {
    for (int p = 0; p < PLACES; p++)
        c->at[p] = from->at[p] > c->at[p] ? from->at[p] : c->at[p];
}

/* Instruction i has ended. */
static void learn_of(const struct sweep *s, struct clock *c, int r, int32_t i) {
    int place = s->place[s->base[r] + s->z->p->rank[r].ins[i].lane];
    if (place >= 0 && c->at[place] < i)
        c->at[place] = i;
}

/* Numbers the instructions whose clocks others will ask for. */
static void number_kept(struct sweep *s) {
    const struct program *p = s->z->p;
    s->slot = NEW(int32_t *, p->workers);
    s->nkept = 1;
    for (int r = 0; r < p->workers; r++) {
        const struct rank *k = &p->rank[r];
        s->slot[r] = NEW(int32_t, k->nins);
        for (size_t w = 0; w < k->nwaits; w++)
            s->slot[r][k->wait[w]] = 1;
        for (int32_t i = 0; i < k->nins; i++)
            if (s->slot[r][i] || is_send(k->ins[i].op) || is_group(k->ins[i].op))
                s->slot[r][i] = (int32_t)s->nkept++;
    }
    s->kept = NEW(struct clock, s->nkept);
}

static struct sweep *sweep_new(struct orders *o) {
    const struct program *p = o->z->p;
    int W = p->workers, lanes = 0;
    struct sweep *s = NEW(struct sweep, 1);
    s->z = o->z;
    s->o = o;
    s->base = NEW(int32_t, W + 1);
    for (int r = 0; r < W; r++)
        s->base[r + 1] = lanes += p->rank[r].nlanes;
    s->place = NEW(int32_t, lanes);
    s->lane = NEW(struct clock, lanes);
    s->at = NEW(int32_t, W);
    s->todo = NEW(int32_t, W);
    s->asked = NEW(int32_t, W);
    s->end = NEW(int32_t, W);
    s->came = NEW(int32_t, p->ngroups + 1);
    s->stands = NEW(bool, W);
    number_kept(s);
    return s;
}

static void start(struct sweep *s, int r, int32_t i, struct clock *c) {
    const struct rank *k = &s->z->p->rank[r];
    const struct instr *x = &k->ins[i];
    verify_work++;
    for (uint32_t w = x->wait; w < x->wait + x->nwait; w++)
        if (k->wait[w] < i) {
            learn(c, &s->kept[s->slot[r][k->wait[w]]]);
            learn_of(s, c, r, k->wait[w]);
        }
    for (; s->asked[r] < s->end[r] && s->o->question[s->asked[r]].i == i; s->asked[r]++) {
        int32_t j = s->o->question[s->asked[r]].j, place = s->place[s->base[r] + k->ins[j].lane];
        if (place >= 0 && c->at[place] < j && (size_t)s->asked[r] < s->worst)
            s->worst = (size_t)s->asked[r];
    }
}

/* What must have ended before it ends is known; the next of its rank may start. */
static void finish(struct sweep *s, int r, int32_t i, struct clock *c) {
    if (s->slot[r][i])
        s->kept[s->slot[r][i]] = *c;
    learn_of(s, c, r, i);
    s->stands[r] = false;
    s->at[r]++;
}

/* A member comes to a reduction; the last of them ends it for all. */
static bool meet(struct sweep *s, int r, int32_t i, const struct clock *c) {
    const struct program *p = s->z->p;
    int g = p->rank[r].lane[p->rank[r].ins[i].lane].group;
    const struct group *group = &p->group[g];
    int32_t nth = s->z->mate[r][i];
    struct clock *all = &s->kept[s->slot[group->rank[0]][s->z->reductions[g][0][nth]]];
    learn(all, c);
    s->stands[r] = true;
    if (++s->came[g] < group->n)
        return false;
    s->came[g] = 0;
    for (int m = 0; m < group->n; m++) {
        int q = group->rank[m];
        int32_t j = s->z->reductions[g][m][nth];
        struct clock *lane = &s->lane[s->base[q] + p->rank[q].ins[j].lane];
        *lane = *all;
        finish(s, q, j, lane);
        if (q != r)
            s->todo[s->ntodo++] = q;
    }
    return true;
}

/* Goes on with a rank, one instruction at a time, until it needs another rank's. */
static void go_on(struct sweep *s, int r) {
    const struct rank *k = &s->z->p->rank[r];
    while (s->at[r] < k->nins) {
        int32_t i = s->at[r];
        const struct instr *x = &k->ins[i];
        struct clock *c = &s->lane[s->base[r] + x->lane];
        bool sends = is_send(x->op);
        if (!s->stands[r])
            start(s, r, i, c);
        if (is_group(x->op)) {
            if (!meet(s, r, i, c))
                return;
            continue;
        }
        if (is_recv(x->op)) {
            s->stands[r] = true;
            if (s->at[x->peer] <= s->z->mate[r][i]) /* its SEND will come back to it */
                return;
            learn(c, &s->kept[s->slot[x->peer][s->z->mate[r][i]]]);
        }
        finish(s, r, i, c);
        if (sends && s->stands[x->peer] && s->at[x->peer] == s->z->mate[r][i])
            s->todo[s->ntodo++] = x->peer;
    }
}

/* Asks about as many lanes as have a place. */
static void sweep(struct sweep *s) {
    int W = s->z->p->workers;
    memset(s->lane, -1, sizeof *s->lane * (size_t)s->base[W]);
    memset(s->kept, -1, sizeof *s->kept * s->nkept);
    memset(s->at, 0, sizeof *s->at * (size_t)W);
    memset(s->stands, 0, sizeof *s->stands * (size_t)W);
    memset(s->came, 0, sizeof *s->came * (size_t)s->z->p->ngroups);
    size_t q = 0;
    for (int r = 0; r < W; r++) {
        s->asked[r] = (int32_t)q;
        while (q < s->o->n && s->o->question[q].r == r)
            q++;
        s->end[r] = (int32_t)q;
    }
    for (int r = 0; r < W; r++) {
        if (s->at[r] == 0 && !s->stands[r])
            s->todo[s->ntodo++] = r;
        while (s->ntodo > 0)
            go_on(s, s->todo[--s->ntodo]);
    }
    for (int r = 0; r < W; r++) /* what never starts in issue order has no answer */
        if (s->asked[r] < s->end[r] && (size_t)s->asked[r] < s->worst)
            s->worst = (size_t)s->asked[r];
}

/* ---- searches ---- */

struct search {
    struct check *z;
    int32_t **before;  /* per rank and instruction: the one before it in its lane, or -1 */
    uint32_t **met;    /* per rank and instruction: the search that came to its end */
    uint32_t searches; /* so far */
    struct place {
        int32_t r, i;
    } todo[NEAR]; /* ends to look behind */
    int n, steps;
};

static struct search *search_new(struct check *z) {
    int W = z->p->workers;
    struct search *s = NEW(struct search, 1);
    s->z = z;
    s->before = NEW(int32_t *, W);
    s->met = NEW(uint32_t *, W);
    for (int r = 0; r < W; r++) {
        const struct rank *k = &z->p->rank[r];
        int32_t *last = NEW(int32_t, k->nlanes);
        memset(last, -1, sizeof *last * (size_t)k->nlanes);
        s->before[r] = NEW(int32_t, k->nins);
        s->met[r] = NEW(uint32_t, k->nins);
        for (int32_t i = 0; i < k->nins; i++) {
            s->before[r][i] = last[k->ins[i].lane];
            last[k->ins[i].lane] = i;
        }
    }
    return s;
}

static void come_to_end(struct search *s, int r, int32_t i) {
    if (i < 0 || s->met[r][i] == s->searches || s->steps == NEAR)
        return;
    s->steps++;
    s->met[r][i] = s->searches;
    s->todo[s->n++] = (struct place){r, i};
}

static void come_to_start(struct search *s, int r, int32_t i) {
    const struct rank *k = &s->z->p->rank[r];
    come_to_end(s, r, s->before[r][i]);
    for (uint32_t w = k->ins[i].wait; w < k->ins[i].wait + k->ins[i].nwait && s->steps < NEAR; w++)
        come_to_end(s, r, k->wait[w]);
}

/* Whether E(j) is found behind S(i) within NEAR steps. */
static bool found_near(struct search *s, const struct question *q) {
    s->searches++;
    s->n = s->steps = 0;
    come_to_start(s, q->r, q->i);
    while (s->n > 0) {
        struct place at = s->todo[--s->n];
        const struct instr *x = &s->z->p->rank[at.r].ins[at.i];
        verify_work++;
        if (at.r == q->r && at.i == q->j)
            return true;
        come_to_start(s, at.r, at.i);
        if (is_group(x->op)) {
            const struct group *g = group_of(s->z, at.r, x);
            for (int m = 0; m < g->n && s->steps < NEAR; m++)
                come_to_start(s, g->rank[m], s->z->reductions[g - s->z->p->group][m][s->z->mate[at.r][at.i]]);
        } else if (is_recv(x->op))
            come_to_start(s, x->peer, s->z->mate[at.r][at.i]);
    }
    return false;
}

/* Leaves the questions that a search does not answer. */
static void search_near(struct orders *o) {
    size_t left = 0;
    o->search = o->search ? o->search : search_new(o->z);
    for (size_t q = 0; q < o->n; q++)
        if (!found_near(o->search, &o->question[q]))
            o->question[left++] = o->question[q];
    o->n = left;
}

/* Asks all lanes of the questions, in the order of these. */
static const struct question *sweep_all(struct orders *o) {
    struct sweep *s = o->sweep = o->sweep ? o->sweep : sweep_new(o);
    int lanes = s->base[o->z->p->workers], n = 0;
    int32_t *lane = NEW(int32_t, lanes);
    size_t *first = NEW(size_t, lanes); /* the first question about it */
    memset(s->place, -1, sizeof *s->place * (size_t)lanes);
    for (size_t q = 0; q < o->n; q++) {
        int32_t l = s->base[o->question[q].r] + o->z->p->rank[o->question[q].r].ins[o->question[q].j].lane;
        if (s->place[l] < 0) {
            first[n] = q;
            lane[n++] = l;
        }
        s->place[l] = 0;
    }
    s->worst = o->n;
    for (int done = 0; done < n && first[done] < s->worst; done += PLACES) {
        memset(s->place, -1, sizeof *s->place * (size_t)lanes);
        for (int p = 0; p < PLACES && done + p < n; p++)
            s->place[lane[done + p]] = p;
        sweep(s);
    }
    return s->worst < o->n ? &o->question[s->worst] : NULL;
}

bool orders_many(const struct orders *o) { return o->n > o->many; }

const struct question *orders_answer(struct orders *o) {
    const struct question *no = NULL;
    if (o->n > 0)
        search_near(o);
    if (o->n > 0)
        no = sweep_all(o);
    o->n = 0;
    return no;
}
