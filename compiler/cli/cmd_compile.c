/* `pianola compile -o DIR`: writes the compiled program as the files of a folder.
 *
 * The folder may hold the files of an earlier compile for more ranks, and users keep checkpoints and measured timelines
 * there. So .compiled records the ranks' programs, each with its hash. A compile removes the programs that it no longer
 * writes, and what make built from them.
 *
 * Files that users changed, or that replaced one of ours, are never lost: the compile dies before it writes anything.
 * The record lists old and new programs until the end, so that after an interrupted compile the next one recognizes all
 * files as ours. */
#include "../../runtime/store/fnv1a.h"
#include "base/map.h"
#include "base/read_file.h"
#include "command.h"
#include "pipeline.h"
#include "files.h"
#include "format_table.h"
#include "unit_library.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RECORD ".compiled"

/* ---- the record; it may list a program's name twice, with the old and the new hash ---- */

struct record {
    struct entry {
        const char *name;
        uint64_t hash;
    } * entry;
    size_t n, capacity;
    struct map by_name;
};

static void add_entry(struct record *record, const char *name, uint64_t hash) {
    GROW(record->entry, record->capacity, record->n + 1);
    record->entry[record->n++] = (struct entry){name, hash};
}

static uint64_t hash_name(const char *name) {
    uint64_t hash = 1;
    for (; *name; name++)
        hash = hash_add(hash, *name);
    return hash;
}

static void index_record(struct record *record) {
    record->by_name = map_new(record->n);
    for (size_t i = 0; i < record->n; i++) {
        uint32_t at = map_start(&record->by_name, hash_name(record->entry[i].name));
        while (record->by_name.slot[at])
            at = map_next(&record->by_name, at);
        record->by_name.slot[at] = (int32_t)i + 1;
    }
}

enum listed { UNKNOWN, OTHER, SAME }; /* not in the record; recorded with other hashes only; recorded with this hash */

static enum listed find_listed(const struct record *record, const char *name, uint64_t hash) {
    enum listed found = UNKNOWN;
    uint32_t at = map_start(&record->by_name, hash_name(name));
    for (int k; (k = record->by_name.slot[at] - 1) >= 0; at = map_next(&record->by_name, at))
        if (strcmp(record->entry[k].name, name) == 0) {
            if (record->entry[k].hash == hash)
                return SAME;
            found = OTHER;
        }
    return found;
}

/* Writes the Makefile. With a model, the folder gets this and the following files, which build and start the ranks'
 * programs. */
static void makefile(struct text *t, const struct compile *c, const char *dir, const char *suffix) {
    (void)dir, (void)suffix;
    emit_makefile(t, c->program, c->spec->model);
}
static void starter(struct text *t, const struct compile *c, const char *dir, const char *suffix) {
    (void)dir;
    emit_starter(t, c->program, suffix);
}
static void app(struct text *t, const struct compile *c, const char *dir, const char *suffix) {
    emit_app(t, c->program, dir, suffix);
}
static void slurm(struct text *t, const struct compile *c, const char *dir, const char *suffix) {
    (void)suffix;
    emit_slurm(t, c->program, dir);
}
static const struct launcher {
    const char *file, *begins; /* begins: as in struct format */
    void (*emit)(struct text *t, const struct compile *c, const char *dir, const char *suffix);
    const char *suffix; /* suffix of the built programs, for CPUs or for GPUs */
} launchers[] = {
    {"Makefile", "# The ", makefile, ""}, {"rank", "#!/bin/sh\n# Starts the rank of ", starter, ""},
    {"app.mpi", "-np 1 ", app, ""},       {"rank.gpu", "#!/bin/sh\n# Starts the rank of ", starter, ".gpu"},
    {"app.gpu", "-np 1 ", app, ".gpu"},   {"multi-prog.slurm", "0 ", slurm, ""},
};
enum { NLAUNCHERS = sizeof launchers / sizeof *launchers };

/* Returns whether the name is a rank's source file, like rank12.cu, which make builds into a program. */
static bool is_rank(const char *name) {
    if (strncmp(name, "rank", 4) != 0)
        return false;
    size_t digits = strspn(name + 4, "0123456789");
    return digits > 0 && strcmp(name + 4 + digits, ".cu") == 0;
}

static bool is_of_unit(const char *name) {
    return strncmp(name, UNITS_FOLDER "/", sizeof UNITS_FOLDER) == 0 && !strstr(name, "..");
}

/* Returns whether a record may name this file. Others are ignored, because files that a record names may be removed. */
static bool is_program(const char *name) {
    for (int i = 0; i < NLAUNCHERS; i++)
        if (strcmp(name, launchers[i].file) == 0)
            return true;
    return is_rank(name) || is_of_unit(name);
}

static struct record read_record(const char *dir) {
    struct record record = {0};
    const char *path = format("%s/" RECORD, dir);
    char *s = access(path, F_OK) == 0 ? read_file(path, NULL) : "";
    for (char *line = s, *next; *line; line = next) {
        size_t n = strcspn(line, "\n");
        next = line + n + (line[n] == '\n');
        char *name;
        uint64_t hash = strtoull(line, &name, 16);
        name += *name == ' ';
        const char *copy = format("%.*s", (int)(line + n - name), name);
        if (name < line + n && is_program(copy))
            add_entry(&record, copy, hash);
    }
    index_record(&record);
    return record;
}

static void put_entries(struct text *t, const struct record *record) {
    for (size_t i = 0; i < record->n; i++)
        put(t, "%016llx %s\n", (unsigned long long)record->entry[i].hash, record->entry[i].name);
}

static void write_record(const char *dir, const struct record *was, const struct record *now) {
    struct text t = {0};
    put(&t,
        "# The programs that `pianola compile` wrote here, by hash: a later compile replaces or removes them, unless "
        "they were changed.\n");
    if (was)
        put_entries(&t, was);
    put_entries(&t, now);
    write_file(format("%s/" RECORD, dir), &t);
}

/* ---- writing ---- */

struct folder {
    const char *dir;
    struct record was, now;
};

static const char *advice = "move it away, or give another folder with -o";

/* Dies if the file at this path is not ours: it must start with our prefix and, if recorded, match its hash. */
static void check_ours(const struct folder *folder, const char *name, const char *begin) {
    const char *path = format("%s/%s", folder->dir, name);
    struct stat st;
    if (stat(path, &st) != 0)
        return;
    if (!S_ISREG(st.st_mode))
        die("%s: this must be a regular file to be overwritten, and it is not; %s", path, advice);
    struct text old = {0};
    old.s = read_file(path, &old.n);
    if (old.n == 0)
        return;
    if (strncmp(old.s, begin, strlen(begin)) != 0)
        die("%s: `compile` did not write this file, and would replace it; %s", path, advice);
    if (is_program(name) && find_listed(&folder->was, name, fnv1a(FNV_START, old.s, old.n)) == OTHER)
        die("%s: this file was changed after `compile` wrote it, and the change would be lost; %s", path, advice);
}

/* Stages one file. begin: the prefix of all files of that name. */
static void add_file(struct folder *folder, const char *name, const char *begin, const struct text *t) {
    check_ours(folder, name, begin);
    stage_file(format("%s/%s", folder->dir, name), t, strncmp(begin, "#!", 2) == 0);
    if (is_program(name))
        add_entry(&folder->now, name, fnv1a(FNV_START, t->s, t->n));
}

static void add_formats(struct folder *folder, const struct compile *c) {
    static const struct style plain = {.width = 120, .ascii = true};
    for (int i = 0; i < nformats; i++) {
        struct text t = {0};
        if (!formats[i].file)
            continue;
        formats[i].emit(&t, c, &plain);
        add_file(folder, formats[i].file, formats[i].begins, &t);
    }
}

/* Returns the hash of the whole compile, over all ranks' programs without the hash itself. */
static uint64_t hash_compile(const struct compile *c) {
    uint64_t hash = FNV_START;
    struct text t = {0};
    for (int r = 0; r < c->program->workers; r++, t.n = 0) {
        emit_cuda(&t, c->costs, c->program, r, 0);
        hash = fnv1a(hash, t.s, t.n);
    }
    return hash;
}

/* Returns an absolute path of the folder, so that users may start the ranks from anywhere. mpirun's files cannot quote
 * blanks: if the absolute path has one, returns dir unchanged. */
static const char *path_from_anywhere(const char *dir) {
    char *cwd = *dir == '/' ? NULL : getcwd(NULL, 0);
    const char *path = cwd ? format("%s/%s", cwd, strncmp(dir, "./", 2) == 0 ? dir + 2 : dir) : dir;
    free(cwd);
    return strpbrk(path, " \t\n\"'\\") ? dir : path;
}

/* Adds a program for every rank; needs a model. */
static void add_programs(struct folder *folder, const struct compile *c) {
    uint64_t hash = hash_compile(c);
    struct text t = {0};
    for (int k = 0; k < c->program->workers; k++, t.n = 0) {
        emit_cuda(&t, c->costs, c->program, k, hash);
        add_file(folder, format("rank%d.cu", k), "/* Rank ", &t);
    }
    for (int i = 0; i < NLAUNCHERS; i++, t.n = 0) {
        launchers[i].emit(&t, c, path_from_anywhere(folder->dir), launchers[i].suffix);
        add_file(folder, launchers[i].file, launchers[i].begins, &t);
    }
}

/* Adds the sources and libraries of the model's units. */
static void add_units(struct folder *folder, const struct compile *c) {
    int n = 0;
    const struct unit_copy *copy = unit_copies(c->spec->model, &n);
    for (int i = 0; i < n; i++) {
        struct text t = {0};
        t.s = read_file(copy[i].path, &t.n);
        make_folder(format("%s/%.*s", folder->dir, (int)(strrchr(copy[i].name, '/') - copy[i].name), copy[i].name));
        add_file(folder, copy[i].name, "", &t);
    }
}

/* ---- removing files of earlier compiles ---- */

static void check_stale(const struct folder *folder) {
    for (size_t i = 0; i < folder->was.n; i++)
        if (find_listed(&folder->now, folder->was.entry[i].name, 0) == UNKNOWN)
            check_ours(folder, folder->was.entry[i].name, "");
}

static void remove_file(const char *path) {
    if (unlink(path) != 0 && errno != ENOENT)
        die("%s: cannot remove this file of an earlier compile: %s", path, strerror(errno));
}

/* Removes what make built from a rank's program, like `make clean`, but only if it is an executable file. */
static void remove_built(const char *dir, const char *rank) {
    for (int gpu = 0; gpu < 2; gpu++) {
        struct stat st;
        const char *path = format("%s/%.*s%s", dir, (int)strlen(rank) - 3, rank, gpu ? ".gpu" : "");
        if (lstat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_mode & S_IXUSR)
            remove_file(path);
    }
}

/* Removes the object of a unit's source, and the source's folder if it is empty then. */
static void remove_object(const char *dir, const char *name) {
    const char *slash = strrchr(name, '/');
    remove_file(format("%s/%s.o", dir, name));
    (void)rmdir(format("%s/%.*s", dir, (int)(slash - name), name));
    (void)rmdir(format("%s/" UNITS_FOLDER, dir));
}

static void remove_stale(const struct folder *folder) {
    int removed = 0;
    for (size_t i = 0; i < folder->was.n; i++) {
        const struct entry *entry = &folder->was.entry[i];
        enum listed now = find_listed(&folder->now, entry->name, entry->hash);
        const char *path = format("%s/%s", folder->dir, entry->name);
        if (now != SAME && is_rank(entry->name))
            remove_built(folder->dir, entry->name);
        if (now != UNKNOWN || access(path, F_OK) != 0)
            continue;
        remove_file(path);
        if (is_of_unit(entry->name))
            remove_object(folder->dir, entry->name);
        removed++;
    }
    if (removed > 0)
        fprintf(stderr, "pianola: %s: removed %s of an earlier compile that this one does not write\n", folder->dir,
                counted(removed, "file"));
}

static void write_folder(const char *dir, const struct compile *c) {
    make_folder(dir);
    int lock = lock_folder(dir);
    struct folder folder = {.dir = dir, .was = read_record(dir)};
    add_formats(&folder, c);
    if (c->spec->model) {
        add_units(&folder, c); /* the programs know the units' libraries */
        add_programs(&folder, c);
    }
    index_record(&folder.now);
    check_stale(&folder);
    if (folder.was.n + folder.now.n > 0)
        write_record(dir, &folder.was, &folder.now);
    place_files();
    remove_stale(&folder);
    if (folder.now.n > 0)
        write_record(dir, NULL, &folder.now);
    else
        remove_file(format("%s/" RECORD, dir));
    close(lock);
}

int cmd_compile(const struct settings *settings) {
    if (!settings->output)
        die("`compile` needs -o DIR");
    const char *dir = folder_named(settings->output);
    struct compile c = {.args = settings->args};
    compile_all(&c, settings->dump);
    if (is_costs(c.spec))
        die("%s: is a cost model, which has no layers for the ranks' programs; give one with layers, or see "
            "`pianola show --format streams`",
            c.args.model);
    write_folder(dir, &c);
    return 0;
}
