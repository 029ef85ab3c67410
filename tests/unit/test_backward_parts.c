/* A backward in parts gives the bits of the whole one. Every stage of models of all layers is cut into three parts at
 * every two places, so that each range of layers is a part somewhere, and into one part per layer. */
#include "handmade.h"
#include <criterion/criterion.h>

static uint64_t state = 3;
static float uniform(void) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (float)(state >> 40) / (1 << 23) - 1;
}

static struct rt_batch *batch_for(const struct rt_model *m) {
    struct rt_batch *batch = NEW(struct rt_batch, 1);
    int32_t *token = NEW(int32_t, 2 * m->rows);
    float *x = NEW(float, 2 * m->rows * (m->features + 1));
    for (int i = 0; m->vocab && i < 2 * m->rows; i++)
        token[i] = (int32_t)(uniform() * 1000 + 1000) % m->vocab;
    for (int i = 0; i < 2 * m->rows * m->features; i++)
        x[i] = uniform();
    *batch = (struct rt_batch){.token = token, .target = token + m->rows, .x = x, .y = x + m->rows * m->features};
    return batch;
}

/* One stage with all inputs of its backward. more: a second gradient of its output, summed with the first. */
struct trial {
    const struct rt_model *m;
    const struct rt_stage *s;
    struct rt_bind at;
    int64_t table; /* bytes of the shared table, or 0 */
    float loss, *w, *v, *stash, *dy, *more;
    struct rt_buffer first;
    const struct rt_buffer *list[2]; /* the tensor `more`, from its first byte on */
};

static float *numbers(int64_t bytes) {
    float *x = fresh(bytes);
    for (int64_t i = 0; i < bytes / 4; i++)
        x[i] = uniform();
    return x;
}

static void *copy_of(const void *from, int64_t bytes) { return memcpy(fresh(bytes), from, (size_t)bytes); }

static struct trial trial_of(const struct rt_model *m, struct stage *st, const struct rt_stage *table) {
    struct trial y = {.m = m, .s = &st->rt, .table = table ? table->weight : 0};
    y.at = bench_tied(st, 1, table, batch_for(m)).at[0];
    y.w = (float *)(void *)(y.at.w = numbers(y.s->weight));
    y.at.v = table ? numbers(y.table) : NULL;
    y.at.at[SP_X] = (char *)numbers(y.s->input);
    y.at.loss = &y.loss;
    host_forward(m, y.s, &y.at);
    y.stash = (float *)(void *)y.at.at[SP_STASH];
    y.dy = numbers(y.s->act);
    y.more = numbers(y.s->act);
    return y;
}

/* Returns fresh operands with the contents they have before the backward. */
static struct rt_bind operands(const struct trial *y, bool input, bool adds, const float *dw, const char *ext) {
    struct rt_bind at = y->at;
    const struct rt_layer *last = y->s->layer + y->s->nlayers - 1;
    at.at[SP_STASH] = copy_of(y->stash, y->s->stash);
    at.at[SP_EXT] = ext ? copy_of(ext, y->s->ext) : fresh(y->s->ext);
    at.at[SP_WORK] = fresh(y->s->work);
    at.at[SP_DX] = fresh(y->s->grad);
    at.at[SP_DY] = (char *)y->dy;
    at.dw = copy_of(dw, y->s->weight);
    at.dv = y->table ? copy_of(dw, y->table) : NULL;
    at.first = at.vfirst = !adds;
    at.arena = (char *)y->more;
    at.more = input && last->dy.space == SP_EXT ? y->list : NULL;
    return at;
}

static void same(const char *what, const void *a, const void *b, int64_t n, const int *cut, int parts) {
    cr_assert(n == 0 || memcmp(a, b, (size_t)n) == 0, "%s of %d parts, cut at %d and %d, differs", what, parts, cut[1],
              cut[parts - 1]);
}

/* Compares one cut with the whole. cut: parts + 1 numbers, from the number of layers down to 0. */
static void compare(const struct trial *y, bool input, bool weight, bool adds, const float *dw, const char *ext,
                    const int *cut, int parts) {
    struct rt_bind whole = operands(y, input, adds, dw, ext), cuts = operands(y, input, adds, dw, ext);
    host_backward(y->m, y->s, &whole, input, weight);
    for (int p = 0; p < parts; p++)
        host_backward_part(y->m, y->s, &cuts, (struct rt_sweep){input, weight, SWEEP_ALL, cut[p + 1], cut[p]});
    same("dx", whole.at[SP_DX], cuts.at[SP_DX], y->s->grad, cut, parts);
    same("ext", whole.at[SP_EXT], cuts.at[SP_EXT], y->s->ext, cut, parts);
    same("dw", whole.dw, cuts.dw, y->s->weight, cut, parts);
    same("dv", whole.dv, cuts.dv, y->table, cut, parts);
}

static int all_cuts(const struct trial *y, bool input, bool weight, bool adds, const char *ext) {
    int n = y->s->nlayers, trials = 0, every[64];
    int64_t most = y->s->weight > y->table ? y->s->weight : y->table;
    const float *dw = numbers(most);
    for (int a = 1; a < n; a++)
        for (int b = 1; b <= a; b++, trials++)
            compare(y, input, weight, adds, dw, ext, b < a ? (int[]){n, a, b, 0} : (int[]){n, a, 0}, b < a ? 3 : 2);
    for (int p = 0; p <= n; p++)
        every[p] = n - p;
    compare(y, input, weight, adds, dw, ext, every, n);
    return trials + 1;
}

static int check_model(struct model *m, int stages, bool tied) {
    struct spec *sp = spec_of(m, stages);
    struct stage *st = cost_stages(sp);
    int trials = 0;
    cr_assert_eq(sp->names.tables > 0, tied);
    for (int s = 0; s < stages; s++) {
        struct trial y = trial_of(&m->rt, &st[s], tied ? &st[stages].rt : NULL);
        y.list[0] = &y.first;
        struct rt_bind at = operands(&y, true, false, numbers(y.s->weight > y.table ? y.s->weight : y.table), NULL);
        host_backward(&m->rt, y.s, &at, true, false); /* the input of W */
        for (int adds = 0; adds < 2; adds++) {
            trials += all_cuts(&y, true, true, adds, NULL);
            trials += all_cuts(&y, false, true, adds, at.at[SP_EXT]);
        }
    }
    return trials;
}

Test(backward_parts, gpt) {
    int trials = 0;
    for (int stages = 1; stages <= 3; stages++)
        trials += check_model(gpt(12, 6, 11, 2, 1, 8, 2), stages, false);
    cr_assert(trials > 500, "%d", trials);
}

Test(backward_parts, both_layers_of_a_table_in_one_stage_or_in_two) {
    for (int stages = 1; stages <= 2; stages++) {
        struct model *m = model_tokens(12, 6, 11, 2);
        add(m, LAYER_embedding, 8);
        add(m, LAYER_layernorm, 0);
        add(m, LAYER_linear, 8);
        add(m, LAYER_unembedding, 0);
        add(m, LAYER_cross_entropy, 0);
        check_model(m, stages, true);
    }
}

Test(backward_parts, integers) {
    for (int stages = 1; stages <= 2; stages++) {
        struct model *m = model_integers(6, 5, 4);
        for (int i = 0; i < 4; i++) {
            add(m, LAYER_linear, 5);
            add(m, LAYER_relu, 0);
        }
        add(m, LAYER_mse, 0);
        check_model(m, stages, false);
    }
}
