/* Symbolic memory for running programs: what a symbol is, where a buffer's symbols lie, and what every instruction
 * makes of them.
 *
 * Every byte of a rank's arena holds a symbol. Byte i of a tensor with value v holds v + i * STEP, so a reader sees
 * whether all bytes belong to one value; byte i of a gradient holds the sum of its contributions' bytes, in any order.
 * A value is a hash of what it was made from: the job's stage and microbatch and the values it read. Symbols have 63
 * bits; with the top bit set they are a stamp, which must never be read. Behind the device's arena lies the one in host
 * memory; a buffer of 0 bytes has one cell of its own after both, so that its order is checked like any other's. */
#ifndef PIANOLA_SYMBOLS_H
#define PIANOLA_SYMBOLS_H
#include "promise.h"
#include "random.h"

#define STAMP ((uint64_t)1 << 63)
static const uint64_t STEP = 0x1F123BB5159A55E5u;

static inline uint64_t mix(uint64_t x) { return random_next(&x); }
static inline uint64_t value(int kind, int s, int b, uint64_t x, uint64_t y) {
    return mix(mix(mix(mix(mix((uint64_t)kind + 1) ^ (uint64_t)s) ^ (uint64_t)(b + 1)) ^ x) ^ y) & ~STAMP;
}
static inline uint64_t byte_of(uint64_t v, int64_t i) { return (v + (uint64_t)i * STEP) & ~STAMP; }
static inline uint64_t weight_value(int s) { return value(K_weight, s, -1, 0, 0); }
static inline uint64_t opt_value(int s) { return value(K_opt, s, -1, 0, 0); }

/* The sum of two symbols of gradients. Usually in any order; while sums_have_order, of that order: only the two addends
 * may change places, as in floating point. Contributions are then those of a team's job, whichever member made them. */
extern bool sums_have_order; /* values.c */
static inline uint64_t added(uint64_t a, uint64_t b) {
    a &= ~STAMP;
    b &= ~STAMP;
    return (!sums_have_order || !a || !b ? a + b : mix(mix(a) + mix(b))) & ~STAMP;
}

/* Where updates are jobs: after so many of them. An update of anything but the version before it, or by anything but
 * its gradient, is wrong by itself. */
static inline uint64_t version_value(int s, int32_t k) {
    return k > 0 ? value(K_weight, s, -1, (uint64_t)k, 1) : weight_value(s);
}
static inline uint64_t opt_version(int s, int32_t k) {
    return k > 0 ? value(K_opt, s, -1, (uint64_t)k, 1) : opt_value(s);
}

/* in[role] once value v is read too: where several operands have it, their order counts for keys and values alone. */
static inline uint64_t read_too(int role, uint64_t in, uint64_t v) { return (role == ROLE_kv ? 31 * in : in) + mix(v); }

/* What a job makes of what it reads: in[role] is the sum of mix(v) over the operands of that role, see read_too. The
 * stash of an R is that of its F, and I and W together make what B makes. */
static inline void job_values(int op, int s, int b, const uint64_t in[NROLES], uint64_t out[NROLES]) {
    uint64_t input = op == OP_R ? in[ROLE_input] : mix(value(K_input, s, b, in[ROLE_x], 0));
    uint64_t w = in[ROLE_w] + 3 * in[ROLE_v] + 7 * in[ROLE_u]; /* its own weights, the table, what its team shares */
    uint64_t keys = in[ROLE_kv] + 3 * in[ROLE_dkv];            /* those of other slices, and their gradient */
    uint64_t wstash = value(K_wstash, s, b, in[ROLE_stash] + 5 * keys, in[ROLE_dy]);
    if (op == OP_F || op == OP_R)
        w += 5 * keys;
    out[ROLE_input] = value(K_input, s, b, in[ROLE_x], 0);
    out[ROLE_y] = value(K_act, s, b, w, input);
    out[ROLE_stash] = value(K_stash, s, b, w, input);
    out[ROLE_own] = value(K_kv, s, b, w, input);
    out[ROLE_wstash] = wstash;
    out[ROLE_dpast] = value(K_dkv, s, b, w, wstash);
    out[ROLE_dx] = value(K_grad, s, b, w, wstash);
    out[ROLE_done] = value(K_token, s, b, (uint64_t)op, 0);
    out[ROLE_dw] = value(K_wgrad, s, b, op == OP_W ? in[ROLE_wstash] : mix(wstash), 0);
    out[ROLE_dv] = value(K_wgrad, s, b, op == OP_W ? in[ROLE_wstash] : mix(wstash), 1);
    out[ROLE_du] = value(K_wgrad, s, b, op == OP_W ? in[ROLE_wstash] : mix(wstash), 2);
}

/* A byte of the weights after the update. */
static inline uint64_t updated(int s, uint64_t w, uint64_t dw, uint64_t opt) {
    return value(K_weight, s, 0, mix(w) ^ dw, opt);
}

/* ---- values.c ---- */

/* Where a buffer's symbols lie, among a rank's cells(). */
struct span {
    int64_t at, n;
};
struct span span_of(const struct rank *k, int32_t buf);
static inline int64_t cells(const struct rank *k) { return k->arena + k->host + k->nbufs; }
static inline struct arg operand(const struct rank *k, const struct instr *x, int a) {
    return k->arg[x->arg + (uint32_t)a];
}
struct span span_at(const struct rank *k, const struct instr *x, int a); /* of operand a: a buffer, or a piece of it */
int access_of(const struct rank *k, const struct instr *x, int a);     /* ACC_*; a first contribution is only written */
int operand_of(const struct rank *k, const struct instr *x, int role); /* the first of that role, or -1 */
int32_t workspace_of(const struct rank *k, const struct instr *x);     /* the buffer, for jobs; -1: none */
bool works_apart(const struct rank *k, const struct instr *x);         /* in the second workspace */
/* How many bytes of operand a stay what they are until the last part: a wstash extends its stash. */
int64_t kept_of_stash(const struct rank *k, const struct instr *x, int a);
bool grows_here(const struct rank *k, const struct instr *x, int a); /* the stash in whose place an I's wstash grows */

/* Whether an earlier part of a backward writes operand a too, or a later one: then it is half made, garbage that only
 * these parts may touch. */
bool is_half_before(const struct rank *k, const struct instr *x, int a);
bool is_half_after(const struct rank *k, const struct instr *x, int a);
/* What such a part leaves in byte n of operand a that is only written; where it is added to, what it has read counts.
 */
static inline uint64_t half_made(const struct instr *x, int role, int64_t n) {
    return STAMP | value(NKINDS, x->stage, x->batch, (uint64_t)role, (uint64_t)n);
}

/* What an instruction that is not a message writes, made[a], from what it read, seen[a]; both parallel to its operands.
 * Returns what is wrong, or NULL: a job must read what the promise says, even if its results are unused. */
const char *make_values(const struct promise *want, const struct rank *k, const struct instr *x, uint64_t **seen,
                        uint64_t **made);
/* What is wrong with the bytes of a buffer that an instruction uses, or NULL. size: by set and kind, that of the first
 * buffer, or behind the sets by slice; 0: none yet. */
static inline size_t size_entries(const struct promise *want) {
    return (size_t)(sets_of(want) * (1 + want->sp->names.slices)) + 1;
}
const char *size_error(const struct promise *want, const struct rank *k, int32_t buf, int64_t (*size)[NKINDS]);
/* At its beginning a home holds weights and optimizer state; at the end, what the promise says. */
int32_t home_buffer(const struct rank *k, int kind, int set);     /* -1: none */
int32_t home_weights(const struct promise *want, int r, int set); /* all of them, or its shard */
int32_t home_state(const struct rank *k, int set);                /* the optimizer's, in host memory or not; or -1 */
/* Only copies touch host memory, and each copies in its own direction. What is wrong with operand a, or NULL. */
const char *memory_error(const struct rank *k, const struct instr *x, int a);
void fill_home(const struct promise *want, int r, int set, uint64_t *mem);
const char *home_error(const struct promise *want, int r, int set, const uint64_t *mem);

/* What byte n of a norm holds that is of all gradients, as they must be. */
uint64_t norm_symbol(const struct promise *want, int64_t n);
/* With post-validation: what a rank's norm holds at the beginning of a step; and NULL, or what is wrong with that of
 * all ranks at its end. mem: a rank's memory. */
void fill_norm(const struct promise *want, int r, uint64_t *mem);
const char *last_norms_error(const struct promise *want, const uint64_t *(*mem)(void *of, int r), void *of);

/* ---- teams.c ---- */

int exchanges_of(const struct promise *want, int s, int d); /* between the parts of a job */
/* What part p of job j gives to its team: a value made of all that the job reads. */
uint64_t given_by(const struct promise *want, int32_t j, int p);
/* What is wrong with what a part of a job got and gives, or NULL; seen as in make_values. */
const char *exchange_error(const struct promise *want, const struct rank *k, const struct instr *x, uint64_t **seen);
/* What is wrong with the sizes of what teams exchange, or NULL. */
const char *mid_error(const struct promise *want, const struct program *p);
/* The mid that a part gives, or gets, has this number; -1: none. */
int32_t mid_given(const struct promise *want, const struct instr *x);
int32_t mid_got(const struct promise *want, const struct instr *x);
int first_member(const struct promise *want, int s); /* of the team of stage s, or s */
/* What is false in what a team's collective says of member `me`, or NULL. */
const char *false_exchange(const struct promise *want, const struct instr *x, int me, int n);
/* Whether the jobs of a text are those of teams: each one is a job of all members, and a rank is always the same. */
const char *team_error(const struct spec *sp);

/* ---- collect.c ---- */

bool is_weights(int kind);  /* or a shard of them */
bool is_gradient(int kind); /* or a part of it */
bool is_collective(int op);
/* Whether operand a is its member's piece of operand b, in place; which operand is that of b, or -1. */
bool lies_in(const struct rank *k, const struct instr *x, int a, int b);
int inside_of(const struct rank *k, const struct instr *x, int b);
bool spoils(const struct rank *k, const struct instr *x, int a); /* it only reads operand a, and leaves garbage there */

/* size / of of a set of weights, or of its gradient, from from / of on; of 0: no rank has such a part. */
struct part {
    int64_t from, size, of;
};
struct part own_part(const struct promise *want, int r, int set); /* what rank r updates */
struct part part_of_arg(const struct promise *want, int r, struct arg a);
struct part piece_of(struct part p, int i, int n);
bool same_part(struct part a, struct part b);

/* What is wrong with the operands of member `me` of n, on rank r; or NULL. */
const char *collective_error(const struct rank *k, const struct instr *x, int r, int me, int n);
bool gives_to(const struct instr *x, int from, int to); /* whether data of rank from reach rank to */
struct party {
    const struct rank *k;
    const struct instr *x;
    uint64_t **seen; /* per operand; not needed of those that give nothing to the member in question */
};
/* What member `me` writes, made[a]. */
void make_collective(const struct party *party, int n, int me, uint64_t **made);
#endif
