/* Checkpoints, per stage as in PipeDream (Narayanan et al. 2019, section 4): the home of a stage writes its file, or
 * several homes write their shards of it. One rank writes the manifest last; only then do the files count as a
 * checkpoint.
 *
 *     DIR/step-00000012/stage-0000.safetensors    a tensor per parameter, and the optimizer's state; the last file is
 *                                                 the token table's, where embedding and unembedding share one
 *     DIR/step-00000012/manifest.json             step, seed, data, and each file's size and checksum
 *
 * A tensor's name has its layer's place in the whole model and its parameter's name in LAYERS of model.h:
 * layer.5.weight (in x out), .bias (out); moments add a letter of OPTIMIZERS: layer.5.weight.m and .v are AdamW's first
 * and second moments. All are fp32; with bf16, the weights are the master weights. The file has whole layers' tensors:
 * the members of a team write into one file, each its own stretches (stretch_of in parameters.h). If all members hold a
 * whole tensor, the first member writes it. So a checkpoint fits every partition, schedule, team, precision and number
 * of ranks. All ranks see the same DIR.
 *
 * Every function returns false on failure, with `path: reason` in why. Whatever fails, a complete checkpoint stays
 * complete, unless its own step is written again. */
#ifndef PIANOLA_CHECKPOINT_H
#define PIANOLA_CHECKPOINT_H
#include "rt.h"

/* Settings that must be equal for a run to continue where another stopped. */
struct checkpoint_run {
    uint64_t seed;
    int64_t data_bytes;  /* size of the data file; 0: none */
    uint64_t data_hash;  /* hash that identifies the data, chosen by the caller */
    int64_t steps;       /* length of the learning-rate schedule; 0: not in the file */
    int64_t most, least; /* updates per step of the stage with most, and of the stage with fewest */
    /* Number of sequences read from this data, and their tokens each. -1: not in the file. */
    int64_t sequences, context;
    bool nonfinite; /* the checkpoint holds numbers that are not finite */
};

/* ---- one run at a time ---- */

/* Locks dir, which it creates if missing, for this rank of a run, until this process ends. Rank 0 calls first, the
 * others once rank 0 has the lock. *lock is -1 the first time; later calls lock the new folder if dir has been
 * replaced. run: description for messages of other runs. Returns false on an error, or if another run, named in why,
 * has dir. Returns true with why not empty for a warning. */
bool checkpoint_lock(int *lock, const char *dir, int rank, const char *run, char *why, size_t nwhy);

/* ---- writing, in this order: all stages; when all of them are done, the manifest; then checkpoint_keep ---- */

/* A rank's part of a stage: weights and moments of the elements [first, first + count), fp32, as the replay lays them
 * out (rt_learned). */
struct checkpoint_shard {
    int64_t first, count;
    const float *weight;
    const float *moments; /* after at least one update; each array begins `stride` floats after the one before. NULL:
                           * none */
    int64_t stride;
};

/* A stage's file in the checkpoint of a step. The members of a team share it. */
struct stage_file {
    const char *dir;
    int64_t step;
    int stage;
};
/* Write a stage's file. First, one rank begins the file, creating the folders. Then each rank that has a shard writes
 * it; s is its own set. When all of them have, one rank ends the file. Shards do not overlap, and together they cover
 * the stage. */
bool checkpoint_begin_stage(const struct stage_file *of, const struct rt_model *m, const struct rt_stage *s, char *why,
                            size_t nwhy);
bool checkpoint_write_shard(const struct stage_file *of, const struct rt_model *m, const struct rt_stage *s,
                            const struct checkpoint_shard *shard, char *why, size_t nwhy);
bool checkpoint_end_stage(const struct stage_file *of, char *why, size_t nwhy);
/* Writes the manifest. Reads all stages' files back for their checksums. */
bool checkpoint_write_manifest(const char *dir, int64_t step, int stages, const struct checkpoint_run *run, char *why,
                               size_t nwhy);
/* Removes all checkpoints except the newest `last` (at least 1) complete ones, and remains of crashes that are older
 * than the newest. If all of the kept ones hold non-finite numbers, the newest finite one stays too. Reads the
 * manifests of the checkpoints it counts, and checks only the sizes of their files. Touches nothing newer than the
 * newest complete checkpoint, which another process may be writing. A checkpoint that has a manifest but is incomplete
 * stays until `last` newer ones are complete. */
bool checkpoint_keep(const char *dir, int last, char *why, size_t nwhy);

/* ---- reading ---- */

/* Finds the newest complete checkpoint: its manifest and all its files match their checksums. Returns false if there is
 * none. If newer ones were skipped, why says what is wrong with the newest of them; otherwise why is empty. */
bool checkpoint_latest(const char *dir, int64_t *step, char *why, size_t nwhy);
/* Returns true if the folder can be read and has no checkpoint, complete or damaged. It may have remains of one that a
 * crash interrupted. */
bool checkpoint_none(const char *dir);
/* Reads the manifest, but not the files. */
bool checkpoint_read_run(const char *dir, int64_t step, struct checkpoint_run *run, char *why, size_t nwhy);
/* Reads a stage's weights, weight_count floats, and then as many of each moment, from whichever files hold its layers;
 * gaps between parameters are 0. The caller frees the result. Returns NULL if something is missing or has another
 * shape. Validates each file it opens as safetensors, but not its checksum: call checkpoint_latest on one rank
 * first. */
float *checkpoint_read_stage(const char *dir, int64_t step, const struct rt_model *m, const struct rt_stage *s,
                             char *why, size_t nwhy);
/* Writes all parameters, without optimizer state, into one safetensors file, in the order of the model. The bytes do
 * not depend on the partition. step -1: the newest complete checkpoint. */
bool checkpoint_export(const char *dir, int64_t step, const char *path, char *why, size_t nwhy);
#endif
