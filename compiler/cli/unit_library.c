#include "unit_library.h"
#include "unit_file.h"
#include "../../runtime/store/fnv1a.h"
#include "base/path.h"
#include "base/read_file.h"
#include "base/text.h"
#include "cuda_library.h"
#include "files.h"
#include "formats/formats.h"
#include "unit_text.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- commands ---- */

struct command {
    const char **word;
    size_t n, capacity;
};

static void add_command_word(struct command *command, const char *word) {
    GROW(command->word, command->capacity, command->n + 2);
    command->word[command->n++] = word;
    command->word[command->n] = NULL;
}

static void add_command_words(struct command *command, const char *words) {
    while (*(words += strspn(words, " "))) {
        size_t n = strcspn(words, " ");
        add_command_word(command, format("%.*s", (int)n, words));
        words += n;
    }
}

/* Runs a command, whose output goes to a file. Returns its exit status, or -1 if it could not be started. */
static int run_command(const struct command *command, const char *output) {
    int status = -1, fd = open(output, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        die("%s: %s", output, strerror(errno));
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(fd, 1);
        execvp(command->word[0], (char *const *)command->word);
        _exit(127);
    }
    close(fd);
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        return -1;
    return WIFEXITED(status) && WEXITSTATUS(status) != 127 ? WEXITSTATUS(status) : -1;
}

/* ---- compilers ---- */

/* Returns the name of nvcc: the variable NVCC, else the program in CUDA_HOME or in its usual place. */
static const char *nvcc(void) {
    const char *named = getenv("NVCC"), *home = getenv("CUDA_HOME");
    const char *path = format("%s/bin/nvcc", home ? home : "/usr/local/cuda");
    return named ? named : access(path, X_OK) == 0 ? path : "nvcc";
}

/* Returns the folder of the headers that sources include: one for each version of them, since several Pianolas may
 * share the cache. */
static const char *headers_folder(const char *folder) {
    uint64_t hash = fnv1a(fnv1a(FNV_START, unit_h, sizeof unit_h), aoti_h, sizeof aoti_h);
    return format("%s/include/%016llx", folder, (unsigned long long)hash);
}

static struct command compiler_of(bool cuda, const char *folder) {
    struct command command = {0};
    const char *named = getenv("CC"), *flags = getenv("UNIT_CFLAGS");
    add_command_words(&command, cuda ? nvcc() : named && *named ? named : "cc");
    add_command_words(&command, cuda ? UNIT_NVFLAGS : UNIT_CFLAGS);
    add_command_words(&command, cuda || !flags ? "" : flags);
    add_command_word(&command, format("-I%s", headers_folder(folder)));
    return command;
}

static void offer_header(const char *folder, const char *name, const char *content) {
    struct text header = {0};
    put_word(&header, content);
    write_file(format("%s/pianola/%s", headers_folder(folder), name), &header);
}

/* Returns the folder of compiled units, with the headers that their sources include. */
static const char *cache_folder(void) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME"), *temporary = getenv("TMPDIR");
    const char *folder = cache && *cache ? format("%s/pianola", cache)
                         : home && *home ? format("%s/.cache/pianola", home)
                                         : format("%s/pianola-%ld", temporary ? temporary : "/tmp", (long)getuid());
    make_folder(format("%s/pianola", headers_folder(folder)));
    offer_header(folder, "unit.h", unit_h);
    offer_header(folder, "aoti.h", aoti_h);
    return folder;
}

/* Returns whether a unit's file is compiled or linked: for the host, all except CUDA sources. */
static bool takes_part(const char *file, bool cuda) { return cuda || !has_ending(file, ".cu"); }

/* Checks a unit's files. Returns code without functions yet, with the unit's shared libraries. */
static struct rt_unit_code check_unit_files(const struct unit_files *files) {
    struct rt_unit_library *library = NEW(struct rt_unit_library, files->n);
    struct rt_unit_code code = {.library = library};
    for (int i = 0; i < files->n; i++) {
        struct rt_unit_library one = check_unit_file(files, i);
        if (i >= files->nsources && !has_ending(files->file[i], ".a"))
            library[code.nlibraries++] = one;
    }
    return code;
}

/* Dies if a unit has no code for the device. */
static void check_unit_sources(const struct unit_files *files, bool cuda) {
    bool any = files->n > files->nsources;
    for (int i = 0; i < files->nsources; i++)
        any |= takes_part(files->file[i], cuda) && (!cuda || has_ending(files->file[i], ".cu"));
    if (!any)
        die_at(files->script, NULL, files->line, 0,
               "unit '%s': has no source for %s; add one that ends in %s to 'source'", files->unit->name,
               cuda ? "CUDA" : "CPUs", cuda ? ".cu" : ".c");
}

/* Sets the code of all layers of that unit. */
static void set_code(const struct model *m, const struct unit_files *files, const struct rt_unit_code *code) {
    for (int i = 0; i < m->nlayers; i++)
        if (m->layer[i].unit && strcmp(m->layer[i].unit->name, files->unit->name) == 0)
            *m->layer[i].unit->code = *code;
}

/* Continues a hash with a command's output. file: the source that the command reads. Dies if it fails. */
static uint64_t hash_output(uint64_t hash, const struct command *command, const char *output,
                            const struct unit_files *files, const char *file) {
    int status = run_command(command, output);
    if (status < 0)
        die_at(files->script, NULL, files->line, 0, "unit '%s': cannot run the compiler %s; name another with %s",
               files->unit->name, command->word[0], has_ending(file, ".cu") ? "NVCC" : "CC");
    size_t n = 0;
    char *text = read_file(output, &n);
    unlink(output);
    if (status > 0)
        die_at(files->script, NULL, files->line, 0, "unit '%s': %s does not compile; the messages of %s are above",
               files->unit->name, file, command->word[0]);
    return fnv1a(hash, text, n);
}

/* Returns a hash of all that the library depends on: each source with what it includes, the libraries' hashes, the
 * command. */
static uint64_t hash_files(const struct unit_files *files, bool cuda, const char *folder) {
    uint64_t hash = FNV_START;
    const char *output = format("%s/%s-%ld.i", folder, files->unit->name, (long)getpid());
    struct command version = {0}, compile = compiler_of(cuda, folder);
    for (size_t i = 0; i < compile.n; i++)
        hash = fnv1a(hash, compile.word[i], strlen(compile.word[i]) + 1);
    add_command_word(&version, compile.word[0]);
    add_command_word(&version, "--version");
    hash = hash_output(hash, &version, output, files, cuda ? ".cu" : ".c");
    for (int i = 0; i < files->n; i++) {
        struct command command = compiler_of(cuda, folder);
        if (i < files->nsources && takes_part(files->file[i], cuda)) {
            add_command_word(&command, "-E");
            add_command_word(&command, files->file[i]);
            hash = hash_output(hash, &command, output, files, files->file[i]);
        } else if (i >= files->nsources) {
            const char *is = format("%s %s", resolved_path(files->file[i]), check_unit_file(files, i).sha256);
            hash = fnv1a(hash, is, strlen(is));
        }
    }
    return hash;
}

/* Adds words for the linker. */
static void add_linker_words(struct command *command, const char *const *word, int n, bool cuda) {
    for (int i = 0; i < n; i++) {
        add_command_word(command, cuda ? "-Xlinker" : format("-Wl,%s", word[i]));
        if (cuda)
            add_command_word(command, word[i]);
    }
}

/* Adds a library. The loader finds a shared one in its present folder, and loads it even if nothing refers to it. */
static void add_library(struct command *command, const char *path, bool cuda) {
    const char *folder = format("%.*s", (int)(last_part(path) - path) - 1, path);
    const char *const words[] = {"--no-as-needed", "-rpath", folder};
    if (!has_ending(path, ".a"))
        add_linker_words(command, words, 3, cuda);
    add_command_word(command, path);
}

/* Compiles a unit into a library, unless it is in the folder already. Returns its path. */
static const char *library_of(const struct unit_files *files, bool cuda) {
    const char *folder = cache_folder();
    check_unit_sources(files, cuda);
    const char *path =
        format("%s/%s-%016llx.so", folder, files->unit->name, (unsigned long long)hash_files(files, cuda, folder));
    if (access(path, R_OK) == 0)
        return path;
    const char *mine = format("%s.%ld", path, (long)getpid());
    struct command command = compiler_of(cuda, folder);
    add_command_word(&command, "-shared");
    add_command_word(&command, "-o");
    add_command_word(&command, mine);
    for (int i = 0; i < files->nsources; i++)
        if (takes_part(files->file[i], cuda))
            add_command_word(&command, files->file[i]);
    for (int i = files->nsources; i < files->n; i++)
        add_library(&command, resolved_path(files->file[i]), cuda);
    add_command_word(&command, "-lm");
    int status = run_command(&command, "/dev/null");
    if (status != 0)
        die_at(files->script, NULL, files->line, 0, "unit '%s': %s%s does not compile; the messages of %s are above",
               files->unit->name, files->file[0], files->nsources > 1 ? ", with its other files," : "",
               command.word[0]);
    if (rename(mine, path) != 0)
        die("%s: %s", path, strerror(errno));
    return path;
}

/* ---- functions ---- */

/* Returns whether a layer of that unit is trained. */
static bool needs_weight(const struct model *m, const char *name) {
    for (int i = 0; i < m->nlayers; i++)
        if (m->layer[i].unit && strcmp(m->layer[i].unit->name, name) == 0 && unit_has(m->layer[i].unit, UNIT_WEIGHT))
            return true;
    return false;
}

static pianola_unit_function *function_of(const struct model *m, const struct unit_files *files, void *library, int op,
                                          bool cuda) {
    static const char *const name[UNIT_OPERATIONS] = {"forward", "input", "weight"};
    const char *symbol = format("%s_%s%s", files->unit->name, name[op], cuda ? "_cuda" : "");
    pianola_unit_function *function = NULL;
    *(void **)&function = dlsym(library, symbol);
    if (!function && (op != UNIT_WEIGHT || needs_weight(m, files->unit->name)))
        die_at(files->script, NULL, files->line, 0,
               "unit '%s': %s does not define %s%s; functions begin with the unit's name: rename them, or give the "
               "unit the field 'name'",
               files->unit->name, files->file[0], symbol, cuda ? " with C linkage" : "");
    return function;
}

static void open_unit(const struct model *m, const struct unit_files *files, bool cuda) {
    struct rt_unit_code code = check_unit_files(files);
    const char *path = library_of(files, cuda);
    if (cuda)
        cuda_library(); /* whose functions units may import */
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        die_at(files->script, NULL, files->line, 0, "unit '%s': %s", files->unit->name, dlerror());
    for (int op = 0; op < UNIT_OPERATIONS; op++)
        code.run[op] = function_of(m, files, library, op, cuda);
    set_code(m, files, &code);
}

/* Dies if a unit's file with initial values is not there. */
static void check_own_data(const struct model *m) {
    for (int i = 0; i < m->nlayers; i++) {
        const struct rt_unit *unit = m->layer[i].unit;
        if (unit && unit->data && access(unit->data, R_OK) != 0)
            die("unit '%s': %s: %s", unit->name, unit->data, strerror(errno));
    }
}

void open_units(const struct model *m, bool cuda) {
    check_own_data(m);
    for (int i = 0; i < m->nfiles; i++)
        if (!m->files[i].unit->code->run[UNIT_FORWARD])
            open_unit(m, &m->files[i], cuda);
}

/* ---- copies for ranks' programs ---- */

struct copies {
    struct unit_copy *at;
    size_t n, capacity;
};

/* Adds a file, and what a source includes from its own folder. */
static void add_copy(struct copies *copies, const struct unit_files *files, const char *path, bool source) {
    const char *base = last_part(path);
    const char *name = format(UNITS_FOLDER "/%s/%s", files->unit->name, base);
    for (size_t i = 0; i < copies->n; i++)
        if (strcmp(copies->at[i].name, name) == 0)
            return;
    GROW(copies->at, copies->capacity, copies->n + 1);
    copies->at[copies->n++] = (struct unit_copy){name, path};
    for (const char *line = source ? read_file(path, NULL) : NULL; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        const char *at = line + strspn(line, " \t");
        if (*at != '#')
            continue;
        at += 1 + strspn(at + 1, " \t");
        if (strncmp(at, "include", 7) != 0 || at[7 + strspn(at + 7, " \t")] != '"')
            continue;
        at += 8 + strspn(at + 7, " \t");
        const char *header = format("%.*s%.*s", (int)(base - path), path, (int)strcspn(at, "\"\n"), at);
        if (!strchr(header + (base - path), '/') && access(header, R_OK) == 0)
            add_copy(copies, files, header, true);
    }
}

static const char *library_path(const struct unit_files *files, const char *name) {
    int i = files->nsources;
    while (strcmp(last_part(files->file[i]), name) != 0)
        i++;
    return files->file[i];
}

/* Dies if unit number u and an earlier one have different shared libraries of one name, since the linker and the ranks'
 * loader find libraries by their names. code: per unit. */
static void check_library_names(const struct unit_files *files, const struct rt_unit_code *code, int u) {
    for (int v = 0; v < u; v++)
        for (int i = 0; i < code[v].nlibraries; i++)
            for (int k = 0; k < code[u].nlibraries; k++) {
                const struct rt_unit_library *a = &code[v].library[i], *b = &code[u].library[k];
                if (strcmp(a->name, b->name) == 0 && strcmp(a->sha256, b->sha256) != 0)
                    die_at(files->script, NULL, files[u].line, 0,
                           "units '%s' and '%s' have different libraries of one name, %s and %s, but ranks find "
                           "libraries by their names: rename one",
                           files[v].unit->name, files[u].unit->name, library_path(&files[v], a->name),
                           library_path(&files[u], b->name));
            }
}

struct unit_copy *unit_copies(const struct model *m, int *n) {
    struct copies copies = {0};
    struct rt_unit_code *code = NEW(struct rt_unit_code, m->nfiles);
    for (int u = 0; u < m->nfiles; u++) {
        const struct unit_files *files = &m->files[u];
        code[u] = check_unit_files(files);
        set_code(m, files, &code[u]);
        check_library_names(m->files, code, u);
        for (int k = 0; k < files->n; k++)
            add_copy(&copies, files, files->file[k], k < files->nsources);
    }
    *n = (int)copies.n;
    return copies.at;
}
