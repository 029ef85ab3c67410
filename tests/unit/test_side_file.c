/* Files beside a text, of labels and of inputs of units, that change while they are read. */
#include "handmade.h"
#include "text_file.h"
#include "data.h"
#include <sys/stat.h>
#include <sys/wait.h>
#include <fcntl.h>

static struct rt_model tokens(void) {
    return (struct rt_model){.input = INPUT_TOKENS, .rows = 16, .context = 8, .vocab = 256, .batches = 2};
}

/* Writes an array of NumPy beside a path, of n integers x. */
static void npy_file(const char *path, int n, int32_t x) {
    char header[129];
    int32_t *all = NEW(int32_t, n);
    snprintf(header, sizeof header, "%-128s",
             format("0123456789{'descr': '<i4', 'fortran_order': False, 'shape': (%d,), }", n));
    memcpy(header, "\x93NUMPY\x01\x00\x76\x00", 10);
    FILE *file = fopen(path, "r+");
    file = file ? file : fopen(path, "w");
    cr_assert(file && fwrite(header, 1, 128, file) == 128);
    for (int i = 0; i < n; i++)
        all[i] = x;
    cr_assert_eq(fwrite(all, sizeof *all, (size_t)n, file), (size_t)n);
    fclose(file);
}

/* Opens data with labels and an input of units, whose files are overwritten by x, at another time or at the same. */
static struct data *overwritten(const char *path, struct rt_model *m, struct rt_input *input, int32_t x,
                                bool same_time) {
    static const char *const kind[] = {"labels", "places"};
    *input = (struct rt_input){.name = "places", .columns = 1, .below = 5};
    m->labels = true;
    m->ninputs = 1;
    m->input_of_units = input;
    struct data *d = NULL;
    for (int turn = 0; turn < 2; turn++) {
        for (int k = 0; k < 2; k++) {
            char *beside = format("%s.%s.npy", path, kind[k]);
            npy_file(beside, 40, turn == 0 ? 4 : x);
            time_t when = turn == 0 || same_time ? 1 : 2;
            cr_assert_eq(utimensat(AT_FDCWD, beside, (struct timespec[2]){{when, 0}, {when, 0}}, 0), 0);
        }
        char why[300] = "";
        d = d ? d : data_open(m, (const char *const[]){path, NULL}, 1, why, sizeof why);
        cr_assert(d, "%s", why);
    }
    return d;
}

static void remove_files(const char *path) {
    unlink(path);
    unlink(format("%s.labels.npy", path));
    unlink(format("%s.places.npy", path));
}

Test(side_file, numbers_written_later_stay_in_their_range) {
    struct rt_model m = tokens();
    struct rt_input input;
    char why[300];
    for (int i = 0; i < 2; i++) {
        const char *path = text_file((unsigned char[40]){1, 2, 3}, 40);
        struct data *d = overwritten(path, &m, &input, i == 0 ? 1 << 30 : -100, false);
        struct rt_batch b;
        data_batch(d, 0, 0, fresh((int64_t)data_bytes(&m)), &b);
        for (int r = 0; r < m.rows; r++)
            cr_assert(b.target[r] == (i == 0 ? 0 : -1) && ((const int32_t *)b.inputs)[r] == 0, "%d", b.target[r]);
        cr_assert(!data_same(d, why, sizeof why) && strstr(why, "changed while it was used"));
        data_close(d);
        remove_files(path);
    }
}

Test(side_file, numbers_written_unnoticed_end_the_process) {
    struct rt_model m = tokens();
    struct rt_input input;
    struct rt_batch b;
    const char *path = text_file((unsigned char[40]){1, 2, 3}, 40);
    int status;
    struct data *d = overwritten(path, &m, &input, 1 << 30, true);
    pid_t child = fork();
    if (child == 0) {
        data_batch(d, 0, 0, fresh((int64_t)data_bytes(&m)), &b);
        _exit(0);
    }
    cr_assert(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 2);
    data_close(d);
    remove_files(path);
}
