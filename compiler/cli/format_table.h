/* The output formats, one row each, with everything the command line needs to know of them. The rows determine the
 * words of `show --format`, with their help, manual page and completion. They also determine which options apply to
 * each, and which files `compile` always writes. */
#ifndef PIANOLA_FORMAT_TABLE_H
#define PIANOLA_FORMAT_TABLE_H
#include "pipeline.h"

enum {
    TIMED = 1,   /* has times: --measured replaces the predicted ones */
    DRAWN = 2,   /* drawn in a style set by --with, --color-by, --from, --to */
    ARROWS = 4,  /* also supports --with sends */
    STEPS = 8,   /* shows one timeline, which may span several steps: --steps */
    FIGURES = 16 /* has the report's figures, to which --jitter adds */
};

extern const struct format {
    const char *name, *group; /* group: the heading in help for this and its neighbours, or "" */
    int traits;
    void (*emit)(struct text *out, const struct compile *c, const struct style *style);
    const char *file, *begins; /* the file that `compile` writes, and the prefix of all such files; NULL: none */
    /* Instead of emit, if each rank has its own file, <prefix><k><suffix>: */
    void (*emit_rank)(struct text *out, const struct compile *c, int k);
    const char *prefix, *suffix;
    /* The file about all ranks beside them; NULL: there is none */
    void (*emit_all)(struct text *out, const struct compile *c);
    const char *all;
} formats[];
extern const int nformats;

const struct format *format_named(const char *name); /* the name must exist */
const char *format_words(void);                      /* all names, separated by spaces */
const char *format_words_with(int traits);           /* names of formats with all these traits */
const char *format_help(void);                       /* all names by group, the default first */
const char *format_files(void);                      /* files that `compile` writes for every program */
#endif
