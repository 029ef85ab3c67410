/* The backend that a rank runs on: a CPU (rank_host.c) or a GPU (rank_cuda.cu, with rank_cuda_alone.cu for a rank that
 * is a process and process/train_cuda.cu for threads). A program links one or the other; everything else is the same.
 *
 * The functions are called in this order. All ranks call the collective functions together; an error on one rank then
 * ends all of them, through world_verdict. */
#ifndef PIANOLA_RANK_BACKEND_H
#define PIANOLA_RANK_BACKEND_H
#include "rt.h"
#include "store/checkpoint.h"

struct rank_run;
struct rank_backend;              /* private to the implementation; rank_run's backend */
extern const char backend_kind[]; /* "CPU" or "GPU": all ranks of a run must have the same */

/* Called first, before the process has other threads. Refuses programs that it cannot run. */
void backend_open(const struct rt_program *self);
/* Collective: chooses one of the host's devices for each rank. */
void backend_choose(struct rank_run *run);
/* Allocates all memory and whatever the replay needs besides messages; sets run->backend and run->replay. Returns false
 * and sets why on failure. */
bool backend_take(struct rank_run *run, char *why, size_t nwhy);
/* Collective: sets up the transport of messages. */
void backend_connect(struct rank_run *run);
/* Sets the initial weights at the homes. */
void backend_begin(struct rank_run *run);
/* Returns the backend's part of the line about the run: "matrix products by libxsmm for hsw, one thread a rank". */
const char *backend_line(const struct rank_run *run);

/* Enqueues a step; steps count from 0. Steps are enqueued in order, and backend_wait is called for each. A GPU runs the
 * step by itself; a CPU runs it in backend_wait. */
void backend_enqueue(struct rank_run *run, int64_t step);
/* Whether a step may be enqueued while the one before it runs. This never holds after the run's first step, nor with
 * --timeline. */
extern const bool backend_leads;
/* Checks the enqueued work for errors, while the process waits for other ranks. Ends the process if it finds one. */
void backend_look(struct rank_run *run);
/* Waits for the end of the earliest step that is enqueued. loss[batches]: the losses of the microbatches whose loss
 * this rank computes, 0 for others. when: NULL, or the end of each of the last stage's updates, which must be on this
 * rank, in seconds of the monotonic clock. On a GPU, an update ends with its pass of the step (device/replay.h). */
void backend_wait(struct rank_run *run, int64_t step, float *loss, double *when);
/* Serve post-validation (device/ahead.h); no step may be enqueued. backend_found returns the norm of the previous step,
 * as read by the last step's updates. backend_again runs the step that has just ended once more, with backend_wait's
 * results. backend_settle makes all ranks settle that step's updates, and returns its norm. */
const uint64_t *backend_found(struct rank_run *run);
void backend_again(struct rank_run *run, int64_t step, float *loss, double *when);
const uint64_t *backend_settle(struct rank_run *run);
/* Runs a step on held-out text and returns its losses as backend_wait does. No other step may be enqueued. */
void backend_validate(struct rank_run *run, int64_t step, float *loss);
/* Returns how long the compute lane waited for other lanes in the step that has just ended (store/metrics.h). NAN: not
 * known. */
double backend_waited(struct rank_run *run);
/* Returns the norm with which the step's updates were clipped. NAN: there is none on this rank. */
double backend_norm(struct rank_run *run, int64_t step);
/* Returns the start and end of the step that has just ended; if ranks are threads, by a clock that all of them
 * share. */
struct rt_stamp backend_span(struct rank_run *run, int64_t step);
/* Returns the times of the instructions of the step that has just ended, in seconds of the monotonic clock. With
 * --timeline, called after every step. */
void backend_times(struct rank_run *run, int64_t step, struct rt_stamp *stamp);
/* Returns the counts of tokens that this rank's routes have sent to experts in all steps that have ended. No step may
 * be enqueued. */
struct rt_routed backend_routed(struct rank_run *run);
/* Collective, once, after the first step: rank 0 reports the memory that ranks use, if it differs from the plan. */
void backend_report(struct rank_run *run);
/* Collective, once, after the last step: returns the device memory of the rank that uses most, in bytes. The device
 * counts it, so it includes memory that libraries and the driver use. -1: there is no device. */
int64_t backend_bytes_at_end(struct rank_run *run);

/* Returns a home's learned state (rt_learned), in host memory, valid until the next call. No step may be enqueued. */
struct checkpoint_shard backend_pull(struct rank_run *run, const struct rt_home *home);
/* Sets a home's weights, and the state that it updates, from the whole stage's, fp32: weight_count floats, and as many
 * of each moment. No step may be enqueued. */
void backend_push(struct rank_run *run, const struct rt_home *home, const float *weight, const float *moments);

/* Releases the other ranks within two seconds, because the process is about to end early. Any thread may call it. */
void backend_abort(void);
/* Collective, when all is done: releases everything. arena[NMEMORIES]: receives the arenas in host memory, which the
 * caller frees. They contain at least the homes' learned state. NULL: the arenas are not needed. */
void backend_release(struct rank_run *run, char **arena);
#endif
