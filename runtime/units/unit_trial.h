/* A unit's layer, or a stage of layers, with its operands in guarded memory, for the files that test it. */
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

struct trial;
/* The subject of a trial: a unit's functions (unit_trial.c), or the layers of a stage (stage_host.c). */
struct subject {
    bool (*runs)(const struct trial *t, enum unit_operation op); /* whether it has the operation */
    int64_t (*bytes)(const struct trial *t, enum operand operand);
    /* Returns whether an operation has an operand for which there are bytes, and which OPERANDS gives it. */
    bool (*has)(const struct trial *t, enum unit_operation op, enum operand operand);
    bool (*draw)(const struct trial *t); /* sets the weights and what is not random; false: no memory */
    struct unit_fault (*call)(const struct trial *t, enum unit_operation op, char *const at[NOPERANDS]);
    /* Begin a message about an operation, and about what runs it. */
    int (*names)(const struct trial *t, enum unit_operation op, char *out, size_t n);
    int (*name)(const struct trial *t, char *out, size_t n);
};
extern const struct subject subject_unit;

struct trial {
    const struct subject *of;
    const struct rt_model *m;
    const struct rt_layer *l;             /* the unit's */
    const struct rt_stage *stage, *table; /* the stage, and the table that it computes with, or NULL */
    const struct unit_memory *memory;
    struct room room[NOPERANDS]; /* bytes 0: the subject has no such operand */
    char *value[NOPERANDS];      /* what an operand is before a call that reads it */
    char *now;                   /* room to read any operand after a call */
    bool without_dx, add;        /* of the next call */
    char *why;
    size_t nwhy;
};
/* Opens a trial with random values. Returns false and sets why if there is no memory. In any case, close it. */
bool unit_trial_open(struct trial *t);
void unit_trial_close(struct trial *t);
/* Returns whether an operation has an operand and writes it. */
bool trial_writes(const struct trial *t, enum unit_operation op, enum operand operand);
/* Runs an operation. Before that, fills the operands that it writes with the byte `fill`; a dw to which it adds gets
 * its value instead. Returns false and sets why if the operation touches anything else. */
bool trial_run(struct trial *t, enum unit_operation op, int fill);
/* Returns a number in [-1, 1) that depends on key and i. */
float trial_random(uint64_t key, int64_t i);
/* Returns the first byte in which an operand now differs from a copy; -1: none. */
int64_t trial_difference(const struct trial *t, enum operand operand, const char *copy);
bool trial_says(const struct trial *t, enum unit_operation op, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
extern const char *const operand_name[NOPERANDS];

/* unit_check.c: check a subject, and compare its gradients, as unit_check and unit_slopes do with a unit. They open and
 * close the trial. skips_dx: its input gradient may be run without dx. */
struct unit_slope;
bool trial_check(struct trial *t, bool skips_dx);
int trial_slopes(struct trial *t, struct unit_slope *slope);
#endif
