/* Attention divided among a team, by rows and by heads: all members together compute what one rank does, forward and
 * backward. The collectives between parts of a job follow their definitions here. */
#include "handmade.h"
#include "layers/team_attention.h"
#include <criterion/criterion.h>
#include <math.h>

enum { SEQUENCES = 3, DIM = 6, MOST = 4 };

static uint64_t state = 5;
static float uniform(void) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (float)(state >> 40) / 4194304 - 2; /* [-2, 2) */
}

struct team {
    int members, context, heads, kv_heads, rope;
    bool runs; /* whether members have a run of rows each, else two chunks of each sequence */
};

static int rows_of(const struct team *t) { return SEQUENCES * t->context; }
static int width_of(const struct team *t) { return t->heads * DIM; }
static int columns_of(const struct team *t) { return (t->heads + 2 * t->kv_heads) * DIM; }

/* Lists the microbatch's rows that a member has: of chunks of equal length, member i has the i-th and the i-th from the
 * end. */
static void list_rows(const struct team *t, int member, int *row) {
    int n = 0, all = rows_of(t), chunk = t->context / t->members / 2;
    for (int r = 0; r < all; r++) {
        int number = r % t->context / chunk;
        bool mine = number == member || number == 2 * t->members - 1 - member;
        if (t->runs ? r / (all / t->members) == member : mine)
            row[n++] = r;
    }
    cr_assert_eq(n, all / t->members);
}

static struct rt_layer layer_of(const struct team *t, int kind, int member, int in, int out) {
    struct rt_layer l = {.kind = kind, .rows = rows_of(t) / t->members, .in = in, .out = out};
    l.config.attention = (struct attention_config){.heads = t->heads, .kv_heads = t->kv_heads, .rope = t->rope};
    l.context = t->context;
    l.part = (struct rt_rows){member, t->members, t->runs ? 0 : t->context};
    return l;
}

/* ---- one rank ---- */

struct whole {
    float *x, *dy, *y, *dx; /* the microbatch's tensors */
};

static float *copy_of(const float *of, int64_t n) {
    float *p = fresh(4 * n);
    memcpy(p, of, 4 * (size_t)n);
    return p;
}

static struct whole whole_of(const struct team *t) {
    int64_t rows = rows_of(t), in = rows * columns_of(t), out = rows * width_of(t);
    struct whole w = {fresh(4 * in), fresh(4 * out), fresh(4 * out), fresh(4 * in)};
    for (int64_t i = 0; i < in; i++)
        w.x[i] = uniform();
    for (int64_t i = 0; i < out; i++)
        w.dy[i] = uniform();
    struct rt_layer l = layer_of(t, LAYER_attention, 0, columns_of(t), width_of(t));
    l.rows = (int32_t)rows, l.part = (struct rt_rows){0};
    l.x.space = SP_STASH, l.y.space = SP_Y, l.aux.space = SP_EXT;
    l.dy.space = SP_DY, l.dx.space = SP_DX, l.tmp.space = SP_WORK;
    struct rt_model m = {.rows = (int32_t)rows, .context = t->context};
    struct rt_stage s = {.layer = &l, .nlayers = 1};
    struct rt_bind at = {.at = {[SP_Y] = (char *)w.y, [SP_DY] = (char *)w.dy, [SP_DX] = (char *)w.dx}};
    at.at[SP_X] = at.at[SP_STASH] = (char *)copy_of(w.x, in);
    at.at[SP_EXT] = fresh(4 * rows * t->heads), at.at[SP_WORK] = fresh(4 * rows * t->heads);
    host_forward(&m, &s, &at);
    host_backward(&m, &s, &at, true, false);
    return w;
}

/* ---- a team ---- */

struct one {
    struct rt_layer layer[3];
    struct rt_stage s;
    struct rt_bind at;
    int row[1000]; /* rows of the microbatch */
};

static struct one *members_of(const struct team *t, const struct whole *w, bool by_heads) {
    struct one *team = NEW(struct one, t->members);
    int n = rows_of(t) / t->members, in = columns_of(t), width = width_of(t);
    for (int i = 0; i < t->members; i++) {
        struct one *k = &team[i];
        struct rt_layer *l = k->layer;
        list_rows(t, i, k->row);
        float *x = fresh(4 * (int64_t)n * in), *dy = fresh(4 * (int64_t)n * width);
        for (int r = 0; r < n; r++) {
            memcpy(x + (int64_t)r * in, w->x + (int64_t)k->row[r] * in, 4 * (size_t)in);
            memcpy(dy + (int64_t)r * width, w->dy + (int64_t)k->row[r] * width, 4 * (size_t)width);
        }
        l[0] = layer_of(t, LAYER_gather_kv, i, in, in);
        l[1] = layer_of(t, LAYER_attention, i, in, width);
        l[2] = layer_of(t, LAYER_again_kv, i, width, width);
        l[0].x.space = l[0].y.space = l[1].x.space = SP_STASH, l[1].aux.space = SP_EXT, l[1].tmp.space = SP_WORK;
        l[1].y.space = l[2].x.space = l[2].y.space = SP_Y;
        l[2].dy.space = l[2].dx.space = l[1].dy.space = SP_DY;
        l[1].dx.space = l[0].dy.space = l[0].dx.space = SP_DX;
        if (by_heads) {
            l[0].kind = LAYER_to_heads, l[0].out = l[1].in = in / t->members, l[0].out_rows = l[1].rows = rows_of(t);
            l[2].kind = LAYER_to_rows, l[2].in = l[1].out = width / t->members, l[2].rows = rows_of(t),
            l[2].out_rows = n;
            l[2].config.attention.kv_heads = 0, l[1].config.attention.heads /= t->members,
            l[1].config.attention.kv_heads /= t->members;
            l[1].part = (struct rt_rows){0};
            int64_t inside =
                4 * (int64_t)rows_of(t) * l[1].in; /* attention's tensors follow the tensors of the member's rows */
            l[0].x.space = SP_X, l[0].y = l[1].x = (struct slot){SP_STASH, 0};
            l[1].y = l[2].x = (struct slot){SP_EXT, inside}, l[2].y.space = SP_Y;
            l[2].dy.space = SP_DY, l[2].dx = l[1].dy = (struct slot){SP_WORK, inside};
            l[1].dx = l[0].dy = (struct slot){SP_WORK, 3 * inside}, l[0].dx.space = SP_DX;
        }
        int64_t room = 20 * (int64_t)rows_of(t) * in; /* more than any space needs */
        for (int space = SP_X; space <= SP_DX; space++)
            k->at.at[space] = fresh(room);
        k->at.at[SP_X] = k->at.at[SP_STASH] = (char *)x;
        if (by_heads)
            k->at.at[SP_STASH] = fresh(room);
        k->at.at[SP_DY] = (char *)dy;
        k->s = (struct rt_stage){.layer = l, .nlayers = 3};
    }
    return team;
}

/* Turns what n members give into what each gets. piece: floats. */
static void exchange(int op, struct one *team, int n, int64_t piece) {
    float *got[MOST], *given[MOST];
    for (int i = 0; i < n; i++) {
        given[i] = (float *)(void *)team[i].at.at[SP_GIVE];
        got[i] = fresh(4 * piece * n);
    }
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            for (int64_t e = 0; e < piece; e++)
                switch (op) {
                case OP_ALL_GATHER_A: got[i][j * piece + e] = given[j][e]; break;
                case OP_ALL_TO_ALL_A: got[i][j * piece + e] = given[j][i * piece + e]; break;
                case OP_REDUCE_SCATTER_A: got[i][e] = (j > 0 ? got[i][e] : 0) + given[j][i * piece + e]; break;
                }
    for (int i = 0; i < n; i++)
        team[i].at.at[SP_GIVE] = NULL, team[i].at.at[SP_GOT] = (char *)got[i];
}

static void part(const struct team *t, struct one *team, bool backward, int from, int to, int64_t give) {
    struct rt_model m = {.rows = rows_of(t), .context = t->context};
    for (int i = 0; i < t->members; i++) {
        struct one *k = &team[i];
        k->at.at[SP_GIVE] = give ? fresh(4 * give) : NULL;
        if (backward)
            host_backward_part(&m, &k->s, &k->at, (struct rt_sweep){true, false, SWEEP_ALL, from, to});
        else
            host_forward_part(&m, &k->s, &k->at, from, to);
    }
}

static void near(const char *what, const struct team *t, struct one *team, int space, const float *want, int columns,
                 double tolerance) {
    double largest = 0;
    for (int64_t i = 0, n = (int64_t)rows_of(t) * columns; i < n; i++)
        largest = fmax(largest, fabs((double)want[i]));
    for (int i = 0; i < t->members; i++)
        for (int r = 0; r < rows_of(t) / t->members; r++)
            for (int j = 0; j < columns; j++) {
                float got = ((float *)(void *)team[i].at.at[space])[(int64_t)r * columns + j];
                float one = want[(int64_t)team[i].row[r] * columns + j];
                cr_assert(fabs((double)got - (double)one) <= tolerance * largest,
                          "%s, %d members, member %d, row %d, column %d: %g, should be %g", what, t->members, i, r, j,
                          (double)got, (double)one);
            }
}

/* A part ends in the layer that exchanges, and the next part begins there. */
static void check_team(const struct team *t, bool by_heads) {
    struct whole w = whole_of(t);
    struct one *team = members_of(t, &w, by_heads);
    int n = t->members;
    int64_t first = piece_bytes(&team->layer[0], 4) / 4, last = piece_bytes(&team->layer[2], 4) / 4;
    part(t, team, false, 0, 1, by_heads ? n * first : first);
    exchange(by_heads ? OP_ALL_TO_ALL_A : OP_ALL_GATHER_A, team, n, first);
    part(t, team, false, 0, 3, by_heads ? n * last : 0);
    if (by_heads) {
        exchange(OP_ALL_TO_ALL_A, team, n, last);
        part(t, team, false, 2, 3, 0);
    }
    for (int i = 0; i < n; i++)
        team[i].at.at[SP_GOT] = NULL;
    part(t, team, true, 2, 3, by_heads ? n * last : last);
    exchange(by_heads ? OP_ALL_TO_ALL_A : OP_ALL_GATHER_A, team, n, last);
    part(t, team, true, 0, 3, n * first);
    exchange(by_heads ? OP_ALL_TO_ALL_A : OP_REDUCE_SCATTER_A, team, n, first);
    part(t, team, true, 0, 1, 0);
    near("y", t, team, SP_Y, w.y, width_of(t), by_heads ? 0 : 1e-6);
    near("dx", t, team, SP_DX, w.dx, columns_of(t), by_heads ? 0 : 1e-6);
}

Test(team_attention, by_rows) {
    static const int shape[][2] = {{2, 280}, {3, 210}, {4, 160}, {2, 4}, {4, 8}}; /* members, context */
    for (int i = 0; i < 5; i++)
        for (int kv_heads = 4; kv_heads > 0; kv_heads /= 2)
            for (int rope = 0; rope <= 10000; rope += 10000)
                check_team(&(struct team){shape[i][0], shape[i][1], 4, kv_heads, rope, false}, false);
}

Test(team_attention, by_heads) {
    for (int members = 2; members <= MOST; members++)
        for (int share = 1; share <= 2; share++)
            for (int rope = 0; rope <= 10000; rope += 10000)
                for (int runs = 0; runs < 2; runs++)
                    check_team(&(struct team){members, 24, 24, 24 / share, rope, runs}, true);
}

/* Causal attention is equal work for all members: each sees equally many pairs of a query and a key. */
Test(team_attention, as_much_work_for_each) {
    for (int members = 2; members <= MOST; members++) {
        struct team t = {members, 48, 1, 1, 0, false};
        for (int i = 0; i < members; i++) {
            struct rt_layer l = layer_of(&t, LAYER_attention, i, 3 * DIM, DIM);
            struct positions positions = positions_of(&l);
            int pairs = 0;
            for (int r = 0; r < l.rows; r++)
                pairs += position_of(&positions, r) + 1;
            cr_assert_eq(pairs, SEQUENCES * (48 * 49 / 2) / members);
        }
    }
}
