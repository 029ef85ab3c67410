#include "format_table.h"
#include <stdlib.h>
#include <string.h>

static void grid(struct text *out, const struct compile *c, const struct style *style) {
    emit_grid(out, c->program, c->timeline, c->report->unit, style);
    emit_report(out, c->report, style);
}

/* Emits the program's text. Exits with an error if it would not read back: if two instructions or buffers have the same
 * name, the text is ambiguous, even for a proved program. */
static void streams(struct text *out, const struct compile *c, const struct style *style) {
    (void)style;
    emit_text(out, c->program);
    const char *why = text_misread(c->program, out->s);
    if (!why)
        return;
    fprintf(stderr,
            "pianola: the text form of %s does not read back as its program, so nothing is written; this is a bug of "
            "the compiler, please report it\n%s\n",
            c->spec->file, why);
    exit(1);
}

static void tsv(struct text *out, const struct compile *c, const struct style *style) {
    (void)style;
    emit_tsv(out, c->program, c->timeline, c->report->unit);
}

static void json(struct text *out, const struct compile *c, const struct style *style) {
    (void)style;
    emit_json(out, c->report);
}

static void svg(struct text *out, const struct compile *c, const struct style *style) {
    emit_svg(out, c->program, c->timeline, c->report, c->spec->machine.memory, style);
}

static void html(struct text *out, const struct compile *c, const struct style *style) {
    emit_html(out, c->program, c->timeline, c->report, c->spec->machine.memory, style, c->command);
}

static void chrome(struct text *out, const struct compile *c, const struct style *style) {
    (void)style;
    emit_chrome(out, c->program, &c->steps, c->report->unit);
}

static void pftrace(struct text *out, const struct compile *c, const struct style *style) {
    (void)style;
    emit_pftrace(out, c->program, &c->steps, c->report->unit);
}

static void hta(struct text *out, const struct compile *c, int k) {
    emit_hta(out, c->program, &c->steps, c->report->unit, k);
}

static void chakra(struct text *out, const struct compile *c, int k) {
    const struct program *p = c->program;
    if (p->period && p->repeats > (p->copies ? p->copies : 1))
        die("--format chakra: a step runs its period %lld times, and a trace has whole steps: add --steps %lld",
            (long long)p->repeats, (long long)p->repeats);
    emit_chakra(out, p, c->timeline, c->report->unit, k);
}

static void chakra_groups(struct text *out, const struct compile *c) { emit_chakra_groups(out, c->program); }

static void torch(struct text *out, const struct compile *c, const struct style *style) {
    (void)style;
    emit_torch(out, c->spec, c->sched, false);
}

static void torch_comms(struct text *out, const struct compile *c, const struct style *style) {
    (void)style;
    emit_torch(out, c->spec, c->sched, true);
}

/* The first is the default. */
const struct format formats[] = {
    {"grid", "", TIMED | DRAWN | STEPS | FIGURES, .emit = grid, .file = "timeline.txt", .begins = ""},
    {"streams", "", 0, .emit = streams, .file = "streams.txt", .begins = "pianola "},
    {"tsv", "", TIMED, .emit = tsv, .file = "timeline.tsv", .begins = "rank\tlane\t"},
    {"json", "", TIMED | FIGURES, .emit = json, .file = "report.json", .begins = "{\n  \"schema\":"},
    {"svg", "a picture", TIMED | DRAWN | ARROWS | STEPS, .emit = svg},
    {"html", "a picture", TIMED | DRAWN | ARROWS | STEPS | FIGURES, .emit = html},
    {"chrome", "a trace", TIMED | STEPS, .emit = chrome},
    {"pftrace", "a trace", TIMED | STEPS, .emit = pftrace},
    {"hta", "a trace", TIMED, .emit_rank = hta, .prefix = "rank", .suffix = ".json"},
    {"chakra", "for simulators", TIMED | STEPS, .emit_rank = chakra, .prefix = "trace.", .suffix = ".et",
     .emit_all = chakra_groups, .all = "groups.json"},
    {"torch-csv", "for PyTorch", 0, .emit = torch},
    {"torch-csv-comms", "for PyTorch", 0, .emit = torch_comms},
};
const int nformats = sizeof formats / sizeof *formats;

const struct format *format_named(const char *name) {
    const struct format *format = formats;
    while (strcmp(format->name, name) != 0)
        format++;
    return format;
}

const char *format_words_with(int traits) {
    struct text t = {0};
    for (int i = 0; i < nformats; i++)
        if ((formats[i].traits & traits) == traits)
            put(&t, "%s%s", t.n ? " " : "", formats[i].name);
    return t.s;
}

const char *format_words(void) { return format_words_with(0); }

const char *format_help(void) {
    struct text t = {0};
    const char *group = formats[0].group;
    for (int i = 0; i < nformats; i++) {
        const char *own = formats[i].group;
        if (strcmp(own, group) != 0)
            put(&t, "; %s: %s", own, formats[i].name);
        else
            put(&t, "%s%s%s", i ? ", " : "", formats[i].name, i ? "" : " (default)");
        group = own;
    }
    return t.s;
}

const char *format_files(void) {
    struct text t = {0};
    for (int i = 0; i < nformats; i++)
        if (formats[i].file)
            put(&t, "%s%s", t.n ? ", " : "", formats[i].file);
    return t.s;
}
