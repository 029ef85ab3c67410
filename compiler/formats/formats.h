/* The formats written and read: the program's text, timelines, reports, traces, PyTorch's CSV and the ranks'
 * programs. */
#ifndef PIANOLA_FORMATS_H
#define PIANOLA_FORMATS_H
#include "passes/passes.h"

/* emit_text.c, read_text.c: writes and reads the program's text form, which omits rank.event. Reading dies with
 * file:line. */
void emit_text(struct text *out, const struct program *p);
void emit_text_head(struct text *out, const struct program *p); /* writes the lines before the first rank's */
struct program *read_text(const char *file, const char *src);
/* reads_back.c: returns why the program's text, read again, is not the same program; NULL: it is. */
const char *text_misread(const struct program *p, const char *text);
/* emit_tsv.c */
void emit_tsv(struct text *out, const struct program *p, const struct timeline *tl, const char *unit);
/* read_tsv.c: reads timeline.tsv, predicted or measured, with rows by step, rank, lane and start. Dies with
 * file:line. */
struct timeline_rows {
    int n, nsteps;    /* rows per step; row[k * n + i] is row i of step k. nsteps 0: the only step has no number */
    int *step;        /* step numbers; NULL: the timeline has none */
    const char *unit; /* unit of the times, as report.unit; NULL: not in the file */
    double cores;     /* cores that the ranks of a measured timeline shared; 0: not known */
    double handoff;   /* seconds until a rank that got a core ran; 0: none, or not known */
    bool recorded;    /* by another tool: receives begin when they are posted, which may be in the step before */
    struct timeline_row {
        int rank;
        const char *lane; /* "send 1" */
        uint8_t op;
        double start, end;
        double cpu;                    /* NAN: not known */
        double free;                   /* rows of a recording: as in struct span */
        int stage, batch, slice, peer; /* -1: does not apply */
        int64_t bytes;                 /* -1: does not apply */
    } * row;
};
struct timeline_rows *read_tsv(const char *file, const char *src);
/* read_measured.c: reads a measured timeline from a file, or from a folder with one file per rank,
 * DIR/timeline.<rank>.tsv. */
struct timeline_rows *read_measured(const char *path);
bool holds_measured(const char *path); /* whether path is such a folder */
/* read_measured.c: reads a run of p that another tool recorded (traces/), as rows of p's instructions. Dies if
 * it is a run of another program. The rows' bytes are the program's. */
struct timeline_rows *read_recorded(const char *path, const struct program *p);
bool is_recording(const char *path); /* whether path is such a recording: a file, or a folder with a file per rank */

/* emit_json.c */
void emit_json(struct text *out, const struct report *report);
void put_jitter_json(struct text *t, const struct jitter *jitter); /* writes it as a member of an object */

/* emit_trace_*.c: write timelines for Perfetto and other viewers, as Chrome JSON and as protobuf TrackEvents. */
void emit_chrome(struct text *out, const struct program *p, const struct steps *steps, const char *unit);
void emit_pftrace(struct text *out, const struct program *p, const struct steps *steps, const char *unit);
/* Writes one rank's timeline as Kineto would record it, for Holistic Trace Analysis. */
void emit_hta(struct text *out, const struct program *p, const struct steps *steps, const char *unit, int rank);
/* emit_chakra.c: writes one rank's part of a step as a Chakra execution trace, and the groups of its collectives as
 * ASTRA-sim reads them: JSON, a name and its ranks. */
void emit_chakra(struct text *out, const struct program *p, const struct timeline *tl, const char *unit, int rank);
void emit_chakra_groups(struct text *out, const struct program *p);
/* emit_torch.c: writes the job order as PyTorch's pipelining CSV, with or without communication. Dies if PyTorch cannot
 * express it. */
void emit_torch(struct text *out, const struct spec *sp, const struct sched *sc, bool comms);
/* read_torch.c: converts such a CSV, of either form, to a schedule script. Dies with file, row and column. */
void read_torch(struct text *out, const char *file, const char *src);
bool is_torch(const char *file, const char *src); /* decided by its name or its first cell */
/* emit_cuda.c: writes rank r's own program. hash: the hash of the whole compile, which all ranks of a run must
 * share. */
void emit_cuda(struct text *out, const struct costs *costs, const struct program *p, int r, uint64_t hash);
/* Flags of the compilers of units, in this process and in the Makefile of ranks' programs; the folder of their sources
 * there. */
#define UNIT_CFLAGS "-std=gnu11 -O3 -ffp-contract=off -fno-math-errno -fno-trapping-math -fPIC"
#define UNIT_NVFLAGS                                                                                                   \
    "-std=c++17 -O3 -Xcompiler -fPIC -cudart shared -gencode arch=compute_80,code=[sm_80,sm_90,sm_100,compute_80]"
#define UNITS_FOLDER "units"
/* emit_launch.c: writes files that build and start the ranks' programs. dir: the path to their folder. */
struct model;
void emit_makefile(struct text *out, const struct program *p, const struct model *m);
void emit_starter(struct text *out, const struct program *p, const char *suffix); /* suffix: "" or ".gpu" */
void emit_app(struct text *out, const struct program *p, const char *dir, const char *suffix);
void emit_slurm(struct text *out, const struct program *p, const char *dir);
#endif
