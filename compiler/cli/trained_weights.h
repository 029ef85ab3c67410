/* The weights after a run, across all its ranks. */
#ifndef PIANOLA_TRAINED_WEIGHTS_H
#define PIANOLA_TRAINED_WEIGHTS_H
#include <stdint.h>

struct rt_program;
/* Hashes all parameters in fp32, in model order, independently of the partition. Dies if a stage's homes differ. */
uint64_t hash_trained(const struct rt_program *p, char *const *arena);
#endif
