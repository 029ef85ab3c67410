/* The tables of the command line, used for parsing, help, suggestions, completion and documentation. */
#ifndef PIANOLA_OPTIONS_H
#define PIANOLA_OPTIONS_H

#include <stdbool.h>
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

/* Keys of options that have no letter. */
enum { KEY_ALLOW_NONFINITE = 128, KEY_CHECKPOINT, KEY_SAVE_EVERY, KEY_KEEP, KEY_RESUME, KEY_NEW_DATA, KEY_TENSORBOARD };

extern const struct option_row {
    const char *name, *arg, *what;
    int key, commands; /* getopt's key; bits of the commands that take the option */
} options[];
extern const int noptions;

extern const char option_letters[]; /* getopt_long's short options */

const struct option_row *option_named(const char *name); /* one that is there */
/* The words that an option takes, *n of them; NULL and 0: it takes others. */
const char **option_words(const struct option_row *o, int *n);
/* Returns the index of word among those the option takes; dies if it is not one. */
int choice(const char *option, const char *word);
const char *listed(const char *words); /* edge peer rank as `edge, peer or rank` */

/* A value's type, derived from the name its row gives it, up to a space. */
enum value { V_OTHER, V_WORDS, V_LUA, V_FILE, V_FOLDER };
enum value value_of(const char *arg, const char **words); /* words: set for V_WORDS */

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
