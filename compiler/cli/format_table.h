/* The formats of what was compiled: a row says all that the command line knows of one. The words of `show --format`,
 * their help, manual page and completion, what else may be asked for beside them, and the files that `compile` writes
 * of every program follow from the rows. */
#ifndef PIANOLA_FORMAT_TABLE_H
#define PIANOLA_FORMAT_TABLE_H
#include "compile.h"

enum {
    TIMED = 1, /* it has times: --measured puts others in the place of those that are predicted */
    DRAWN = 2, /* it is drawn in a style: --with, --color-by, --from, --to */
    ARROWS = 4 /* and can have --with sends */
};

extern const struct format {
    const char *name, *group; /* group: what help calls this and its neighbours, or "" */
    int traits;
    void (*emit)(struct text *out, const struct compile *c, const struct style *style);
    const char *file, *begins; /* the file that `compile` writes, and what all files of it begin with; NULL: none */
    /* Instead of emit, for a file of each rank, rank<k><suffix>: */
    void (*emit_rank)(struct text *out, const struct compile *c, int k);
    const char *suffix;
} formats[];
extern const int nformats;

const char *format_words(void);            /* all names, with spaces between them */
const char *format_words_with(int traits); /* of those that have all of these */
const char *format_help(void);             /* all names by group, the default first */
const char *format_files(void);            /* what `compile` writes of every program */
#endif
