/* Parts shared by a diff's pictures, static and interactive. */
#ifndef PIANOLA_DIFF_DRAW_H
#define PIANOLA_DIFF_DRAW_H
#include "diff.h"

bool diff_draws(const struct side *side, int i); /* whether operation i is a block in its rank's row */
const struct diff_lane *diff_job_lane(const struct side *side, int r); /* NULL: the rank has none */
/* Returns 1 for the upper of two overlapping jobs, 2 for the lower, 0 without overlap. */
int diff_half(const struct side *side, int i);
/* Returns whether a rank runs jobs of several stages, so that a microbatch alone does not identify a job. */
bool diff_several_stages(const struct side *side);
/* Returns the job that an operation waited for, directly or through others, for a timeline alone; -1: none. */
int diff_waited_for(const struct side *side, int i);
/* Sets the operation of each rank's instructions, the instruction of each operation, and the producers. The side's
 * waits must be known. */
void diff_number_ops(const struct side *s, int32_t ***op_at, int32_t **ins_of, struct producers *producers);
/* Returns an operation as an instruction, for its colour and name. */
struct instr diff_instr(const struct diff_op *op);
double diff_time(const struct diff *diff, int64_t ticks); /* in the ruler's base unit */
/* Sets when a rank's instructions start and end. The side's program must be known. */
void diff_rank_times(const struct diff *diff, int side, int r, double **start, double **end);
double diff_limit(const struct diff *diff); /* the smaller of the sides' memory limits; INFINITY: none */
/* Returns whether the root, or NULL, is operation i itself. */
bool diff_is_root(const struct root *root, int side, int i);
/* Writes why an operation changed: "; ends +14 units; pushed by 3F7 of rank 3". relative: writes what depends on the
 * microbatch as viewer/data.js describes it, so that a change that repeats has one note: "; ends {}; pushed by 3F{-1}
 * of rank 3" */
void diff_put_note(struct text *t, const struct diff *diff, int side, int i, bool relative);
#endif
