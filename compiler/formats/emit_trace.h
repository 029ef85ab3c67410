/* Between emit_trace.c and the two formats it serves: what stands on the tracks of a viewer, and when. Steps follow
 * each other. */
#ifndef PIANOLA_EMIT_TRACE_H
#define PIANOLA_EMIT_TRACE_H
#include "formats.h"

/* A slice begins or ends. At one time what ends comes first, and a receive begins after its send. */
struct mark {
    int64_t t; /* nanoseconds */
    enum { ENDS, BEGINS, BEGINS_RECEIVE } what;
    int32_t step, rank, ins;
};

struct level { /* of a rank's memory, from t on */
    int64_t t, bytes;
};

struct trace {
    double unit_ns;           /* nanoseconds that a unit of the timelines is drawn as */
    int64_t ***start, ***end; /* [step][rank][instruction] */
    struct mark *mark;        /* by time */
    size_t nmarks;
    struct level **memory; /* per rank */
    int *nlevels;
};

struct trace *trace_make(const struct program *p, const struct steps *steps, const char *unit);
double trace_unit(const char *unit, const struct steps *steps); /* unit_ns */
/* "1F3", "2FETCH": as PyTorch spells it. A viewer colours by the name without its digits. */
void put_slice_name(struct text *t, const struct instr *in);
/* The rest of a slice's args in JSON, behind its stage, and their end: microbatch, peer, bytes. */
void put_slice_args(struct text *t, const struct rank *k, const struct instr *in);
bool sends_message(const struct instr *in); /* one with a receive on another rank */
bool receives_message(const struct instr *in);
const char *slice_category(const struct instr *in); /* "compute", "send", "recv" or "collective" */
#endif
