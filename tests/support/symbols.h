/* Symbolic memory for running programs: symbols, the place of a buffer's symbols, and the result of each instruction.
 *
 * Every byte of a rank's arena holds a symbol. Byte i of a tensor with value v holds v + i * STEP, so a reader sees
 * whether all bytes belong to one value. Byte i of a gradient holds the sum of its contributions' bytes, in any order.
 * A value is a hash of its origin: the job's stage and microbatch and the values it read. Symbols have 63 bits; with
 * the top bit set they are a stamp, which must never be read. The arena in host memory follows the device's arena.
 * After both, each buffer has one more cell, used if it has 0 bytes, so that its order is checked as well. */
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

/* Returns the sum of two gradient symbols, in any order by default. While sums_have_order, the sum depends on its
 * order: only the two addends may be swapped, as in floating point. Then all members of a team contribute the same
 * value. */
extern bool sums_have_order; /* values.c */
static inline uint64_t added(uint64_t a, uint64_t b) {
    a &= ~STAMP;
    b &= ~STAMP;
    return (!sums_have_order || !a || !b ? a + b : mix(mix(a) + mix(b))) & ~STAMP;
}

/* Returns the value of the weights after k updates, if updates are jobs. An update of another version than the previous
 * one, or by another gradient, gives a wrong value. */
static inline uint64_t version_value(int s, int32_t k) {
    return k > 0 ? value(K_weight, s, -1, (uint64_t)k, 1) : weight_value(s);
}
static inline uint64_t opt_version(int s, int32_t k) {
    return k > 0 ? value(K_opt, s, -1, (uint64_t)k, 1) : opt_value(s);
}

/* Returns in[role] after value v has been read as well. The order of operands matters only for keys and values. */
static inline uint64_t read_too(int role, uint64_t in, uint64_t v) { return (role == ROLE_kv ? 31 * in : in) + mix(v); }

/* Computes a job's results from its inputs; in[role] is the sum of mix(v) over the operands of that role, see read_too.
 * The stash of an R equals the one of its F, and I and W together make what B makes. */
static inline void job_values(int op, int s, int b, const uint64_t in[NROLES], uint64_t out[NROLES]) {
    uint64_t input = op == OP_R ? in[ROLE_input] : mix(value(K_input, s, b, in[ROLE_x], 0));
    uint64_t w =
        in[ROLE_w] + 3 * in[ROLE_v] + 7 * in[ROLE_u]; /* its own weights, the token table, weights shared by its team */
    uint64_t keys = in[ROLE_kv] + 3 * in[ROLE_dkv];   /* keys and values of other slices, and their gradient */
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

/* Returns a byte of the weights after the update. */
static inline uint64_t updated(int s, uint64_t w, uint64_t dw, uint64_t opt) {
    return value(K_weight, s, 0, mix(w) ^ dw, opt);
}

/* ---- values.c ---- */

/* The place of a buffer's symbols among a rank's cells(). */
struct span {
    int64_t at, n;
};
struct span span_of(const struct rank *k, int32_t buf);
static inline int64_t cells(const struct rank *k) { return k->arena + k->host + k->nbufs; }
static inline struct arg operand(const struct rank *k, const struct instr *x, int a) {
    return k->arg[x->arg + (uint32_t)a];
}
struct span span_at(const struct rank *k, const struct instr *x,
                    int a);                                        /* place of operand a: a buffer, or a piece of it */
int access_of(const struct rank *k, const struct instr *x, int a); /* ACC_*; a first contribution is only written */
int operand_of(const struct rank *k, const struct instr *x, int role); /* the first with that role, or -1 */
int32_t workspace_of(const struct rank *k, const struct instr *x);     /* a job's workspace buffer, or -1 */
bool works_apart(const struct rank *k, const struct instr *x);         /* whether it uses the second workspace */
/* Returns how many bytes of operand a stay unchanged until the last part: a wstash extends its stash. */
int64_t kept_of_stash(const struct rank *k, const struct instr *x, int a);
bool grows_here(const struct rank *k, const struct instr *x,
                int a); /* whether an I's wstash grows in the place of this stash */

/* Returns whether an earlier (later) part of a backward also writes operand a. Until its last part it holds garbage
 * that only these parts may touch. */
bool is_half_before(const struct rank *k, const struct instr *x, int a);
bool is_half_after(const struct rank *k, const struct instr *x, int a);
/* Returns the content of byte n that such a part leaves in an operand that is only written. If the operand is added to,
 * its earlier content counts as well. */
static inline uint64_t half_made(const struct instr *x, int role, int64_t n) {
    return STAMP | value(NKINDS, x->stage, x->batch, (uint64_t)role, (uint64_t)n);
}

/* Computes what an instruction other than a message writes, made[a], from what it read, seen[a], for each operand a.
 * Returns an error or NULL: a job must read what the promise says, even if its results are unused. */
const char *make_values(const struct promise *want, const struct rank *k, const struct instr *x, uint64_t **seen,
                        uint64_t **made);
/* Reports a buffer whose size is wrong, or NULL. size holds the bytes of the first buffer by set and kind, followed by
 * entries for slices; 0: none yet. */
static inline size_t size_entries(const struct promise *want) {
    return (size_t)(sets_of(want) * (1 + want->sp->names.slices)) + 1;
}
const char *size_error(const struct promise *want, const struct rank *k, int32_t buf, int64_t (*size)[NKINDS]);
/* A home holds weights and optimizer state at the beginning, and what the promise says at the end. */
int32_t home_buffer(const struct rank *k, int kind, int set);     /* -1: none */
int32_t home_weights(const struct promise *want, int r, int set); /* its whole weights, or its shard */
int32_t home_state(const struct rank *k, int set); /* the optimizer state, on the device or in host memory, or -1 */
/* Reports an operand in the wrong memory, or NULL: only copies touch host memory, each in its own direction. */
const char *memory_error(const struct rank *k, const struct instr *x, int a);
void fill_home(const struct promise *want, int r, int set, uint64_t *mem);
const char *home_error(const struct promise *want, int r, int set, const uint64_t *mem);

/* Returns byte n of the norm of all gradients, if these are right. */
uint64_t norm_symbol(const struct promise *want, int64_t n);
/* With post-validation: sets a rank's norm at the beginning of a step, and reports a wrong sum of all ranks' norms at
 * its end, or NULL. mem: a rank's memory. */
void fill_norm(const struct promise *want, int r, uint64_t *mem);
const char *last_norms_error(const struct promise *want, const uint64_t *(*mem)(void *of, int r), void *of);

/* ---- teams.c ---- */

int exchanges_of(const struct promise *want, int s, int d); /* number of exchanges between the parts of a job */
/* Returns the value that part p of job j gives to its team, a hash of all that the job reads. */
uint64_t given_by(const struct promise *want, int32_t j, int p);
/* Reports a wrong value that a part of a job got or gives, or NULL; `seen` is as in make_values. */
const char *exchange_error(const struct promise *want, const struct rank *k, const struct instr *x, uint64_t **seen);
/* Reports wrong sizes of tensors that teams exchange, or NULL. */
const char *mid_error(const struct promise *want, const struct program *p);
/* Returns the number of the mid that a part gives (gets), or -1. */
int32_t mid_given(const struct promise *want, const struct instr *x);
int32_t mid_got(const struct promise *want, const struct instr *x);
int first_member(const struct promise *want, int s); /* the first member of stage s's team, or s */
/* Reports a false statement of a team's collective about member `me`, or NULL. */
const char *false_exchange(const struct promise *want, const struct instr *x, int me, int n);
/* Reports what is wrong with the jobs of teams, or NULL: every member must have each job, always on the same rank. */
const char *team_error(const struct spec *sp);

/* ---- collect.c ---- */

bool is_weights(int kind);  /* or a shard of them */
bool is_gradient(int kind); /* or a part of it */
bool is_collective(int op);
/* Returns whether operand a is its member's piece of operand b, in place; inside_of finds that operand a, or -1. */
bool lies_in(const struct rank *k, const struct instr *x, int a, int b);
int inside_of(const struct rank *k, const struct instr *x, int b);
bool spoils(const struct rank *k, const struct instr *x,
            int a); /* whether it reads operand a and leaves garbage there */

/* The part [from, from + size) / of of a set of weights or of its gradient; `of` is 0 if a rank has none. */
struct part {
    int64_t from, size, of;
};
struct part own_part(const struct promise *want, int r, int set); /* the part that rank r updates */
struct part part_of_arg(const struct promise *want, int r, struct arg a);
struct part piece_of(struct part p, int i, int n);
bool same_part(struct part a, struct part b);

/* Reports wrong operands of member `me` of n, on rank r, or NULL. */
const char *collective_error(const struct rank *k, const struct instr *x, int r, int me, int n);
bool gives_to(const struct instr *x, int from, int to); /* whether rank `from`'s data reach rank `to` */
struct party {
    const struct rank *k;
    const struct instr *x;
    uint64_t **seen; /* per operand; unused for members that give nothing to this one */
};
/* Computes what member `me` writes, made[a]. */
void make_collective(const struct party *party, int n, int me, uint64_t **made);
#endif
