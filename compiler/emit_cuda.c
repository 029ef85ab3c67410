/* A rank's own program, rank<k>.cu: the same instructions as streams.txt, a line each, with offsets, sizes and peers as
 * constants, the layers of its stages, and a main. nvcc compiles it for a GPU, a C compiler for a CPU. */
#include "pass.h"
#include <string.h>

/* "act(1,3)" as a C name: act_1_3. */
static void put_symbol(struct text *t, const struct buf *b) {
    put(t, "%s", kind_name[b->kind]);
    if (b->stage >= 0)
        put(t, "_%d", b->stage);
    if (b->batch >= 0)
        put(t, "_%d", b->batch);
    if (b->inst >= 0)
        put(t, "_n%d", b->inst);
}

/* "RECV_F 0 3 from 0" as a C name: RECV_F_0_3_from_0. */
static void put_name(struct text *t, const struct instr *x) {
    struct text label = {0};
    put_label(&label, x);
    for (char *c = label.s; *c; c++)
        if (*c == '#')
            put(t, "_n");
        else
            put(t, "%c", *c == ' ' ? '_' : *c);
}

static void put_lane_name(struct text *t, const struct lane *l) {
    static const char *const prefix[] = {"compute", "send_", "recv_", "group_"};
    put(t, "%s", prefix[l->kind]);
    if (l->kind != LANE_COMPUTE)
        put(t, "%d", l->kind == LANE_GROUP ? l->group : l->peer);
}

/* Text of the user's in a comment or a string: what could end either becomes _. */
static const char *tame(const char *s) {
    char *t = copy_string(s);
    for (char *c = t; *c; c++)
        if (*c < ' ' || *c > '~' || strchr("\"\\*?", *c))
            *c = '_';
    return t;
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
    put(t, " * On a CPU: make here, or cc -x c rank%d.cu with what `pkg-config pianola-host` says. */\n", r);
    put(t, "#define RT_OPERANDS %d\n#define RT_WAITS %d\n#include <pianola/rank.h>\n", operands, waits);
}

static void emit_slot(struct text *t, struct slot s) {
    static const char *const space[] = {"SP_NONE", "SP_X", "SP_Y", "SP_STASH", "SP_EXT", "SP_WORK", "SP_DY", "SP_DX"};
    put(t, ", {%s, %lld}", space[s.space], (long long)s.off);
}

static void emit_stage(struct text *t, const struct rt_stage *s, int number) {
    static const char *const kind[NLAYERS] = {
#define X(name, ...) "LAYER_" #name,
        LAYERS(X)
#undef X
    };
    put(t,
        "\n/* Layers of stage %d: kind, rows, in, out, heads, context, index, parameters (offset, count),\n"
        " * then where x, y, aux, dy, dx and tmp lie. */\nstatic const struct rt_layer layers_%d[] = {\n",
        number, number);
    for (int i = 0; i < s->nlayers; i++) {
        const struct rt_layer *l = &s->layer[i];
        put(t, "    {%s, %d, %d, %d, %d, %d, %d, %lld, %lld", kind[l->kind], l->rows, l->in, l->out, l->heads,
            l->context, l->index, (long long)l->param, (long long)l->nparam);
        const struct slot slots[] = {l->x, l->y, l->aux, l->dy, l->dx, l->tmp};
        for (int j = 0; j < 6; j++)
            emit_slot(t, slots[j]);
        put(t, "},\n");
    }
    put(t, "};\n");
}

/* Only the stages that this rank computes or owns have layers here. */
static void emit_stages(struct text *t, const struct stage *st, const struct program *p, int r) {
    const struct rank *k = &p->rank[r];
    bool *here = NEW(bool, p->stages);
    for (int i = 0; i < k->nins; i++)
        here[k->ins[i].stage] |= op_lane[k->ins[i].op] == LANE_COMPUTE;
    for (int s = 0; s < p->stages; s++)
        if (here[s])
            emit_stage(t, &st[s].rt, s);
    put(t, "\n/* Stages: layers, and bytes of act, grad, stash, ext, input, weight, opt, work. */\n"
           "static const struct rt_stage stages[] = {\n");
    for (int s = 0; s < p->stages; s++) {
        const struct rt_stage *y = &st[s].rt;
        if (here[s])
            put(t, "    {layers_%d, %d, %lld, %lld, %lld, %lld, %lld, %lld, %lld, %lld},\n", s, y->nlayers,
                (long long)y->act, (long long)y->grad, (long long)y->stash, (long long)y->ext, (long long)y->input,
                (long long)y->weight, (long long)y->opt, (long long)y->work);
        else
            put(t, "    {0, 0, 0, 0, 0, 0, 0, 0, 0, 0},\n");
    }
    put(t, "};\n");
}

static void emit_model(struct text *t, const struct rt_model *m) {
    put(t, "\n/* Input, rows, context, vocab, features; optimizer, lr, beta1, beta2, eps, decay; microbatches a step. "
           "*/\n");
    put(t, "static const struct rt_model model = {%d, %d, %d, %d, %d, %d, %.9g, %.9g, %.9g, %.9g, %.9g, %d};\n",
        m->input, m->rows, m->context, m->vocab, m->features, m->optimizer, (double)m->lr, (double)m->beta1,
        (double)m->beta2, (double)m->eps, (double)m->decay, m->batches);
}

static void emit_buffers(struct text *t, const struct rank *k) {
    put(t, "\n/* Buffers: offset and bytes in the arena of %lld bytes. */\n", (long long)k->arena);
    for (int i = 0; i < k->nbufs; i++) {
        put(t, "#define ");
        put_symbol(t, &k->buf[i]);
        put(t, " %lld, %lld\n", (long long)k->buf[i].off, (long long)k->buf[i].bytes);
    }
}

static void emit_line(struct text *t, const struct rank *k, const struct instr *x) {
    put(t, "    I(%s, %d, %d, ", op_name[x->op], x->stage, x->batch);
    put_lane_name(t, &k->lane[x->lane]);
    if (x->op == OP_REDUCE)
        put(t, ", group(%d, %d)", k->lane[x->lane].group, x->msg);
    else if (x->peer < 0)
        put(t, ", alone");
    else
        put(t, ", %s(%d, %d)", op_lane[x->op] == LANE_SEND ? "to" : "from", x->peer, x->msg);
    put(t, ",");
    for (uint32_t a = x->arg; a < x->arg + x->narg; a++) {
        bool set = op_accumulates(x->op, k->arg[a].role) && x->first;
        put(t, " %s%s(", set ? "set_" : "", role_name[k->arg[a].role]);
        put_symbol(t, &k->buf[k->arg[a].buf]);
        put(t, ")");
    }
    put(t, ", after(");
    for (uint32_t a = x->wait; a < x->wait + x->nwait; a++) {
        put(t, a > x->wait ? ", " : "");
        put_name(t, &k->ins[k->wait[a]]);
    }
    put(t, x->nwait ? "))\n" : "0))\n");
}

static void emit_stream(struct text *t, const struct rank *k) {
    put(t, "\n/* Lanes, and the names of the instructions: their places in the table below, from 1. */\nenum { ");
    for (int l = 0; l < k->nlanes; l++) {
        put(t, l ? ", " : "");
        put_lane_name(t, &k->lane[l]);
    }
    put(t, " };\nenum {\n    FIRST");
    for (int i = 0; i < k->nins; i++) {
        put(t, ",\n    ");
        put_name(t, &k->ins[i]);
    }
    put(t, "\n};\n\n/* The instructions, in the order of issue. */\nstatic const struct rt_line stream[] = {\n");
    for (int i = 0; i < k->nins; i++)
        emit_line(t, k, &k->ins[i]);
    put(t, "};\n");
}

static void emit_groups(struct text *t, const struct program *p) {
    put(t, "\n/* Groups of ranks that reduce together, each ended by -1. */\nstatic const int32_t groups[] = {");
    for (int g = 0; g < p->ngroups; g++) {
        for (int m = 0; m < p->group[g].n; m++)
            put(t, "%d, ", p->group[g].rank[m]);
        put(t, "-1, ");
    }
    put(t, "-1};\n");
}

static void emit_homes(struct text *t, const struct rank *k) {
    put(t, "\n/* Stages at home here: stage, then where weights and gradient begin. */\n"
           "static const struct rt_home homes[] = {");
    for (int i = 0; i < k->nbufs; i++) {
        const struct buf *b = &k->buf[i];
        if (b->kind != K_weight || b->inst >= 0)
            continue;
        int64_t at[NKINDS] = {[K_wgrad] = -1, [K_opt] = -1};
        for (int j = 0; j < k->nbufs; j++)
            if (k->buf[j].stage == b->stage && k->buf[j].inst < 0 && k->buf[j].batch < 0)
                at[k->buf[j].kind] = k->buf[j].off;
        put(t, "{%d, %lld, %lld, %lld}, ", b->stage, (long long)b->off, (long long)at[K_wgrad], (long long)at[K_opt]);
    }
    put(t, "{-1, 0, 0, 0}};\n");
}

void emit_cuda(struct text *t, const struct spec *sp, const struct stage *st, const struct program *p, int r,
               uint64_t hash) {
    const struct rank *k = &p->rank[r];
    int64_t work = -1;
    for (int i = 0; i < k->nbufs; i++)
        if (k->buf[i].kind == K_work)
            work = k->buf[i].off;
    emit_head(t, sp, p, r);
    emit_model(t, &sp->model->rt);
    emit_stages(t, st, p, r);
    emit_buffers(t, k);
    emit_stream(t, k);
    emit_groups(t, p);
    emit_homes(t, k);
    put(t, "\nint main(int argc, char **argv) {\n");
    put(t, "    /* name, hash of the whole compile, rank, workers, stages, microbatches, messages, lanes, arena, "
           "workspace */\n");
    put(t, "    static const struct rt_self self = {\"%s\", 0x%016llxu, %d, %d, %d, %d, %d, %d, %lld, %lld};\n",
        tame(p->name), (unsigned long long)hash, r, p->workers, p->stages, p->batches, p->nmsgs, k->nlanes,
        (long long)k->arena, (long long)work);
    put(t, "    RT_MAIN(argc, argv, &self, &model, stages, stream, groups, homes);\n}\n");
}
