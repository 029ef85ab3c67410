#include "side_file.h"
#include "fault.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool is_in_range(const struct side_kind *kind, int64_t x) { return x >= kind->least && x < kind->below; }

static void say_integer(const struct side_file *side, int64_t i, char *why, size_t nwhy) {
    const struct side_kind *kind = &side->kind;
    snprintf(why, nwhy, "%s: row %" PRId64 " has %" PRId64 ", but %s must be %sless than %" PRId64, side->file->path,
             i / side->array.columns, npy_integer(&side->array, i), kind->name,
             kind->least == 0 ? "at least 0 and " : "", kind->below);
}

static bool check_integers(const struct side_file *side, char *why, size_t nwhy) {
    int64_t n = side->array.rows * side->array.columns;
    for (int64_t i = 0; side->kind.kind == 'i' && i < n; i++)
        if (!is_in_range(&side->kind, npy_integer(&side->array, i))) {
            say_integer(side, i, why, nwhy);
            return false;
        }
    return true;
}

static bool side_open(struct side_file *side, const char *path, const struct side_kind *kind, int64_t rows, char *why,
                      size_t nwhy) {
    char beside[PATH_MAX];
    if ((size_t)snprintf(beside, sizeof beside, "%s.%s.npy", path, kind->name) >= sizeof beside) {
        snprintf(why, nwhy, "%s: its name is too long for the file with its %s", path, kind->name);
        return false;
    }
    side->kind = *kind;
    side->file = data_file_open(beside, why, nwhy);
    if (!side->file || !npy_read(side->file->text, side->file->size, &side->array, beside, why, nwhy))
        return false;
    if (side->array.kind == kind->kind && side->array.rows == rows && side->array.columns == kind->columns)
        return check_integers(side, why, nwhy);
    snprintf(why, nwhy, "%s: has %" PRId64 " rows of %" PRId64 " %s, but %s has %" PRId64 " tokens, each with %d %s",
             beside, side->array.rows, side->array.columns, side->array.kind == 'i' ? "integers" : "floats", path, rows,
             kind->columns, kind->kind == 'i' ? "integers" : "floats");
    return false;
}

bool sides_open(struct sides *sides, const struct rt_model *m, const char *path, int64_t rows, char *why, size_t nwhy) {
    const struct side_kind labels = {"labels", 'i', 1, INT64_MIN, m->vocab};
    bool ok = !m->labels || side_open(&sides->labels, path, &labels, rows, why, nwhy);
    for (int i = 0; ok && i < m->ninputs; i++) {
        const struct rt_input *input = &m->input_of_units[i];
        const struct side_kind kind = {input->name, input->floats ? 'f' : 'i', input->columns, 0, input->below};
        ok = side_open(&sides->input[i], path, &kind, rows, why, nwhy);
    }
    return ok;
}

void sides_close(struct sides *sides) {
    data_file_close(sides->labels.file);
    for (int i = 0; i < MOST_INPUTS; i++)
        data_file_close(sides->input[i].file);
}

const struct data_file *sides_file(const struct sides *sides, int i) {
    return i == 0 ? sides->labels.file : sides->input[i - 1].file;
}

static int32_t side_integer(const struct side_file *side, int64_t i) {
    int64_t x = npy_integer(&side->array, i);
    char why[PATH_MAX + 256];
    if (is_in_range(&side->kind, x))
        return x < 0 ? -1 : (int32_t)x;
    if (!data_file_same(side->file, why, sizeof why))
        return 0;
    say_integer(side, i, why, sizeof why);
    fprintf(stderr, "pianola: error: %s\n", why);
    fault_tell(why);
    _exit(2);
}

void side_rows(const struct side_file *side, int64_t from, int64_t n, void *to) {
    const struct npy *array = &side->array;
    if (array->kind == 'f') {
        memcpy(to, array->at + from * array->columns * 4, (size_t)(n * array->columns) * 4);
        return;
    }
    int32_t *out = to;
    for (int64_t i = 0; i < n * array->columns; i++)
        out[i] = side_integer(side, from * array->columns + i);
}
