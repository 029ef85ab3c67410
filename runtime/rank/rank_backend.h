/* What a rank runs on: a CPU (rank_host.c) or a GPU (rank_cuda.cu, with rank_cuda_alone.cu for a rank that is a process
 * and process/train_cuda.cu for threads). Linking one or the other decides; everything else stays the same.
 *
 * The functions are called in this order. All ranks call those marked collective together; there, an error on one rank
 * ends all of them, through world_verdict. */
#ifndef PIANOLA_RANK_BACKEND_H
#define PIANOLA_RANK_BACKEND_H
#include "rt.h"
#include "store/checkpoint.h"

struct rank_run;
struct rank_backend;              /* the implementation's own, in rank_run's backend */
extern const char backend_kind[]; /* "CPU" or "GPU": all ranks of a run must have the same */

/* Called first, before the process has other threads. Refuses what it cannot run. */
void backend_open(const struct rt_program *self);
/* Collective: chooses one of the host's devices for each rank. */
void backend_choose(struct rank_run *run);
/* Allocates all memory and whatever the replay needs besides messages; sets run->backend and run->replay. False with
 * why. */
bool backend_take(struct rank_run *run, char *why, size_t nwhy);
/* Collective: sets up how messages travel. */
void backend_connect(struct rank_run *run);
/* Sets the initial weights at the homes. */
void backend_begin(struct rank_run *run);
/* For the line about the run: "matrix products by libxsmm for hsw, one thread a rank". */
const char *backend_line(const struct rank_run *run);

/* Enqueues a step, from 0. They come in order, and each is waited for. A GPU then runs it by itself; a CPU runs it in
 * backend_wait. */
void backend_enqueue(struct rank_run *run, int64_t step);
/* May a step be enqueued while the one before it runs? Even then not behind the run's first, nor with --timeline. */
extern const bool backend_leads;
/* While the process waits for other ranks: looks for trouble in what is enqueued, and ends the process if it finds
 * some. */
void backend_look(struct rank_run *run);
/* Waits for the end of the earliest step that is enqueued. loss[batches]: of each microbatch whose loss is told
 * here, else 0. when: NULL, or of each of the last stage's updates, which are here: when it had ended, in seconds of
 * the monotonic clock. A GPU knows of a pass of the step (device/replay.h) when it ended. */
void backend_wait(struct rank_run *run, int64_t step, float *loss, double *when);
/* With post-validation (device/ahead.h). The norm that the last step's updates found, of the step before it; the step
 * that has just ended once more, as backend_wait tells of it; and all ranks settle its updates: returns its norm. No
 * step may be enqueued. */
const uint64_t *backend_found(struct rank_run *run);
void backend_again(struct rank_run *run, int64_t step, float *loss, double *when);
const uint64_t *backend_settle(struct rank_run *run);
/* A step of held-out text: its losses, as backend_wait tells them. No other step may be enqueued. */
void backend_validate(struct rank_run *run, int64_t step, float *loss);
/* In the step that has just ended, how long the compute lane waited for others: store/metrics.h. NAN: not known. */
double backend_waited(struct rank_run *run);
/* The norm by which its updates were clipped; NAN: there is none here. */
double backend_norm(struct rank_run *run, int64_t step);
/* When the step that has just ended began, and ended; where ranks are threads, by a clock that all of them have. */
struct rt_stamp backend_span(struct rank_run *run, int64_t step);
/* When the instructions of the step that has just ended ran: seconds of the monotonic clock. With --timeline, after
 * every step. */
void backend_times(struct rank_run *run, int64_t step, struct rt_stamp *stamp);
/* What this rank's routes have sent to experts in all steps that have ended. No step may be enqueued. */
struct rt_routed backend_routed(struct rank_run *run);
/* Collective, once, after the first step: rank 0 reports the memory that ranks use, if it is not what was planned. */
void backend_report(struct rank_run *run);
/* Collective, once, after the last step: bytes of device memory that a rank takes then, at most; as the device counts
 * them, with all that others take for it. -1: there is no device. */
int64_t backend_bytes_at_end(struct rank_run *run);

/* What a home has learned (rt_learned), in the host's memory, valid until the next call. No step may be enqueued. */
struct checkpoint_shard backend_pull(struct rank_run *run, const struct rt_home *home);
/* Sets the weights that are there, and what the home updates, from those of the whole stage, fp32: weight_count floats,
 * and as many of each moment. No step may be enqueued. */
void backend_push(struct rank_run *run, const struct rt_home *home, const float *weight, const float *moments);

/* The process is about to end early: releases the other ranks within two seconds. Any thread may call it. */
void backend_abort(void);
/* Collective, when all is done. arena[NMEMORIES]: where the arenas stay, in the host's memory, at least what
 * homes have learned in them, and the caller frees them. NULL: nobody wants them. */
void backend_release(struct rank_run *run, char **arena);
#endif
