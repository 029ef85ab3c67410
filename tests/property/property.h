/* One random schedule tried, and a failing one made smaller. */
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
    DEADLOCKED, /* the compiler says that its caps or its order are one: not counted */
    DIES,       /* with another error of the user, which a drawn schedule does not deserve */
    REFUTED,    /* the program does not verify */
    UNREAD,     /* its text form does not read back as it was */
    DIFFERS,    /* other weights or losses than one rank has */
    CRASHES,
    HANGS,
};
extern const char *const verdict_text[];

/* trial.c. The result of one rank for so many microbatches: computed once, before processes fork. width: "width=16".
 * model NULL: schedules are only proved and read back. */
void train_alone(const char *model, const char *width, int most_batches);
/* Compiles, proves, reads back, trains and compares. why: what went wrong, 4096 bytes. Leaves its memory to free_all.
 * With PIANOLA_FAULT=first, =wait or =name in the environment, the program is broken before or after the proof. */
enum verdict try_spec(const struct spec *sp, char *why);
/* The same in a process of its own, which may crash, or hang for so many seconds. */
enum verdict try_apart(const struct spec *sp, char *why, int seconds);
struct spec *load_spec(const struct script_args *a, char *why); /* NULL: why */

/* shrink.c: the smallest spec found that fails in the same way. */
const struct spec *shrink(const struct spec *sp, enum verdict how, int *tried);
/* print.c: the spec as a schedule script, and its links as a cluster script; NULL where they are free. */
char *print_schedule(const struct spec *sp);
char *print_cluster(const struct spec *sp);
#endif
