/* One unit's layer with its operands in guarded memory, for the files that test it. */
#ifndef PIANOLA_UNIT_TRIAL_H
#define PIANOLA_UNIT_TRIAL_H
#include "unit_room.h"

/* The operands of a call. X(name, access in forward, input, weight): R reads, W writes, - does not have */
#define OPERANDS(X)                                                                                                    \
    X(x, "RRR")                                                                                                        \
    X(y, "WRR")                                                                                                        \
    X(stash, "WRR")                                                                                                    \
    X(extra, "-WR")                                                                                                    \
    X(work, "WWW")                                                                                                     \
    X(w, "RRR")                                                                                                        \
    X(dw, "--W")                                                                                                       \
    X(dy, "-RR") X(dx, "-W-") X(tokens, "RRR") X(targets, "RRR") X(seed, "RRR") X(frozen, "RRR") X(inputs, "RRR")
#define X(name, ...) OPERAND_##name,
enum operand { OPERANDS(X) NOPERANDS };
#undef X

struct trial {
    const struct rt_model *m;
    const struct rt_layer *l;
    const struct unit_memory *memory;
    struct room room[NOPERANDS]; /* bytes 0: the unit has no such operand */
    char *value[NOPERANDS];      /* what an operand is before a call that reads it */
    char *now;                   /* room to read any operand after a call */
    bool without_dx, add;        /* of the next call */
    char *why;
    size_t nwhy;
};
/* Opens a trial with random values. Returns false if there is no memory. In any case, close it. */
bool unit_trial_open(struct trial *t);
void unit_trial_close(struct trial *t);
/* Returns whether an operation has an operand and writes it. */
bool trial_writes(const struct trial *t, enum unit_operation op, enum operand operand);
/* Runs an operation. Before that, fills the operands that it writes with the byte `fill`; a dw to which it adds gets
 * its value instead. Returns false and sets why if the operation touches anything else. */
bool trial_run(struct trial *t, enum unit_operation op, int fill);
/* Returns the first byte in which an operand now differs from a copy; -1: none. */
int64_t trial_difference(const struct trial *t, enum operand operand, const char *copy);
bool trial_says(const struct trial *t, enum unit_operation op, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
extern const char *const operand_name[NOPERANDS];
#endif
