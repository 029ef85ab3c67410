/* `pianola compare`: one row per schedule, at equal ranks and microbatches. `pianola show --list`: what there is to
 * compare.
 *
 * A schedule that cuts the model into more stages than ranks has smaller jobs. With a model that shows by itself.
 * Without one, every F costs 1 whatever the number of stages, so times and live activations are scaled by W / S: the
 * unit is the F of a rank's share of the model, and an activation is that share's. Then all schedules here do the same
 * work. */
#include "compile.h"
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NAME, STAGES, MAKESPAN, BUBBLE, LIVE, MEMORY, SENT, BOUND, GAP, NCOLUMNS };
static const struct {
    const char *head, *key; /* of the table; of JSON and --sort */
} column[NCOLUMNS] = {
    {"schedule", "schedule"}, {"stages", "stages"},         {"makespan", "makespan"},
    {"bubble", "bubble"},     {"live", "peak_activations"}, {"memory", "peak_bytes"},
    {"sent", "bytes_sent"},   {"bound", "lower_bound"},     {"gap", "gap"},
};

struct row {
    char name[64];
    double figure[NCOLUMNS]; /* but NAME's */
};

static int sorted_by; /* qsort has no context argument */

static int smaller(const void *x, const void *y) {
    const struct row *a = x, *b = y;
    double p = a->figure[sorted_by], q = b->figure[sorted_by];
    if (sorted_by != NAME && p != q)
        return p < q ? -1 : 1;
    return strcmp(a->name, b->name);
}

static int column_of(const char *key) {
    const char *keys[NCOLUMNS];
    for (int i = 0; i < NCOLUMNS; i++) {
        if (strcmp(key, column[i].key) == 0)
            return i;
        keys[i] = column[i].key;
    }
    const char *near = nearest(key, keys, NCOLUMNS);
    struct text all = {0};
    for (int i = 0; i < NCOLUMNS; i++)
        put(&all, "%s%s", i ? ", " : "", keys[i]);
    die("--sort %s: there is no such column%s%s%s; the columns are %s", key, near ? "; did you mean '" : "",
        near ? near : "", near ? "'?" : "", all.s);
}

static struct row measure(const struct report *r, bool model) {
    struct row row = {0};
    snprintf(row.name, sizeof row.name, "%s", r->schedule);
    double scale = model ? 1 : (double)r->workers / r->stages, *f = row.figure;
    f[STAGES] = r->stages;
    f[MAKESPAN] = r->makespan * scale;
    f[BUBBLE] = r->bubble;
    f[BOUND] = r->lower_bound * scale;
    f[GAP] = r->gap;
    for (int k = 0; k < r->workers; k++) {
        const struct rank_report *rank = &r->rank[k];
        double live = rank->peak_activations * scale;
        f[LIVE] = live > f[LIVE] ? live : f[LIVE];
        f[MEMORY] = (double)rank->peak_bytes > f[MEMORY] ? (double)rank->peak_bytes : f[MEMORY];
        f[SENT] += (double)rank->bytes_received;
    }
    return row;
}

/* Compiles them one after the other, each with the whole arena to itself; returns what all have in common: ranks,
 * microbatches and unit. */
static struct report compile_each(const struct compile *how, const struct compare_args *a, struct row *row) {
    int nset = how->args.nset;
    const char *set[nset + 1], **file = a->file;
    bool used[nset + 1];
    struct report first = {0};
    memcpy(set, how->args.set, sizeof *set * (size_t)nset); /* that array is in the arena */
    memset(used, 0, sizeof used);
    for (int i = 0; i < a->nfiles; i++) {
        struct compile c = *how;
        free_all();
        c.args.schedule = file[i];
        c.args.set = set;
        c.args.used = used;
        compile_all(&c, "");
        const struct report *r = c.report;
        if (i == 0)
            first = (struct report){.workers = r->workers, .batches = r->batches, .unit = r->unit};
        if (r->workers != first.workers || r->batches != first.batches)
            die("%s has %d ranks and %d microbatches, but %s has %d and %d; compare at equal sizes, with -D workers=%d "
                "-D batches=%d",
                file[0], first.workers, first.batches, file[i], r->workers, r->batches, first.workers, first.batches);
        row[i] = measure(r, c.spec->model != NULL);
    }
    for (int i = 0; i < nset; i++)
        if (!used[i])
            die("-D %s: none of the scripts has this parameter", set[i]);
    return first;
}

enum { CELL = 64 };

static void put_cell(char cell[CELL], const struct row *row, int i, const struct measure *m) {
    double x = row->figure[i];
    if (i == NAME)
        snprintf(cell, CELL, "%s", row->name);
    else if (i == MAKESPAN || i == BOUND)
        time_text(x, m, cell);
    else if (i == MEMORY || i == SENT)
        bytes_text(x, cell);
    else if (i == BUBBLE || i == GAP)
        snprintf(cell, CELL, "%.1f %%", 100 * x);
    else
        snprintf(cell, CELL, "%.4g", x);
}

static void put_table(struct text *out, const struct row *row, int n, const struct measure *m, bool markdown) {
    char cell[CELL];
    int width[NCOLUMNS];
    for (int k = 0; k < NCOLUMNS; k++) {
        width[k] = (int)strlen(column[k].head);
        for (int i = 0; i < n; i++) {
            put_cell(cell, &row[i], k, m);
            width[k] = (int)strlen(cell) > width[k] ? (int)strlen(cell) : width[k];
        }
    }
    for (int i = -1; i < n; i++) {
        for (int k = 0; k < NCOLUMNS; k++) {
            if (i >= 0)
                put_cell(cell, &row[i], k, m);
            put(out,
                markdown ? "| %*s "
                : k      ? "  %*s"
                         : "%*s",
                k ? width[k] : -width[k], i < 0 ? column[k].head : cell);
        }
        put(out, markdown ? "|\n" : "\n");
        for (int k = 0; markdown && i < 0 && k < NCOLUMNS; k++)
            put(out, "|%s%s", k ? "---:" : "---", k == NCOLUMNS - 1 ? "|\n" : "");
    }
}

static void put_objects(struct text *out, const struct row *row, int n, const struct report *r) {
    char buf[32];
    put(out, "{\n  \"schema\": 1,\n  \"workers\": %d,\n  \"batches\": %d,\n  \"unit\": \"%s\",\n  \"schedules\": [\n",
        r->workers, r->batches, r->unit);
    for (int i = 0; i < n; i++) {
        put(out, "    {\n      \"schedule\": ");
        put_string(out, row[i].name);
        for (int k = NAME + 1; k < NCOLUMNS; k++)
            put(out, ",\n      \"%s\": %s", column[k].key, number(row[i].figure[k], buf));
        put(out, "\n    }%s\n", i + 1 < n ? "," : "");
    }
    put(out, "  ]\n}\n");
}

/* All of a folder means its schedules: not pianola.d.lua, which is there for editors. */
static struct compare_args schedules_of(const struct compare_args *a, const char **file) {
    struct compare_args some = *a;
    some.file = file;
    some.nfiles = 0;
    for (int i = 0; i < a->nfiles; i++) {
        size_t n = strlen(a->file[i]), end = strlen(".d.lua");
        if (n < end || strcmp(a->file[i] + n - end, ".d.lua") != 0)
            file[some.nfiles++] = a->file[i];
    }
    return some.nfiles > 0 ? some : *a;
}

int compare_command(const struct compile *how, const struct compare_args *all) {
    const char *file[all->nfiles];
    struct compare_args some = schedules_of(all, file), *a = &some;
    struct row row[a->nfiles];
    sorted_by = a->sort ? column_of(a->sort) : -1;
    struct report r = compile_each(how, a, row);
    struct text out = {0};
    if (sorted_by >= 0)
        qsort(row, (size_t)a->nfiles, sizeof *row, smaller);
    double longest = 0;
    for (int i = 0; i < a->nfiles; i++)
        longest = row[i].figure[MAKESPAN] > longest ? row[i].figure[MAKESPAN] : longest;
    struct measure m = measure_of(longest, r.unit, a->ascii);
    if (a->json) {
        put_objects(&out, row, a->nfiles, &r);
    } else {
        bool unit = strcmp(m.name, "units") == 0;
        put(&out, "%d ranks, %d microbatches; times in %s\n\n", r.workers, r.batches,
            unit ? "units: F is 1 for a rank's share of the model; every tensor is 1 byte" : m.name);
        put_table(&out, row, a->nfiles, &m, a->markdown);
    }
    write_file("-", &out);
    return 0;
}

/* ---- the schedules that came with this program ---- */

/* Beside the program's folder when it was built, in share/ when it was installed. */
static const char *shipped_folder(void) {
    static const char *const places[] = {"../schedules", "../share/pianola/schedules"};
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0)
        die("--list: cannot find this program's own place: %s", strerror(errno));
    self[n] = 0;
    *strrchr(self, '/') = 0;
    for (int i = 0; i < 2; i++) {
        char *path = realpath(format("%s/%s", self, places[i]), NULL);
        const char *found = path ? copy_string(path) : NULL;
        free(path);
        if (found)
            return found;
    }
    die("--list: no schedules in %s/%s or %s/%s", self, places[0], self, places[1]);
}

static int is_script(const struct dirent *e) {
    const char *dot = strchr(e->d_name, '.'); /* pianola.d.lua is for editors */
    return dot && strcmp(dot, ".lua") == 0;
}

static int by_bytes(const struct dirent **a, const struct dirent **b) { return strcmp((*a)->d_name, (*b)->d_name); }

/* Each with its first line, a comment that says what it is. */
int list_schedules(void) {
    const char *folder = shipped_folder();
    struct dirent **entry;
    int n = scandir(folder, &entry, is_script, by_bytes);
    if (n < 0)
        die("%s: %s", folder, strerror(errno));
    printf("In %s:\n\n", folder);
    for (int i = 0; i < n; i++) {
        size_t size;
        const char *title = read_file(format("%s/%s", folder, entry[i]->d_name), &size);
        title += strspn(title, "- ");
        printf("  %-18s %.*s\n", entry[i]->d_name, (int)strcspn(title, "\n"), title);
        free(entry[i]);
    }
    free(entry);
    return 0;
}
