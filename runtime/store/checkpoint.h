/* Checkpoints, per stage as in PipeDream (Narayanan et al. 2019, section 4): the home of a stage writes its file, or
 * its homes their shards, and the manifest, which one rank writes last, makes the files a checkpoint.
 *
 *     DIR/step-00000012/stage-0000.safetensors    a tensor per parameter, and the optimizer's state; the last file is
 *                                                 the token table's, where embedding and unembedding share one
 *     DIR/step-00000012/manifest.json             step, seed, data, and each file's size and checksum
 *
 * A tensor's name has its layer's place in the whole model and its parameter's name in LAYERS of model.h:
 * layer.5.weight (in x out), .bias (out); moments add a letter of OPTIMIZERS: layer.5.weight.m and .v are AdamW's of
 * first and second order. All are fp32; with bf16, the weights are the masters. They are whole layers': the members of
 * a team write into one file, each its stretches (stretch_of in parameters.h), and of what all have whole the first
 * member's counts. So a checkpoint fits every cut, schedule, team, precision and number of ranks. All ranks see the
 * same DIR.
 *
 * Every function returns false on failure, with `path: reason` in why. Whatever fails, a whole checkpoint stays whole,
 * unless its own step is written again. */
#ifndef PIANOLA_CHECKPOINT_H
#define PIANOLA_CHECKPOINT_H
#include "rt.h"

/* What must be equal for a run to continue where another stopped. */
struct checkpoint_run {
    uint64_t seed;
    int64_t data_bytes;  /* of the data file; 0: none */
    uint64_t data_hash;  /* of what identifies the data, as the caller chooses */
    int64_t steps;       /* over which the learning rate goes its way; 0: the file does not say */
    int64_t most, least; /* updates of a stage in a step: of that with most, and with fewest */
    /* How many sequences of this data it has read, of so many tokens each. -1: the file does not say. */
    int64_t sequences, context;
    bool nonfinite; /* it holds numbers that are not finite */
};

/* ---- one run at a time ---- */

/* Locks dir, created if missing, until this process ends, for the run of which it is rank `rank`. Rank 0 calls first,
 * the others once it has the lock. *lock: -1 the first time; later calls lock a new folder if dir is no longer the same
 * one. run: what other runs are told. False: another run, named in why, has dir, or an error. True with why not empty:
 * a warning. */
bool checkpoint_lock(int *lock, const char *dir, int rank, const char *run, char *why, size_t nwhy);

/* ---- writing, in this order: all stages, then, when all of them are done, the manifest, then keep ---- */

/* What a rank knows of a stage: weights and moments of the elements [first, first + count), fp32, as the replay lays
 * them out (rt_learned). */
struct checkpoint_shard {
    int64_t first, count;
    const float *weight;
    const float *moments; /* after at least one update; each array `stride` floats behind the one before. NULL: none */
    int64_t stride;
};

/* A stage's file in the checkpoint of a step, which members of a team share. */
struct stage_file {
    const char *dir;
    int64_t step;
    int stage;
};
/* One rank begins it, making the folders; when that is done, each rank that has a shard writes it, s being its own
 * set's; when all of them have, one rank ends it. Shards do not overlap, and together they are the whole. */
bool checkpoint_begin_stage(const struct stage_file *of, const struct rt_model *m, const struct rt_stage *s, char *why,
                            size_t nwhy);
bool checkpoint_write_shard(const struct stage_file *of, const struct rt_model *m, const struct rt_stage *s,
                            const struct checkpoint_shard *shard, char *why, size_t nwhy);
bool checkpoint_end_stage(const struct stage_file *of, char *why, size_t nwhy);
/* Reads all stages' files back for their checksums. */
bool checkpoint_write_manifest(const char *dir, int64_t step, int stages, const struct checkpoint_run *run, char *why,
                               size_t nwhy);
/* Removes all checkpoints except the newest `last` (at least 1) whole ones, and what crashes left before the newest. It
 * reads the manifests of those it counts, and checks only the sizes of their files. Where all of those hold numbers
 * that are not finite, the newest one that is finite stays too. It touches nothing newer than the
 * newest whole one, which another process may be writing. A checkpoint that has a manifest but is not whole stays until
 * `last` newer ones are whole. */
bool checkpoint_keep(const char *dir, int last, char *why, size_t nwhy);

/* ---- reading ---- */

/* The newest whole checkpoint: its manifest and all its files match their checksums. If newer ones were skipped, why
 * says why the newest of them was; otherwise why is empty. False: there is none. */
bool checkpoint_latest(const char *dir, int64_t *step, char *why, size_t nwhy);
/* True if the folder can be read and has no checkpoint, whole or damaged: at most what a crash left of one being
 * written. */
bool checkpoint_none(const char *dir);
/* Reads the manifest; does not look at the files. */
bool checkpoint_read_run(const char *dir, int64_t step, struct checkpoint_run *run, char *why, size_t nwhy);
/* A stage's weights, weight_count floats, and then as many of each moment, from whichever files hold its layers; gaps
 * between parameters are 0. The caller frees it. NULL: something is missing or has another shape. Validates each file
 * it opens as safetensors, but not checksums: call checkpoint_latest on one rank first. */
float *checkpoint_read_stage(const char *dir, int64_t step, const struct rt_model *m, const struct rt_stage *s,
                             char *why, size_t nwhy);
/* All parameters, without optimizer state, as one safetensors file, in the order of the model: the same bytes whatever
 * the cut. step -1: the newest whole checkpoint. */
bool checkpoint_export(const char *dir, int64_t step, const char *path, char *why, size_t nwhy);
#endif
