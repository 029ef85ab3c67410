/* The symbolic values of the executor: what a symbol is, and what every instruction makes of them. */
#ifndef PIANOLA_SYMBOLS_H
#define PIANOLA_SYMBOLS_H
#include "executor.h"

#define STAMP ((uint64_t)1 << 63)
static const uint64_t STEP = 0x1F123BB5159A55E5u;

static inline uint64_t mix(uint64_t x) { return random_next(&x); }
static inline uint64_t value(int kind, int s, int b, uint64_t x, uint64_t y) {
    return mix(mix(mix(mix(mix((uint64_t)kind + 1) ^ (uint64_t)s) ^ (uint64_t)(b + 1)) ^ x) ^ y) & ~STAMP;
}
static inline uint64_t byte_of(uint64_t v, int64_t i) { return (v + (uint64_t)i * STEP) & ~STAMP; }
static inline uint64_t weight_value(int s) { return value(K_weight, s, -1, 0, 0); }
static inline uint64_t opt_value(int s) { return value(K_opt, s, -1, 0, 0); }

/* What a job makes of what it reads: in[role] is the sum of mix(v) over the operands of that role. The stash of an R is
 * that of its F, and I and W together make what B makes. */
static inline void job_values(int op, int s, int b, const uint64_t in[NROLES], uint64_t out[NROLES]) {
    uint64_t input = op == OP_R ? in[ROLE_input] : mix(value(K_input, s, b, in[ROLE_x], 0));
    uint64_t w = in[ROLE_w] + 3 * in[ROLE_v]; /* its own weights, and the table */
    uint64_t wstash = value(K_wstash, s, b, in[ROLE_stash], in[ROLE_dy]);
    out[ROLE_input] = value(K_input, s, b, in[ROLE_x], 0);
    out[ROLE_y] = value(K_act, s, b, w, input);
    out[ROLE_stash] = value(K_stash, s, b, w, input);
    out[ROLE_wstash] = wstash;
    out[ROLE_dx] = value(K_grad, s, b, w, wstash);
    out[ROLE_done] = value(K_token, s, b, (uint64_t)op, 0);
    out[ROLE_dw] = value(K_wgrad, s, b, op == OP_W ? in[ROLE_wstash] : mix(wstash), 0);
    out[ROLE_dv] = value(K_wgrad, s, b, op == OP_W ? in[ROLE_wstash] : mix(wstash), 1);
}

/* A byte of the weights after the update. */
static inline uint64_t updated(int s, uint64_t w, uint64_t dw, uint64_t opt) {
    return value(K_weight, s, 0, mix(w) ^ dw, opt);
}
#endif
