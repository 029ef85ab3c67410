/* What each rank's program must hold, from the compiled program in memory, past all that writes and reads rank<k>.cu:
 * readback DIR SCHEDULE MODEL [KEY=VALUE]... leaves DIR/rank<k>.wanted. */
#include "cli/compile.h"
#include "dump.h"
#include "passes/runtime_program.h"
#include <errno.h>
#include <string.h>

/* The view, but for what every rank must have as `run` has it: its stream, which comes from there. */
static void dump_rank(const struct compile *c, const struct rt_program *all, int r, const char *path) {
    struct runtime_view *view = runtime_view(c->spec, c->stage, c->program, r);
    FILE *f = fopen(path, "w");
    if (!f)
        die("%s: %s", path, strerror(errno));
    view->program.rank = &all->rank[r];
    dump(f, &view->program);
    if (fclose(f) != 0)
        die("%s: %s", path, strerror(errno));
}

int main(int argc, char **argv) {
    if (argc < 4)
        die("readback DIR SCHEDULE MODEL [KEY=VALUE]...");
    struct compile c = {.args = {.schedule = argv[2], .model = argv[3], .nset = argc - 4}};
    c.args.set = (const char **)(void *)(argv + 4);
    compile_all(&c, "");
    const struct rt_program *all = runtime_program(c.spec, c.stage, c.program);
    for (int r = 0; r < c.program->workers; r++)
        dump_rank(&c, all, r, format("%s/rank%d.wanted", argv[1], r));
    free_all();
    return 0;
}
