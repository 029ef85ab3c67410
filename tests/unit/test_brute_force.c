/* The verdicts of the verifier and of the judge (judge.h) against an exhaustive search of all interleavings, for
 * programs of at most 2 ranks, 2 stages and 2 microbatches whose waits, orders and lanes have been changed.
 *
 * A state is the progress of every lane; each instruction starts and ends by itself. A RECV ends once its SEND has
 * started, an ALL_REDUCE once both have. A SEND ends at any time or, if all SENDs block, once its RECV has started. The
 * search visits every reachable state. A deadlock is a state in which something is left, but nothing can start or end,
 * with all SENDs blocking. Two accesses race, with no SEND blocking, if both run in some state, or if either precedes
 * the other in some run. */
#include "judge.h"
#include "mutate.h"
#include "random.h"
#include "random_spec.h"
#include <criterion/criterion.h>
#include <stdlib.h>

#ifdef __SANITIZE_ADDRESS__
enum { PROGRAMS = 4000 };
#else
enum { PROGRAMS = 30000 };
#endif
enum { LANES = 8, MOST_INSTRUCTIONS = 64, TABLE = 1 << 22, MOST_STATES = TABLE / 4 };

struct search {
    const struct program *p;
    bool serial, eager; /* eager: no SEND blocks */
    int nlanes;
    int rank[LANES], n[LANES];              /* per lane: its rank, its instructions */
    int32_t ins[LANES][MOST_INSTRUCTIONS];  /* in their lane's order */
    int32_t met_lane[2][MOST_INSTRUCTIONS]; /* per rank and instruction: lane of its counterpart, or -1 */
    int met_at[2][MOST_INSTRUCTIONS];
    int lane_of[2][MOST_INSTRUCTIONS]; /* per rank and instruction: its lane */
    int at[2][MOST_INSTRUCTIONS];
    bool conflict[2][MOST_INSTRUCTIONS][MOST_INSTRUCTIONS];
    bool before[2][MOST_INSTRUCTIONS][MOST_INSTRUCTIONS]; /* x ended before y started in some run */
    bool deadlock, at_once;
};

/* A state has a byte per lane: twice the number of ended instructions, plus one while the next runs. */
typedef uint64_t state;
static int progress(state s, int l) { return (int)(s >> 8 * l & 255); }
static state advanced(state s, int l) { return s + ((state)1 << 8 * l); }

static state table[TABLE];         /* states seen, plus one; 0: empty */
static uint32_t slot[MOST_STATES]; /* their places in the table, in the order of discovery */
static int nstates;

static bool has_ended(const struct search *z, state s, int r, int32_t i) {
    return progress(s, z->lane_of[r][i]) / 2 > z->at[r][i];
}

/* Returns lane l's next instruction if it could start on its own, or -1 if it runs, waits, or none is left. */
static int32_t next_ready(const struct search *z, state s, int l) {
    int at = progress(s, l), r = z->rank[l];
    if (at & 1 || at / 2 == z->n[l])
        return -1;
    int32_t i = z->ins[l][at / 2];
    const struct rank *k = &z->p->rank[r];
    for (uint32_t w = k->ins[i].wait; w < k->ins[i].wait + k->ins[i].nwait; w++)
        if (!has_ended(z, s, r, k->wait[w]))
            return -1;
    for (int32_t j = 0; z->serial && j < i; j++)
        if (!has_ended(z, s, r, j))
            return -1;
    return i;
}

/* Notes, when y starts, which conflicting instructions have ended or are running. */
static void note_start(struct search *z, state s, int r, int32_t y) {
    for (int32_t x = 0; x < z->p->rank[r].nins; x++)
        if (z->conflict[r][x][y]) {
            int l = z->lane_of[r][x];
            z->before[r][x][y] |= has_ended(z, s, r, x);
            z->at_once |= progress(s, l) == 2 * z->at[r][x] + 1;
        }
}

/* Returns whether lane l's running instruction may end: its counterpart has started if it must. */
static bool may_end(const struct search *z, state s, int l) {
    int r = z->rank[l];
    int32_t i = z->ins[l][progress(s, l) / 2];
    int other = z->met_lane[r][i];
    if (other < 0 || (z->eager && op_lane[z->p->rank[r].ins[i].op] == LANE_SEND))
        return true;
    return progress(s, other) > 2 * z->met_at[r][i];
}

static void reach(state s) {
    uint32_t h = (uint32_t)(s * 0x9E3779B97F4A7C15u >> 32) & (TABLE - 1);
    while (table[h] && table[h] != s + 1)
        h = (h + 1) & (TABLE - 1);
    if (table[h])
        return;
    cr_assert_lt(nstates, MOST_STATES);
    table[h] = s + 1;
    slot[nstates++] = h;
}

static void explore(struct search *z) {
    for (; nstates > 0; nstates--)
        table[slot[nstates - 1]] = 0;
    reach(0);
    for (int next = 0; next < nstates; next++) {
        state s = table[slot[next]] - 1;
        bool moves = false, left = false;
        for (int l = 0; l < z->nlanes; l++) {
            left |= progress(s, l) < 2 * z->n[l];
            int32_t i = progress(s, l) & 1 ? -1 : next_ready(z, s, l);
            if (progress(s, l) & 1 ? !may_end(z, s, l) : i < 0)
                continue;
            moves = true;
            if (i >= 0)
                note_start(z, s, z->rank[l], i);
            reach(advanced(s, l));
        }
        z->deadlock |= left && !moves;
    }
}

static bool touches(const struct rank *k, const struct instr *x, const struct instr *y) {
    for (uint32_t a = x->arg; a < x->arg + x->narg; a++)
        for (uint32_t b = y->arg; b < y->arg + y->narg; b++) {
            const struct buf *p = &k->buf[k->arg[a].buf], *q = &k->buf[k->arg[b].buf];
            bool writes = (op_access(x->op, k->arg[a].role) | op_access(y->op, k->arg[b].role)) & ACC_WRITE;
            bool same = p == q && !p->bytes;
            if (writes && (same || (p->off < q->off + q->bytes && q->off < p->off + p->bytes)))
                return true;
        }
    return false;
}

static void begin_search(struct search *z, const struct program *p) {
    *z = (struct search){.p = p};
    int first[2] = {0};
    for (int r = 0; r < p->workers; r++) {
        const struct rank *k = &p->rank[r];
        cr_assert(k->nins <= MOST_INSTRUCTIONS && z->nlanes + k->nlanes <= LANES);
        first[r] = z->nlanes;
        z->nlanes += k->nlanes;
        for (int i = 0; i < k->nins; i++) {
            int l = first[r] + k->ins[i].lane;
            z->rank[l] = r;
            z->lane_of[r][i] = l;
            z->at[r][i] = z->n[l];
            z->ins[l][z->n[l]++] = i;
            for (int j = 0; j < k->nins; j++)
                z->conflict[r][i][j] = i != j && touches(k, &k->ins[i], &k->ins[j]);
        }
    }
}

static bool found_race(const struct search *z) {
    bool race = z->at_once;
    for (int r = 0; r < z->p->workers; r++)
        for (int x = 0; x < z->p->rank[r].nins; x++)
            for (int y = 0; y < x; y++)
                race |= z->before[r][x][y] && z->before[r][y][x];
    return race;
}

/* Returns the n-th message of rank r that goes out, comes in, or is a sum, or -1. With two ranks, each has one edge and
 * one group. */
static int32_t nth_message(const struct rank *k, int lane_kind, int n) {
    for (int32_t i = 0; i < k->nins; i++)
        if (is_message(k->ins[i].op) && op_lane[k->ins[i].op] == lane_kind && n-- == 0)
            return i;
    return -1;
}

static void meet(struct search *z, int r, int32_t i, int32_t j) {
    z->met_lane[r][i] = z->lane_of[1 - r][j];
    z->met_at[r][i] = z->at[1 - r][j];
}

/* Matches all messages. Returns false if one has no counterpart, or the ends differ in name; then the program is
 * refuted in any case. */
static bool ends_agree(struct search *z) {
    static const uint8_t opposite[] = {[LANE_SEND] = LANE_RECV, [LANE_RECV] = LANE_SEND, [LANE_GROUP] = LANE_GROUP};
    memset(z->met_lane, -1, sizeof z->met_lane);
    for (int kind = LANE_SEND; kind <= LANE_GROUP; kind++)
        for (int n = 0; z->p->workers == 2 && opposite[kind]; n++) {
            int32_t i = nth_message(&z->p->rank[0], kind, n), j = nth_message(&z->p->rank[1], opposite[kind], n);
            if (i < 0 && j < 0)
                break;
            if (i < 0 || j < 0)
                return false;
            const struct instr *x = &z->p->rank[0].ins[i], *y = &z->p->rank[1].ins[j];
            if (x->stage != y->stage || x->batch != y->batch || x->inst != y->inst || abs(x->op - y->op) > 1)
                return false;
            meet(z, 0, i, j);
            meet(z, 1, j, i);
        }
    return true;
}

static struct program *small_program(uint64_t seed, struct spec **spec, struct graph **graph) {
    random_state = seed;
    struct spec *sp = *spec = empty_spec(2 - (seed % 8 == 0), 1 + below(2), 1 + below(2));
    draw_jobs(sp, 0);
    sp->choices.lanes = (enum lanes_per)below(3);
    for (int r = 0; r < sp->workers; r++)
        sp->choices.slots[r] = below(3);
    costs_of(sp)->unembedding = sp->stages - 1;
    name_sets(&sp->names, sp->stages, seed % 4 == 3, false);
    struct costs *costs = below(2) ? unit_stages(sp) : draw_stages(sp);
    *graph = graph_of(sp);
    struct program *p = lower_of(sp, costs, *graph, sched_of(sp, costs, *graph));
    mem_of(sp, p);
    lanes_sync(p);
    return p;
}

enum { STRUCTURE, SERIAL, BY_LANE, RACES, NVERDICTS };
static const char *const verdict[] = {"ends disagree", "serial deadlock", "deadlock of lanes", "race"};
static int refuted[NVERDICTS], asked[NVERDICTS], mistaken[NVERDICTS];

static void expect(int what, bool found, const struct refutation *no, const struct program *p, uint64_t seed,
                   const char *edits) {
    asked[what]++;
    refuted[what] += found;
    if (found == (no != NULL) || mistaken[what]++ >= 3)
        return;
    struct text t = {0};
    emit_text(&t, p);
    fprintf(stderr, "seed %llu:%s: the search finds %s%s, the verifier says: %s\n%s", (unsigned long long)seed, edits,
            found ? "a " : "no ", verdict[what], no ? no->why : "proved", t.s);
}

static void expect_judged(int what, bool found, const char *why, const struct program *p, uint64_t seed,
                          const char *edits) {
    struct text t = {0};
    if (found != (why != NULL))
        emit_text(&t, p);
    cr_assert(found == (why != NULL), "seed %llu:%s: the search finds %s%s, the judge says: %s\n%s",
              (unsigned long long)seed, edits, found ? "a " : "no ", verdict[what], why ? why : "none", t.s);
}

static void check_program(const struct spec *sp, const struct graph *g, const struct program *p, uint64_t seed,
                          const char *edits) {
    static struct search z, serial, lanes;
    begin_search(&z, p);
    bool agree = ends_agree(&z);
    expect(STRUCTURE, !agree, agree ? NULL : verify(costs_of(sp), g, p, CLAIM_LANES), p, seed, edits);
    if (!agree)
        return;
    struct order o = order_of(p);
    cr_assert(!match(&o));
    serial = lanes = z;
    serial.serial = true;
    explore(&serial);
    expect(SERIAL, serial.deadlock, verify(costs_of(sp), g, p, CLAIM_SERIAL), p, seed, edits);
    expect_judged(SERIAL, serial.deadlock, play(&o, true), p, seed, edits);
    explore(&lanes);
    expect(BY_LANE, lanes.deadlock, verify(costs_of(sp), g, p, CLAIM_LANES), p, seed, edits);
    const char *stuck = play(&o, false);
    expect_judged(BY_LANE, lanes.deadlock, stuck, p, seed, edits);
    if (stuck)
        return;
    close_order(&o);
    z.eager = true;
    explore(&z);
    expect_judged(RACES, found_race(&z), find_race(&o), p, seed, edits);
    /* The verifier looks for races along the serial order. Without one it may report too many, never too few. */
    if (!serial.deadlock || found_race(&z))
        expect(RACES, found_race(&z), verify(costs_of(sp), g, p, CLAIM_RACES), p, seed, edits);
}

/* Checks a program and a few changes of its waits and orders. */
static void check_changed(uint64_t seed) {
    static const uint8_t changes[] = {MUT_DROP_WAIT, MUT_DROP_RECORD, MUT_ADD_WAIT,  MUT_OTHER_WAIT,
                                      MUT_SEND_WAIT, MUT_SWAP_ISSUE,  MUT_SWAP_LANE, MUT_MOVE};
    struct spec *sp;
    struct graph *g;
    struct program *p = small_program(seed / 8, &sp, &g);
    struct text edits = {0};
    put(&edits, " ");
    uint64_t random = seed;
    for (int n = random_below(&random, 4); n > 0; n--) {
        struct program *q = copy_program(p);
        const char *did = mutate(q, changes[random_below(&random, sizeof changes)], &random);
        if (did)
            put(&edits, "%s; ", did);
        p = did ? q : p;
    }
    check_program(sp, g, p, seed, edits.s);
    free_all();
}

Test(brute_force, verdicts_equal_an_exhaustive_search) {
    for (uint64_t seed = 0; seed < PROGRAMS; seed++)
        check_changed(seed);
    for (int i = 0; i < NVERDICTS; i++) {
        fprintf(stderr, "%s: %d of %d programs\n", verdict[i], refuted[i], asked[i]);
        cr_expect(mistaken[i] == 0, "%s: the verifier is mistaken about %d programs", verdict[i], mistaken[i]);
        cr_expect(refuted[i] >= PROGRAMS / 50 && asked[i] - refuted[i] >= PROGRAMS / 10, "%s: too one-sided",
                  verdict[i]);
    }
}
