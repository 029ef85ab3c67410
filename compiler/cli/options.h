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
    CHECK_UNIT = 131072,
    ALL = 262143
};
enum { SCRIPTS = CHECK | SHOW | COMPILE | RUN | COMPARE | DIFF };

/* Returns a row's description of a command or option, with the lists in braces expanded. */
const char *what_of(const char *what);

struct settings;
extern const struct command {
    const char *name, *args, *what, *examples;
    int bit;
    int (*run)(const struct settings *settings);
    const char *needs; /* the required argument, for error messages; NULL: the command checks that itself */
    bool several;      /* accepts more than one argument */
} commands[];
extern const int ncommands;

/* An option of one or several commands. Two rows with one name belong to different commands. */
extern const struct option_row {
    const char *name, *arg; /* arg: the value's word in help; NULL: takes no value */
    char letter;            /* short name, like the o of -o; 0: none */
    struct {
        size_t at, size; /* offset and size of the member of struct settings to set */
        void (*parse)(const struct option_row *row, const char *arg, void *field); /* dies if the value is invalid */
        const char *words, *(*list)(void); /* accepted words, separated by spaces; both NULL: no fixed words */
        double least, most;                /* range of a number */
        const char *unit, *standard;       /* standard: the default as a user would type it; NULL: sets nothing */
        bool reads;                        /* the command reads its files, so no output may go there */
        bool unrecorded;                   /* only directs output, so the command line that a page shows omits it */
    };
    struct wording {
        int commands; /* bits of the commands that take the option */
        const char *what;
    } wording[16]; /* ends with an entry without commands */
} options[];
extern const int noptions;

/* Returns the text of the option for a command, with its default; NULL if the command does not take it. */
const char *option_text(const struct option_row *row, const struct command *command);
const char *wording_text(const struct option_row *row, const struct wording *wording);
const struct option_row *option_named(const char *name, const struct command *command); /* the name must exist */
/* Returns the words that an option accepts, separated by spaces, or an array of *n words; empty if it has no fixed
 * words. */
const char *words_of(const struct option_row *row);
const char **option_words(const struct option_row *row, int *n);
const char *listed(const char *words); /* "edge peer rank" becomes "edge, peer or rank" */

/* command_line.c: applies the options, or their defaults. argv[0]: the command. Dies on errors. */
void parse_command_line(struct settings *settings, const struct command *command, int argc, char **argv);

/* Type of a value, from its word in help up to a space. */
enum value_kind { V_OTHER, V_LUA, V_FILE, V_FOLDER, NVALUES };
enum value_kind value_of(const char *arg);

/* Topics that `pianola help` explains besides the commands. */
extern const struct topic {
    const char *name, *what;
    void (*print)(FILE *out);
} topics[];
extern const int ntopics;

/* Returns the command of that name; dies if there is none. topic: the name may also be meant as a help topic. */
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
