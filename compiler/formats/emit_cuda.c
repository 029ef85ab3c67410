/* Writes a rank's own program, rank<k>.cu: its view of struct rt_program (passes/runtime_program.c) as constants, one
 * instruction per line. nvcc compiles it for a GPU, a C compiler for a CPU. */
#include "emit_cuda.h"
#include "formats.h"
#include "passes/runtime_program.h"
#include "put_fields.h"
#include <assert.h>
#include <string.h>

/* ---- names ---- */

/* Turns the text from `begin` on into a C name. */
static void as_symbol(struct text *t, size_t begin) {
    char label[128];
    size_t n = t->n - begin;
    assert(n <= sizeof label);
    memcpy(label, t->s + begin, n);
    t->n = begin;
    for (size_t at = 0; at < n; at++)
        switch (label[at]) {
        case ' ':
        case '(':
        case ',': put_word(t, "_"); break;
        case '.': put_word(t, "_of_"); break;
        case '#': put_word(t, "_n"); break;
        case '[': put_word(t, "_part_"); break;
        case '/': put_word(t, "_of_"); break;
        case ')':
        case ']': break;
        default: put_bytes(t, label + at, 1);
        }
}

/* Writes "act(1,3)" as a C name: act_1_3; "wgrad(2.1)#3": wgrad_2_of_1_n3. */
static void put_symbol(struct text *t, const struct program *p, const struct buf *b) {
    size_t begin = t->n;
    put_buf(t, &p->names, b);
    as_symbol(t, begin);
}

/* Writes "RECV_F 0 3 from 0" as a C name: RECV_F_0_3_from_0; "B 2 7[0/3]": B_2_7_part_0_of_3. */
static void put_c_name(struct text *t, const struct program *p, const struct instr *x) {
    size_t begin = t->n;
    put_label(t, &p->names, x);
    as_symbol(t, begin);
}

static const char *lane_symbol(const struct lane *lane) {
    const struct lanekind_row *row = lanekind_row(lane->kind);
    return row->of == OF_ALONE ? row->word : format("%s_%d", row->word, row->of == OF_GROUP ? lane->group : lane->peer);
}

/* ---- buffers and instructions ---- */

/* A rank's view with the names of its parts. Columns have the same width in all ranks' files, and lists have no
 * columns, so a longer name or number does not shift other lines. */
struct emit {
    struct text *t;
    const struct program *p;
    const struct rank *k;
    const struct runtime_view *view;
    const char **buffer, **lane; /* [view->nbuffers], [k->nlanes] */
    int stage, batch;            /* widths of stage and microbatch numbers */
};

static void find_names(struct emit *e) {
    e->buffer = NEW(const char *, e->view->nbuffers);
    e->lane = NEW(const char *, e->k->nlanes);
    for (int i = 0; i < e->view->nbuffers; i++) {
        const struct arg *a = &e->view->of[i];
        struct text t = {0};
        put_symbol(&t, e->p, &e->k->buf[a->buf]);
        if (a->last)
            put(&t, "_piece_%d_of_%d", a->piece, pieces_of(a));
        e->buffer[i] = t.s;
    }
    for (int l = 0; l < e->k->nlanes; l++)
        e->lane[l] = lane_symbol(&e->k->lane[l]);
    e->stage = decimal_digits(sets_in(e->p) - 1);
    e->batch = e->p->batches > 10 ? decimal_digits(e->p->batches - 1) : 2 /* -1 */;
}

static const char *name_of(const struct emit *e, const struct rt_buffer *b) { return e->buffer[b - e->view->buffer]; }

static void emit_buffers_in(const struct emit *e, int memory, int64_t arena, const char *where) {
    int last = -1;
    for (int i = 0; i < e->view->nbuffers; i++)
        last = memory_of(&e->k->buf[e->view->of[i].buf]) == memory ? i : last;
    if (last < 0)
        return;
    put(e->t,
        "\n/* Buffers%s: offset and size, in an arena of %lld. Those that overlap live one after the other. */\n"
        "static const struct rt_buffer\n",
        where, (long long)arena);
    for (int i = 0; i <= last; i++)
        if (memory_of(&e->k->buf[e->view->of[i].buf]) == memory)
            put(e->t, "    %s = {%lld, %lld}%s\n", e->buffer[i], (long long)e->view->buffer[i].off,
                (long long)e->view->buffer[i].bytes, i < last ? "," : ";");
}

static void emit_lanes(const struct emit *e) {
    const struct rank *k = e->k;
    if (k->nlanes == 0)
        return;
    put_word(e->t, "\n/* Lanes, and what timelines call them. */\nenum { ");
    for (int l = 0; l < k->nlanes; l++)
        put(e->t, l ? ", %s" : "%s", e->lane[l]);
    put_word(e->t, " };\nstatic const char *const lanes[] = {");
    for (int l = 0; l < k->nlanes; l++)
        put(e->t, l ? ", \"%s\"" : "\"%s\"", e->view->rank.lane[l]);
    put_word(e->t, "};\n");
}

/* Returns the name of instruction i. */
static const char *instr_label(const struct emit *e, int32_t i) {
    struct text t = {0};
    put_c_name(&t, e->p, &e->k->ins[i]);
    return t.s;
}

static void emit_waited(const struct emit *e) {
    const struct rt_rank *k = &e->view->rank;
    int32_t n = 0;
    for (int32_t i = 0; i < k->nins; i++)
        n = k->ins[i].name > n ? k->ins[i].name : n;
    if (n == 0)
        return;
    put_word(e->t, "\n/* Names of the instructions that others wait for, whose order says nothing. */\nenum {\n");
    for (int32_t name = 1; name <= n; name++)
        put(e->t, name > 1 ? "    %s,\n" : "    %s = 1,\n", instr_label(e, k->place[name]));
    put_word(e->t, "};\n");
}

/* Writes a list of an instruction that does not fit into its line. */
static void emit_list(const struct emit *e, const char *what, int32_t i, const struct rt_buffer *const *list) {
    if (!list)
        return;
    put(e->t, "static const struct rt_buffer *const %s_%s[] = {", what, instr_label(e, i));
    for (; *list; list++)
        put(e->t, "&%s, ", name_of(e, *list));
    put_word(e->t, "NULL};\n");
}

static void emit_lists(const struct emit *e) {
    const struct rt_rank *k = &e->view->rank;
    for (int32_t i = 0; i < k->nins; i++) {
        const struct rt_instr *x = &k->ins[i];
        emit_list(e, "more", i, x->more);
        emit_list(e, "kv", i, x->kv);
        if (!x->also)
            continue;
        put(e->t, "static const int32_t also_%s[] = {", instr_label(e, i));
        for (const int32_t *name = x->also; *name; name++)
            put(e->t, "%s, ", instr_label(e, k->place[*name]));
        put_word(e->t, "0};\n");
    }
}

static void put_operands(const struct emit *e, const struct rt_instr *x) {
    const char *before = ".at = {";
    for (int role = 0; role < NROLES; role++) {
        const struct rt_buffer *b = operand_in(x, role);
        if (!b)
            continue;
        put(e->t, "%s.%s = &%s", before, role_name[role], name_of(e, b));
        before = ", ";
    }
    put_word(e->t, *before == ',' ? "}, " : "");
}

static void put_waits(const struct emit *e, const struct rt_instr *x) {
    const char *before = ".after = {";
    for (int w = 0; w < RT_AFTER && x->after[w]; w++, before = ", ")
        put(e->t, "%s%s", before, instr_label(e, e->view->rank.place[x->after[w]]));
    put_word(e->t, *before == ',' ? "}, " : "");
}

/* Writes the members that only some operations have. */
static void put_some(const struct emit *e, const struct rt_instr *x) {
    static const char *const sweep[] = {
        [SWEEP_ALL] = "", [SWEEP_PUT_OFF] = ".sweep = SWEEP_PUT_OFF, ", [SWEEP_WEIGHTS] = ".sweep = SWEEP_WEIGHTS, "};
    if (has_peer(x->op))
        put(e->t, ".peer = %d, ", x->peer);
    if (is_group(x->op))
        put(e->t, ".group = %d, ", x->group);
    if (has_root(x->op))
        put(e->t, ".root = %d, ", x->root);
    if (is_message(x->op))
        put(e->t, ".msg = %d, ", x->msg);
    if (x->bytes)
        put(e->t, ".bytes = %lld, ", (long long)x->bytes);
    if (x->to)
        put(e->t, ".from = %d, .to = %d, ", x->from, x->to);
    put_word(e->t, sweep[x->sweep]);
}

static void emit_instr(const struct emit *e, int32_t i) {
    struct text *t = e->t;
    const struct rt_instr *x = &e->view->rank.ins[i];
    put(t, "    {.op = %-10s .stage = %*d, .batch = %*d, .lane = %-8s ", format("OP_%s,", op_name[x->op]), e->stage,
        x->stage, e->batch, x->batch, format("%s,", e->lane[x->lane]));
    put_some(e, x);
    put_operands(e, x);
    put_word(t, x->first ? ".first = true, " : "");
    put_word(t, x->vfirst ? ".vfirst = true, " : "");
    put_word(t, x->ufirst ? ".ufirst = true, " : "");
    put_word(t, x->more ? format(".more = more_%s, ", instr_label(e, i)) : "");
    put_word(t, x->kv ? format(".kv = kv_%s, ", instr_label(e, i)) : "");
    put_waits(e, x);
    put_word(t, x->also ? format(".also = also_%s, ", instr_label(e, i)) : "");
    put_word(t, x->name ? format(".name = %s, ", instr_label(e, i)) : "");
    while (t->s[t->n - 1] == ' ' || t->s[t->n - 1] == ',')
        t->n--;
    put_word(t, "},\n");
}

static void emit_stream(const struct emit *e) {
    const struct rt_rank *k = &e->view->rank;
    if (k->nins == 0)
        return;
    put_word(e->t, "\n/* The instructions, in the order of issue. */\n");
    emit_lists(e);
    put_word(e->t, "static const struct rt_instr stream[] = {\n");
    for (int i = 0; i < k->nins; i++) {
        if (k->begin < k->end && i == k->begin)
            put(e->t, "    /* | the period: %lld times, each time %d microbatches on */\n",
                (long long)e->view->program.repeats, e->view->program.period);
        emit_instr(e, i);
        if (k->begin < k->end && i + 1 == k->end)
            put_word(e->t, "    /* | its end */\n");
    }
    put_word(e->t, "};\n");
}

/* ---- the rank and the program ---- */

static const char *const memory_word[] = {"MEMORY_DEVICE", "MEMORY_HOST"};
static const struct field_row home_fields[] = {FIELD_ALWAYS(rt_home, stage),
                                               FIELD_NAME(rt_home, memory, memory_word),
                                               FIELD_ALWAYS(rt_home, weight),
                                               FIELD_NUMBER(rt_home, opt),
                                               FIELD_NUMBER(rt_home, first),
                                               FIELD_NUMBER(rt_home, count),
                                               FIELD_NUMBER(rt_home, own),
                                               FIELD_NUMBER(rt_home, owned),
                                               {.name = NULL}};
static const struct field_row memory_fields[] = {
    FIELD_ALWAYS(rt_rank, arena), FIELD_NUMBER(rt_rank, host), {.name = NULL}};
static const struct field_row period_fields[] = {
    FIELD_ALWAYS(rt_rank, begin), FIELD_NUMBER(rt_rank, end), {.name = NULL}};
static const struct field_row program_fields[] = {
    FIELD_NUMBER(rt_program, workers), FIELD_NUMBER(rt_program, stages),  FIELD_NUMBER(rt_program, batches),
    FIELD_NUMBER(rt_program, nmsgs),   FIELD_NUMBER(rt_program, period),  FIELD_NUMBER(rt_program, repeats),
    FIELD_NUMBER(rt_program, sets),    FIELD_NUMBER(rt_program, updated), {.name = NULL}};

static void emit_groups(struct text *t, const int32_t *groups) {
    put_word(t, "\n/* Groups of ranks that meet in collectives, from 0, each in its order and ended by -1. */\n"
                "static const int32_t groups[] = {");
    for (; *groups >= 0; groups++) {
        put_word(t, "\n    ");
        for (; *groups >= 0; groups++)
            put(t, "%d, ", *groups);
        put_word(t, "-1,");
    }
    put_word(t, "\n    -1,\n};\n");
}

static void emit_homes(struct text *t, const struct rt_rank *k) {
    if (k->nhomes == 0)
        return;
    put_word(t, "\nstatic const struct rt_home homes[] = {\n");
    for (int h = 0; h < k->nhomes; h++) {
        put_word(t, "    {");
        put_fields(t, home_fields, &k->home[h], ", ");
        put_word(t, "},\n");
    }
    put_word(t, "};\n");
}

static void emit_frozen(struct text *t, const struct rt_rank *k) {
    if (k->nfrozen == 0)
        return;
    put_word(t, "\nstatic const struct rt_frozen frozen[] = {\n");
    for (int i = 0; i < k->nfrozen; i++)
        put(t, "    {%d, %lld},\n", k->frozen[i].stage, (long long)k->frozen[i].off);
    put_word(t, "};\n");
}

/* Writes an array and its length, if the rank has any. */
static void put_array(struct text *t, bool any, const char *member, const char *count, const char *array) {
    if (any)
        put(t, "    .%s = %s,\n    .%s = sizeof %s / sizeof *%s,\n", member, array, count, array, array);
}

static void emit_rank(struct text *t, const struct emit *e) {
    const struct rt_rank *k = &e->view->rank;
    put(t, "\nstatic const struct rt_rank self = {\n    .number = %d,\n", k->number);
    put_array(t, k->nins > 0, "ins", "nins", "stream");
    put_array(t, k->nlanes > 0, "lane", "nlanes", "lanes");
    put_array(t, k->nhomes > 0, "home", "nhomes", "homes");
    put_array(t, k->nfrozen > 0, "frozen", "nfrozen", "frozen");
    put_word(t, "    ");
    put_fields(t, memory_fields, k, ",\n    ");
    put_word(t, k->work ? format(",\n    .work = &%s,\n    ", name_of(e, k->work)) : ",\n    ");
    put_fields(t, period_fields, k, ",\n    ");
    put_word(t, ",\n};\n");
}

static void emit_program(struct text *t, const struct rt_program *p, uint64_t hash) {
    put(t, "\nstatic const struct rt_program program = {\n    .name = \"%s\",\n    .hash = 0x%016llx,\n    ",
        tame(p->name), (unsigned long long)hash);
    put_fields(t, program_fields, p, ",\n    ");
    put(t, ",\n    .model = &model,\n    .stage = stages,\n%s    .groups = groups,\n    .rank = &self,\n};\n",
        p->slice ? "    .slice = slices,\n" : "");
    put_word(t, "\nint main(int argc, char **argv) { return rank_main(argc, argv, &program); }\n");
}

void emit_cuda(struct text *t, const struct costs *costs, const struct program *p, int r, uint64_t hash) {
    struct emit e = {.t = t, .p = p, .k = &p->rank[r], .view = runtime_view(costs, p, r)};
    const struct rt_program *program = &e.view->program;
    find_names(&e);
    put(t, "/* Rank %d of %d of %s (%s): what streams.txt says of rank %d, as constants.\n", r, p->workers,
        tame(p->name), tame(costs->spec->declared.params), r);
    put_word(
        t, " * `pianola help ops` explains the operations, rt_program.h the members; what is left out is 0. Sizes and\n"
           " * offsets are bytes. On a CPU: make here. */\n#include <pianola/rt_program.h>\n");
    emit_trained(t, program, costs->spec->model->nlayers);
    emit_buffers_in(&e, MEMORY_DEVICE, e.k->arena, "");
    emit_buffers_in(&e, MEMORY_HOST, e.k->host, " in host memory");
    emit_lanes(&e);
    emit_waited(&e);
    emit_stream(&e);
    emit_groups(t, program->groups);
    emit_homes(t, &e.view->rank);
    emit_frozen(t, &e.view->rank);
    emit_rank(t, &e);
    emit_program(t, program, hash);
}
