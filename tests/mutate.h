/* Programs for tests: compiled from a spec, copied, and broken in one place. */
#ifndef PIANOLA_MUTATE_H
#define PIANOLA_MUTATE_H
#include "../compiler/pass.h"

struct program *copy_program(const struct program *p);

/* Every way to break a program in one place. X(name, what it does) */
#define MUTATIONS(X)                                                                                                   \
    X(DELETE, "an instruction is deleted")                                                                             \
    X(DUPLICATE, "an instruction comes twice")                                                                         \
    X(SWAP_LANE, "two neighbours of a lane change places")                                                             \
    X(SWAP_ISSUE, "two neighbours in issue order, of different lanes, change places")                                  \
    X(MOVE, "an instruction is issued elsewhere")                                                                      \
    X(OTHER_RANK, "an instruction is on another rank")                                                                 \
    X(OTHER_BATCH, "an instruction is of another microbatch")                                                          \
    X(OTHER_STAGE, "an instruction is of another stage")                                                               \
    X(OTHER_PEER, "a message goes to, or comes from, another rank")                                                    \
    X(OTHER_INSTANCE, "a message has another instance number")                                                         \
    X(OFFSET_ONE, "a buffer lies a byte further up or down")                                                           \
    X(OFFSET_SIZE, "a buffer lies its own size further up or down")                                                    \
    X(OFFSET_OTHER, "a buffer lies where another does")                                                                \
    X(OFFSET_SWAP, "two buffers change places")                                                                        \
    X(BYTES, "a buffer is smaller or larger")                                                                          \
    X(DROP_WAIT, "an instruction no longer waits for one other")                                                       \
    X(DROP_RECORD, "nobody waits for an instruction any more")                                                         \
    X(OTHER_WAIT, "an instruction waits for another one instead")                                                      \
    X(ADD_WAIT, "an instruction waits for one more")                                                                   \
    X(DROP_FREE, "a buffer is not freed")                                                                              \
    X(DOUBLE_FREE, "a buffer is freed twice")                                                                          \
    X(MOVE_FREE, "a buffer is freed by another instruction")                                                           \
    X(FLIP_FIRST, "a sum is written instead of added to, or added to instead of written")                              \
    X(OTHER_OPERAND, "an operand is another buffer of its kind")                                                       \
    X(DROP_OPERAND, "an operand is missing")                                                                           \
    X(SHRINK_ARENA, "an arena is smaller")

#define X(name, what) MUT_##name,
enum mutation { MUTATIONS(X) NMUTATIONS };
#undef X
extern const char *const mutation_name[NMUTATIONS], *const mutation_what[NMUTATIONS];

/* Breaks p, a copy, at a place drawn from *random, and numbers its messages anew. Returns what it did, or NULL when it
 * found no such place; p is then as it was. */
const char *mutate(struct program *p, enum mutation how, uint64_t *random);
#endif
