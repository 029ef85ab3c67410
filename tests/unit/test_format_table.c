/* Compares each row of the table of formats with what its emitter does. */
#include "cli/command.h"
#include "cli/format_table.h"
#include "cli/options.h"
#include "passes_of.h"
#include <criterion/criterion.h>
#include <string.h>

static struct compile compiled(void) {
    struct compile c = {.args = {.schedule = "schedules/1f1b.lua"}, .command = "pianola show schedules/1f1b.lua"};
    compile_all(&c, "");
    return c;
}

static struct text emitted(const struct format *f, const struct compile *c, const struct style *style) {
    struct text t = {0};
    if (f->emit)
        f->emit(&t, c, style);
    else
        f->emit_rank(&t, c, 0);
    cr_assert_gt(t.n, 0, "%s", f->name);
    return t;
}

static bool same(struct text a, struct text b) { return a.n == b.n && memcmp(a.s, b.s, a.n) == 0; }

Test(format_table, every_format_has_one_emitter_and_a_name_of_its_own) {
    for (int i = 0; i < nformats; i++) {
        const struct format *f = &formats[i];
        cr_assert(!f->emit != !f->emit_rank, "%s", f->name);
        cr_assert_eq(!f->emit_rank, !f->suffix, "%s", f->name);
        cr_assert_eq(!f->file, !f->begins, "%s", f->name);
        cr_assert(f->emit || !f->file, "%s", f->name);
        cr_assert_eq(format_named(f->name), f, "%s", f->name);
        for (int k = 0; k < i; k++)
            cr_assert(!f->file || !formats[k].file || strcmp(f->file, formats[k].file) != 0, "%s", f->name);
    }
}

/* `compile` assumes that a file with another beginning is not its own. */
Test(format_table, files_begin_as_their_rows_say) {
    static const struct style plain = {.width = 120, .ascii = true};
    struct compile c = compiled();
    for (int i = 0; i < nformats; i++)
        if (formats[i].file) {
            struct text t = emitted(&formats[i], &c, &plain);
            cr_assert_eq(strncmp(t.s, formats[i].begins, strlen(formats[i].begins)), 0, "%s", formats[i].name);
        }
}

/* `compile` and `show` write no text in which one name of a kind means two things. */
Test(format_table, streams_that_do_not_read_back_are_refused, .exit_code = 1) {
    static const struct style plain = {.width = 120, .ascii = true};
    struct compile c = compiled();
    c.program->rank[1].buf[1] = c.program->rank[1].buf[0];
    emitted(format_named("streams"), &c, &plain);
}

/* The output depends on the times exactly where the row says so. */
Test(format_table, formats_with_times_are_those_marked) {
    static const struct style plain = {.width = 120, .ascii = true};
    struct compile c = compiled(), late = compiled();
    for (int r = 0; r < late.program->workers; r++)
        for (int i = 0; i < late.program->rank[r].nins; i++)
            late.timeline->end[r][i] = 3 * late.timeline->end[r][i] + 1;
    late.timeline->makespan = 3 * late.timeline->makespan + 1;
    late.report = report_of(late.spec, late.costs, late.graph, late.program, late.timeline);
    for (int i = 0; i < nformats; i++)
        cr_assert_eq(!same(emitted(&formats[i], &c, &plain), emitted(&formats[i], &late, &plain)),
                     (formats[i].traits & TIMED) != 0, "%s", formats[i].name);
}

/* The same for the style, and for arrows. */
Test(format_table, formats_that_are_drawn_are_those_marked) {
    static const struct style plain = {.width = 120, .ascii = true}, part = {.width = 120, .ascii = true, .from = 3};
    static const struct style arrows = {.width = 120, .ascii = true, .with = WITH_SENDS};
    struct compile c = compiled();
    for (int i = 0; i < nformats; i++) {
        const struct format *f = &formats[i];
        cr_assert_eq(!same(emitted(f, &c, &plain), emitted(f, &c, &part)), (f->traits & DRAWN) != 0, "%s", f->name);
        cr_assert_eq(!same(emitted(f, &c, &plain), emitted(f, &c, &arrows)), (f->traits & ARROWS) != 0, "%s", f->name);
    }
}

/* The help lists every format once, and every file that is written. */
Test(format_table, help_lists_them_all) {
    for (int i = 0; i < nformats; i++) {
        cr_assert(strstr(format_help(), formats[i].name), "%s", formats[i].name);
        cr_assert(!formats[i].file || strstr(what_of("{files}"), formats[i].file), "%s", formats[i].file);
    }
    cr_assert_str_eq(what_of("{formats}"), format_help());
    for (int i = 0; i < ncommands; i++)
        cr_assert(!strchr(what_of(commands[i].what), '{'), "%s", commands[i].name);
}
