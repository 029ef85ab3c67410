/* A model's loss and gradients for one microbatch, as another program computed them. `pianola-export` writes a
 * safetensors file with these tensors:
 *
 *     tokens, targets   I32, one for each row
 *     input.NAME        I32 or F32: the model's input NAME
 *     loss              F32: the mean over the targets
 *     gradient.NAME     F32, two numbers: the norm of the gradient of the parameter that is called NAME in published
 *                       files, and the sum of its elements, of which about half are negated (known_sign)
 *
 * A file may have no gradients, as for a model with dropout, whose forward drops nothing here. */
#ifndef PIANOLA_KNOWN_H
#define PIANOLA_KNOWN_H
#include "rt.h"
#include "store/hash.h"

struct known_model {
    const struct rt_model *m;
    const struct rt_stage *const *stage; /* [sets]: the stages, then the token table if it is a set of its own */
    int stages, sets;
    const char *values, *weights; /* files */
};
/* A parameter's gradient. error: relative to its norm, or to 0.001 of the largest norm if that is larger. */
struct known_gradient {
    const char *name;
    double norm, wanted_norm, sum, wanted_sum, error;
};
struct known_result {
    double loss, wanted_loss;
    struct known_gradient *gradient;
    int n;
};
/* Returns 1 or -1: the factor of a gradient's element i, in published order, in the sum. */
static inline int known_sign(int64_t i) { return host_hash(1, (uint64_t)i) & 1 ? -1 : 1; }
/* Computes the loss and the gradients, and compares them with the file's. Returns false and sets why if a file cannot
 * be read, or does not fit the model. In any case, call known_free. */
bool known_compare(const struct known_model *k, struct known_result *out, char *why, size_t nwhy);
void known_free(struct known_result *out);
#endif
