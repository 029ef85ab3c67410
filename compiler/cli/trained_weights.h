/* The weights after a run, of all its ranks. */
#ifndef PIANOLA_TRAINED_WEIGHTS_H
#define PIANOLA_TRAINED_WEIGHTS_H
#include <stdint.h>

struct rt_program;
/* Hashes all parameters in fp32, in model order: independent of how the model is cut. Dies if a stage's homes
 * differ. */
uint64_t hash_trained(const struct rt_program *p, char *const *arena);
#endif
