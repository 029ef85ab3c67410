/* Judges, plainly and exactly, whether a program is right on every allowed machine: judge.c, judge_order.c,
 * judge_names.c.
 *
 * The machine is the weakest that transports guarantee. Each lane of a rank runs its instructions in order. One starts
 * when the lane's previous one and all it waits for have ended; its accesses lie anywhere between its start and its
 * end, in pieces. Across ranks, a SEND starts before its RECV ends, and a member of a collective starts before the end
 * of all members that its data reach. Nothing else is guaranteed: a SEND may end before its RECV starts, or after it
 * ends. Messages of an edge match in the order of their lanes. Termination is judged with every SEND blocking until its
 * RECV has started, and every collective until all members have.
 *
 * Only copies touch host memory. A backward in parts runs one part after another, with no job of its rank in between.
 * If a part and a later one write the same bytes, these are garbage until the later one ends, and nothing else may
 * touch them. Parts have no layers here: each touches all of the pieces that it names. */
#ifndef PIANOLA_JUDGE_H
#define PIANOLA_JUDGE_H
#include "promise.h"

/* ---- judge_order.c: events, and their order ---- */

/* Events and their order. Instruction i of rank r has the number base[r] + i; it starts at event 2 * number and ends at
 * the next event. */
struct order {
    const struct program *p;
    int n;                /* number of instructions */
    int32_t *base, *rank; /* base: per rank, plus one entry; rank: per number */
    int32_t *meets;       /* per number: the next end of the same message or collective, in a ring; itself: none */
    int32_t *event;       /* the nevents events, in the order of play */
    int nevents;
    int words;
    uint64_t *before; /* [event][words]: the events that come before it in every run */
};
static inline int start_of(int number) { return 2 * number; }
static inline int end_of(int number) { return 2 * number + 1; }
static inline const struct instr *instr_of(const struct order *z, int number) {
    return &z->p->rank[z->rank[number]].ins[number - z->base[z->rank[number]]];
}

struct order order_of(const struct program *p); /* nothing is matched yet */
const char *check_form(const struct order *z);  /* reports what no text form can have, or NULL */
const char *match(struct order *z); /* matches messages and collectives; reports one without a match, or NULL */
/* Plays the program with every SEND blocking, each rank one instruction at a time or lane by lane, and records the
 * events. Reports what is stuck, or NULL. */
const char *play(struct order *z, bool serially);
/* Finds which events precede which in every run, from a complete play. */
void close_order(struct order *z);
static inline bool comes_before(const struct order *z, int a, int b) {
    return z->before[(size_t)b * (size_t)z->words + (size_t)(a / 64)] >> (a % 64) & 1;
}
const char *find_race(const struct order *z); /* reports two conflicting accesses without an order, or NULL */
const char *told(const struct order *z, int number, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* ---- judge_names.c ---- */

/* Reports a false statement of an instruction about itself, on which no run depends, or NULL. */
const char *false_name(const struct promise *want, const struct order *z, int number);
/* Reports a false statement about what parts contribute, or NULL. */
const char *range_error(const struct promise *want, const struct order *z);
/* Reports a wrong size in a program that is known only by its text, or NULL. */
const char *text_size_error(const struct promise *want, const struct order *z);

/* ---- unroll.c ---- */

/* Returns the program with its period written out `times` times, and waits instead of the marks. */
struct program *unroll(const struct program *p, int times);
/* Computes its promise from its text, with the rules of the original jobs that its jobs repeat. */
bool promise_of_unrolled(const struct promise *want, const struct program *unrolled, const struct program *p,
                         struct promise *out, const char **why);
const char *crosses_mark(const struct program *p); /* reports a wait or message across a mark, or NULL */

/* ---- judge.c ---- */

enum verdict {
    RIGHT,
    FORMAL,    /* right on every machine, but makes a false statement about itself */
    MALFORMED, /* has no text form, as an edge with two lanes or an operand twice; readers refuse it */
    WRONG,
};
struct judgement {
    enum verdict is;
    const char *why;
};
struct judgement judge(const struct promise *want, const struct program *p);
#endif
