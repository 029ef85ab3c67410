/* Copies of programs for tests, broken in one place. */
#ifndef PIANOLA_MUTATE_H
#define PIANOLA_MUTATE_H
#include "compiler.h"

struct program *copy_program(const struct program *p);

/* Every way to break a program in one place: X(name, family, what it does). A function for each family does it. */
#define MUTATIONS(X)                                                                                                   \
    X(DELETE, order, "an instruction is deleted")                                                                      \
    X(DUPLICATE, order, "an instruction comes twice")                                                                  \
    X(SWAP_LANE, order, "two neighbours of a lane change places")                                                      \
    X(SWAP_FAR, order, "two instructions of a lane change places")                                                     \
    X(SWAP_ISSUE, order, "two neighbours in issue order, of different lanes, change places")                           \
    X(MOVE, order, "an instruction is issued elsewhere")                                                               \
    X(OTHER_RANK, rank, "an instruction is on another rank")                                                           \
    X(SWAP_EDGE, edge, "two messages of an edge change places, at both ends")                                          \
    X(SWAP_END, edge, "two messages of an edge change places, at one end")                                             \
    X(DELETE_MESSAGE, edge, "a message is deleted, at all ends")                                                       \
    X(DUPLICATE_MESSAGE, edge, "a message comes twice, at all ends")                                                   \
    X(RENAME_MESSAGE, edge, "a message has another name, at all ends")                                                 \
    X(OTHER_BATCH, name, "an instruction is of another microbatch")                                                    \
    X(OTHER_STAGE, name, "an instruction is of another stage")                                                         \
    X(OTHER_PEER, name, "a message goes to, or comes from, another rank")                                              \
    X(OTHER_INSTANCE, name, "a message has another instance number")                                                   \
    X(OTHER_OPERATION, name, "an instruction is another one of its lane")                                              \
    X(OTHER_PART, name, "a part of a backward is another one, or the whole")                                           \
    X(SWAP_NAMES, name, "two instructions of one operation exchange names")                                            \
    X(OFFSET_ONE, memory, "a buffer lies a byte further up or down")                                                   \
    X(OFFSET_SIZE, memory, "a buffer lies its own size further up or down")                                            \
    X(OFFSET_OTHER, memory, "a buffer lies where another does")                                                        \
    X(OFFSET_SWAP, memory, "two buffers change places")                                                                \
    X(BYTES, memory, "a buffer is smaller or larger")                                                                  \
    X(BYTES_EVERYWHERE, memory, "all buffers of a kind and stage are smaller or larger")                               \
    X(NO_BYTES, memory, "a tensor, or all tokens, have no bytes")                                                      \
    X(RENAME_BUFFER, memory, "a buffer has another name")                                                              \
    X(OTHER_GROWTH, memory, "a stash grows into nothing, or something else")                                           \
    X(SHRINK_ARENA, memory, "an arena is smaller")                                                                     \
    X(DROP_WAIT, wait, "an instruction no longer waits for one other")                                                 \
    X(DROP_WAITS, wait, "an instruction waits for none")                                                               \
    X(DROP_RECORD, wait, "nobody waits for an instruction any more")                                                   \
    X(OTHER_WAIT, wait, "an instruction waits for another one instead")                                                \
    X(EARLIER_WAIT, wait, "an instruction waits for the one before in that lane instead")                              \
    X(SEND_WAIT, wait, "an instruction waits for a SEND instead")                                                      \
    X(SPARSE_WAITS, wait, "a rank waits for a few less")                                                               \
    X(ADD_WAIT, wait, "an instruction waits for one more")                                                             \
    X(MOVE_WAIT, wait, "the next of the lane waits instead")                                                           \
    X(DROP_FREE, free, "a buffer is not freed")                                                                        \
    X(DOUBLE_FREE, free, "a buffer is freed twice")                                                                    \
    X(MOVE_FREE, free, "a buffer is freed by another instruction")                                                     \
    X(OTHER_FREE, free, "another buffer is freed instead")                                                             \
    X(ADD_FREE, free, "one more buffer is freed")                                                                      \
    X(FLIP_FIRST, operand, "a sum is written instead of added to, or added to instead of written")                     \
    X(OTHER_OPERAND, operand, "an operand is another buffer of its kind")                                              \
    X(ANY_OPERAND, operand, "an operand is any other buffer")                                                          \
    X(EVERY_USE, operand, "all that use a buffer use another of its kind instead")                                     \
    X(SWAP_OPERANDS, operand, "two operands of an instruction exchange buffers")                                       \
    X(SWAP_BODIES, operand, "two instructions of one operation exchange operands")                                     \
    X(DROP_OPERAND, operand, "an operand is missing")                                                                  \
    X(DOUBLE_OPERAND, operand, "an operand comes twice")                                                               \
    X(OTHER_ROLE, operand, "an operand has another role")                                                              \
    X(OTHER_PIECE, operand, "an operand is another piece of its buffer, or all of it, or a piece instead of all")      \
    X(MOVE_PIECE, operand, "a piece that one part of a backward names is named by the next, or by both")               \
    X(OTHER_ROUND, operand, "an operand is the part of another round")                                                 \
    X(ADD_ITSELF, operand, "an ADD adds what it adds to")                                                              \
    X(JOIN_LANES, lane, "lanes are joined: both directions with a peer, or all messages")                              \
    X(SPLIT_LANE, lane, "a lane is split, by direction or in two")                                                     \
    X(OTHER_LANE, lane, "an instruction is on another lane of its rank")                                               \
    X(OTHER_GROUP, lane, "a group lacks a rank, or has another")                                                       \
    X(TEAM_WAIT, team, "a part does not wait for its exchange, or that not for its part")                              \
    X(TEAM_BATCH, team, "an exchange is of another microbatch")                                                        \
    X(TEAM_NUMBER, team, "an exchange has another number")                                                             \
    X(TEAM_KIND, team, "an exchange is another one, at all members")                                                   \
    X(TEAM_ORDER, team, "a team's members come in another order")                                                      \
    X(TEAM_SIDES, team, "a part gives, or gets, what it gets, or gives, or the next part does")                        \
    X(TEAM_PARTS, team, "two parts of a job change places")                                                            \
    X(TEAM_FREE, team, "what is exchanged is freed early")                                                             \
    X(TEAM_WORK, team, "a job, or a part of it, works in the other workspace")                                         \
    X(TEAM_SUM, team, "a member adds up its gradient in another order")                                                \
    X(TEAM_MEMBER, team, "an exchange names another member's stage")                                                   \
    X(OTHER_VERSION, period, "a job says that it reads another version of the weights, or all of its stage do")        \
    X(OTHER_UPDATE, period, "an update is another one, on one home or on all")                                         \
    X(NEWEST_WEIGHTS, period, "what reads a version's copy, or fetched weights, reads others of its rank")             \
    X(AGREED_VERSION, period, "a job reads another version that its rank has, and says so")                            \
    X(MOVE_MARK, period, "the period begins or ends earlier or later, on one rank or on all")                          \
    X(OTHER_PERIOD, period, "the period has another number of microbatches")                                           \
    X(TEXT_STAGES, text, "the head names another number of stages")                                                    \
    X(TEXT_BATCHES, text, "the head names another number of microbatches")                                             \
    X(TEXT_TIED, text, "the head names another stage that shares the table, or none")                                  \
    X(TEXT_DIVIDED, text, "a team is said to have nothing whole, or something")                                        \
    X(TEXT_RANGES, text, "a part is said to contribute other bytes, another's, none; or nothing is said of a job")     \
    X(TEXT_NEED_LESS, text, "a line of needs lacks a job")                                                             \
    X(TEXT_NEED_OTHER, text, "a line of needs names another job")                                                      \
    X(TEXT_NEED_TWICE, text, "a line of needs names a job twice")                                                      \
    X(TEXT_NEEDS_LESS, text, "a line of needs is missing")                                                             \
    X(TEXT_NEEDS_TWICE, text, "a line of needs comes twice")                                                           \
    X(TEXT_NUMBER, text, "a number is another one")                                                                    \
    X(TEXT_WORD, text, "a word is another one of its beginning")                                                       \
    X(TEXT_LINES, text, "two neighbouring lines change places")                                                        \
    X(TEXT_MOVE, text, "a line stands elsewhere")                                                                      \
    X(TEXT_ISSUE, text, "two lane numbers of an issue order change places")

#define X(name, family, what) MUT_##name,
enum mutation { MUTATIONS(X) NMUTATIONS, FIRST_TEXT_MUTATION = MUT_TEXT_STAGES };
#undef X
extern const char *const mutation_name[NMUTATIONS], *const mutation_what[NMUTATIONS];

/* Breaks p, a copy, at a place drawn from *random, and renumbers its messages. Returns a description, or NULL if there
 * is no such place; p is then unchanged. Not for mutations of the text form. */
const char *mutate(struct program *p, enum mutation how, uint64_t *random);
/* Breaks a text form in the same way. Returns the new text, or NULL. */
char *mutate_text(const char *text, enum mutation how, uint64_t *random);
#endif
