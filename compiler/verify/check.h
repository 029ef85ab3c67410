/* Shared by the verify*.c files, which share no code with lower, mem and lanes. verify.c outlines the proof. */
#ifndef PIANOLA_CHECK_H
#define PIANOLA_CHECK_H
#include "verify.h"

struct check {
    const struct spec *sp;
    const struct graph *g;
    const struct program *p;
    int claims;
    int32_t **mate; /* per rank and instruction: for SEND and RECV, the partner, by their edge's order; for REDUCE, how
                       many came before it in its lane; else -1 */
    int32_t ***reductions; /* per group and member: its REDUCEs in order */
    int32_t *at;           /* per rank: the serial walk's next instruction */
    struct values *values;
    int failed; /* the refuted claim, or 0 */
    int holds;  /* claims proved so far */
    struct text why;
};

/* verify.c. Refutes a claim at an instruction. Always returns false, for `return refute(…)`. */
bool refute(struct check *check, int claim, int rank, int32_t i, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* The same, when no single instruction is at fault. */
bool refute_all(struct check *check, int claim, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* "rank 1 lane compute, line 12: F 1 3" */
void put_place(struct check *check, int rank, int32_t i);
static inline const struct group *group_of(const struct check *check, int rank, const struct instr *x) {
    return &check->p->group[check->p->rank[rank].lane[x->lane].group];
}
/* The nth operand with that role, as a buffer of the rank, or -1. */
int32_t operand(const struct rank *k, const struct instr *x, int role, int nth);

/* Weights owned by a home. */
static inline bool at_home(const struct buf *b) { return b->kind == K_weight && b->inst < 0; }

/* A buffer's bytes are [first_byte, end_byte). A zero-byte buffer gets one byte of its own past the arena, so that its
 * accesses are still checked for order. */
static inline int64_t first_byte(const struct rank *k, int32_t b) {
    return !k->buf[b].bytes ? k->arena + b : k->buf[b].off < 0 ? 0 : k->buf[b].off;
}
static inline int64_t end_byte(const struct rank *k, int32_t b) {
    return first_byte(k, b) + (k->buf[b].bytes ? k->buf[b].bytes : 1);
}

/* What a buffer holds. */
struct value {
    int32_t stage, batch;
    int32_t count; /* weight: updates applied; token: which job of (s,b), as an op */
    int32_t sum;   /* wgrad: its sum of contributions (verify_sums.c); NO_SUM: none */
    int32_t part;  /* wgrad: the rank whose part it is, received from there; -1: this rank's own */
    uint8_t kind;
    bool live, set;
};
enum { NO_SUM };

struct values {
    struct value **val;
    bool *done;   /* per job */
    bool **stays; /* per buffer, whether it lives all step: a home's weights, gradient and optimizer state; workspace */
    int sets;     /* one set of weights per stage, plus one for a token table that two stages share */
    int64_t *bytes[NKINDS]; /* per set: the tensor's size, on which all its buffers must agree; -1: none seen yet */
    int64_t *bytes_read;    /* per stage: the largest buffer its forwards have read */
    bool has_state;         /* the optimizer has state for at least one set */
    struct tensors *scratch;
    struct plan *plan; /* verify_memory.c */
    struct sums *sums; /* verify_sums.c */
};

/* verify_values.c: tracks each buffer's value along the serial walk. Each returns false once a claim is refuted. */
bool values_begin(struct check *check);
bool values_run(struct check *check, int rank, int32_t i); /* an instruction without a partner */
bool values_message(struct check *check, int src, int32_t i, int dst, int32_t j);
bool values_reduce(struct check *check, const struct group *g, const int32_t *i); /* i: per member */
bool values_end(struct check *check);
bool check_reads(struct check *check, int r, int32_t i); /* everything it reads holds something */
const char *buf_text(const struct check *check, int r, int32_t b);
const char *value_text(const struct check *check, const struct value *value);
bool is_tensor(const struct value *value, int kind, int s, int b, int d);
/* Refutes unless the buffer's name matches the tensor put into it. */
bool named(struct check *check, int r, int32_t i, int32_t b, int kind, int stage, int batch, int inst);

/* verify_bits.c: a set of numbers with nearest-neighbour lookup. */
struct bits {
    uint64_t *level[6];
    int depth;
};
void bits_init(struct bits *bits, int n); /* empty, for members 0 .. n-1 */
void bits_set(struct bits *bits, int i, bool on);
int bits_near(const struct bits *bits, int i, bool above); /* the nearest member below or above i, or -1 */

/* verify_memory.c: sizes and liveness of buffers. */
bool memory_begin(struct check *check);
bool open_buffer(struct check *check, int r, int32_t i,
                 int32_t b); /* refutes unless its bytes are free and inside the arena */
bool free_buffers(struct check *check, int r, int32_t i, bool stashes);
bool memory_end(struct check *check);

/* verify_sums.c: gradients as sums of contributions. */
void sums_begin(struct check *check);
bool accumulate(struct check *check, int r, int32_t i, int role, int set); /* adds the job's own contribution */
bool run_add(struct check *check, int r, int32_t i);
bool run_update(struct check *check, int r, int32_t i);
bool adds_to_table(const struct spec *sp, const struct instr *x);
int64_t contributions(const struct check *check, int32_t sum);
/* Sets *a to the sum of both. false: it would have more contributions than exist. */
bool join(struct check *check, int32_t *a, int32_t b);

/* verify_orders.c: which instructions must end before another starts. */
struct orders;
struct orders *orders_begin(struct check *check);
void orders_rank(struct orders *orders, int r);      /* the instructions that follow are this rank's, in issue order */
void orders_start(struct orders *orders, int32_t i); /* i is next */
void orders_end(struct orders *orders, int32_t i);
/* Must j have ended before i, the current instruction, starts? Considers only the rank's own lanes and waits. */
bool ordered_here(const struct orders *orders, int32_t i, int32_t j);
/* Two accesses on rank r: must j have ended before i starts, by any chain of orders? bj, bi: their buffers. */
struct question {
    int32_t r, j, i, bj, bi;
    bool wrote, writes;
};
void orders_ask(struct orders *orders, struct question question); /* about the current rank and instruction */
bool orders_many(const struct orders *orders); /* whether to answer those pending before asking more */
/* The first question, in the order asked, whose answer is no, or NULL. Forgets all questions. */
const struct question *orders_answer(struct orders *orders);

/* verify_races.c */
bool races(struct check *check);
/* The rank of each key among the sorted distinct keys; returns how many distinct keys there are, at least 1. Keys are
 * >= 0. scratch: 2 n numbers. */
int places_of(const int64_t *key, int n, int32_t *place, int64_t *sorted, int32_t *scratch);
#endif
