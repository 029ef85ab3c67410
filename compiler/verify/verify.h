/* Proves that a program does what its job graph says. */
#ifndef PIANOLA_VERIFY_H
#define PIANOLA_VERIFY_H
#include "ir/graph.h"
#include "ir/program.h"

/* verify.c: needs only the job graph and the streams. verify() returns NULL when all requested claims hold, else the
 * first that does not, with a counterexample. Shares no code with lower, mem and lanes. X(name, word, statement) */
#define CLAIMS(X)                                                                                                      \
    X(JOBS, "jobs", "every job runs exactly once, on its rank, on the right tensors and weights")                      \
    X(GRADIENTS, "gradients",                                                                                          \
      "every update adds the sum over all of its microbatches, each exactly once, with one order for weights that a "  \
      "team's members hold whole; every home ends with all updates")                                                   \
    X(RACES, "races", "any two accesses to a byte are ordered if one of them writes")                                  \
    X(MEMORY, "memory",                                                                                                \
      "nothing is read before it is written or after it is freed; live buffers never overlap; "                        \
      "peak <= plan <= limit")                                                                                         \
    X(SERIAL, "serial deadlock",                                                                                       \
      "no deadlock if each rank runs one instruction at a time and every send blocks until its receive")               \
    X(LANES, "lane deadlock", "no deadlock if each lane runs in its order and every send blocks until its receive")    \
    X(PERIOD, "period", "a repetition leaves the state that it found, moved on, so all repetitions are like the first")
#define X(name, ...) CLAIM_BIT_##name,
enum claim_bit { CLAIMS(X) NCLAIMS };
#undef X
#define X(name, ...) CLAIM_##name = 1 << CLAIM_BIT_##name,
enum claim { CLAIMS(X) CLAIM_ALL = (1 << NCLAIMS) - 1 };
#undef X
extern const char *const claim_word[NCLAIMS], *const claim_what[NCLAIMS];
/* Name of the machine model that the claims assume (verify_orders.c) */
#define MACHINE_MODEL "start-end"
extern int64_t verify_work; /* instructions and operands visited so far, for tests of how the work grows */
struct refutation {
    int claim; /* one of enum claim */
    int holds; /* claims proved nevertheless */
    char *why; /* the counterexample: rank, lane, line, instruction, and its job or message */
};
struct refutation *verify(const struct costs *costs, const struct graph *graph, const struct program *p, int claims);
/* verify_text.c: proves a program from its own text. Each job belongs to the rank that runs it, and depends on what the
 * default dependencies (schedules/language.md) or the text's `needs` lines say. */
struct refutation *verify_text(const struct program *p);
#endif
