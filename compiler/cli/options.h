/* The tables of the command line, used for parsing, help, suggestions, completion and documentation. */
#ifndef PIANOLA_OPTIONS_H
#define PIANOLA_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define VERSION "0.1.0"

enum {
    CHECK = 1,
    SHOW = 2,
    COMPILE = 4,
    RUN = 8,
    COMPARE = 16,
    VERIFY = 32,
    EXPORT = 64,
    DIFF = 128,
    IMPORT = 256,
    PARTITION = 512,
    PROFILE = 1024,
    CHECK_BOUND = 2048,
    OPTIMAL = 4096,
    FRONTIER = 8192,
    TUNE = 16384,
    TOKENIZE = 32768,
    GENERATE = 65536,
    ALL = 131071
};
enum { SCRIPTS = CHECK | SHOW | COMPILE | RUN | COMPARE | DIFF };

/* A row's description of a command or option, with the lists named in braces filled in. */
const char *what_of(const char *what);

struct settings;
extern const struct command {
    const char *name, *args, *what, *examples;
    int bit;
    int (*run)(const struct settings *settings);
    const char *needs; /* the argument it requires, for error messages; NULL: the command checks that itself */
    bool several;      /* takes more than one */
} commands[];
extern const int ncommands;

/* An option of one or several commands. Two rows of one name are for different commands. */
extern const struct option_row {
    const char *name, *arg; /* arg: the value's word in help; NULL: it takes none */
    char letter;            /* as in -o; 0: none */
    struct {
        size_t at, size; /* of the member of struct settings that it sets */
        void (*parse)(const struct option_row *row, const char *arg, void *field); /* dies of what it cannot read */
        const char *words, *(*list)(void); /* the words that it takes, separated by spaces; both NULL: others */
        double least, most;                /* of a number */
        const char *unit, *standard;       /* standard: the default, as it would be given; NULL: nothing is set */
        bool reads;                        /* its files are read, so that no output may go there */
        bool unrecorded; /* says where output goes, or what is printed: no part of the command line that a page shows */
    };
    struct wording {
        int commands; /* bits of those that take the option */
        const char *what;
    } wording[16]; /* up to one of no commands */
} options[];
extern const int noptions;

/* Returns the text of the option for a command, with its default; NULL if the command does not take it. */
const char *option_text(const struct option_row *row, const struct command *command);
const char *wording_text(const struct option_row *row, const struct wording *wording);
const struct option_row *option_named(const char *name, const struct command *command); /* one that is there */
/* The words that an option takes, separated by spaces or *n of them; none: it takes others. */
const char *words_of(const struct option_row *row);
const char **option_words(const struct option_row *row, int *n);
const char *listed(const char *words); /* edge peer rank as `edge, peer or rank` */

/* command_line.c: sets what the options say, or their defaults. argv[0]: the command. Dies of what is wrong. */
void parse_command_line(struct settings *settings, const struct command *command, int argc, char **argv);

/* A value's type, by its word in help, up to a space. */
enum value_kind { V_OTHER, V_LUA, V_FILE, V_FOLDER, NVALUES };
enum value_kind value_of(const char *arg);

/* Topics that `pianola help` explains besides the commands. */
extern const struct topic {
    const char *name, *what;
    void (*print)(FILE *out);
} topics[];
extern const int ntopics;

/* Dies if there is none; topic: the name may also have been meant as a help topic. */
const struct command *find_command(const char *name, bool topic);

/* help.c */
int help_command(int argc, char **argv);
void help_version(void);
void help_usage(FILE *out);
void help_about(const struct command *command);
void help_report(FILE *out);
void help_ops(FILE *out);
void help_scripts(FILE *out);

/* pipeline.c */
void help_passes(FILE *out);

/* man.c, completion.c */
void help_man(FILE *out);
void help_bash(FILE *out);
void help_zsh(FILE *out);
void help_fish(FILE *out);
#endif
