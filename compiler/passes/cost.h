/* Declarations shared by cost*.c, layout.c, split.c and slices.c. */
#ifndef PIANOLA_COST_H
#define PIANOLA_COST_H
#include "passes.h"

enum { TENSOR_ALIGN = 64 }; /* bytes: alignment of tensors inside their space, and of a layer's parameters */
static inline int64_t aligned(int64_t bytes) { return (bytes + TENSOR_ALIGN - 1) / TENSOR_ALIGN * TENSOR_ALIGN; }

/* layout.c: sets the parameter offsets of layers that have parameters in the stage's own set and whose nparam is known.
 * Sets the stage's sizes of weights and of optimizer state, which is `state` floats per weight. */
void layout_weights(struct rt_stage *s, struct rt_layer *layer, int precision, int state);
/* layout.c: also sets the layers' slots, and the stage's other sizes except act, grad and input. reads: the number of
 * stages whose outputs it reads; 0: it reads the batch, which needs no gradient. readers: the number of stages that
 * read its output. */
void layout_stage(struct rt_stage *s, struct rt_layer *layer, int reads, int readers, int precision, int state);
/* split.c: returns the layers of a member of a team: its parts of n layers, and the layers needed between them; *count:
 * their number. reach: number of layers from the first one on that are in stages with teams of that size. *divided:
 * whether the input, and then the output, is divided by columns. Dies, naming the layer, if something cannot be
 * divided. */
struct rt_layer *split_layers(const struct model *m, const struct rt_layer *whole, int n, struct member member,
                              int reach, bool *divided, int *count);
int64_t count_parameters(const struct model *m, const struct rt_layer *l); /* counts for a layer, or for a member's part
                                                                            * of it */
/* Returns the floats that the optimizer keeps for each weight: its moments and, with bf16, the master weight. */
static inline int state_of(const struct model *m) { return (m->rt.precision == BF16) + count_moments(m->rt.optimizer); }
/* cut.c: returns the item of the model's list that opens each stage, and then the number of items: [stages + 1]. all:
 * the model's layers. Dies if the model has fewer items than stages. */
int *cut_stages(const struct spec *sp, const struct rt_layer *all, int stages);
/* cost.c: sets the costs of a stage's jobs and of its update, from its layers. */
void cost_of(struct stage *st, const struct spec *sp);
/* cost_sets.c: fills the sets that follow the stages, whose layers are known. Dies if two stages cannot share a
 * table. */
void fill_sets(const struct costs *costs);
/* Sets sp->bare. Dies if the script gives no home to a stage that has parameters. */
void bare_sets(struct costs *costs);
/* Dies if updates within the step need versions that a set does not have. */
void refuse_unversioned(const struct costs *costs);
/* cost_teams.c: sets the exchanges of the stage's jobs with the rest of a team, in the order of their sweeps, and the
 * parts' shares. An input gradient that no job needs is not exchanged. */
void find_stops(struct stage *st, const struct spec *sp);
/* Sets costs.exchange, which checks of a program read. */
void list_exchanges(struct costs *costs);
/* cost_teams.c: sets costs.whole. */
void find_whole(struct costs *costs);
/* Sets job.exchange: a team starts and ends together, as its slowest member does. */
void wait_for_team(struct costs *costs);
/* Sets the cost of two jobs that run at once; all members of a team take as long as the slowest. */
void cost_pairs(struct costs *costs);
/* slices.c: microbatches cut along the sequence. */
/* Returns the rows of a sequence: the context of a model of tokens; otherwise all rows of a microbatch are one
 * sequence. */
static inline int sequence_rows(const struct model *m) {
    return m->rt.input == INPUT_TOKENS ? m->rt.context : m->rt.rows;
}
/* Sets costs.rows, by the FLOP of all layers. Dies if the sequence cannot be cut into these slices. */
void cut_sequence(struct costs *costs, const struct rt_layer *all);
/* Returns the layers of a stage on the rows of slice q. */
struct rt_layer *layers_of_slice(const struct costs *costs, const struct rt_stage *whole, int q);
/* Sets the bytes of kv and dkv of a stage on slice q. */
void size_keys(const struct costs *costs, struct stage *slice, int q);
/* Sets costs.attends. */
void find_attention(struct costs *costs);
#endif
