/* Runs the table of passes, plan/table.c, for a command. */
#include "pipeline.h"
#include "options.h"
#include <string.h>
#include <unistd.h>

enum { TRIED = 't' }; /* letter for the variations that searches tried */

/* Announces how much memory a large schedule may take. */
static void announce_memory(const struct spec *sp) {
    enum { LARGE = 2000000, BYTES_PER_JOB = 2200 }; /* measured: 500 to 2,100 */
    if (sp->njobs >= LARGE)
        fprintf(stderr, "pianola: %s has %d jobs; compiling them takes up to about %.0f GB of memory\n", sp->name,
                sp->njobs, 1e-9 * BYTES_PER_JOB * sp->njobs);
}
void help_passes(FILE *out) {
    for (const struct pass *pass = passes; pass < passes + npasses; pass++)
        fprintf(out, "  %-8s %-8s%-50s %s%c\n", pass->name, pass->search ? "search:" : "", pass->what,
                pass->letter ? "-d" : "", pass->letter ? pass->letter : ' ');
    fprintf(out, "  %-66s -d%c\n", "what each search tried, and which variation ships", TRIED);
}

/* Shows the running pass of a large program on a terminal. "" erases the line; a fatal error is longer and covers
 * it. */
static void tell_pass(const struct compile *c, const char *line) {
    enum { MANY = 100000 };
    if (c->spec && c->spec->njobs >= MANY && isatty(STDERR_FILENO))
        fprintf(stderr, "\033[K%s\r", line);
}

static void check_letters(const char *dump) {
    for (const char *d = dump; *d; d++) {
        bool known = *d == TRIED;
        for (int i = 0; i < npasses; i++)
            known |= passes[i].letter == *d;
        if (!known)
            die("-d%c: no pass has that letter; there are -dl (lower), -dm (mem), -dw (lanes) and -dt (what the "
                "searches "
                "tried)",
                *d);
    }
}

static void print_program(const struct program *p) {
    struct text t = {0};
    emit_text(&t, p);
    fwrite(t.s, 1, t.n, stdout);
}

static void print_tried(const struct compile *c) {
    struct text t = {0};
    tried_put(&t, c);
    fwrite(t.s, 1, t.n, stderr);
}

void compile_all(struct compile *c, const char *dump) {
    check_letters(dump);
    bool loaded = c->spec;
    for (int i = 0; i < npasses; i++) {
        const struct pass *pass = &passes[i];
        int had = compile_has(c);
        tell_pass(c, format("pianola: %s, %d of %d", pass->name, i + 1, npasses));
        compile_until(c, pass->gives);
        if (!loaded && pass->gives == SPEC)
            announce_memory(c->spec);
        if (c->done && !(had & pass->gives))
            c->done(pass->name);
        if (pass->letter && strchr(dump, pass->letter))
            print_program(c->program);
    }
    tell_pass(c, "");
    if (strchr(dump, TRIED))
        print_tried(c);
}

void compile_it(void *compile) { compile_all(compile, ""); }

const char *command_line(const struct script_args *args) {
    struct text t = {0};
    put_word(&t, args->schedule);
    for (int i = 0; i < args->nset; i++)
        put(&t, " -D %s", args->set[i]);
    if (args->model)
        put(&t, " --model %s", args->model);
    if (args->cluster)
        put(&t, " --cluster %s", args->cluster);
    if (args->recompute)
        put_word(&t, " --recompute");
    return tame(t.s);
}
