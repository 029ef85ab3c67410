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

/* "act(1,3)" as a C name: act_1_3. */
static void put_symbol(struct text *t, const struct buf *b) {
    const int32_t n[] = {b->stage, b->batch, b->inst};
    put_word(t, kind_name[b->kind]);
    for (int i = 0; i < 3; i++)
        if (n[i] >= 0) {
            put_word(t, i < 2 ? "_" : "_n");
            put_int(t, n[i]);
        }
}

/* "RECV_F 0 3 from 0" as a C name: RECV_F_0_3_from_0; "B 2 7[0/3]": B_2_7_part_0_of_3. */
static void put_name(struct text *t, const struct instr *x) {
    char label[128];
    size_t begin = t->n;
    put_label(t, x);
    size_t n = t->n - begin;
    assert(n <= sizeof label);
    memcpy(label, t->s + begin, n);
    t->n = begin;
    for (size_t at = 0; at < n; at++)
        switch (label[at]) {
        case ' ': put_word(t, "_"); break;
        case '#': put_word(t, "_n"); break;
        case '[': put_word(t, "_part_"); break;
        case '/': put_word(t, "_of_"); break;
        case ']': break;
        default: put_bytes(t, label + at, 1);
        }
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

static void emit_model(struct text *t, const struct rt_model *m) {
    static const char *const input[] = {"INPUT_NONE", "INPUT_TOKENS", "INPUT_INTEGERS"};
#define X(NAME, ...) "OPT_" #NAME,
    static const char *const optimizer[NOPTIMIZERS] = {"OPT_NONE", OPTIMIZERS(X)};
#undef X
    const char *rates = "", *names = "";
#define X(name)                                                                                                        \
    rates = format("%s %s,", rates, float_text(m->name));                                                              \
    names = format("%s%s" #name, names, *names ? ", " : "");
    RATES(X)
#undef X
    put(t, "\nstatic const struct rt_model model = {\n");
    put_values(t, "    ", format("%s, %d, %d, %d, %d,", input[m->input], m->rows, m->context, m->vocab, m->features),
               "rows of a microbatch, context, vocab, features");
    put_values(t, "    ", format("%s,%s", optimizer[m->optimizer], rates), names);
    put_values(t, "    ", format("%d, %s, %d,", m->batches, m->precision ? "BF16" : "FP32", m->update),
               "microbatches of a step, precision, microbatches of an update (0: all)");
    put(t, "};\n");
}

/* A layer as a row: its kind, its numbers, and the locations of its tensors. */
enum { NUMBERS = 8, SLOTS = 6, CELLS = 1 + NUMBERS + SLOTS };
struct row {
    const char *kind;
    int64_t n[NUMBERS];
    struct slot slot[SLOTS];
};
static const char *const heads[CELLS] = {"kind",   "rows", "in", "out", "heads", "context", "index", "param",
                                         "nparam", "x",    "y",  "aux", "dy",    "dx",      "tmp"};
static const char *const space_name[] = {"SP_NONE", "SP_X", "SP_Y", "SP_STASH", "SP_EXT", "SP_WORK", "SP_DY", "SP_DX"};

static struct row row_of(const struct rt_layer *l) {
    static const char *const kind[NLAYERS] = {
#define X(name, ...) "LAYER_" #name,
        LAYERS(X)
#undef X
    };
    return (struct row){kind[l->kind],
                        {l->rows, l->in, l->out, l->heads, l->context, l->index, l->param, l->nparam},
                        {l->x, l->y, l->aux, l->dy, l->dx, l->tmp}};
}

static void put_row_cell(struct text *t, const struct row *row, int c, int width) {
    if (c == 0)
        put_word(t, row->kind);
    else if (c <= NUMBERS)
        put_number(t, row->n[c - 1], width);
    else {
        const struct slot *slot = &row->slot[c - 1 - NUMBERS];
        put_word(t, "{");
        put_word(t, space_name[slot->space]);
        put_word(t, ", ");
        put_int(t, slot->off);
        put_word(t, "}");
    }
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
            put_blanks(t, c > 0 && c <= NUMBERS ? width[c] - (int)strlen(heads[c]) : 0);
            put_word(t, heads[c]);
        }
        put_word(t, last ? row ? "},\n" : " */\n" : ", ");
        if (!last)
            fill(t, at, width[c] + 2);
    }
}

static void emit_layers(struct text *t, const struct rt_stage *s, int number) {
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
    put(t,
        "\n/* Layers of stage %d. Parameters: nparam numbers from byte param on of its weights. x to tmp: the space a\n"
        " * tensor lies in, and where. */\nstatic const struct rt_layer layers_%d[] = {\n",
        number, number);
    put_row(t, NULL, width);
    for (int i = 0; i < s->nlayers; i++) {
        struct row row = row_of(&s->layer[i]);
        put_row(t, &row, width);
    }
    put(t, "};\n");
}

/* Only stages that this rank computes or owns have layers here. */
static void emit_stages(struct text *t, const struct stage *st, const struct program *p, int r) {
    const struct rank *k = &p->rank[r];
    int sets = p->stages + p->tied;
    bool *here = NEW(bool, sets);
    for (int i = 0; i < k->nins; i++)
        here[k->ins[i].stage] |= op_lane[k->ins[i].op] == LANE_COMPUTE;
    for (int s = 0; s < sets; s++)
        if (here[s])
            emit_layers(t, &st[s].rt, s);
    put(t, "\n/* Stages: layers, the sizes of act, grad, stash, ext, input, weight, opt, work, and the\n"
           " * microbatches of an update (0: all of a step). */\n"
           "#define ELSEWHERE(update) {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, update}\n"
           "static const struct rt_stage stages[] = {\n");
    for (int s = 0; s < sets; s++) {
        const struct rt_stage *stage = &st[s].rt;
        int update = p->update && s < p->stages ? p->update[s] : 0;
        if (here[s])
            put(t, "    {layers_%d, %d, %lld, %lld, %lld, %lld, %lld, %lld, %lld, %lld, %d},\n", s, stage->nlayers,
                (long long)stage->act, (long long)stage->grad, (long long)stage->stash, (long long)stage->ext,
                (long long)stage->input, (long long)stage->weight, (long long)stage->opt, (long long)stage->work,
                update);
        else
            put(t, "    ELSEWHERE(%d),\n", update);
    }
    put(t, "};\n");
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
    int rank = digits(p->workers - 1), stage = digits(p->stages - 1 + p->tied), batch = digits(p->batches - 1);
    struct columns columns = {.offset = digits(arena), .stage = stage, .batch = batch > 2 ? batch : 2 /* -1 */};
    columns.symbol = (int)strlen("#define wstash__ ") + stage + batch;
    columns.lane = (int)strlen("send_, ") + rank;
    int word = (int)strlen(all ? "messages, " : "compute, ");
    columns.lane = columns.lane > word ? columns.lane : word;
    columns.meets = (int)strlen("from(, ), ") + rank + digits(p->nmsgs);
    return columns;
}

static void emit_buffers_in(struct text *t, const struct columns *columns, const struct rank *k, int memory) {
    for (int i = 0; i < k->nbufs; i++) {
        size_t at = t->n;
        if (memory_of(&k->buf[i]) != memory)
            continue;
        put_word(t, "#define ");
        put_symbol(t, &k->buf[i]);
        put_word(t, " ");
        fill(t, at, columns->symbol);
        put_number(t, k->buf[i].off, columns->offset);
        put_word(t, ", ");
        put_number(t, k->buf[i].bytes, columns->offset);
        put_word(t, "\n");
    }
}

static void emit_buffers(struct text *t, const struct columns *columns, const struct rank *k) {
    put(t, "\n/* Buffers: offset and size, in an arena of %lld. Those that overlap live one after the other. */\n",
        (long long)k->arena);
    emit_buffers_in(t, columns, k, MEMORY_DEVICE);
    if (k->host == 0)
        return;
    put(t, "\n/* Buffers in host memory: the same, in an arena of %lld there. */\n", (long long)k->host);
    emit_buffers_in(t, columns, k, MEMORY_HOST);
}

/* The rank or group that an instruction meets, and the message; or a part's layers. */
static void put_meets(struct text *t, const struct stage *st, const struct rank *k, const struct instr *x) {
    int32_t from, to;
    if (x->last) {
        layers_of(&st[x->stage], x, &from, &to);
        put(t, "layers(%d, %d), ", from, to);
    } else if (is_group(x->op))
        put(t, x->peer < 0 ? "group(%d, %d), " : "group_with_root(%d, %d, %d), ", k->lane[x->lane].group, x->msg,
            x->peer);
    else if (x->peer < 0)
        put_word(t, "alone, ");
    else
        put(t, "%s(%d, %d), ", is_send(x->op) ? "to" : "from", x->peer, x->msg);
}

static void put_piece(struct text *t, const struct rank *k, const struct arg *a) {
    put_word(t, a->last ? "piece(" : "");
    put_symbol(t, &k->buf[a->buf]);
    if (a->last)
        put(t, ", %d, %d)", a->piece, pieces_of(a));
}

static void emit_line(struct text *t, const struct columns *columns, const struct stage *st, const struct rank *k,
                      const struct instr *x) {
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
        put_piece(t, k, &k->arg[a]);
        put_word(t, ")");
    }
    put_word(t, x->nwait ? ", after(" : ", after(nothing");
    for (uint32_t a = x->wait; a < x->wait + x->nwait; a++) {
        put_word(t, a > x->wait ? ", " : "");
        put_name(t, &k->ins[k->wait[a]]);
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
        put_name(t, &k->ins[i]);
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
        emit_line(t, columns, st, k, &k->ins[i]);
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

static void emit_homes(struct text *t, const struct spec *sp, const struct program *p, int r) {
    int n;
    const struct held *held = held_on(p, r, precision_bytes(sp->model->rt.precision), &n);
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
    put(t, "    {-1, 0, 0, 0, 0, 0, 0, 0},\n};\n");
}

static void emit_main(struct text *t, const struct program *p, int r, uint64_t hash) {
    const struct rank *k = &p->rank[r];
    long long work = -1;
    for (int i = 0; i < k->nbufs; i++)
        if (k->buf[i].kind == K_work)
            work = k->buf[i].off;
    put(t, "\nint main(int argc, char **argv) {\n    static const struct rt_self self = {\n");
    put_values(t, "        ", format("\"%s\", 0x%016llxu,", tame(p->name), (unsigned long long)hash),
               "hash of the whole compile");
    put_values(t, "        ",
               format("%d, %d, %d, %d, %d, %d,", r, p->workers, p->stages, (int)step_batches(p), p->nmsgs, k->nlanes),
               "rank; workers, stages, microbatches, messages; lanes");
    put_values(t, "        ", format("%lld, %lld, %lld,", (long long)k->arena, (long long)k->host, work),
               "arena, and that in host memory; workspace");
    put_values(t, "        ", format("%d, %d, %d, %lld,", k->begin, k->end, p->period, (long long)p->repeats),
               "the period: its instructions, microbatches, times");
    put(t, "    };\n    RT_MAIN(argc, argv, &self, &model, stages, lanes, stream, groups, homes);\n}\n");
}

void emit_cuda(struct text *t, const struct spec *sp, const struct stage *st, const struct program *p, int r,
               uint64_t hash) {
    const struct rank *k = &p->rank[r];
    struct columns columns = columns_of(p);
    emit_head(t, sp, p, r);
    struct rt_model model = trained_model(sp, p);
    emit_model(t, &model);
    emit_stages(t, st, p, r);
    emit_buffers(t, &columns, k);
    emit_stream(t, &columns, st, p, k);
    emit_groups(t, p);
    emit_homes(t, sp, p, r);
    emit_main(t, p, r, hash);
}
