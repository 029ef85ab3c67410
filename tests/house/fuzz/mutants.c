/* Runs a fuzz target on files, and then on mutants of them, the same ones in every run:
 *
 *     fuzz_TARGET MUTANTS LAST FILE...
 *
 * A mutant has one to four changes: a bit, a byte, a number, a range that is deleted, repeated, or taken from another
 * file. LAST holds the input that runs; after a crash it is the one to run again: fuzz_TARGET 0 NEW LAST. */
#include "random.h"
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

enum { MOST = 8192, SECONDS = 20 }; /* bytes of a mutant; of CPU time for one input */

extern int inputs_read; /* fuzz.h */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
__attribute__((weak)) int LLVMFuzzerInitialize(int *argc, char ***argv);

struct input {
    uint8_t *at;
    size_t n;
};

static struct input read_input(const char *path) {
    struct input in = {malloc(1 << 20), 0};
    int fd = open(path, O_RDONLY);
    ssize_t n = fd < 0 || !in.at ? -1 : read(fd, in.at, 1 << 20);
    if (n < 0 || n == 1 << 20) {
        fprintf(stderr, "%s: cannot be read, or is larger than 1 MiB\n", path);
        exit(2);
    }
    close(fd);
    in.n = (size_t)n;
    return in;
}

static size_t below(uint64_t *state, size_t n) { return n ? random_next(state) % n : 0; }

/* Replaces n bytes at `from` by m others; drops what does not fit. */
static void replace(struct input *in, size_t from, size_t n, const void *other, size_t m) {
    size_t rest = in->n - from - n;
    m = m < MOST - from ? m : MOST - from;
    rest = rest < MOST - from - m ? rest : MOST - from - m;
    memmove(in->at + from + m, in->at + from + n, rest);
    memcpy(in->at + from, other, m);
    in->n = from + m + rest;
}

static bool is_digit(uint8_t c) { return c >= '0' && c <= '9'; }

/* Replaces a number that follows a random place by one that programs often get wrong. */
static void change_number(struct input *in, uint64_t *state) {
    static const char *const number[] = {
        "0", "-1", "1", "4097", "2147483648", "9223372036854775807", "1e308", "0.5", "nan", "99999999999999999999"};
    const char *with = number[below(state, sizeof number / sizeof *number)];
    size_t from = below(state, in->n), to;
    while (from < in->n && !is_digit(in->at[from]))
        from++;
    for (to = from; to < in->n && is_digit(in->at[to]);)
        to++;
    replace(in, from, to - from, with, strlen(with));
}

static void change(struct input *in, const struct input *other, uint64_t *state) {
    uint8_t part[64];
    size_t from = below(state, in->n), n = below(state, (in->n - from < sizeof part ? in->n - from : sizeof part) + 1);
    size_t there = below(state, other->n), most = other->n - there < sizeof part ? other->n - there : sizeof part;
    switch (random_below(state, 6)) {
    case 0:
        if (in->n)
            in->at[from] ^= (uint8_t)(1 << below(state, 8));
        break;
    case 1:
        part[0] = (uint8_t)random_next(state);
        replace(in, from, in->n > from, part, 1);
        break;
    case 2: replace(in, from, n, part, 0); break;
    case 3:
        memcpy(part, in->at + from, n);
        replace(in, from, 0, part, n);
        break;
    case 4: replace(in, from, n, other->at + there, below(state, most + 1)); break;
    default: change_number(in, state);
    }
}

/* Runs an input, after it was written to the file `last`. */
static void run(const struct input *in, int last) {
    uint8_t *exact = malloc(in->n ? in->n : 1); /* so that reading beyond it is seen */
    if (!exact || pwrite(last, in->at, in->n, 0) != (ssize_t)in->n || ftruncate(last, (off_t)in->n))
        abort();
    memcpy(exact, in->at, in->n);
    setitimer(ITIMER_PROF, &(struct itimerval){.it_value.tv_sec = SECONDS}, NULL); /* ends the process */
    LLVMFuzzerTestOneInput(exact, in->n);
    free(exact);
}

int main(int argc, char **argv) {
    if (argc < 4) {
        fprintf(stderr, "usage: %s MUTANTS LAST FILE...\n", argv[0]);
        return 2;
    }
    int mutants = atoi(argv[1]), files = argc - 3, last = open(argv[2], O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    struct input *file = malloc(sizeof *file * (size_t)files);
    if (last < 0 || !file || (LLVMFuzzerInitialize && LLVMFuzzerInitialize(&argc, &argv)))
        return 2;
    for (int i = 0; i < files; i++) {
        file[i] = read_input(argv[3 + i]);
        run(&file[i], last);
    }
    if (inputs_read == 0) {
        fprintf(stderr, "the target refuses every file\n");
        return 1;
    }
    static uint8_t room[MOST];
    for (int m = 0; m < mutants; m++) {
        uint64_t state = (uint64_t)m;
        const struct input *from = &file[random_below(&state, files)];
        struct input in = {room, from->n < MOST ? from->n : MOST};
        memcpy(room, from->at, in.n);
        for (int changes = 1 + random_below(&state, 4); changes > 0; changes--)
            change(&in, &file[random_below(&state, files)], &state);
        run(&in, last);
    }
    for (int i = 0; i < files; i++)
        free(file[i].at);
    free(file);
    printf("%d\n", files + mutants);
    return 0;
}
