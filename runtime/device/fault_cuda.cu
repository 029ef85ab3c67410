/* Messages for CUDA's errors, with the instruction that an error may come from.
 *
 * Work is enqueued, so a kernel's fault surfaces at some later call. The message names the instruction that is being
 * enqueued at that call. With CUDA_LAUNCH_BLOCKING=1 a launch returns when the kernel has ended ("CUDA Environment
 * Variables"); outside of captures, that instruction is then the culprit itself. */
#include "device_cuda.cuh"
#include <stdio.h>
#include <stdlib.h>

/* The instruction that is being enqueued, or NULL. */
static struct {
    const struct replay *replay;
    const struct rt_instr *instr;
} now;

void cuda_enter(const struct replay *re, const struct rt_instr *x) {
    now.replay = re;
    now.instr = x;
    nvtx_begin(re->program, x);
}

void cuda_leave(void) {
    nvtx_end();
    now.instr = NULL;
}

void cuda_instr_name(const struct rt_program *p, const struct rt_instr *x, char *out, size_t n) {
    char batch[32] = "";
    int32_t slices = p->model->slices;
    if (x->batch >= 0 && slices > 0 && x->op != OP_U)
        snprintf(batch, sizeof batch, "%d.%d", x->batch / slices, x->batch % slices);
    else if (x->batch >= 0)
        snprintf(batch, sizeof batch, "%d", x->batch);
    if (is_job(x->op)) {
        snprintf(out, n, "%s%s%s", stage_name(p, x->stage).s, op_row(x->op)->name, batch);
        return;
    }
    int at = snprintf(out, n, "%s %s%s%s", op_row(x->op)->name, stage_name(p, x->stage).s, *batch ? " " : "", batch);
    if (has_peer(x->op))
        snprintf(out + at, n - (size_t)at, " %s %d", is_send(x->op) ? "to" : "from", x->peer);
}

/* Writes the place, such as "rank 1, step 2: 1F3". */
static void write_fault_place(char *out, size_t n) {
    char name[64], when[64];
    const struct replay *re = now.replay;
    cuda_instr_name(re->program, now.instr, name, sizeof name);
    if (re->purpose != TRAINS)
        snprintf(when, sizeof when, "%s after step %lld", re->purpose == VALIDATES ? "validation" : "last update",
                 (long long)re->step);
    else if (re->section == PERIOD)
        snprintf(when, sizeof when, "step %lld, repetition %lld", (long long)re->step + 1,
                 (long long)re->repetition + 1);
    else
        snprintf(when, sizeof when, "step %lld", (long long)re->step + 1);
    snprintf(out, n, "rank %d, %s: %s", re->rank, when, name);
}

/* Returns whether driver_types.h says that all further work returns this error, too. */
static bool is_sticky(cudaError_t code) {
    switch (code) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorTensorMemoryLeak:
    case cudaErrorExternalDevice: return true;
    default: return false;
    }
}

/* Returns whether a launch waits for its kernels: then no earlier instruction can be at fault. */
static bool is_exact(void) {
    const char *blocking = getenv("CUDA_LAUNCH_BLOCKING");
    return now.instr && blocking && atoi(blocking) != 0 && !((const struct cuda_rank *)now.replay->self)->captured;
}

const char *cuda_trouble(cudaError_t code, const char *call, char *why, size_t n) {
    char place[256] = "";
    if (now.instr)
        write_fault_place(place, sizeof place);
    int at = snprintf(why, n, "CUDA: %s: %s: %s", call, cudaGetErrorName(code), cudaGetErrorString(code));
    at = at < (int)n ? at : (int)n;
    if (!is_sticky(code))
        snprintf(why + at, n - (size_t)at, "%s%s%s", *place ? " (" : "", place, *place ? ")" : "");
    else if (is_exact())
        snprintf(why + at, n - (size_t)at, ", in %s; to see where in it, run this under compute-sanitizer", place);
    else
        snprintf(why + at, n - (size_t)at,
                 "%s%s. An earlier instruction may be at fault: to see which, run with --no-graph and with "
                 "CUDA_LAUNCH_BLOCKING=1 in the environment, then under compute-sanitizer",
                 *place ? ", while enqueuing " : "", place);
    return why;
}
