/* The tables of the command line: what is parsed, explained, suggested, completed and documented comes from them. */
#ifndef PIANOLA_OPTIONS_H
#define PIANOLA_OPTIONS_H

#define VERSION "0.1.0"

enum { CHECK = 1, SHOW = 2, COMPILE = 4, RUN = 8, COMPARE = 16, SCRIPTS = 31, VERIFY = 32, EXPORT = 64, ALL = 127 };

extern const struct command {
    const char *name, *args, *what, *examples;
    int bit;
} commands[];
extern const int ncommands;

extern const struct option_row {
    const char *name, *arg, *what;
    int key, commands; /* of getopt; and the bits of the commands that take it */
} options[];
extern const int noptions;

extern const char option_letters[]; /* as getopt_long takes them: keys of the options that have a short form too */
#endif
