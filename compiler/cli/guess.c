#include "guess.h"
#include <string.h>
#include <unistd.h>

/* Parameters of the shipped schedules and models that newcomers take for options. */
static const char *const usual[] = {"workers", "batches", "stages",  "chunks",  "slices",    "tensor",
                                    "cap",     "rows",    "context", "size",    "precision", "layers",
                                    "width",   "heads",   "vocab",   "experts", "replicas"};

static bool takes_parameters(const struct command *command) {
    for (int i = 0; i < noptions; i++)
        if (options[i].letter == 'D' && option_text(&options[i], command))
            return true;
    return false;
}

const char *guess_parameter(const struct command *command, const char *word, const char *next) {
    const char *name = word + (strncmp(word, "--", 2) == 0 ? 2 : 0), *value = strchr(name, '=');
    size_t n = strcspn(name, "=");
    bool known = false;
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        known |= strlen(usual[i]) == n && strncmp(usual[i], name, n) == 0;
    if (!known || !takes_parameters(command))
        return "";
    value = value ? value + 1 : next && *next != '-' ? next : "N";
    return format("; a script's parameter is set with -D %.*s=%s", (int)n, name, value);
}

/* Returns the value that a space separated from its setting, so that it was taken for a file: =8, or 8 after = or
 * workers=. */
static const char *torn_value(const struct settings *settings, bool equals) {
    for (int i = 0; i < settings->nfiles; i++) {
        const char *file = settings->file[i];
        if (*file == '=')
            return file[1] ? file + 1 : i + 1 < settings->nfiles ? settings->file[i + 1] : "N";
    }
    return equals && settings->nfiles > 1 ? settings->file[settings->nfiles - 1] : NULL;
}

void refuse_spaces(const struct settings *settings, bool several) {
    for (int i = 0; i < settings->args.nset; i++) {
        const char *set = settings->args.set[i];
        size_t n = strcspn(set, "=");
        const char *value = !set[n] || !set[n + 1] ? torn_value(settings, set[n] && !several) : NULL;
        if (value)
            die("-D %s: a setting has no spaces; write -D %.*s=%s", set, (int)n, set, value);
    }
}

const char *guess_file(const char *missing) {
    static const char *const folders[] = {"", "models/", "clusters/"};
    const char *slash = strrchr(missing, '/'), *name = slash ? slash + 1 : missing, *dot = strrchr(name, '.');
    const char *lua = dot && strcmp(dot, ".lua") == 0 ? "" : ".lua";
    if (*lua && access(format("%s%s", missing, lua), R_OK) == 0)
        return format("%s%s", missing, lua);
    for (int i = 0; i < 3 && *name && shipped_folder(); i++) {
        const char *path = shipped_file(format("%s%s%s", folders[i], name, lua));
        if (access(path, R_OK) == 0)
            return path;
    }
    return NULL;
}
