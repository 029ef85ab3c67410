/* The part of a rank's Kineto trace that describes a pipeline's run, as read_kineto.c passes it to kineto_times.c. */
#ifndef PIANOLA_KINETO_H
#define PIANOLA_KINETO_H
#include "recording.h"

/* A range of the host's time, in nanoseconds since 1970 */
struct range {
    int64_t start, end;
    int32_t stage, batch; /* stage -1: the rank's only one, which the range does not name */
    int32_t op;           /* an instruction's: F, B, I, W, SEND_F, RECV_F, SEND_B or RECV_B */
};

struct range_list {
    struct range *of;
    size_t n, cap;
};

/* Work on a GPU, or the host's call that launched it */
struct linked {
    int64_t start, end, correlation;
    bool message; /* a kernel of NCCL */
};

struct link_list {
    struct linked *of;
    size_t n, cap;
};

struct kineto {
    struct recording recording;
    struct range_list action;           /* what torch.distributed.pipelining does; sorted by start, as all others */
    struct range_list steps;            /* batch: the number N of ProfilerStep#N */
    struct range_list updates;          /* the optimizer's */
    struct range_list waits, arrivals;  /* from gloo's receive to the end of the wait for it; arrivals: sorted by end */
    struct range_list sends, receives;  /* calls that post a message */
    struct link_list launches, kernels; /* kernels: sorted by correlation */
    const char *backend;                /* of torch.distributed; NULL: not told */
    bool named; /* actions are named by stage, as by PyTorch's runtime of multi-stage schedules */
};
#endif
