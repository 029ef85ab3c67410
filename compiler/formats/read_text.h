/* Between read_text.c and read_text_words.c: where the reader of the text form stands, what it reads word by word. */
#ifndef PIANOLA_READ_TEXT_H
#define PIANOLA_READ_TEXT_H
#include "base/map.h"
#include "formats.h"

struct reader {
    const char *file, *src;
    const char *p, *start; /* the next byte, and its line */
    int line;
    struct program *prog;
    int r; /* the rank being read, and what is only known of it: */
    struct rank *k;
    struct map bufs;
    int32_t *ins_line;    /* line of each instruction, parallel to ins */
    const char **wait_at; /* parallel to wait: where its label stands */
    size_t cap_arg, cap_wait, cap_free, cap_lane;
    struct map groups;
    int32_t *sent, *received, *grouped; /* by peer or group: the last rank, plus one, that had a lane for it */
    int32_t apart, together;            /* the last rank, plus one, with lanes by peer, with one for all messages */
};

/* An error at the place `at`, in the line being read. */
#define FAIL(in, at, ...) die_at((in)->file, (in)->src, (in)->line, (int)((at) - (in)->start) + 1, __VA_ARGS__)

bool read_if(struct reader *in, const char *word);   /* takes the word if it stands here */
void read_word(struct reader *in, const char *word); /* dies when it does not */
void read_end(struct reader *in);                    /* of the line */
int64_t read_integer(struct reader *in, const char *what, int64_t least, int64_t most);
/* The place among names of the name that stands here; dies when none does, with the nearest. */
int read_name(struct reader *in, const char *what, const char *const *names, int n);
int read_lane_kind(struct reader *in, const char *where); /* where: what the error begins with */
bool op_has_batch(int op);                                /* whether a microbatch stands in its label */
struct buf read_buffer_name(struct reader *in);
/* What an instruction is called by: operation, stage, microbatch, instance, peer. */
struct instr read_label(struct reader *in);
#endif
