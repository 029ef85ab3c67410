/* One compile: what the passes give, and the table that runs them. */
#ifndef PIANOLA_COMPILE_H
#define PIANOLA_COMPILE_H
#include "draw/draw.h"
#include "formats/formats.h"
#include "script/scripts.h"
#include "verify/verify.h"

struct compile {
    struct script_args args;
    struct spec *spec;
    struct stage *stage;
    struct graph *graph;
    struct sched *sched;
    struct program *program;
    struct timeline *timeline;
    struct report *report;
    struct steps steps;             /* the timeline, or all of which it is the median */
    void (*done)(const char *pass); /* called after each pass, or NULL */
};

/* pipeline.c: all passes up to the report; dump: letters of passes after which the program is printed to stdout. */
void compile_all(struct compile *c, const char *dump);

/* measured.c: sets timeline, steps and report to what was measured, by the file or folder at path. */
void take_measured(struct compile *c, const char *path);

/* folder.c: writes what was compiled into a folder, where an earlier compile may have written. */
void write_folder(const char *dir, struct compile *c);

/* run.c */
struct run_args {
    const char *data, *timeline;
    int64_t steps;
    uint64_t seed;
    bool json, compare, quiet, cuda, eager; /* eager: no graph */
    struct style style;
};
/* The program as the runtime reads it. */
struct rt_program;
struct rt_program *runtime_program(const struct spec *sp, const struct stage *st, const struct program *p);
const char *const *lane_names(const struct program *p, const struct rank *k); /* as streams.txt has them */
/* Of all parameters in fp32, in the order of the model: the same however it is cut. Dies when homes of a stage differ.
 */
uint64_t fingerprint(const struct rt_program *p, char *const *arena);
int run_command(struct compile *c, const struct run_args *a);

/* compare.c */
struct compare_args {
    const char **file;
    int nfiles;
    const char *sort;
    bool json, markdown, ascii;
};
int compare_command(const struct compile *how, const struct compare_args *a);
int list_schedules(void);

/* diff.c */
struct diff_args {
    const char **file, *fail_on, *fit, *svg, *html;
    int nfiles;
    bool json, markdown, ascii, git;
};
int diff_command(const struct compile *how, const struct diff_args *a);

/* weights.c: the checkpoint of that step in dir, or with step -1 the newest whole one, as one file at path. */
int export_weights(const char *dir, int64_t step, const char *path, bool json);

/* files.c: files are written whole or not at all: beside their place first, then renamed. "-" is stdout. */
void write_file(const char *path, const struct text *t);
/* Of several, all or none: each is staged, and place_files gives them their names. program: it can be run. */
void stage_file(const char *path, const struct text *t, bool program);
void place_files(void);
/* Before long work: these die where what is to be written could not be. */
void check_writable(const char *path);
bool same_place(const char *a, const char *b);     /* would both be written to one file? */
void check_apart(const char *out, const char *in); /* are they one file? NULL: there is none */
void check_target(const char *out, const struct script_args *in);
const char *folder_named(const char *name); /* without slashes at its end; it need not be there yet */
void make_folder(const char *path);         /* unless it is there */
#endif
