/* The program in the runtime's form. */
#ifndef PIANOLA_RUNTIME_PROGRAM_H
#define PIANOLA_RUNTIME_PROGRAM_H
#include "ir/program.h"
#include "ir/spec.h"

struct rt_program;
struct rt_program *runtime_program(const struct spec *sp, const struct stage *st, const struct program *p);
const char *const *lane_names(const struct program *p, const struct rank *k); /* as in streams.txt */
/* A hash of all parameters in fp32, in model order: independent of how the model is cut. Dies if a stage's homes
 * differ. */
uint64_t fingerprint(const struct rt_program *p, char *const *arena);
#endif
