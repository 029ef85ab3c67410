/* The configuration of a layer: one row for each field that a script can set.
 *
 * LAYER_CONFIGS(X): X(group, fields) for each group of layers, and its fields as rows
 *
 *     F(group, name, type, range, otherwise, meaning)
 *
 * name       in scripts, and in struct rt_config: l->config.norm.eps
 * type       for layers: int32_t, float or double
 * range      SIZE: an integer from 1; BASE: an integer from 0; FLAG: true or false; ABOVE_0, FROM_0, BELOW_1: a
 *            number above 0, from 0, from 0 to below 1; DERIVED: not in scripts, passes/layers.c sets it
 * otherwise the value if a script leaves the field out; NAN: the field is required
 *
 * The script's reader, its errors, the layers in a rank's program and the tests' comparisons follow from these rows.
 * passes/layers.c says which layers have a group's fields. */
#ifndef PIANOLA_CONFIG_H
#define PIANOLA_CONFIG_H
#include <stdint.h>

#define LAYER_CONFIGS(X)                                                                                               \
    X(embedding, EMBEDDING_FIELDS)                                                                                     \
    X(linear, LINEAR_FIELDS)                                                                                           \
    X(dropout, DROPOUT_FIELDS)                                                                                         \
    X(gated, GATED_FIELDS)                                                                                             \
    X(norm, NORM_FIELDS)                                                                                               \
    X(attention, ATTENTION_FIELDS)                                                                                     \
    X(moe, MOE_FIELDS)

#define EMBEDDING_FIELDS(F)                                                                                            \
    F(embedding, positions, int32_t, FLAG, true, "it adds an embedding of each position")                              \
    F(embedding, scale, float, ABOVE_0, 1, "factor of the tokens' embedding")
#define LINEAR_FIELDS(F)  F(linear, bias, int32_t, FLAG, true, "it has a bias, unless the model's input is integers")
#define DROPOUT_FIELDS(F) F(dropout, p, float, BELOW_1, NAN, "probability that a value is dropped")
#define GATED_FIELDS(F)                                                                                                \
    F(gated, limit, float, FROM_0, 0, "the gate is at most this, and what it gates within it of 0; 0: any number")
#define NORM_FIELDS(F) F(norm, eps, float, ABOVE_0, 1e-5, "added to a variance, or to a mean of squares")

/* A scaled rope reaches further than the context it was trained with. rope_factor divides its frequencies. If
 * rope_context is given, only frequencies with fewer than rope_low turns in it are divided, frequencies with more than
 * rope_high turns stay, and the rest are interpolated linearly (Llama 3's rule). */
#define ATTENTION_FIELDS(F)                                                                                            \
    F(attention, heads, int32_t, SIZE, NAN, "heads of queries")                                                        \
    F(attention, kv_heads, int32_t, SIZE, 0, "heads of keys and values; 0 in a script: as many")                       \
    F(attention, rope, int32_t, BASE, 0, "base of its rope; 0: it has none")                                           \
    F(attention, rope_factor, float, FROM_0, 0, "divides the rope's frequencies; 0: nothing does")                     \
    F(attention, rope_low, float, FROM_0, 0, "turns in rope_context")                                                  \
    F(attention, rope_high, float, FROM_0, 0, "turns in rope_context")                                                 \
    F(attention, rope_context, int32_t, BASE, 0, "context it was trained with; 0: rope_factor divides all")

#define MOE_FIELDS(F)                                                                                                  \
    F(moe, experts, int32_t, SIZE, NAN, "experts that there are, or that a member has")                                \
    F(moe, top, int32_t, SIZE, 2, "experts that each token is sent to")                                                \
    F(moe, gated, int32_t, FLAG, false, "swiglu is between its experts' two layers, not gelu")                         \
    F(moe, capacity, double, ABOVE_0, 1.25, "of an expert, in what it would have of evenly spread tokens")             \
    F(moe, balance, float, FROM_0, 0.01, "factor of the loss that balances the experts' loads")                        \
    F(moe, places, int32_t, DERIVED, 0, "tokens of a sequence for which each expert has room")

#define F(group, name, type, ...) type name;
#define X(group, fields)                                                                                               \
    struct group##_config {                                                                                            \
        fields(F)                                                                                                      \
    };
LAYER_CONFIGS(X)
#undef X
#undef F

struct rt_config {
#define X(group, fields) struct group##_config group;
    LAYER_CONFIGS(X)
#undef X
};
#endif
