/* Reads a measured run: a file or, if the ranks were separate processes, a folder with a file per rank, which are
 * merged. Another tool's recording gives times to the instructions of the program that it ran. */
#include "base/read_file.h"
#include "formats.h"
#include "traces/traces.h"
#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *rank_file(const char *dir, int rank) { return format("%s/timeline.%d.tsv", dir, rank); }

bool holds_measured(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode) && access(rank_file(path, 0), F_OK) == 0;
}

/* Merges all ranks' files: step by step, rank by rank. */
static struct timeline_rows *merge_ranks(const char *dir, struct timeline_rows **of, int n) {
    struct timeline_rows *all = NEW(struct timeline_rows, 1);
    for (int r = 0; r < n; r++)
        all->n += of[r]->n;
    all->nsteps = of[0]->nsteps;
    all->step = of[0]->step;
    all->unit = of[0]->unit;
    all->cores = of[0]->cores;
    all->handoff = of[0]->handoff;
    all->row = NEW(struct timeline_row, (size_t)all->n * (size_t)all->nsteps);
    for (int k = 0, at = 0; k < all->nsteps; k++)
        for (int r = 0; r < n; at += of[r++]->n) {
            if (of[r]->nsteps != all->nsteps || of[r]->step[k] != all->step[k])
                die("%s has different steps than %s: they are not from the same run", rank_file(dir, r),
                    rank_file(dir, 0));
            memcpy(&all->row[at], &of[r]->row[(size_t)k * (size_t)of[r]->n], sizeof *all->row * (size_t)of[r]->n);
        }
    return all;
}

/* Dies if one of the n ranks has a peer that is not among them, as in a folder that was only partly copied. */
static void check_peers(const char *dir, struct timeline_rows **of, int n) {
    for (int r = 0; r < n; r++)
        for (int i = 0; i < of[r]->n; i++)
            if (of[r]->row[i].peer >= n)
                die("%s is missing: rank %d has messages with rank %d", rank_file(dir, n), r, of[r]->row[i].peer);
}

static struct timeline_rows *read_folder(const char *dir) {
    struct timeline_rows **of = NULL;
    size_t cap = 0;
    int n = 0;
    for (; access(rank_file(dir, n), F_OK) == 0; n++) {
        const char *file = rank_file(dir, n);
        GROW(of, cap, (size_t)n + 1);
        of[n] = read_tsv(file, file_text(file));
        if (!of[n]->nsteps)
            die("%s: its first column is not step: this is not a measurement of rank %d", file, n);
        for (int i = 0; i < of[n]->n; i++)
            if (of[n]->row[i].rank != n)
                die("%s: it has rows of rank %d; it should be rank %d's own", file, of[n]->row[i].rank, n);
    }
    if (n == 0)
        die("%s: %s", rank_file(dir, 0), strerror(errno));
    check_peers(dir, of, n);
    return merge_ranks(dir, of, n);
}

/* ---- other tools' recordings ---- */

/* Returns the rows of a step, in the order of ranks, lanes and instructions, without times. */
static struct timeline_rows *rows_of_program(const struct program *p, int nsteps) {
    struct timeline_rows *rows = NEW(struct timeline_rows, 1);
    for (int r = 0; r < p->workers; r++)
        rows->n += p->rank[r].nins;
    *rows = (struct timeline_rows){.n = rows->n,
                                   .nsteps = nsteps,
                                   .unit = "s",
                                   .recorded = true,
                                   .row = NEW(struct timeline_row, (size_t)rows->n * (size_t)nsteps)};
    struct timeline_row *row = rows->row;
    for (int r = 0; r < p->workers; r++) {
        const struct rank *k = &p->rank[r];
        struct lane_lists lists = lane_lists(k);
        for (int l = 0; l < k->nlanes; l++) {
            struct text name = {0};
            put_lane(&name, p, &k->lane[l]);
            for (int32_t c = lists.at[l]; c < lists.at[l + 1]; c++) {
                const struct instr *x = &k->ins[lists.ins[c]];
                *row++ = (struct timeline_row){.rank = r,
                                               .lane = name.s,
                                               .op = x->op,
                                               .cpu = NAN,
                                               .stage = x->stage,
                                               .batch = x->batch,
                                               .slice = -1,
                                               .peer = x->peer,
                                               .bytes = has_bytes(x->op) && x->narg ? moved_bytes(k, x) : -1};
            }
        }
    }
    return rows;
}

static int64_t run_begin(const struct run *run, const struct program *p) {
    int64_t first = INT64_MAX;
    for (int at = 0; at < run->nsteps * p->workers; at++)
        for (int32_t i = 0; i < p->rank[at % p->workers].nins; i++)
            first = run->at[at][i].start < first ? run->at[at][i].start : first;
    return first;
}

struct timeline_rows *read_recorded(const char *path, const struct program *p) {
    struct run run = read_trace(path, p);
    struct timeline_rows *rows = rows_of_program(p, run.nsteps);
    int64_t first = run_begin(&run, p);
    rows->step = run.step;
    for (int k = 0; k < run.nsteps; k++) {
        struct timeline_row *row = rows->row + (size_t)k * (size_t)rows->n;
        memcpy(row, rows->row, sizeof *row * (size_t)(k ? rows->n : 0));
        for (int r = 0; r < p->workers; r++) {
            struct lane_lists lists = lane_lists(&p->rank[r]);
            for (int32_t c = 0; c < p->rank[r].nins; c++, row++) {
                const struct span *span = &run.at[k * p->workers + r][lists.ins[c]];
                row->start = 1e-9 * (double)(span->start - first);
                row->end = 1e-9 * (double)(span->end - first);
                row->free = 1e-9 * (double)(span->free - first);
            }
        }
    }
    return rows;
}

/* Returns whether a path is a compiled folder, which may contain traces that were written there. */
static bool is_compiled(const char *path) { return access(format("%s/streams.txt", path), F_OK) == 0; }

bool is_recording(const char *path) { return !holds_measured(path) && !is_compiled(path) && is_trace(path); }

struct timeline_rows *read_measured(const char *path) {
    struct stat st;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return read_folder(path);
    return read_tsv(path, file_text(path));
}
