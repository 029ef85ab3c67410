/* Shared parts of mutate*.c, the files that break programs. */
#ifndef PIANOLA_MUTATE_PARTS_H
#define PIANOLA_MUTATE_PARTS_H
#include "mutate.h"
#include "random.h"

/* mutate_edit.c */
void move_to(struct rank *k, int from, int to);
void exchange(struct rank *k, int i, int j);
void remove_at(struct rank *k, int at);
void insert_at(struct rank *k, int at, struct instr x);
void set_waits(struct rank *k, struct instr *x, const int32_t *list, int n); /* replaces them with the list */
void set_frees(struct rank *k, struct instr *x, const int32_t *list, int n);
void set_operands(struct rank *k, struct instr *x, const struct arg *list, int n);
void add_wait(struct rank *k, struct instr *x, int32_t on);
void add_free(struct rank *k, struct instr *x, int32_t buf);
void drop_wait(struct rank *k, struct instr *x, int nth);
void drop_free(struct rank *k, struct instr *x, int nth);
int lane_to(struct rank *k, int kind, int peer);
int64_t *arena_of_buffer(struct rank *k, const struct buf *b); /* size of the memory that holds it */
int32_t buffer_like(struct rank *k, const struct buf *b);      /* returns the buffer of that name, or a new one */

/* A random place in a program. A function that returns NULL has changed nothing. */
struct place {
    struct program *p;
    uint64_t *random;
    int r, i;
    struct rank *k;
    struct instr *x;
};
static inline int draw(struct place *m, int n) { return random_below(m->random, n); }
const char *label_of(const struct rank *k, int32_t i);

/* The families: mutate_order.c, mutate_name.c, mutate_memory.c, mutate_lane.c, mutate_team.c, mutate_period.c */
const char *mutate_order(struct place *m, enum mutation how);
const char *mutate_rank(struct place *m, enum mutation how);
const char *mutate_edge(struct place *m, enum mutation how);
const char *mutate_name(struct place *m, enum mutation how);
const char *mutate_operand(struct place *m, enum mutation how);
const char *mutate_memory(struct place *m, enum mutation how);
const char *mutate_wait(struct place *m, enum mutation how);
const char *mutate_free(struct place *m, enum mutation how);
const char *mutate_period(struct place *m, enum mutation how);
const char *mutate_lane(struct place *m, enum mutation how);
const char *mutate_team(struct place *m, enum mutation how);
#endif
