/* The parts of a reader of recorded runs: a table of formats, and what one rank's file becomes. */
#ifndef PIANOLA_RECORDING_H
#define PIANOLA_RECORDING_H
#include "base/map.h"
#include "traces.h"

/* One rank's file. A reader keeps its own data after it, in a struct whose first member this is. */
struct recording {
    const char *file;
    int rank; /* as its tool numbers it */
};

/* A rank's instructions by name */
struct ins_index {
    struct map map;
    const struct rank *rank;
};
struct ins_index ins_index(const struct rank *rank);
int32_t find_ins(const struct ins_index *index, int op, int stage, int batch); /* -1: the rank has none */
/* Returns what an instruction needs or gives: the RECV of a job's input or the SEND of its output; -1: none. */
int32_t ins_before(const struct ins_index *index, int op, int stage, int batch);
int32_t ins_after(const struct ins_index *index, int op, int stage, int batch);

/* A rank's run, by steps. A reader adds steps and sets spans; read_trace.c compares the ranks. */
struct rank_run {
    const struct recording *of;
    struct recording *const *all; /* every rank's, by rank */
    const struct program *p;
    int r, nsteps;
    struct ins_index index;
    struct rank_step {
        int number;      /* negative: counted from the last, which is -1 */
        struct span *at; /* per instruction; end < start: not recorded */
    } * step;
    size_t cap;
    bool hangs; /* a message never completed */
};
int add_step(struct rank_run *run, int number);
/* Dies if the instruction has a span already. */
void set_span(struct rank_run *run, int step, int32_t ins, int64_t start, int64_t end);
const char *name_in_run(const struct rank_run *run, int32_t ins); /* an instruction's */
const char *step_name(int number);                                /* "step 3", or "the last step" */
static inline bool span_known(const struct span *span) { return span->end >= span->start; }

extern const char trace_advice[]; /* for a run of another program */

/* The formats, one row each. */
struct trace_format {
    const char *name;
    bool (*knows)(const char *s, size_t n); /* whether a file's text is in this format */
    struct recording *(*parse)(const char *file, char *s, size_t n);
    void (*time)(struct recording *recording, struct rank_run *run); /* fills run */
};

/* read_trace.c: returns the number in a name such as rank3.json or trace_rank_3; -1: it has none. */
int rank_in_file_name(const char *file);

/* read_flight.c */
bool is_flight(const char *s, size_t n);
struct recording *parse_flight(const char *file, char *s, size_t n);
void time_flight(struct recording *recording, struct rank_run *run);
/* read_kineto.c, kineto_times.c */
bool is_kineto(const char *s, size_t n);
struct recording *parse_kineto(const char *file, char *s, size_t n);
void time_kineto(struct recording *recording, struct rank_run *run);
#endif
