/* What is written and read: the program's text, timelines, reports, traces, and what PyTorch and ranks want. */
#ifndef PIANOLA_FORMATS_H
#define PIANOLA_FORMATS_H
#include "passes/passes.h"

/* emit_text.c, read_text.c: the program's text form, both ways. Reading dies with file:line. rank.event is not in it.
 */
void emit_text(struct text *out, const struct program *p);
struct program *read_text(const char *file, const char *src);
/* emit_tsv.c */
void emit_tsv(struct text *out, const struct program *p, const struct timeline *tl, const char *unit);
/* read_tsv.c: timeline.tsv, predicted or measured, with rows by step, rank, lane and start. Dies with file:line. */
struct timeline_rows {
    int n, nsteps; /* rows of a step; row[k * n + i] is the k-th step's ith. nsteps 0: no step is named, there is one */
    int *step;     /* the numbers of the steps; NULL: a timeline without */
    const char *unit; /* of the times, as report.unit; NULL: the file does not say */
    struct timeline_row {
        int rank;
        const char *lane; /* "send 1" */
        uint8_t op;
        double start, end;
        int stage, batch, peer; /* -1: does not apply */
        int64_t bytes;          /* likewise */
    } * row;
};
struct timeline_rows *read_tsv(const char *file, const char *src);
/* read_measured.c: the same of a file, or of a folder with each rank's own, DIR/timeline.<rank>.tsv. */
struct timeline_rows *read_measured(const char *path);
bool holds_measured(const char *path); /* such a folder? */

/* emit_json.c */
void emit_json(struct text *out, const struct report *report);

/* emit_trace_*.c: timelines for Perfetto and other viewers, as Chrome's JSON and as TrackEvents in protobuf. */
struct steps { /* of one program, one after the other */
    int n;
    const int *number; /* as training counts them; NULL: it is one, predicted */
    const struct timeline *of;
};
void emit_chrome(struct text *out, const struct program *p, const struct steps *steps, const char *unit);
void emit_pftrace(struct text *out, const struct program *p, const struct steps *steps, const char *unit);
/* Of one rank, as Kineto would record it, for Holistic Trace Analysis. */
void emit_hta(struct text *out, const struct program *p, const struct steps *steps, const char *unit, int rank);
/* emit_torch.c: the order of jobs as PyTorch's pipelining CSV, with or without what moves tensors. Dies where PyTorch
 * could not say it. */
void emit_torch(struct text *out, const struct spec *sp, const struct sched *sc, bool comms);
/* read_torch.c: such a CSV, of either kind, as a schedule script. Dies with file, row and column. */
void read_torch(struct text *out, const char *file, const char *src);
bool is_torch(const char *file, const char *src); /* by its name or its first cell */
/* emit_cuda.c: rank r's own program. hash: of the whole compile; every rank of a run must carry the same. */
void emit_cuda(struct text *out, const struct spec *sp, const struct stage *st, const struct program *p, int r,
               uint64_t hash);
/* emit_launch.c: how to build and start them. dir: the folder as the user named it. */
void emit_makefile(struct text *out, const struct program *p);
void emit_starter(struct text *out, const struct program *p, const char *suffix); /* "", or ".gpu" */
void emit_app(struct text *out, const struct program *p, const char *dir, const char *suffix);
void emit_slurm(struct text *out, const struct program *p, const char *dir);
#endif
