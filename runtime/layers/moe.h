/* Mixture of experts, for moe_host.c and moe.cu: the data of a microbatch that a route keeps for its backward and for
 * its combine.
 *
 * Mixture of experts (Shazeer 2017), with experts of a fixed capacity (Lepikhin 2020, "GShard", section 2.2). A token's
 * probabilities are the softmax of x router. It goes to the `top` most probable experts; among equal ones, those with
 * lower numbers come first. With top = 1 its weight there is the probability (Fedus 2021, "Switch", eq. 2), otherwise
 * the probability over the sum of the chosen ones (Lepikhin 2020, algorithm 1).
 *
 * A sequence has `capacity` places at each expert. Its tokens' first choices take them first, in the order of the rows,
 * then the second choices (Lepikhin 2020, algorithm 1), and so on. A choice that finds no place is dropped: that expert
 * adds nothing to the token. So the dropped choices depend only on the sequence. The rows for the experts are [expert]
 * [sequence][place]; empty places are 0.
 *
 * Loads are balanced by a loss per sequence, balance * experts * sum over e of f_e P_e, where f_e is the share of
 * choices that fall on expert e, and P_e its mean probability (Fedus 2021, eq. 4 to 6). Its mean over sequences and
 * microbatches contributes to the gradients, but not to the reported loss. */
#ifndef PIANOLA_MOE_H
#define PIANOLA_MOE_H
#include "model.h"

struct routing {
    int32_t tokens, places, sequences; /* places: over all experts and sequences */
    float *probability;                /* tokens x experts */
    float *weight;                     /* tokens x top */
    int32_t *expert;                   /* tokens x top: the choices, the largest probability first */
    int32_t *row;                      /* tokens x top: the choice's place; -1: dropped */
    int32_t *choice;                   /* places: the choice there, among tokens x top; -1: none */
    int32_t *load;                     /* sequences x experts: number of choices, including dropped ones */
};

/* The blocks that a team exchanges in to_experts or to_tokens: n values for each member and each of its experts. */
struct blocks {
    int64_t members, experts, n;
};
static inline struct blocks blocks_at(const struct rt_layer *l) {
    const struct moe_config *moe = &l->config.moe;
    struct blocks b = {l->part.members, moe->experts / l->part.members, (int64_t)l->rows / moe->experts * l->in};
    return b;
}

/* Returns the routing in aux; l: a route, or the combine that shares its aux. */
static inline struct routing routing_at(const struct rt_layer *l, void *aux) {
    const struct moe_config *moe = &l->config.moe;
    struct routing r;
    bool route = l->kind == LAYER_route;
    r.tokens = route ? l->rows : l->out_rows;
    r.places = route ? l->out_rows : l->rows;
    r.sequences = r.tokens / l->context;
    r.probability = (float *)aux;
    r.weight = r.probability + (int64_t)r.tokens * moe->experts;
    r.expert = (int32_t *)(void *)(r.weight + (int64_t)r.tokens * moe->top);
    r.row = r.expert + (int64_t)r.tokens * moe->top;
    r.choice = r.row + (int64_t)r.tokens * moe->top;
    r.load = r.choice + r.places;
    return r;
}
#endif
