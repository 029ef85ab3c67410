/* A rank's own program, rank<k>.cu: the instructions of streams.txt, one per line, with offsets, sizes and peers as
 * constants, the layers of its stages, and a main. nvcc compiles it for a GPU, a C compiler for a CPU. */
#include "formats.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- columns: text written from byte `at` on is padded to a width; numbers are right-aligned ---- */

static void put_blanks(struct text *t, int n) {
    for (; n > 0; n--)
        put_bytes(t, " ", 1);
}

static void fill(struct text *t, size_t at, int width) { put_blanks(t, width - (int)(t->n - at)); }

static int digits(int64_t n) {
    int d = n < 0 ? 2 : 1;
    while (n /= 10)
        d++;
    return d;
}

static void put_number(struct text *t, int64_t n, int width) {
    put_blanks(t, width - digits(n));
    put_int(t, n);
}

/* ---- names ---- */

/* What has been written from `begin` on, as a C name. */
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

/* "act(1,3)" as a C name: act_1_3; "wgrad(2.1)#3": wgrad_2_of_1_n3. The table has words `work` and `norm`. */
static void put_symbol(struct text *t, const struct program *p, const struct buf *b) {
    size_t begin = t->n;
    put_word(t, is_of_rank(b->kind) ? "the_" : "");
    put_buf(t, &p->names, b);
    as_symbol(t, begin);
}

/* "RECV_F 0 3 from 0" as a C name: RECV_F_0_3_from_0; "B 2 7[0/3]": B_2_7_part_0_of_3. */
static void put_name(struct text *t, const struct program *p, const struct instr *x) {
    size_t begin = t->n;
    put_label(t, &p->names, x);
    as_symbol(t, begin);
}

static void put_lane_name(struct text *t, const struct lane *lane) {
    put(t, "%s", lanekind_row(lane->kind)->word);
    if (lanekind_row(lane->kind)->of != OF_ALONE)
        put(t, "_%d", lanekind_row(lane->kind)->of == OF_GROUP ? lane->group : lane->peer);
}

static void emit_head(struct text *t, const struct spec *sp, const struct program *p, int r) {
    const struct rank *k = &p->rank[r];
    int operands = 1, waits = 1;
    for (int i = 0; i < k->nins; i++) {
        operands = k->ins[i].narg > operands ? k->ins[i].narg : operands;
        waits = k->ins[i].nwait > waits ? k->ins[i].nwait : waits;
    }
    put(t, "/* Rank %d of %d of %s (%s): what streams.txt says of rank %d, as constants.\n", r, p->workers,
        tame(p->name), tame(sp->params), r);
    put(t, " * `pianola help ops` explains the operations. Sizes and offsets are bytes. On a CPU: make here. */\n");
    put(t, "#define RT_OPERANDS %d\n#define RT_WAITS    %d\n#include <pianola/rank.h>\n", operands, waits);
}

/* ---- the model, the layers, the stages ---- */

/* The shortest decimal that reads back as this float. */
static const char *float_text(float x) {
    char *s = NULL;
    for (int n = 1; n <= 9 && (!s || (float)strtod(s, NULL) != x); n++)
        s = format("%.*g", n, (double)x);
    return s;
}

/* A line of values with a comment that names them. */
static void put_values(struct text *t, const char *indent, const char *values, const char *what) {
    put(t, "%s%-42s /* %s */\n", indent, values, what);
}

static const char *string_or_null(const char *s) { return s ? format("\"%s\"", s) : "NULL"; }

/* What layers are called in files of weights. */
static void emit_names(struct text *t, const struct rt_names *names, int n) {
    put_word(t, "\nstatic const struct rt_names names[] = {\n");
    for (int i = 0; i < n; i++)
        put(t, "    {%s, %s},\n", string_or_null(names[i].hf), string_or_null(names[i].gguf));
    put_word(t, "};\n");
}

static void emit_model(struct text *t, const struct rt_model *m) {
    static const char *const input[] = {"INPUT_NONE", "INPUT_TOKENS", "INPUT_INTEGERS"};
#define X(NAME, ...) "OPT_" #NAME,
    static const char *const optimizer[NOPTIMIZERS] = {"OPT_NONE", OPTIMIZERS(X)};
#undef X
    const char *rates = "", *names = "", *counts = "", *count_names = "";
#define X(name)                                                                                                        \
    rates = format("%s %s,", rates, float_text(m->name));                                                              \
    names = format("%s%s" #name, names, *names ? ", " : "");
    RATES(X)
#undef X
#define X(name)                                                                                                        \
    counts = format("%s %d,", counts, m->name);                                                                        \
    count_names = format("%s%s" #name, count_names, *count_names ? ", " : "");
    COUNTS(X)
#undef X
    put(t, "\nstatic const struct rt_model model = {\n");
    put_values(t, "    ", format("%s, %d, %d, %d, %d,", input[m->input], m->rows, m->context, m->vocab, m->features),
               "rows of a microbatch, context, vocab, features");
    put_values(t, "    ", format("%s,%s", optimizer[m->optimizer], rates), names);
    put_values(t, "    ", counts + 1, format("%s (0: %s)", count_names, "schedule constant, steps the run's"));
    put_values(
        t, "    ",
        format("%d, %s, %d, %d, %d,", m->batches, m->precision ? "BF16" : "FP32", m->update, m->slices, m->output),
        "microbatches of a step, precision, microbatches of an update (0: all), slices (0: none), output layer");
    put_values(t, "    ", m->names ? "names," : "NULL,", "what layers are called in files of weights");
    put(t, "};\n");
}

/* A layer as a row: its kind, its numbers, and the locations of its tensors. */
enum { NUMBERS = 11, SHARE = 10 /* in the middle of the numbers */, FIRST_SLOT = NUMBERS + 2, SLOTS = 6 };
enum { CELLS = FIRST_SLOT + SLOTS };
struct row {
    const char *kind;
    int64_t n[NUMBERS];
    const struct rt_share *share;
    struct slot slot[SLOTS];
    const struct rt_layer *layer;
};
static const char *const heads[CELLS] = {"kind", "rows",     "in",    "out",   "heads", "context", "kv_heads",
                                         "rope", "unbiased", "index", "share", "param", "nparam",  "x",
                                         "y",    "aux",      "dy",    "dx",    "tmp"};
static const char *const space_name[] = {"SP_NONE", "SP_X",  "SP_Y",  "SP_STASH", "SP_EXT",
                                         "SP_WORK", "SP_DY", "SP_DX", "SP_GIVE",  "SP_GOT"};

static struct row row_of(const struct rt_layer *l) {
    static const char *const kind[NLAYERS] = {
#define X(name, ...) "LAYER_" #name,
        LAYERS(X)
#undef X
    };
    return (struct row){kind[l->kind],
                        {l->rows, l->in, l->out, l->heads, l->context, l->kv_heads, l->rope, l->unbiased, l->index,
                         l->param, l->nparam},
                        &l->share,
                        {l->x, l->y, l->aux, l->dy, l->dx, l->tmp},
                        l};
}

static void put_share(struct text *t, const struct rt_share *share) {
    static const char *const split[] = {"SPLIT_NONE", "SPLIT_COLUMNS", "SPLIT_ROWS"};
    if (share->members)
        put(t, "{%s, %d, %d, {%d, %d, %d}}", split[share->split], share->member, share->members, share->group[0],
            share->group[1], share->group[2]);
    else
        put_word(t, "WHOLE");
}

static void put_row_cell(struct text *t, const struct row *row, int c, int width) {
    if (c == 0)
        put_word(t, row->kind);
    else if (c == SHARE)
        put_share(t, row->share);
    else if (c < FIRST_SLOT)
        put_number(t, row->n[c < SHARE ? c - 1 : c - 2], width);
    else {
        const struct slot *slot = &row->slot[c - FIRST_SLOT];
        put_word(t, "{");
        put_word(t, space_name[slot->space]);
        put_word(t, ", ");
        put_int(t, slot->off);
        put_word(t, "}");
    }
}

/* Of slices, teams and experts. */
static void put_rest(struct text *t, const struct rt_layer *l) {
    bool plain = !l->first && !l->length && !l->kv && !l->out_rows && l->set == SET_OWN && !l->part.members;
    const struct rt_scaling *scaling = &l->scaling;
    if (plain && !l->experts && l->number == 0 && scaling->factor == 0)
        put_word(t, ", PLAIN");
    else
        put(t, ", %d, %d, %lld, %d, %s, {%d, %d, %d}, %d, %d, %d, %s, %s, {%s, %s, %s, %d}", l->first, l->length,
            (long long)l->kv, l->out_rows, l->set == SET_OWN ? "SET_OWN" : "SET_SHARED", l->part.member,
            l->part.members, l->part.context, l->experts, l->top, l->capacity, float_text(l->balance),
            float_text(l->number), float_text(scaling->factor), float_text(scaling->low), float_text(scaling->high),
            scaling->context);
}

/* row NULL: the header line. */
static void put_row(struct text *t, const struct row *row, const int *width) {
    size_t line = t->n;
    put_word(t, row ? "    {" : "    /* ");
    for (int c = 0; c < CELLS; c++) {
        bool last = c + 1 == CELLS;
        size_t at = c ? t->n : line + strlen("    {");
        if (row)
            put_row_cell(t, row, c, width[c]);
        else {
            put_blanks(t, c > 0 && c != SHARE && c < FIRST_SLOT ? width[c] - (int)strlen(heads[c]) : 0);
            put_word(t, heads[c]);
        }
        if (last && row)
            put_rest(t, row->layer);
        put_word(t, last ? row ? "},\n" : " */\n" : ", ");
        if (!last)
            fill(t, at, width[c] + 2);
    }
}

/* name: the stage's; slice -1: of whole microbatches. */
static void emit_layers(struct text *t, const struct rt_stage *s, int number, const char *name, int slice) {
    struct text cell = {0};
    int width[CELLS];
    for (int c = 0; c < CELLS; c++)
        width[c] = (int)strlen(heads[c]) + (c == 0 ? 2 : 0);
    for (int i = 0; i < s->nlayers; i++) {
        struct row row = row_of(&s->layer[i]);
        for (int c = 0; c < CELLS; c++, cell.n = 0) {
            put_row_cell(&cell, &row, c, 0);
            width[c] = (int)cell.n > width[c] ? (int)cell.n : width[c];
        }
    }
    if (slice < 0)
        put(t,
            "\n/* Layers of stage %s. share: what a team's member has of each layer's parameters. They are nparam\n"
            " * numbers from byte param on of the stage's weights. x to tmp: the space a tensor lies in, and where; "
            "and\n"
            " * of slices the first row of each sequence, the rows, and bytes of kv before; of teams by rows the rows\n"
            " * of the output, the set of weights, and whose rows; of a moe the experts, how many each token is sent "
            "to, how\n"
            " * many tokens of a sequence each has room for, and the factor of the balancing loss; of a norm its eps\n"
            " * (0: 1e-5), of an embedding its scale (0: 1), of dropout its probability; and of rope its scaling. */\n"
            "static const struct rt_layer layers_%d[] = {\n",
            name, number);
    else
        put(t,
            "\n/* The same of slice %d. */\n"
            "static const struct rt_layer layers_%d_%d[] = {\n",
            slice, number, slice);
    put_row(t, NULL, width);
    for (int i = 0; i < s->nlayers; i++) {
        struct row row = row_of(&s->layer[i]);
        put_row(t, &row, width);
    }
    put(t, "};\n");
}

static void put_stage_row(struct text *t, const struct rt_stage *stage, bool here, const char *layers, int update,
                          struct member member) {
    if (here)
        put(t, "    {%s, %d, %lld, %lld, %lld, %lld, %lld, %lld, %lld, %lld, ", layers, stage->nlayers,
            (long long)stage->act, (long long)stage->grad, (long long)stage->stash, (long long)stage->ext,
            (long long)stage->input, (long long)stage->weight, (long long)stage->opt, (long long)stage->work);
    else
        put_word(t, "    ELSEWHERE(");
    put(t, here ? "%d, %d, %d, %d},\n" : "%d, %d, %d, %d),\n", update, member.stage, member.place, member.size);
}

/* The stages on each slice of a microbatch. */
static void emit_slices(struct text *t, const struct spec *sp, const struct stage *st, const bool *here) {
    int slices = sp->names.slices, n = sp->stages * slices;
    for (int i = 0; i < n; i++)
        if (here[i / slices])
            emit_layers(t, &stage_at(sp, st, i / slices, i % slices)->rt, i / slices, "", i % slices);
    put(t, "\n/* The same of each slice of a microbatch. */\nstatic const struct rt_stage slices[] = {\n");
    for (int i = 0; i < n; i++)
        put_stage_row(t, &stage_at(sp, st, i / slices, i % slices)->rt, here[i / slices],
                      format("layers_%d_%d", i / slices, i % slices), 0, member_at(&sp->names, i / slices));
    put(t, "};\n");
}

/* Only stages that this rank computes or owns have layers here. */
static void emit_stages(struct text *t, const struct spec *sp, const struct stage *st, const struct program *p, int r) {
    const struct rank *k = &p->rank[r];
    int sets = sets_in(p);
    bool *here = NEW(bool, sets);
    for (int i = 0; i < k->nins; i++)
        here[k->ins[i].stage] |= op_lane[k->ins[i].op] == LANE_COMPUTE;
    put(t,
        "\n#define WHOLE {SPLIT_NONE, 0, 0, {0, 0, 0}}\n"
        "#define PLAIN 0, 0, 0, 0, SET_OWN, {0, 0, 0}, 0, 0, 0, 0, 0, {0, 0, 0, 0} /* none of what is behind tmp */\n");
    for (int s = 0; s < sets; s++)
        if (here[s]) {
            struct text name = {0};
            put_stage(&name, &p->names, s);
            emit_layers(t, &st[s].rt, s, name.s, -1);
        }
    put(t,
        "\n/* Stages: layers, the sizes of act, grad, stash, ext, input, weight, opt, work, the microbatches of an\n"
        " * update (0: all of a step); the stage as scripts count; and of a team's members each one's place, and how\n"
        " * many they are. */\n"
        "#define ELSEWHERE(update, number, place, members) {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, update, number, place, "
        "members}\n"
        "static const struct rt_stage stages[] = {\n");
    for (int s = 0; s < sets; s++)
        put_stage_row(t, &st[s].rt, here[s], format("layers_%d", s), p->update ? p->update[s] : 0,
                      member_at(&p->names, s));
    put(t, "};\n");
    if (sp->sliced)
        emit_slices(t, sp, st, here);
}

/* ---- buffers and instructions ---- */

/* Column widths fit the whole program, so that all ranks' files are laid out alike. */
struct columns {
    int symbol, offset, stage, batch, lane, meets;
};

static struct columns columns_of(const struct program *p) {
    int64_t arena = 0; /* the largest, of either memory */
    bool all = false;  /* whether one lane carries all messages */
    for (int r = 0; r < p->workers; r++) {
        arena = p->rank[r].arena > arena ? p->rank[r].arena : arena;
        arena = p->rank[r].host > arena ? p->rank[r].host : arena;
        all = all || (p->rank[r].nlanes > 1 && p->rank[r].lane[1].kind == LANE_ALL);
    }
    int rank = digits(p->workers - 1), stage = digits(sets_in(p) - 1), batch = digits(p->batches - 1);
    int name = 0;
    for (int s = 0; s < sets_in(p); s++) {
        struct text t = {0};
        put_symbol(&t, p, &(struct buf){.kind = K_wstash, .stage = s, .batch = -1, .inst = -1});
        name = (int)t.n > name ? (int)t.n : name;
    }
    struct columns columns = {.offset = digits(arena), .stage = stage, .batch = batch > 2 ? batch : 2 /* -1 */};
    columns.symbol = (int)strlen("#define _ ") + name + batch;
    columns.lane = (int)strlen("send_, ") + rank;
    int word = (int)strlen(all ? "messages, " : "compute, ");
    columns.lane = columns.lane > word ? columns.lane : word;
    columns.meets = (int)strlen("from(, ), ") + rank + digits(p->nmsgs);
    return columns;
}

static void emit_buffers_in(struct text *t, const struct columns *columns, const struct program *p,
                            const struct rank *k, int memory) {
    for (int i = 0; i < k->nbufs; i++) {
        size_t at = t->n;
        if (memory_of(&k->buf[i]) != memory)
            continue;
        put_word(t, "#define ");
        put_symbol(t, p, &k->buf[i]);
        put_word(t, " ");
        fill(t, at, columns->symbol);
        put_number(t, k->buf[i].off, columns->offset);
        put_word(t, ", ");
        put_number(t, k->buf[i].bytes, columns->offset);
        put_word(t, "\n");
    }
}

static void emit_buffers(struct text *t, const struct columns *columns, const struct program *p, const struct rank *k) {
    put(t, "\n/* Buffers: offset and size, in an arena of %lld. Those that overlap live one after the other. */\n",
        (long long)k->arena);
    emit_buffers_in(t, columns, p, k, MEMORY_DEVICE);
    if (k->host == 0)
        return;
    put(t, "\n/* Buffers in host memory: the same, in an arena of %lld there. */\n", (long long)k->host);
    emit_buffers_in(t, columns, p, k, MEMORY_HOST);
}

/* The rank or group that an instruction meets, and the message; or a part's layers. */
static void put_meets(struct text *t, const struct stage *st, const struct rank *k, const struct instr *x) {
    static const char *const word[] = {
        [SWEEP_ALL] = "layers", [SWEEP_PUT_OFF] = "put_off", [SWEEP_WEIGHTS] = "weights"};
    if (x->last) {
        struct layer_span span = layers_of(&st[x->stage], x);
        put(t, "%s(%d, %d), ", word[span.sweep], span.from, span.to);
    } else if (is_group(x->op))
        put(t, x->peer < 0 ? "group(%d, %d), " : "group_with_root(%d, %d, %d), ", k->lane[x->lane].group, x->msg,
            x->peer);
    else if (x->peer < 0)
        put_word(t, "alone, ");
    else
        put(t, "%s(%d, %d), ", is_send(x->op) ? "to" : "from", x->peer, x->msg);
}

static void put_piece(struct text *t, const struct program *p, const struct rank *k, const struct arg *a) {
    put_word(t, a->last ? "piece(" : "");
    put_symbol(t, p, &k->buf[a->buf]);
    if (a->last)
        put(t, ", %d, %d)", a->piece, pieces_of(a));
}

static void emit_line(struct text *t, const struct columns *columns, const struct program *p, const struct stage *st,
                      const struct rank *k, const struct instr *x) {
    put_word(t, "    I(");
    size_t at = t->n;
    put_word(t, op_name[x->op]);
    put_word(t, ", ");
    fill(t, at, (int)strlen("SEND_F, "));
    put_number(t, x->stage, columns->stage);
    put_word(t, ", ");
    put_number(t, x->batch, columns->batch);
    put_word(t, ", ");
    at = t->n;
    put_lane_name(t, &k->lane[x->lane]);
    put_word(t, ", ");
    fill(t, at, columns->lane);
    at = t->n;
    put_meets(t, st, k, x);
    fill(t, at, columns->meets);
    for (uint32_t a = x->arg; a < x->arg + x->narg; a++) {
        put_word(t, a > x->arg ? " " : "");
        bool sets = op_accumulates(x->op, k->arg[a].role) && is_first(x, k->arg[a].role);
        put_word(t, sets ? "set_" : "");
        put_word(t, role_name[k->arg[a].role]);
        put_word(t, "(");
        put_piece(t, p, k, &k->arg[a]);
        put_word(t, ")");
    }
    put_word(t, x->nwait ? ", after(" : ", after(nothing");
    for (uint32_t a = x->wait; a < x->wait + x->nwait; a++) {
        put_word(t, a > x->wait ? ", " : "");
        put_name(t, p, &k->ins[k->wait[a]]);
    }
    put_word(t, "))\n");
}

static void emit_stream(struct text *t, const struct columns *columns, const struct stage *st, const struct program *p,
                        const struct rank *k) {
    put(t, "\n/* Lanes, what timelines call them, and the names of the instructions: their places in the table below, "
           "from 1. */\nenum { ");
    for (int l = 0; l < k->nlanes; l++) {
        put(t, l ? ", " : "");
        put_lane_name(t, &k->lane[l]);
    }
    put(t, " };\nstatic const char *const lanes[] = {");
    for (int l = 0; l < k->nlanes; l++) {
        put(t, l ? ", \"" : "\"");
        put_lane(t, p, &k->lane[l]);
        put(t, "\"");
    }
    put(t, "};\nenum {\n    nothing,\n");
    for (int i = 0; i < k->nins; i++) {
        put_word(t, "    ");
        put_name(t, p, &k->ins[i]);
        put_word(t, i + 1 < k->nins ? ",\n" : "\n");
    }
    put(t, "};\n\n/* The instructions, in the order of issue: operation, stage, microbatch or an update's number\n"
           " * (-1: none), lane, the rank and the message it meets, operands, and which instructions of other\n"
           " * lanes come first. set_dw writes what dw adds to. */\n"
           "#include <pianola/words.h>\nstatic const struct rt_line stream[] = {\n");
    for (int i = 0; i < k->nins; i++) {
        if (k->begin < k->end && i == k->begin)
            put(t, "    /* | the period: %lld times, each time %d microbatches on */\n", (long long)p->repeats,
                p->period);
        emit_line(t, columns, p, st, k, &k->ins[i]);
        if (k->begin < k->end && i + 1 == k->end)
            put(t, "    /* | its end */\n");
    }
    put(t, "    END};\n#include <pianola/words.h>\n");
}

static void emit_groups(struct text *t, const struct program *p) {
    put(t, "\n/* Groups of ranks that meet in collectives, from 0, each in its order and ended by -1. */\nstatic const "
           "int32_t groups[] = {\n");
    for (int g = 0; g < p->ngroups; g++) {
        put(t, "    ");
        for (int m = 0; m < p->group[g].n; m++)
            put(t, "%d, ", p->group[g].rank[m]);
        put(t, "-1,\n");
    }
    put(t, "    -1,\n};\n");
}

/* Returns how many there are. */
static int emit_homes(struct text *t, const struct spec *sp, const struct program *p, int r) {
    int n;
    const struct held *held = held_on(p, r, precision_bytes(sp->model->rt.precision), &n);
    if (n == 0)
        return 0;
    put(t,
        "\n/* Stages at home here: stage; the memory that the optimizer's state is in; where the weights and that "
        "state "
        "lie\n"
        " * (-1: none); the first and the number of the elements whose weights are here, and of those that this rank\n"
        " * updates. */\n"
        "static const struct rt_home homes[] = {\n");
    for (int h = 0; h < n; h++)
        put(t, "    {%d, %s, %lld, %lld, %lld, %lld, %lld, %lld},\n", held[h].set,
            held[h].memory == MEMORY_HOST ? "MEMORY_HOST" : "MEMORY_DEVICE", (long long)held[h].weight,
            (long long)held[h].opt, (long long)held[h].first, (long long)held[h].count, (long long)held[h].own,
            (long long)held[h].owned);
    put_word(t, "};\n");
    return n;
}

/* Writes a member of a struct, unless it is 0, which it is without being written. */
static void put_member(struct text *t, const char *name, int64_t value) {
    if (value != 0)
        put(t, "    .%s = %lld,\n", name, (long long)value);
}

static void emit_rank(struct text *t, const struct program *p, int r, int nhomes) {
    const struct rank *k = &p->rank[r];
    int64_t work = -1;
    for (int i = 0; i < k->nbufs; i++)
        if (k->buf[i].kind == K_work && k->buf[i].inst < 0)
            work = k->buf[i].off;
    put(t, "\nstatic const struct rt_rank self = {\n    .number = %d,\n", r);
    put_member(t, "nlanes", k->nlanes);
    put_word(t, nhomes ? "    .home = homes,\n" : "");
    put_member(t, "nhomes", nhomes);
    put_member(t, "arena", k->arena);
    put_member(t, "host", k->host);
    put(t, "    .work = %lld,\n", (long long)work);
    put_member(t, "begin", k->begin);
    put_member(t, "end", k->end);
    put_word(t, k->nlanes ? "    .lane = lanes,\n};\n" : "};\n");
}

static void emit_program(struct text *t, const struct program *p, uint64_t hash) {
    int updated = 0;
    for (int s = 0; s < p->stages; s++)
        updated = has_weights(p, s) ? s : updated;
    put(t, "\nstatic const struct rt_program program = {\n    .name = \"%s\",\n    .hash = 0x%016llx,\n", tame(p->name),
        (unsigned long long)hash);
    put_member(t, "workers", p->workers);
    put_member(t, "stages", p->stages);
    put_member(t, "batches", step_batches(p));
    put_member(t, "nmsgs", p->nmsgs);
    put_member(t, "period", p->period);
    put_member(t, "repeats", p->repeats);
    put_member(t, "sets", sets_in(p));
    put_member(t, "updated", updated);
    put(t, "    .model = &model,\n    .stage = stages,\n%s    .groups = groups,\n    .rank = &self,\n};\n",
        p->names.slices ? "    .slice = slices,\n" : "");
    put_word(t, "\nint main(int argc, char **argv) {\n    RT_MAIN(argc, argv, &program, stream);\n}\n");
}

void emit_cuda(struct text *t, const struct spec *sp, const struct stage *st, const struct program *p, int r,
               uint64_t hash) {
    const struct rank *k = &p->rank[r];
    struct columns columns = columns_of(p);
    emit_head(t, sp, p, r);
    struct rt_model model = trained_model(sp, p);
    if (model.names)
        emit_names(t, model.names, sp->model->nlayers);
    emit_model(t, &model);
    emit_stages(t, sp, st, p, r);
    emit_buffers(t, &columns, p, k);
    emit_stream(t, &columns, st, p, k);
    emit_groups(t, p);
    emit_rank(t, p, r, emit_homes(t, sp, p, r));
    emit_program(t, p, hash);
}
