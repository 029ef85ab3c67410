/* The tables of the command line: what is parsed, explained, suggested, completed and documented comes from them. */
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
    ALL = 511
};
enum { SCRIPTS = CHECK | SHOW | COMPILE | RUN | COMPARE | DIFF };

/* What a command or an option does, as its row says it, with the lists that stand in braces there. */
const char *what_of(const char *what);

struct settings;
extern const struct command {
    const char *name, *args, *what, *examples;
    int bit;
    int (*run)(const struct settings *settings);
    const char *needs; /* a file, what and which; NULL: the command sees to it */
    bool several;      /* and more than one */
} commands[];
extern const int ncommands;

extern const struct option_row {
    const char *name, *arg, *what;
    int key, commands; /* of getopt; and the bits of the commands that take it */
} options[];
extern const int noptions;

extern const char option_letters[]; /* as getopt_long takes them: keys of the options that have a short form too */

/* The place of word among those that the option takes; dies when it is none. */
int choice(const char *option, const char *word);
const char *listed(const char *words); /* edge peer rank as `edge, peer or rank` */

/* What a value is, by the name that a row gives it, up to a space. */
enum value { V_OTHER, V_WORDS, V_LUA, V_FILE, V_FOLDER };
enum value value_of(const char *arg, const char **words); /* words: where V_WORDS */

/* What `pianola help` explains besides the commands. */
extern const struct topic {
    const char *name, *what;
    void (*print)(FILE *out);
} topics[];
extern const int ntopics;

/* Dies when there is none; topic: what was meant may be a topic of help. */
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
