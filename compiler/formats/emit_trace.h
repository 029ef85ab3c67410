/* Declarations shared by emit_trace.c and the two formats it serves: what a viewer shows on its tracks, and when. Steps
 * follow each other. */
#ifndef PIANOLA_EMIT_TRACE_H
#define PIANOLA_EMIT_TRACE_H
#include "formats.h"

/* A slice begins or ends. At equal times, ends come first, and a receive begins after its send. */
struct mark {
    int64_t t; /* nanoseconds */
    enum { ENDS, BEGINS, BEGINS_RECEIVE } what;
    int32_t step, rank, ins;
};

struct level { /* bytes of a rank's memory in use from t on */
    int64_t t, bytes;
};

struct trace {
    double unit_ns;           /* nanoseconds drawn per unit of the timelines */
    int64_t ***start, ***end; /* [step][rank][instruction] */
    struct mark *mark;        /* sorted by time */
    size_t nmarks;
    struct level **memory; /* per rank */
    int *nlevels;
};

/* Returns the name of a rank's n-th join, at the ends of what repeats. */
const char *join_name(const struct program *p, int n);
struct trace *trace_make(const struct program *p, const struct steps *steps, const char *unit);
double trace_unit(const char *unit, const struct steps *steps); /* returns unit_ns */
/* Writes "1F3", "2FETCH": PyTorch's spelling. Viewers pick the colour by the name without its digits. */
void put_slice_name(struct text *t, const struct names *names, const struct instr *in);
/* Writes the rest of a slice's JSON args after its stage, and the closing braces: microbatch and its slice, peer,
 * bytes. */
void put_slice_args(struct text *t, const struct names *names, const struct rank *k, const struct instr *in);
bool sends_message(const struct instr *in); /* whether it has a receive on another rank */
bool receives_message(const struct instr *in);
const char *slice_category(const struct instr *in); /* "compute", "send", "recv" or "collective" */
#endif
