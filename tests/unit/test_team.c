/* A team member's part of a layer, and its jobs in parts, against whole matrices that are cut and multiplied here. All
 * numbers are small integers, so every sum is exact in any order. */
#include "handmade.h"
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

/* ---- places of a part's elements in the whole ---- */

/* Lists the columns of the whole that a member has, in its order. */
static int columns_of(const struct rt_share *share, int *column) {
    int n = 0, begin = 0;
    for (int g = 0; g < 3; begin += share->group[g++])
        for (int j = 0; j < share->group[g]; j++)
            if (j * share->members / share->group[g] == share->member)
                column[n++] = begin + j;
    return n;
}

static void check_columns(struct rt_share share, int ndims, int rows) {
    struct rt_layer l = {.kind = LAYER_linear, .config.linear.bias = true, .share = share};
    int column[64], n = columns_of(&share, column), all = share.group[0] + share.group[1] + share.group[2];
    struct rt_parameter p = {"weight", ndims, {rows, n}, (int64_t)rows * n, SPLIT_COLUMNS, 0, 0};
    if (ndims == 1)
        p.dim[0] = n;
    for (int64_t e = 0; e < p.count; e++) {
        struct rt_stretch run = stretch_of(&l, &p, e);
        cr_assert(run.n >= 1 && e + run.n <= p.count);
        for (int64_t k = 0; k < run.n; k++) /* in both, one row's columns lie next to each other */
            cr_assert_eq(run.at + k, (e + k) / n * all + column[(e + k) % n]);
    }
    cr_assert_eq(whole_parameter(&l, &p).count, (int64_t)rows * all);
    cr_assert_eq(whole_parameter(&l, &p).dim[ndims - 1], all);
}

Test(team, a_part_of_the_columns) {
    for (int32_t members = 1; members <= 4; members++)
        for (int32_t member = 0; member < members; member++) {
            check_columns((struct rt_share){SPLIT_COLUMNS, member, members, {12, 0, 0}}, 2, 3);
            check_columns((struct rt_share){SPLIT_COLUMNS, member, members, {12, 12, 12}}, 2, 5);
            check_columns((struct rt_share){SPLIT_COLUMNS, member, members, {24, 12, 12}}, 2, 2);
            check_columns((struct rt_share){SPLIT_COLUMNS, member, members, {12, 24, 0}}, 1, 1);
        }
}

Test(team, a_part_of_the_rows_and_none) {
    struct rt_layer l = {.kind = LAYER_linear, .config.linear.bias = true, .share = {SPLIT_ROWS, 2, 3, {0}}};
    const struct rt_parameter rows = {"weight", 2, {4, 5}, 20, SPLIT_ROWS, 0, 0},
                              whole = {"bias", 1, {5}, 5, SPLIT_NONE, 0, 0};
    for (int64_t e = 0; e < 20; e++) {
        cr_assert_eq(stretch_of(&l, &rows, e).at, 40 + e);
        cr_assert_eq(stretch_of(&l, &rows, e).n, 20 - e);
    }
    cr_assert_eq(whole_parameter(&l, &rows).dim[0], 12);
    cr_assert_eq(stretch_of(&l, &whole, 3).at, 3);
    cr_assert_eq(whole_parameter(&l, &whole).count, 5);
}

/* ---- initial weights ---- */

static float *initial(const struct rt_model *m, struct rt_layer *l) {
    const struct rt_parameters all = parameters_of(m, l, false);
    l->nparam = 0;
    for (int i = 0; i < all.n; i++)
        l->nparam += all.at[i].count;
    struct rt_stage s = {.layer = l, .nlayers = 1, .weight = 4 * l->nparam};
    float *w = fresh(s.weight);
    host_init(m, &s, w, 7);
    return w;
}

/* Checks a cut by the columns that a member has, row by row. */
static void check_initial_columns(int input, int in, struct rt_share share) {
    struct rt_model m = {.input = input, .rows = 4};
    int column[64], n = columns_of(&share, column), out = share.group[0] + share.group[1] + share.group[2];
    struct rt_layer whole = {.kind = LAYER_linear, .config.linear.bias = true, .in = in, .out = out, .index = 3},
                    part = whole;
    part.out = n;
    part.share = share;
    const float *a = initial(&m, &whole), *b = initial(&m, &part);
    for (int i = 0; i < in; i++)
        for (int j = 0; j < n; j++)
            cr_assert_eq(b[i * n + j], a[i * out + column[j]]);
    cr_assert(part.nparam == whole.nparam / share.members);
}

Test(team, members_begin_with_the_columns_of_the_whole) {
    for (int32_t member = 0; member < 4; member++)
        for (int input = INPUT_TOKENS; input <= INPUT_INTEGERS; input++) {
            check_initial_columns(input, 12, (struct rt_share){SPLIT_COLUMNS, member, 4, {8, 8, 8}});
            check_initial_columns(input, 32, (struct rt_share){SPLIT_COLUMNS, member, 4, {16, 8, 0}});
            check_initial_columns(input, 5, (struct rt_share){SPLIT_COLUMNS, member, 4, {32, 0, 0}});
        }
}

Test(team, members_begin_with_the_rows_of_the_whole) {
    for (int32_t member = 0; member < 3; member++)
        for (int input = INPUT_TOKENS; input <= INPUT_INTEGERS; input++) {
            struct rt_model m = {.input = input, .rows = 4, .vocab = 21};
            struct rt_layer whole = {.kind = LAYER_linear, .config.linear.bias = true, .in = 12, .out = 5, .index = 3},
                            part = whole;
            part.in = 4;
            part.share = (struct rt_share){SPLIT_ROWS, member, 3, {0}};
            const float *a = initial(&m, &whole), *b = initial(&m, &part);
            cr_assert_arr_eq(b, a + member * 20, sizeof *b * 20);
            cr_assert_eq(part.nparam, 20); /* the bias is a separate layer */
            struct rt_layer table = {.kind = LAYER_embedding, .in = 1, .out = 5, .context = 4, .index = 0}, own = table;
            own.share = part.share;
            a = initial(&m, &table);
            b = initial(&m, &own);
            cr_assert_arr_eq(b, a + member * 35, sizeof *b * 35);
            cr_assert_arr_eq(b + 35, a + 105, sizeof *b * 20); /* all positions */
        }
}

/* ---- an embedding whose tokens the members divide ---- */

enum { ROWS = 6, TOKENS = 12, CONTEXT = 3, WIDE = 4 };

struct embedding {
    struct rt_model m;
    struct rt_layer l;
    float w[(TOKENS + CONTEXT) * WIDE], dw[(TOKENS + CONTEXT) * WIDE + 16 /* a gap */], y[ROWS * WIDE];
};

static void run_embedding(struct embedding *e, struct rt_share share, const int32_t *token, float *dy) {
    e->m = (struct rt_model){.input = INPUT_TOKENS, .vocab = TOKENS};
    e->l = (struct rt_layer){
        .kind = LAYER_embedding, .config.embedding.scale = 1, .rows = ROWS, .in = 1, .out = WIDE, .context = CONTEXT};
    e->l.share = share;
    int n = (int)share_of(&e->l, SPLIT_ROWS, TOKENS), first = share.member * n;
    e->l.nparam = (n + CONTEXT) * WIDE;
    e->l.y = (struct slot){SP_Y, 0};
    e->l.dy = (struct slot){SP_DY, 0};
    for (int i = 0; i < n * WIDE; i++)
        e->w[i] = (float)(first * WIDE + i);
    for (int i = 0; i < CONTEXT * WIDE; i++)
        e->w[n * WIDE + i] = (float)(1000 + i);
    struct rt_stage s = {.layer = &e->l, .nlayers = 1};
    struct rt_batch batch = {.token = token};
    struct rt_bind at = {.w = e->w, .dw = e->dw, .first = true, .batch = &batch};
    at.at[SP_Y] = (char *)e->y;
    at.at[SP_DY] = (char *)dy;
    host_forward(&e->m, &s, &at);
    host_backward(&e->m, &s, &at, true, true);
}

Test(team, members_of_an_embedding_add_up_to_it) {
    static const int32_t token[ROWS] = {0, 11, 4, 5, 0, 8};
    float dy[ROWS * WIDE];
    for (int i = 0; i < ROWS * WIDE; i++)
        dy[i] = (float)(i % 7 - 3);
    static struct embedding whole, part[3];
    run_embedding(&whole, (struct rt_share){0}, token, dy);
    for (int32_t i = 0; i < 3; i++)
        run_embedding(&part[i], (struct rt_share){SPLIT_ROWS, i, 3, {0}}, token, dy);
    for (int i = 0; i < ROWS * WIDE; i++) {
        cr_expect_eq(whole.y[i], (float)(token[i / WIDE] * WIDE + i % WIDE + 1000 + i % (CONTEXT * WIDE)));
        cr_expect_eq(part[0].y[i] + part[1].y[i] + part[2].y[i], whole.y[i]);
    }
    for (int i = 0; i < 3; i++) {
        cr_expect_arr_eq(part[i].dw, whole.dw + i * 4 * WIDE, sizeof(float) * 4 * WIDE);
        cr_expect_arr_eq(part[i].dw + 4 * WIDE, whole.dw + TOKENS * WIDE, sizeof(float) * CONTEXT * WIDE);
    }
}

/* ---- the loss over a vocabulary that the members divide, against its formula in double ---- */

enum { LOGITS = 12, LOSS_ROWS = 5, LOSS_BATCHES = 3 };

static double logit(int r, int j) { return 3 * sin(7.0 * r + 5.0 * j) + (r == 2 && j == 4 ? 40 : 0); }

/* Runs the loss: part 0 puts a member's statistics into give; part 1, with all members' in got, leaves the gradient. */
static void run_loss(int member, int members, const int32_t *target, char *give, char *got, float *x, float *loss) {
    int n = LOGITS / members;
    struct rt_model m = {.input = INPUT_TOKENS, .vocab = LOGITS, .batches = LOSS_BATCHES};
    struct rt_layer l = {.kind = LAYER_cross_entropy, .rows = LOSS_ROWS, .in = n, .out = n};
    l.share = (struct rt_share){SPLIT_COLUMNS, member, members, {LOGITS, 0, 0}};
    l.x = l.aux = (struct slot){SP_WORK, 0};
    struct rt_stage s = {.layer = &l, .nlayers = 1};
    struct rt_batch batch = {.target = target};
    struct rt_bind at = {.batch = &batch, .loss = loss};
    at.at[SP_WORK] = (char *)x;
    at.at[SP_GIVE] = give;
    at.at[SP_GOT] = got;
    host_forward_part(&m, &s, &at, 0, 1);
}

Test(team, members_have_the_loss_of_the_whole_vocabulary) {
    static const int32_t target[LOSS_ROWS] = {0, 11, 5, 4, 6};
    double want = 0, e[LOSS_ROWS][LOGITS], total[LOSS_ROWS] = {0};
    for (int r = 0; r < LOSS_ROWS; r++) {
        for (int j = 0; j < LOGITS; j++)
            total[r] += e[r][j] = exp(logit(r, j) - 20);
        want += (log(total[r]) + 20 - logit(r, target[r])) / LOSS_ROWS;
    }
    for (int members = 1; members <= 4; members++) {
        static _Alignas(64) char all[4 * 64]; /* 60 bytes of each member, padded to a whole line */
        static float x[4][LOSS_ROWS * LOGITS];
        int n = LOGITS / members;
        for (int i = 0; i < members; i++) {
            for (int k = 0; k < LOSS_ROWS * n; k++)
                x[i][k] = (float)logit(k / n, i * n + k % n);
            run_loss(i, members, target, all + 64 * i, NULL, x[i], NULL);
        }
        for (int i = 0; i < members; i++) {
            float loss = 0;
            run_loss(i, members, target, NULL, all, x[i], &loss);
            cr_expect_float_eq(loss, want, 1e-5 * want);
            for (int k = 0; k < LOSS_ROWS * n; k++) {
                int r = k / n, j = i * n + k % n;
                double dx = (e[r][j] / total[r] - (j == target[r])) / LOSS_ROWS / LOSS_BATCHES;
                cr_expect_float_eq(x[i][k], dx, 2e-7, "%d members, row %d, column %d", members, r, j);
            }
        }
    }
}

/* ---- jobs in parts: y = relu(x A) B + bias; each of two members has half the columns of A and half the rows of B, and
 * they exchange between the halves of spread and of reduce ---- */

enum { R = 3, IN = 4, MIDDLE = 6, OUT = 5, MINE = MIDDLE / 2, LAYERS_OF_BLOCK = 6, REDUCE = 4 };
enum { TENSOR = R * MIDDLE * 4 }; /* room for any tensor, in bytes */

struct side {
    struct rt_layer l[LAYERS_OF_BLOCK];
    struct rt_stage s;
    struct rt_bind at;
    float w[256], dw[256], give[R * MIDDLE], got[R * MIDDLE], y[R * OUT], dx[R * IN];
    char stash[8 * TENSOR], ext[8 * TENSOR];
};
static float x_of(int i) { return (float)(i % 5 - 2); }
static float dy_of(int i) { return (float)(i % 3 - 1); }
static float a_of(int i, int j) { return (float)((3 * i + j) % 4 - 1); }
static float b_of(int j, int k) { return (float)((2 * j + k) % 5 - 2); }
static float bias_of(int k) { return (float)(10 + k); }

/* Lays out reduce's and spread's tensors in what they give and get, as in programs; or elsewhere, with copies. */
static void lay_out(struct side *k, bool copies) {
    static const int kind[] = {LAYER_spread, LAYER_linear, LAYER_relu, LAYER_linear, LAYER_reduce, LAYER_bias};
    static const int width[] = {IN, IN, MINE, MINE, OUT, OUT, OUT};
    for (int i = 0; i < LAYERS_OF_BLOCK; i++) {
        struct rt_layer *l = &k->l[i];
        *l = (struct rt_layer){.kind = kind[i], .rows = R, .in = width[i], .out = width[i + 1]};
        l->x = (struct slot){SP_STASH, (i == 1 ? 0 : i) * TENSOR}; /* a spread's y is its x */
        l->y = (struct slot){SP_STASH, (i == 0 ? 0 : i + 1) * TENSOR};
        l->dx = (struct slot){SP_EXT, (i == REDUCE ? i + 1 : i) * TENSOR}; /* a reduce's dx is its dy; so is a bias's */
        l->dy = (struct slot){SP_EXT, (i + 1) * TENSOR};
    }
    k->l[5].dx = k->l[5].dy = k->l[4].dx = k->l[4].dy = k->l[3].dy = (struct slot){SP_DY, 0};
    k->l[5].y = (struct slot){SP_Y, 0};
    k->l[0].x = k->l[0].y = k->l[1].x = (struct slot){SP_X, 0};
    k->l[0].dx = copies ? (struct slot){SP_DX, 0} : (struct slot){SP_GOT, 0};
    if (!copies) {
        k->l[3].y = k->l[4].x = (struct slot){SP_GIVE, 0};
        k->l[4].y = k->l[5].x = (struct slot){SP_GOT, 0};
        k->l[1].dx = k->l[0].dy = (struct slot){SP_GIVE, 0};
    }
}

static void make(struct side *k, int place, bool copies, float *x, float *dy) {
    memset(k, 0, sizeof *k);
    lay_out(k, copies);
    k->l[1].nparam = IN * MINE;
    k->l[3].param = 64 * 4;
    k->l[3].nparam = MINE * OUT;
    k->l[5].param = 128 * 4;
    k->l[5].nparam = OUT;
    for (int i = 0; i < IN; i++)
        for (int j = 0; j < MINE; j++)
            k->w[i * MINE + j] = a_of(i, place * MINE + j);
    for (int j = 0; j < MINE; j++)
        for (int i = 0; i < OUT; i++)
            k->w[64 + j * OUT + i] = b_of(place * MINE + j, i);
    for (int i = 0; i < OUT; i++)
        k->w[128 + i] = bias_of(i);
    k->s = (struct rt_stage){.layer = k->l, .nlayers = LAYERS_OF_BLOCK};
    k->at = (struct rt_bind){.w = k->w, .dw = k->dw, .first = true};
    k->at.at[SP_X] = (char *)x;
    k->at.at[SP_DY] = (char *)dy;
    k->at.at[SP_Y] = (char *)k->y;
    k->at.at[SP_DX] = (char *)k->dx;
    k->at.at[SP_STASH] = k->stash;
    k->at.at[SP_EXT] = k->ext;
}

static void exchange(struct side *k) {
    for (int i = 0; i < R * MIDDLE; i++)
        k[0].got[i] = k[1].got[i] = k[0].give[i] + k[1].give[i];
}

static void forward(struct side *k, bool gives, int from, int to) {
    static const struct rt_model m;
    k->at.at[gives ? SP_GIVE : SP_GOT] = (char *)(gives ? k->give : k->got);
    host_forward_part(&m, &k->s, &k->at, from, to);
    k->at.at[SP_GIVE] = k->at.at[SP_GOT] = NULL;
}

static void backward(struct side *k, bool gives, bool weight, enum sweep_kind sweep, int from, int to) {
    static const struct rt_model m;
    k->at.at[gives ? SP_GIVE : SP_GOT] = (char *)(gives ? k->give : k->got);
    host_backward_part(&m, &k->s, &k->at, (struct rt_sweep){true, weight, sweep, from, to});
    k->at.at[SP_GIVE] = k->at.at[SP_GOT] = NULL;
}

struct wanted {
    float h[R * MIDDLE], y[R * OUT], dh[R * MIDDLE], dx[R * IN], da[IN * MIDDLE], db[MIDDLE * OUT], dbias[OUT];
};

static void by_hand(struct wanted *want) {
    memset(want, 0, sizeof *want);
    for (int r = 0; r < R; r++) {
        for (int j = 0; j < MIDDLE; j++)
            for (int i = 0; i < IN; i++)
                want->h[r * MIDDLE + j] += x_of(r * IN + i) * a_of(i, j);
        for (int k = 0; k < OUT; k++) {
            want->y[r * OUT + k] = bias_of(k);
            want->dbias[k] += dy_of(r * OUT + k);
        }
        for (int j = 0; j < MIDDLE; j++) {
            float h = want->h[r * MIDDLE + j];
            for (int k = 0; k < OUT; k++) {
                want->y[r * OUT + k] += (h > 0 ? h : 0) * b_of(j, k);
                want->dh[r * MIDDLE + j] += h > 0 ? dy_of(r * OUT + k) * b_of(j, k) : 0;
                want->db[j * OUT + k] += (h > 0 ? h : 0) * dy_of(r * OUT + k);
            }
            for (int i = 0; i < IN; i++) {
                want->dx[r * IN + i] += want->dh[r * MIDDLE + j] * a_of(i, j);
                want->da[i * MIDDLE + j] += want->dh[r * MIDDLE + j] * x_of(r * IN + i);
            }
        }
    }
}

/* Checks the block. late: the first linear layer's weight gradient runs while its input gradient is exchanged. */
static void check_block(bool copies, bool split, bool late) {
    static struct side k[2];
    float x[R * IN], dy[R * OUT];
    struct wanted want;
    for (int i = 0; i < R * IN; i++)
        x[i] = x_of(i);
    for (int i = 0; i < R * OUT; i++)
        dy[i] = dy_of(i);
    by_hand(&want);
    for (int i = 0; i < 2; i++) {
        make(&k[i], i, copies, x, dy);
        forward(&k[i], true, 0, REDUCE + 1);
    }
    exchange(k);
    for (int i = 0; i < 2; i++) {
        forward(&k[i], false, REDUCE, LAYERS_OF_BLOCK);
        cr_expect_arr_eq(k[i].y, want.y, sizeof want.y);
        memset(k[i].give, 0, sizeof k[i].give);
        backward(&k[i], true, !split, late ? SWEEP_PUT_OFF : SWEEP_ALL, 0, LAYERS_OF_BLOCK);
    }
    for (int i = 0; i < 2 && late; i++)
        cr_expect_arr_eq(k[i].dw, (float[IN * MINE]){0}, sizeof(float) * IN * MINE);
    exchange(k);
    for (int i = 0; i < 2; i++) {
        if (late)
            host_backward_part(&(struct rt_model){0}, &k[i].s, &k[i].at,
                               (struct rt_sweep){true, true, SWEEP_WEIGHTS, 1, 2});
        backward(&k[i], false, !split, SWEEP_ALL, 0, 1);
        cr_expect_arr_eq(copies ? k[i].dx : k[i].got, want.dx, sizeof want.dx);
        if (split)
            host_backward(&(struct rt_model){0}, &k[i].s, &k[i].at, false, true);
        for (int r = 0; r < IN; r++)
            cr_expect_arr_eq(k[i].dw + r * MINE, want.da + r * MIDDLE + i * MINE, sizeof(float) * MINE);
        cr_expect_arr_eq(k[i].dw + 64, want.db + i * MINE * OUT, sizeof(float) * MINE * OUT);
        cr_expect_arr_eq(k[i].dw + 128, want.dbias, sizeof want.dbias);
    }
}

Test(team, parts_make_what_the_whole_makes) {
    check_block(false, false, false);
    check_block(false, false, true);
    check_block(false, true, false);
    check_block(true, false, false);
    check_block(true, false, true);
    check_block(true, true, false);
}
