/* The program as the runtime reads it. */
#ifndef PIANOLA_RUNTIME_PROGRAM_H
#define PIANOLA_RUNTIME_PROGRAM_H
#include "ir/program.h"
#include "ir/spec.h"

struct rt_program;
struct rt_program *runtime_program(const struct spec *sp, const struct stage *st, const struct program *p);
const char *const *lane_names(const struct program *p, const struct rank *k); /* as streams.txt has them */
/* Of all parameters in fp32, in the order of the model: the same however it is cut. Dies when homes of a stage differ.
 */
uint64_t fingerprint(const struct rt_program *p, char *const *arena);
#endif
