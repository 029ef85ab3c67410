/* Decides which instructions must have ended before another starts, on every machine.
 *
 * The machine model, "start-end": S(x) and E(x) are the start and the end of instruction x. The accesses of x may
 * happen anywhere between the two, in pieces. These orders hold, and no others:
 * 1. E(w) before S(x) for the instruction w before x in its lane, and for each w that x waits for;
 * 2. S(x) before E(x);
 * 3. S(SEND) before E(RECV) of the same message;
 * 4. E(w) before S(x) on one rank if a mark of the period lies between w and x;
 * 5. S(m) before E(n) for members m and n of a collective if data flows from m to n: from the root of a BROADCAST to
 *    the others, from the others to the root of a REDUCE, else between all pairs.
 * A SEND may or may not end before its RECV starts, as with eager messages. A collective may touch a member's buffer as
 * soon as that member has started.
 *
 * The claim: if instructions j and i of a rank, in this issue order, access the same byte and one of them writes it,
 * then E(j) precedes S(i) by a chain of these orders.
 *
 * Sufficient: the serial walk (verify.c) satisfies all orders, so they have no cycle. Take any run of any such machine.
 * Consider the first access in it that finds a value other than in the walk, or that runs concurrently with a
 * conflicting one. All accesses that conflict with it, including the writes of what it reads, lie wholly before or
 * wholly after it. They do so as in the walk, since the chains hold in both. The accesses before it found what they
 * found in the walk. A RECV or a member of a collective writes what its SEND or the members whose data reach it read,
 * and they read earlier. So there is no such first access: every buffer holds what it held in the walk.
 *
 * Necessary: suppose no chain leads from E(j) to S(i). Run everything that S(i) needs first. This is a run of a machine
 * that keeps no other orders, and in it i has started while j has not ended.
 *
 * Both ends of a message, and all members of a collective, lie in one section of the period. So no chain comes back
 * from a later section to an earlier one, and between two instructions of one section none uses rule 4. So only the
 * clocks within a rank need to take the marks into account.
 *
 * Chains within a rank are kept as vector clocks, one per lane: how far each other lane of the rank must have come.
 * These clocks settle every question about our compiler's programs. A question remains open only if the chain between
 * two accesses runs through other ranks. Such questions are collected and answered together. A backward search of at
 * most NEAR steps finds the short detours, which are typical of bytes that are soon reused. The rest is left to sweeps
 * over all ranks, each for up to PLACES lanes. A sweep propagates how far those lanes must have come along lanes, waits
 * and messages. So the work is linear in the questions, and in the instructions times the number of lanes that the
 * search leaves open. */
#include "check_orders.h"
#include <string.h>

enum { PLACES = 16, NEAR = 256 }; /* lanes in one sweep; steps of a search */

struct orders {
    struct check *check;
    int r;
    const struct rank *k;
    int32_t *clock;   /* [lane][lane] of the current rank: the second lane's progress when the first's last instruction
                         ended */
    int32_t *shot;    /* per awaited instruction: its lane's clock when it ended */
    int32_t *awaited; /* per instruction: 1 + its index in shot; 0: no instruction waits for it */
    size_t shot_cap;
    struct question *question; /* sorted by rank and issue order */
    size_t n, cap, many;
    struct search *search; /* allocated on first use */
    struct sweep *sweep;
};

struct orders *orders_begin(struct check *check) {
    struct orders *orders = NEW(struct orders, 1);
    int64_t lanes = 0, most = 0;
    orders->check = check;
    for (int r = 0; r < check->p->workers; r++) {
        const struct rank *k = &check->p->rank[r];
        lanes = k->nlanes > lanes ? k->nlanes : lanes;
        most = k->nins > most ? k->nins : most;
        orders->many += (size_t)k->nins;
    }
    orders->clock = NEW(int32_t, lanes * lanes + 1);
    orders->awaited = NEW(int32_t, most + 1);
    return orders;
}

/* ---- within a rank ---- */

/* Numbers the instructions that others wait for; returns their count. */
static int32_t number_awaited(const struct rank *k, int32_t *awaited) {
    int32_t n = 0;
    memset(awaited, 0, sizeof *awaited * (size_t)k->nins);
    for (size_t w = 0; w < k->nwaits; w++)
        if (!awaited[k->wait[w]])
            awaited[k->wait[w]] = ++n;
    return n;
}

void orders_rank(struct orders *orders, int r) {
    orders->r = r;
    orders->k = &orders->check->p->rank[r];
    size_t L = (size_t)orders->k->nlanes;
    GROW(orders->shot, orders->shot_cap, (size_t)number_awaited(orders->k, orders->awaited) * L + 1);
    memset(orders->clock, -1, sizeof *orders->clock * L * L);
}

void orders_start(struct orders *orders, int32_t i) {
    const struct instr *x = &orders->k->ins[i];
    int L = orders->k->nlanes;
    int32_t *clock = orders->clock + (int64_t)x->lane * L;
    if (orders->check->p->period && (i == orders->k->period.begin || i == orders->k->period.end))
        for (int n = 0; n < L * L; n++) /* a mark: everything before it has ended, in all lanes */
            orders->clock[n] = i - 1;
    for (uint32_t w = x->wait; w < x->wait + x->nwait; w++) {
        if (orders->k->wait[w] >= i)
            continue; /* its clock is not known yet; the deadlock claims refute such waits */
        const int32_t *then = orders->shot + (int64_t)(orders->awaited[orders->k->wait[w]] - 1) * L;
        for (int l = 0; l < L; l++)
            clock[l] = then[l] > clock[l] ? then[l] : clock[l];
    }
    clock[x->lane] = i; /* everything before i in its own lane has ended */
}

void orders_end(struct orders *orders, int32_t i) {
    int L = orders->k->nlanes;
    if (orders->awaited[i])
        memcpy(orders->shot + (int64_t)(orders->awaited[i] - 1) * L,
               orders->clock + (int64_t)orders->k->ins[i].lane * L, sizeof *orders->clock * (size_t)L);
}

bool ordered_here(const struct orders *orders, int32_t i, int32_t j) {
    return orders->clock[(int64_t)orders->k->ins[i].lane * orders->k->nlanes + orders->k->ins[j].lane] >= j;
}

/* ---- through other ranks ---- */

void orders_ask(struct orders *orders, struct question question) {
    GROW(orders->question, orders->cap, orders->n + 1);
    orders->question[orders->n++] = question;
}

struct clock {
    int32_t at[PLACES]; /* per lane asked about: its latest instruction that must have ended; -1: none */
};

struct sweep {
    struct check *check;
    const struct orders *o;
    int32_t *base;      /* per rank: its first lane's number */
    int32_t *place;     /* per lane of all ranks: its index in this sweep's clocks, or -1 */
    struct clock *lane; /* per lane of all ranks: clock after its last instruction */
    int32_t **slot;     /* per rank and instruction: the index of its clock in kept, or 0 */
    struct clock *kept; /* clocks at the ends of instructions */
    size_t nkept;
    struct clock *met;    /* per collective: join of the clocks of the members that others wait for, at their starts */
    int32_t *at, *todo;   /* per rank: the next instruction; ranks that may proceed */
    int32_t *asked, *end; /* per rank: its next question; the end of its questions */
    int32_t *came;        /* per collective: number of these members that have started */
    bool *stands;         /* per rank: whether its next instruction has started and waits for other ranks */
    int ntodo;
    size_t worst; /* the first question whose answer is no, else the number of questions */
};

static void join_clock(struct clock *clock, const struct clock *from) {
    for (int p = 0; p < PLACES; p++)
        clock->at[p] = from->at[p] > clock->at[p] ? from->at[p] : clock->at[p];
}

/* Records that instruction i has ended. */
static void learn_of(const struct sweep *sweep, struct clock *clock, int r, int32_t i) {
    int place = sweep->place[sweep->base[r] + sweep->check->p->rank[r].ins[i].lane];
    if (place >= 0 && clock->at[place] < i)
        clock->at[place] = i;
}

/* Numbers the instructions whose clocks others will need. */
static void number_kept(struct sweep *sweep) {
    const struct program *p = sweep->check->p;
    sweep->slot = NEW(int32_t *, p->workers);
    sweep->nkept = 1;
    for (int r = 0; r < p->workers; r++) {
        const struct rank *k = &p->rank[r];
        sweep->slot[r] = NEW(int32_t, k->nins);
        for (size_t w = 0; w < k->nwaits; w++)
            sweep->slot[r][k->wait[w]] = 1;
        for (int32_t i = 0; i < k->nins; i++)
            if (sweep->slot[r][i] || is_send(k->ins[i].op))
                sweep->slot[r][i] = (int32_t)sweep->nkept++;
    }
    sweep->kept = NEW(struct clock, sweep->nkept);
}

static struct sweep *sweep_new(struct orders *orders) {
    const struct program *p = orders->check->p;
    int W = p->workers, lanes = 0;
    struct sweep *sweep = NEW(struct sweep, 1);
    sweep->check = orders->check;
    sweep->o = orders;
    sweep->base = NEW(int32_t, W + 1);
    for (int r = 0; r < W; r++)
        sweep->base[r + 1] = lanes += p->rank[r].nlanes;
    sweep->place = NEW(int32_t, lanes);
    sweep->lane = NEW(struct clock, lanes);
    sweep->at = NEW(int32_t, W);
    sweep->todo = NEW(int32_t, W);
    sweep->asked = NEW(int32_t, W);
    sweep->end = NEW(int32_t, W);
    sweep->came = NEW(int32_t, orders->check->ncollectives);
    sweep->met = NEW(struct clock, orders->check->ncollectives);
    sweep->stands = NEW(bool, W);
    number_kept(sweep);
    return sweep;
}

static void start_instr(struct sweep *sweep, int r, int32_t i, struct clock *clock) {
    const struct rank *k = &sweep->check->p->rank[r];
    const struct instr *x = &k->ins[i];
    verify_work++;
    for (uint32_t w = x->wait; w < x->wait + x->nwait; w++)
        if (k->wait[w] < i) {
            join_clock(clock, &sweep->kept[sweep->slot[r][k->wait[w]]]);
            learn_of(sweep, clock, r, k->wait[w]);
        }
    for (; sweep->asked[r] < sweep->end[r] && sweep->o->question[sweep->asked[r]].i == i; sweep->asked[r]++) {
        int32_t j = sweep->o->question[sweep->asked[r]].j, place = sweep->place[sweep->base[r] + k->ins[j].lane];
        if (place >= 0 && clock->at[place] < j && (size_t)sweep->asked[r] < sweep->worst)
            sweep->worst = (size_t)sweep->asked[r];
    }
}

/* Ends instruction i, whose clock is final; the rank's next one may start. */
static void finish_instr(struct sweep *sweep, int r, int32_t i, struct clock *clock) {
    if (sweep->slot[r][i])
        sweep->kept[sweep->slot[r][i]] = *clock;
    learn_of(sweep, clock, r, i);
    sweep->stands[r] = false;
    sweep->at[r]++;
}

/* Starts a member of a collective, and ends it if all members whose data reach it have started; else returns false. The
 * last of those requeues the ranks that wait. */
static bool meet_collective(struct sweep *sweep, int r, int32_t i, struct clock *clock) {
    const struct check *check = sweep->check;
    const struct series *series = series_of(check, r, &check->p->rank[r].ins[i]);
    int32_t nth = check->mate[r][i], meeting = series->first + nth;
    int n = series->g->n, op = check->p->rank[r].ins[i].op;
    bool root = check->p->rank[r].ins[i].peer == r;
    bool gives = op == OP_BROADCAST ? root : op == OP_REDUCE ? !root : true;
    bool takes = op == OP_BROADCAST ? !root : op == OP_REDUCE ? root : true;
    int givers = op == OP_BROADCAST ? 1 : op == OP_REDUCE ? n - 1 : n;
    if (gives && !sweep->stands[r]) {
        join_clock(&sweep->met[meeting], clock);
        if (++sweep->came[meeting] == givers)
            for (int m = 0; m < n; m++) {
                int q = series->g->rank[m];
                if (q != r && sweep->stands[q] && sweep->at[q] == series->ins[m][nth])
                    sweep->todo[sweep->ntodo++] = q;
            }
    }
    sweep->stands[r] = true;
    if (takes && sweep->came[meeting] < givers)
        return false;
    if (takes)
        join_clock(clock, &sweep->met[meeting]);
    finish_instr(sweep, r, i, clock);
    return true;
}

/* Advances a rank, one instruction at a time, until it must wait for another rank. */
static void advance_rank(struct sweep *sweep, int r) {
    const struct rank *k = &sweep->check->p->rank[r];
    while (sweep->at[r] < k->nins) {
        int32_t i = sweep->at[r];
        const struct instr *x = &k->ins[i];
        struct clock *clock = &sweep->lane[sweep->base[r] + x->lane];
        bool sends = is_send(x->op);
        if (!sweep->stands[r])
            start_instr(sweep, r, i, clock);
        if (is_group(x->op)) {
            if (!meet_collective(sweep, r, i, clock)) /* the last to start will requeue this rank */
                return;
            continue;
        }
        if (is_recv(x->op)) {
            sweep->stands[r] = true;
            if (sweep->at[x->peer] <= sweep->check->mate[r][i]) /* its SEND will requeue this rank */
                return;
            join_clock(clock, &sweep->kept[sweep->slot[x->peer][sweep->check->mate[r][i]]]);
        }
        finish_instr(sweep, r, i, clock);
        if (sends && sweep->stands[x->peer] && sweep->at[x->peer] == sweep->check->mate[r][i])
            sweep->todo[sweep->ntodo++] = x->peer;
    }
}

/* Runs one sweep: answers the questions about the lanes that have a place. */
static void sweep(struct sweep *s) {
    int W = s->check->p->workers;
    memset(s->lane, -1, sizeof *s->lane * (size_t)s->base[W]);
    memset(s->kept, -1, sizeof *s->kept * s->nkept);
    memset(s->at, 0, sizeof *s->at * (size_t)W);
    memset(s->stands, 0, sizeof *s->stands * (size_t)W);
    memset(s->came, 0, sizeof *s->came * (size_t)s->check->ncollectives);
    memset(s->met, -1, sizeof *s->met * (size_t)s->check->ncollectives);
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
            advance_rank(s, s->todo[--s->ntodo]);
    }
    for (int r = 0; r < W; r++) /* instructions that never start leave their questions unanswered */
        if (s->asked[r] < s->end[r] && (size_t)s->asked[r] < s->worst)
            s->worst = (size_t)s->asked[r];
}

/* ---- searches ---- */

struct search {
    struct check *check;
    int32_t **before;  /* per rank and instruction: the one before it in its lane, or -1 */
    uint32_t **met;    /* per rank and instruction: the last search that reached its end */
    uint32_t searches; /* number of searches so far */
    struct place {
        int32_t r, i;
    } todo[NEAR]; /* instruction ends whose predecessors are to be visited */
    int n, steps;
};

static struct search *search_new(struct check *check) {
    int W = check->p->workers;
    struct search *search = NEW(struct search, 1);
    search->check = check;
    search->before = NEW(int32_t *, W);
    search->met = NEW(uint32_t *, W);
    for (int r = 0; r < W; r++) {
        const struct rank *k = &check->p->rank[r];
        int32_t *last = NEW(int32_t, k->nlanes);
        memset(last, -1, sizeof *last * (size_t)k->nlanes);
        search->before[r] = NEW(int32_t, k->nins);
        search->met[r] = NEW(uint32_t, k->nins);
        for (int32_t i = 0; i < k->nins; i++) {
            search->before[r][i] = last[k->ins[i].lane];
            last[k->ins[i].lane] = i;
        }
    }
    return search;
}

static void come_to_end(struct search *search, int r, int32_t i) {
    if (i < 0 || search->met[r][i] == search->searches || search->steps == NEAR)
        return;
    search->steps++;
    search->met[r][i] = search->searches;
    search->todo[search->n++] = (struct place){r, i};
}

static void come_to_start(struct search *search, int r, int32_t i) {
    const struct rank *k = &search->check->p->rank[r];
    come_to_end(search, r, search->before[r][i]);
    for (uint32_t w = k->ins[i].wait; w < k->ins[i].wait + k->ins[i].nwait && search->steps < NEAR; w++)
        come_to_end(search, r, k->wait[w]);
}

/* Returns whether searching backwards from S(i) finds E(j) within NEAR steps. */
static bool found_near(struct search *search, const struct question *question) {
    search->searches++;
    search->n = search->steps = 0;
    come_to_start(search, question->r, question->i);
    while (search->n > 0) {
        struct place at = search->todo[--search->n];
        const struct instr *x = &search->check->p->rank[at.r].ins[at.i];
        verify_work++;
        if (at.r == question->r && at.i == question->j)
            return true;
        come_to_start(search, at.r, at.i);
        if (is_group(x->op)) {
            const struct series *series = series_of(search->check, at.r, x);
            for (int m = 0; m < series->g->n && search->steps < NEAR; m++) {
                int q = series->g->rank[m];
                bool reaches = x->op == OP_BROADCAST ? q == x->peer : x->op == OP_REDUCE ? at.r == x->peer : true;
                if (reaches)
                    come_to_start(search, q, series->ins[m][search->check->mate[at.r][at.i]]);
            }
        } else if (is_recv(x->op))
            come_to_start(search, x->peer, search->check->mate[at.r][at.i]);
    }
    return false;
}

/* Drops the questions that a search answers. */
static void search_near(struct orders *orders) {
    size_t left = 0;
    orders->search = orders->search ? orders->search : search_new(orders->check);
    for (size_t q = 0; q < orders->n; q++)
        if (!found_near(orders->search, &orders->question[q]))
            orders->question[left++] = orders->question[q];
    orders->n = left;
}

/* Sweeps over all lanes asked about, in the order of the questions. */
static const struct question *sweep_all(struct orders *orders) {
    struct sweep *s = orders->sweep = orders->sweep ? orders->sweep : sweep_new(orders);
    int lanes = s->base[orders->check->p->workers], n = 0;
    int32_t *lane = NEW(int32_t, lanes);
    size_t *first = NEW(size_t, lanes); /* per lane: the first question about it */
    memset(s->place, -1, sizeof *s->place * (size_t)lanes);
    for (size_t q = 0; q < orders->n; q++) {
        int32_t l = s->base[orders->question[q].r] +
                    orders->check->p->rank[orders->question[q].r].ins[orders->question[q].j].lane;
        if (s->place[l] < 0) {
            first[n] = q;
            lane[n++] = l;
        }
        s->place[l] = 0;
    }
    s->worst = orders->n;
    for (int done = 0; done < n && first[done] < s->worst; done += PLACES) {
        memset(s->place, -1, sizeof *s->place * (size_t)lanes);
        for (int p = 0; p < PLACES && done + p < n; p++)
            s->place[lane[done + p]] = p;
        sweep(s);
    }
    return s->worst < orders->n ? &orders->question[s->worst] : NULL;
}

bool orders_many(const struct orders *orders) { return orders->n > orders->many; }

const struct question *orders_answer(struct orders *orders) {
    const struct question *no = NULL;
    if (orders->n > 0)
        search_near(orders);
    if (orders->n > 0)
        no = sweep_all(orders);
    orders->n = 0;
    return no;
}
