/* Declarations shared by read_text*.c: the text reader's state and its word-level functions. */
#ifndef PIANOLA_READ_TEXT_H
#define PIANOLA_READ_TEXT_H
#include "base/map.h"
#include "formats.h"

struct reader {
    const char *file, *src;
    const char *p, *start; /* next byte; start of its line */
    int line;
    struct program *prog;
    int r; /* rank being read, followed by per-rank state */
    struct rank *k;
    struct map bufs;
    int32_t *ins_line;    /* line of each instruction, parallel to ins */
    const char **wait_at; /* position of each wait's label, parallel to wait */
    size_t cap_arg, cap_wait, cap_free, cap_lane;
    struct map groups;
    int32_t *sent, *received;             /* per peer: 1 + the last rank that had a lane for it */
    int32_t *gathered, *grouped, *teamed; /* per group, likewise */
    int32_t *in_list, listed;             /* per rank: the last list that names it; number of the current list */
    int32_t apart, together; /* 1 + the last rank with lanes by peer; 1 + the last with one lane for all messages */
};

/* Dies with an error at position `at` of the current line. */
#define FAIL(in, at, ...) die_at((in)->file, (in)->src, (in)->line, (int)((at) - (in)->start) + 1, __VA_ARGS__)

bool read_if(struct reader *in, const char *word);   /* consumes the word if it comes next */
void read_word(struct reader *in, const char *word); /* dies if it does not come next */
void read_end(struct reader *in);                    /* consumes the end of the line */
int64_t read_integer(struct reader *in, const char *what, int64_t least, int64_t most);
/* Reads one of the n names and returns its index; if none matches, dies and suggests the nearest. */
int read_name(struct reader *in, const char *what, const char *const *names, int n);
int read_lane_kind(struct reader *in, const char *where); /* where: prefix of the error message */
bool op_has_batch(int op);                                /* whether its label has a microbatch */
int32_t read_batch(struct reader *in);                    /* numbered as in the program, by slice if there are slices */
/* Reads a stage, or a member's, "0.1". of_job: a table is not allowed. */
int32_t read_stage(struct reader *in, bool of_job);
int32_t read_new_rank(struct reader *in); /* dies if the current list has it already */
void read_head(struct reader *in);
struct buf read_buffer_name(struct reader *in);
/* Reads an instruction's label: operation, stage, microbatch, instance, peer. */
struct instr read_label(struct reader *in);
#endif
