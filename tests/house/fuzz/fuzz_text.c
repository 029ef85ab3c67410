/* Programs in their text form: a readable one prints and reads back as the same. Its proof, which mostly fails,
 * terminates. */
#include "fuzz.h"

struct reading {
    const char *src;
    struct program *program;
};

static void read_program(void *with) {
    struct reading *r = with;
    r->program = read_text("streams.txt", r->src);
}

static void prove(void *with) {
    struct reading *r = with;
    struct refutation *no = verify_text(r->program);
    if (no && !no->why[0])
        abort();
}

static char *write_program(const struct program *p) {
    struct text t = {0};
    emit_text(&t, p);
    return t.s;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *src = string_of(data, size);
    struct reading first = {.src = src}, second = {0};
    if (src && lives(read_program, &first)) {
        second.src = write_program(first.program);
        if (!lives(read_program, &second) || strcmp(write_program(second.program), second.src))
            abort();
        lives(prove, &first);
    }
    free_all();
    free(src);
    return 0;
}
