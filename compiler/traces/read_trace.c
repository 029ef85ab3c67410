/* Reads a run that another tool recorded, with a file per rank: finds the files, orders them by rank, lets their reader
 * give every instruction its times, and keeps the steps that every rank recorded whole.
 *
 * The ranks are numbered by the order of the numbers in the files: one pipeline among several may have 1, 3, 5.
 */
#include "recording.h"
#include "base/path.h"
#include "base/read_file.h"
#include "base/text.h"
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const struct trace_format formats_read[] = {
    {"a trace of PyTorch's profiler", is_kineto, parse_kineto, time_kineto},
    {"a dump of PyTorch's flight recorder", is_flight, parse_flight, time_flight},
};
const char trace_advice[] = "give the schedule that it ran, with the same -D";
enum { NFORMATS = sizeof formats_read / sizeof *formats_read };

/* ---- files ---- */

static const struct trace_format *format_of_text(const char *s, size_t n) {
    for (int i = 0; i < NFORMATS; i++)
        if (formats_read[i].knows(s, n))
            return &formats_read[i];
    return NULL;
}

static int by_file_name(const void *x, const void *y) { return strcmp(*(char *const *)x, *(char *const *)y); }

/* Returns the regular files in a folder, or the path itself if it is no folder, by name. */
static const char **files_in(const char *path, int *n) {
    const char **file = NULL;
    size_t cap = 0;
    struct stat st;
    DIR *dir = stat(path, &st) == 0 && S_ISDIR(st.st_mode) ? opendir(path) : NULL;
    *n = 0;
    if (!dir) {
        GROW(file, cap, 1);
        file[(*n)++] = path;
        return file;
    }
    for (const struct dirent *entry; (entry = readdir(dir));) {
        const char *name = format("%s/%s", path, entry->d_name);
        if (entry->d_name[0] == '.' || stat(name, &st) != 0 || !S_ISREG(st.st_mode))
            continue;
        GROW(file, cap, (size_t)*n + 1);
        file[(*n)++] = name;
    }
    closedir(dir);
    sort(file, (size_t)*n, sizeof *file, by_file_name);
    return file;
}

int rank_in_file_name(const char *file) {
    const char *at = strstr(last_part(file), "rank");
    char *end;
    if (!at)
        return -1;
    at += strlen("rank");
    at += *at == '_' || *at == '-';
    long rank = strtol(at, &end, 10);
    return end == at || rank < 0 || rank >= INT_MAX ? -1 : (int)rank;
}

static bool is_compressed(const char *file) { return has_ending(file, ".json.gz"); }

/* Returns whether a file's first character fits a known format: reading all of any other file would take long. */
static bool may_be_trace(const char *file) {
    struct stat st;
    FILE *f = stat(file, &st) == 0 && S_ISREG(st.st_mode) ? fopen(file, "rb") : NULL;
    int c = f ? getc(f) : EOF;
    while (c == ' ' || c == '\n' || c == '\r' || c == '\t')
        c = getc(f);
    if (f)
        fclose(f);
    return c == '{' || c == 0x80; /* JSON, or a pickle */
}

bool is_trace(const char *path) {
    struct scratch scratch = scratch_begin();
    int n;
    bool found = false;
    const char **file = files_in(path, &n);
    for (int i = 0; i < n && !found; i++) {
        size_t size;
        found = is_compressed(file[i]);
        if (!found && may_be_trace(file[i])) {
            const char *s = read_file(file[i], &size);
            found = format_of_text(s, size) != NULL;
        }
    }
    scratch_end(scratch);
    return found;
}

static int by_recorded_rank(const void *x, const void *y) {
    const struct recording *a = *(struct recording *const *)x, *b = *(struct recording *const *)y;
    return (a->rank > b->rank) - (a->rank < b->rank);
}

/* Reads every file that is in a known format; all must be in the same. */
static struct recording **read_recordings(const char *path, const struct trace_format **format, int *n) {
    int nfiles;
    const char **file = files_in(path, &nfiles);
    struct recording **of = NEW(struct recording *, nfiles);
    *n = 0;
    *format = NULL;
    for (int i = 0; i < nfiles; i++) {
        size_t size;
        if (is_compressed(file[i]))
            die("%s: is compressed, and Pianola reads only plain files: run `gunzip` on it first", file[i]);
        if (!may_be_trace(file[i]))
            continue;
        char *s = read_file(file[i], &size);
        const struct trace_format *its = format_of_text(s, size);
        if (its && *format && its != *format)
            die("%s: is %s, but %s is %s: give a folder with files of one kind", file[i], its->name, of[0]->file,
                (*format)->name);
        if (!its)
            continue;
        *format = its;
        of[(*n)++] = its->parse(file[i], s, size);
    }
    sort(of, (size_t)*n, sizeof *of, by_recorded_rank);
    for (int i = 1; i < *n; i++)
        if (of[i]->rank == of[i - 1]->rank)
            die("%s and %s are both from rank %d: give a folder with one file per rank", of[i - 1]->file, of[i]->file,
                of[i]->rank);
    return of;
}

/* ---- instructions by name ---- */

static uint64_t name_hash(int op, int stage, int batch) { return hash_add(hash_add(hash_add(1, op), stage), batch); }

struct ins_index ins_index(const struct rank *rank) {
    struct ins_index index = {map_new((size_t)rank->nins), rank};
    for (int32_t i = 0; i < rank->nins; i++) {
        const struct instr *x = &rank->ins[i];
        uint32_t at = map_start(&index.map, name_hash(x->op, x->stage, x->batch));
        while (index.map.slot[at])
            at = map_next(&index.map, at);
        index.map.slot[at] = i + 1;
    }
    return index;
}

int32_t find_ins(const struct ins_index *index, int op, int stage, int batch) {
    uint32_t at = map_start(&index->map, name_hash(op, stage, batch));
    for (int32_t i; (i = index->map.slot[at] - 1) >= 0; at = map_next(&index->map, at)) {
        const struct instr *x = &index->rank->ins[i];
        if (x->op == op && x->stage == stage && x->batch == batch)
            return i;
    }
    return -1;
}

int32_t ins_before(const struct ins_index *index, int op, int stage, int batch) {
    return op == OP_F                 ? find_ins(index, OP_RECV_F, stage - 1, batch)
           : op == OP_B || op == OP_I ? find_ins(index, OP_RECV_B, stage + 1, batch)
                                      : -1;
}

int32_t ins_after(const struct ins_index *index, int op, int stage, int batch) {
    return op == OP_F                 ? find_ins(index, OP_SEND_F, stage, batch)
           : op == OP_B || op == OP_I ? find_ins(index, OP_SEND_B, stage, batch)
                                      : -1;
}

/* Dies unless the program has only what a run of PyTorch's pipelining has. */
static void check_program(const struct program *p, const char *path) {
    static const uint8_t known[] = {OP_F, OP_B, OP_I, OP_W, OP_U, OP_SEND_F, OP_RECV_F, OP_SEND_B, OP_RECV_B};
    const char *why = p->names.slices   ? "slices"
                      : p->names.member ? "teams"
                      : p->update       ? "updates that are jobs"
                                        : NULL;
    for (int r = 0; r < p->workers && !why; r++)
        for (int32_t i = 0; i < p->rank[r].nins && !why; i++)
            if (!memchr(known, p->rank[r].ins[i].op, sizeof known))
                why = op_name[p->rank[r].ins[i].op];
    if (why)
        die("%s: is a run of PyTorch's pipelining, but the schedule has %s, which PyTorch's lacks", path, why);
}

/* ---- steps ---- */

int add_step(struct rank_run *run, int number) {
    if (run->nsteps && run->step[run->nsteps - 1].number >= number)
        die("%s: step %d comes after step %d: give a trace of one run", run->of->file, number,
            run->step[run->nsteps - 1].number);
    int32_t n = run->p->rank[run->r].nins;
    GROW(run->step, run->cap, (size_t)run->nsteps + 1);
    struct span *at = NEW(struct span, n);
    for (int32_t i = 0; i < n; i++)
        at[i] = (struct span){0, -1, -1};
    run->step[run->nsteps] = (struct rank_step){number, at};
    return run->nsteps++;
}

const char *name_in_run(const struct rank_run *run, int32_t ins) {
    return short_name(&run->p->names, &run->p->rank[run->r].ins[ins]);
}

const char *step_name(int number) {
    return number < -1    ? format("the last step but %d", -number - 1)
           : number == -1 ? "the last step"
                          : format("step %d", number);
}

void set_span(struct rank_run *run, int step, int32_t ins, int64_t start, int64_t end) {
    struct span *span = &run->step[step].at[ins];
    if (span_known(span))
        die("%s: %s occurs twice in %s", run->of->file, name_in_run(run, ins), step_name(run->step[step].number));
    end = end > start ? end : start;
    *span = (struct span){start, end, end};
}

/* Returns an instruction that a step lacks; -1: the step is whole. */
static int32_t missing_in(const struct rank_run *run, const struct rank_step *step) {
    for (int32_t i = 0; i < run->p->rank[run->r].nins; i++)
        if (!span_known(&step->at[i]))
            return i;
    return -1;
}

static int by_step_number(const void *x, const void *y) {
    const struct rank_step *a = x, *b = y;
    return (a->number > b->number) - (a->number < b->number);
}

static const struct rank_step *step_numbered(const struct rank_run *run, int number) {
    struct rank_step key = {number, NULL};
    return bsearch(&key, run->step, (size_t)run->nsteps, sizeof key, by_step_number);
}

/* Returns why a step is not whole, or NULL. */
static const char *why_partial(const struct rank_run *of, int n, int number) {
    for (const struct rank_run *run = of; run < of + n; run++) {
        const struct rank_step *step = step_numbered(run, number);
        int32_t missing = step ? missing_in(run, step) : -1;
        if (!step)
            return format("%s lacks %s", run->of->file, step_name(number));
        if (missing >= 0)
            return format("%s has no %s in %s", run->of->file, name_in_run(run, missing), step_name(number));
    }
    return NULL;
}

/* Dies if a rank ran its jobs in another order than the program. */
static void check_job_order(const struct rank_run *run, const struct rank_step *step) {
    const struct rank *k = &run->p->rank[run->r];
    for (int32_t i = 0, before = -1; i < k->nins; i++) {
        if (!is_job(k->ins[i].op))
            continue;
        if (before >= 0 && step->at[i].start < step->at[before].start)
            die("%s: rank %d ran %s before %s in %s, but the schedule has them the other way round; %s", run->of->file,
                run->r, name_in_run(run, i), name_in_run(run, before), step_name(step->number), trace_advice);
        before = i;
    }
}

/* Keeps the steps that are whole on all ranks. Reports the others on stderr. */
static struct run join_ranks(const struct rank_run *of, int n) {
    struct run run = {0, NEW(int, of->nsteps), NEW(struct span *, of->nsteps * n)};
    struct text partial = {0};
    bool hangs = false;
    for (int r = 0; r < n; r++)
        hangs |= of[r].hangs;
    for (int k = 0; k < of->nsteps; k++) {
        int number = of->step[k].number;
        const char *why = why_partial(of, n, number);
        if (why) {
            put(&partial, "pianola: left out a step: %s\n", why);
            continue;
        }
        for (int r = 0; r < n; r++) {
            const struct rank_step *step = step_numbered(&of[r], number);
            check_job_order(&of[r], step);
            run.at[run.nsteps * n + r] = step->at;
        }
        run.step[run.nsteps++] = number;
    }
    if (!run.nsteps)
        die("%s; %s",
            of->nsteps ? why_partial(of, n, of->step[of->nsteps - 1].number) : format("%s: has no step", of->of->file),
            hangs ? "no step was completed" : trace_advice);
    if (partial.n)
        fputs(partial.s, stderr);
    for (int k = 0; k < run.nsteps && run.step[0] < 0; k++) /* they were counted from the last */
        run.step[k] = k + 1;
    return run;
}

struct run read_trace(const char *path, const struct program *p) {
    const struct trace_format *format;
    int n;
    check_program(p, path);
    struct recording **of = read_recordings(path, &format, &n);
    if (n != p->workers)
        die("%s: has %s for %s, but the schedule has %s; %s", path, format->name, counted(n, "rank"),
            counted(p->workers, "rank"), trace_advice);
    struct rank_run *run = NEW(struct rank_run, n);
    for (int r = 0; r < n; r++) {
        run[r] = (struct rank_run){.of = of[r], .all = of, .p = p, .r = r, .index = ins_index(&p->rank[r])};
        format->time(of[r], &run[r]);
    }
    return join_ranks(run, n);
}
