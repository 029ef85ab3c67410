/* Tries a random schedule, and shrinks one that fails. */
#ifndef PIANOLA_PROPERTY_H
#define PIANOLA_PROPERTY_H
#include "cli/files.h"
#include "cli/trained_weights.h"
#include "passes/runtime_program.h"
#include "compiler.h"
#include "rt.h"

enum { STEPS = 3, MAX_BATCHES = 16 };

enum verdict {
    GOOD,
    DEADLOCKED, /* the compiler reports that caps or order deadlock: not counted */
    DIES,       /* another user error, which a random schedule must not cause */
    REFUTED,    /* the program does not verify */
    UNREAD,     /* its text form reads back differently */
    DIFFERS,    /* its weights or losses differ from one rank's */
    CRASHES,
    HANGS,
};
extern const char *const verdict_text[];

/* Computes the result of one rank for up to most_batches microbatches, once, before processes fork (trial.c). width:
 * "width=16". If model is NULL, schedules are only proved and read back. */
void train_alone(const char *model, const char *width, int most_batches);
/* Compiles, proves, reads back, trains and compares. why: the error, 4096 bytes. Leaves its memory to free_all. With
 * PIANOLA_FAULT=first, =wait or =name in the environment, breaks the program before or after the proof. */
enum verdict try_spec(const struct spec *sp, char *why);
/* Does the same in its own process, which may crash, or hang for `seconds` seconds. */
enum verdict try_apart(const struct spec *sp, char *why, int seconds);
struct spec *load_spec(const struct script_args *a, char *why); /* NULL: the error is in why */

/* Returns the smallest spec found that fails in the same way (shrink.c). */
const struct spec *shrink(const struct spec *sp, enum verdict how, int *tried);
/* Print the spec as a schedule script, and its links as a cluster script, or NULL if these are free (print.c). */
char *print_schedule(const struct spec *sp);
char *print_cluster(const struct spec *sp);
#endif
