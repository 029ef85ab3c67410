/* Reads the command line of one command. */
#include "base/text.h"
#include "command.h"
#include "guess.h"
#include "options.h"
#include "terminal.h"
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Dies unless the command accepts this number of files. */
static void check_files(const struct settings *settings, const struct command *command) {
    const char *second = settings->nfiles > 1 ? settings->file[1] : NULL;
    refuse_spaces(settings, command->several);
    if (settings->draw.list) {
        if (settings->nfiles)
            die("`show --list` takes no file, but got '%s'", settings->file[0]);
        return;
    }
    if (command->needs && !settings->nfiles)
        die("`%s` needs a %s; see `pianola help %s`", command->name, command->needs, command->name);
    if (second && !command->several)
        die("`%s` takes one %s, but got '%s' too", command->name,
            value_of(command->args) == V_FOLDER ? "folder" : "file", second);
}

static void put_option(struct text *t, const struct option_row *row, const char *arg) {
    if (row->unrecorded)
        return;
    put_word(t, row->letter ? format(" -%c", row->letter) : format(" --%s", row->name));
    if (row->arg) {
        put_word(t, " ");
        put_shell(t, arg);
    }
}

/* Initial settings, before options and the rows' defaults are applied. */
static const struct settings nothing_given = {
    .dump = "",
    .draw = {.format = -1, .color = COLOR_AUTO},
    .checkpoint.step = -1,
    .compare.target = NAN,
    .jitter.level = -1,
};

static void set_member(struct settings *settings, const struct option_row *row, const char *arg) {
    row->parse(row, arg, (char *)settings + row->at);
}

static void set_defaults(struct settings *settings) {
    *settings = nothing_given;
    settings->draw.style.ascii = !is_utf8();
    for (int i = 0; i < noptions; i++)
        if (options[i].standard)
            set_member(settings, &options[i], options[i].standard);
}

static _Noreturn void refuse_unknown(const struct command *command, const char *word, const char *next) {
    const char *parameter = guess_parameter(command, word, next);
    if (*parameter)
        die("unknown option %.*s%s", (int)strcspn(word, "="), word, parameter);
    const char **names = NEW(const char *, noptions);
    for (int i = 0; i < noptions; i++)
        names[i] = options[i].name;
    const char *near = strncmp(word, "--", 2) == 0 ? nearest(word + 2, names, noptions) : NULL;
    die("unknown option %s%s%s; see `pianola help %s`", word, near ? "; did you mean --" : "", near ? near : "",
        command->name);
}

/* Returns all options for getopt_long, which sets *row to the index of the row it found. The command's own rows come
 * first, since getopt_long takes the first of two with the same name. */
static const struct option *long_options(const struct command *command, int *row) {
    struct option *longs = NEW(struct option, noptions + 1);
    for (int own = 1, n = 0; own >= 0; own--)
        for (int i = 0; i < noptions; i++)
            if (!option_text(&options[i], command) == !own)
                longs[n++] = (struct option){options[i].name, options[i].arg ? required_argument : no_argument, row, i};
    return longs;
}

static const char *letters(void) {
    struct text t = {0};
    put_word(&t, ":");
    for (int i = 0; i < noptions; i++)
        if (options[i].letter)
            put(&t, "%c%s", options[i].letter, options[i].arg ? ":" : "");
    return t.s;
}

static void parse_option(struct settings *settings, const struct command *command, const struct option_row *row) {
    if (!option_text(row, command)) {
        const char *parameter = guess_parameter(command, row->name, row->arg ? optarg : NULL);
        die("`%s` takes no --%s%s", command->name, row->name,
            *parameter ? parameter : format("; see `pianola help %s`", command->name));
    }
    if (row->arg && !*optarg)
        die("--%s needs a value, but got an empty one; see `pianola help %s`", row->name, command->name);
    set_member(settings, row, optarg);
    if (settings->help) {
        help_about(command);
        exit(0);
    }
    if (settings->version) {
        help_version();
        exit(0);
    }
}

/* Applies the options, and appends them to text in shell syntax. */
static void parse_options(struct settings *settings, const struct command *command, int argc, char **argv,
                          struct text *text) {
    int which;
    const struct option *longs = long_options(command, &which);
    const char *shorts = letters();
    opterr = 0;
    optind = 0; /* restarts getopt_long */
    for (int key; (key = getopt_long(argc, argv, shorts, longs, NULL)) != -1;) {
        const char *word = argv[optind - 1];
        if (key == ':')
            die("%s needs a value; see `pianola help %s`", word, command->name);
        if (key == '?')
            refuse_unknown(command, word, argv[optind]);
        for (int i = 0; key != 0 && i < noptions; i++)
            if (options[i].letter == key)
                which = i;
        parse_option(settings, command, &options[which]);
        put_option(text, &options[which], optarg);
    }
}

void parse_command_line(struct settings *settings, const struct command *command, int argc, char **argv) {
    struct text files = {0}, given = {0};
    set_defaults(settings);
    settings->args.set = NEW(const char *, argc);
    put_word(&given, "");
    parse_options(settings, command, argc, argv, &given);
    put(&files, "pianola %s", command->name);
    for (int i = optind; i < argc; i++) {
        if (!*argv[i])
            die("`%s` was given an empty file name", command->name);
        put_word(&files, " ");
        put_shell(&files, argv[i]);
    }
    settings->command = format("%s%s", files.s, given.s);
    settings->file = (const char *const *)argv + optind;
    settings->nfiles = argc - optind;
    check_files(settings, command);
    settings->args.schedule = settings->nfiles ? settings->file[0] : NULL;
    if (settings->json && settings->markdown)
        die("--json and --markdown exclude each other");
}
