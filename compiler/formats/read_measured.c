/* Reads a measured run: a file or, if the ranks were separate processes, a folder with a file per rank, which are
 * merged. */
#include "base/read_file.h"
#include "formats.h"
#include <errno.h>
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

struct timeline_rows *read_measured(const char *path) {
    struct stat st;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return read_folder(path);
    return read_tsv(path, file_text(path));
}
