/* Judges, plainly and exactly, whether a program is right on every machine allowed here: judge.c, judge_order.c,
 * judge_names.c.
 *
 * The machine is the weakest that transports guarantee. Each lane of a rank runs its instructions in order. One starts
 * when the lane's previous one and all it waits for have ended; its accesses lie anywhere between its start and its
 * end, in pieces. Across ranks, a SEND starts before its RECV ends, and a member of a collective starts before the end
 * of all that its data reach. Nothing else is guaranteed: a SEND may end before its RECV starts, or after it ends.
 * Messages of an edge are matched in the order of their lanes. Termination is judged with every SEND blocking until its
 * RECV has started, and every collective until all members have.
 *
 * Only copies touch host memory. A backward in parts runs part after part, with no job of its rank between; what a part
 * writes that a later one writes too, is garbage until that has ended, and must not have been touched meanwhile. Parts
 * have no layers here: each touches all of the pieces that it names. */
#ifndef PIANOLA_JUDGE_H
#define PIANOLA_JUDGE_H
#include "promise.h"

/* ---- judge_order.c: events, and their order ---- */

/* Instruction i of rank r has the number base[r] + i; its start is event 2 * number, its end the next event. */
struct order {
    const struct program *p;
    int n;                /* instructions */
    int32_t *base, *rank; /* per rank, and one more; per number */
    int32_t *meets;       /* per number: the next one of the same message or collective, in a ring; itself: none */
    int32_t *event;       /* in the order in which they were played, nevents of them */
    int nevents;
    int words;
    uint64_t *before; /* [event][words]: the events that come before it in every run */
};
static inline int start_of(int number) { return 2 * number; }
static inline int end_of(int number) { return 2 * number + 1; }
static inline const struct instr *instr_of(const struct order *z, int number) {
    return &z->p->rank[z->rank[number]].ins[number - z->base[z->rank[number]]];
}

struct order order_of(const struct program *p); /* with nothing matched yet */
const char *check_form(const struct order *z);  /* what no text form can have, or NULL */
const char *match(struct order *z);             /* matches messages and collectives; what has no match, or NULL */
/* Plays it with every SEND blocking, each rank one instruction at a time or lane by lane, and records the events.
 * Returns what is stuck, or NULL. */
const char *play(struct order *z, bool serially);
/* From a complete play: which events come before which. */
void close_order(struct order *z);
static inline bool comes_before(const struct order *z, int a, int b) {
    return z->before[(size_t)b * (size_t)z->words + (size_t)(a / 64)] >> (a % 64) & 1;
}
const char *find_race(const struct order *z); /* two conflicting accesses without an order, or NULL */
const char *told(const struct order *z, int number, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* ---- judge_names.c ---- */

/* What an instruction says of itself that is false, though no run depends on it; or NULL. */
const char *false_name(const struct promise *want, const struct order *z, int number);
/* What is wrong with what the program says that parts contribute, or NULL. */
const char *range_error(const struct promise *want, const struct order *z);
/* What is wrong with sizes in a program that is known by its text alone, or NULL. */
const char *text_size_error(const struct promise *want, const struct order *z);

/* ---- unroll.c ---- */

/* The program with its period written out so many times, and waits in place of the marks. */
struct program *unroll(const struct program *p, int times);
/* What it promises: its text's promise, by the rules that the promise of p has for the jobs of which its jobs are
 * repetitions. */
bool promise_of_unrolled(const struct promise *want, const struct program *unrolled, const struct program *p,
                         struct promise *out, const char **why);
const char *crosses_mark(const struct program *p); /* a wait, or a message, or NULL */

/* ---- judge.c ---- */

enum verdict {
    RIGHT,
    FORMAL,    /* right on every machine, but with a false statement about itself */
    MALFORMED, /* it has no text form: an edge with two lanes, an operand twice. Readers refuse it */
    WRONG,
};
struct judgement {
    enum verdict is;
    const char *why;
};
struct judgement judge(const struct promise *want, const struct program *p);
#endif
