/* Checkpoints of teams: this test cuts the members' parts out of the whole, element by element. */
#include "checkpoint_room.h"
#include "store/checkpoint.h"

TestSuite(checkpoint_teams, .init = make_dir, .fini = remove_dir);

/* An embedding of 6 tokens by rows, a linear layer by columns in three groups, one by rows, and a layernorm that both
 * members have whole. */
struct taught {
    struct rt_layer l[5];
    struct rt_stage s;
};
static void lay_out_member(const struct rt_model *m, struct taught *t, int member, int members) {
    const struct rt_share columns = {SPLIT_COLUMNS, member, members, {4, 4, 4}},
                          rows = {SPLIT_ROWS, member, members, {0}};
    *t = (struct taught){
        .l = {{.kind = LAYER_embedding, .in = 1, .out = 4, .context = 3, .index = 0},
              {.kind = LAYER_linear, .config.linear.bias = true, .in = 4, .out = 12 / members, .index = 1},
              {.kind = LAYER_linear, .config.linear.bias = true, .in = 8 / members, .out = 4, .index = 2},
              {.kind = LAYER_bias, .in = 4, .out = 4, .index = 2},
              {.kind = LAYER_layernorm, .in = 4, .out = 4, .index = 3}}};
    if (members > 1) {
        t->l[0].share = t->l[2].share = rows;
        t->l[1].share = columns;
    } else
        t->l[3].kind = LAYER_relu;
    for (int i = 0; i < 5; i++) {
        const struct rt_parameters all = parameters_of(m, &t->l[i], false);
        t->l[i].param = t->s.weight;
        for (int k = 0; k < all.n; k++)
            t->l[i].nparam += all.at[k].count;
        t->s.weight += (4 * t->l[i].nparam + PARAM_ALIGN - 1) / PARAM_ALIGN * PARAM_ALIGN;
    }
    t->s.layer = t->l;
    t->s.nlayers = 5;
    t->s.place = member;
    t->s.members = members > 1 ? members : 0;
}

/* Fills in a member's numbers from the whole's; the gaps are 0. */
static void cut_out(const float *whole, const struct taught *all, const struct taught *part, int member, float *to) {
    for (int i = 0; i < 12; i++)
        to[i] = whole[12 * member + i]; /* three tokens, */
    for (int i = 0; i < 12; i++)
        to[12 + i] = whole[24 + i]; /* and all positions */
    float *linear = to + part->l[1].param / 4;
    const float *from = whole + all->l[1].param / 4;
    for (int r = 0; r < 5; r++) /* four rows, then the bias as one more */
        for (int c = 0; c < 6; c++)
            linear[6 * r + c] = from[12 * r + c / 2 * 4 + 2 * member + c % 2];
    for (int i = 0; i < 16; i++)
        to[part->l[2].param / 4 + i] = whole[all->l[2].param / 4 + 16 * member + i];
    for (int i = 0; i < 4; i++)
        to[part->l[3].param / 4 + i] = whole[all->l[2].param / 4 + 32 + i];
    for (int i = 0; i < 8; i++)
        to[part->l[4].param / 4 + i] = whole[all->l[4].param / 4 + i];
}

/* A team's file equals one rank's, byte for byte, for any number of shards; members read their part of either. What all
 * members have whole comes from the first: the second has something else here. */
Test(checkpoint_teams, teams_write_whole_layers) {
    struct rt_model m = {.input = INPUT_TOKENS, .vocab = 6, .optimizer = OPT_ADAMW};
    static struct taught all, part[2];
    lay_out_member(&m, &all, 0, 1);
    int64_t n = all.s.weight / 4;
    const struct checkpoint_run run = {.most = 1, .least = 1};
    float *whole = calloc((size_t)n, 12), *mine = calloc((size_t)n, 12);
    for (int l = 0; l < 5; l++)
        for (int64_t i = 0; i < 3 * all.l[l].nparam; i++)
            whole[i / all.l[l].nparam * n + all.l[l].param / 4 + i % all.l[l].nparam] = (float)(1000 * l + i);
    const struct stage_file third = {dir, 3, 0}, fourth = {dir, 4, 0};
    const struct checkpoint_shard one = {0, n, whole, whole + n, n};
    cr_assert(checkpoint_begin_stage(&third, &m, &all.s, why, sizeof why), "%s", why);
    cr_assert(checkpoint_write_shard(&third, &m, &all.s, &one, why, sizeof why), "%s", why);
    cr_assert(checkpoint_end_stage(&third, why, sizeof why));
    cr_assert(checkpoint_write_manifest(dir, 3, 1, &run, why, sizeof why));
    size_t bytes, got_bytes;
    char *wanted = slurp(in_dir("step-00000003/stage-0000.safetensors"), &bytes);
    for (int shards = 1; shards <= 7; shards += 3) {
        cr_assert(checkpoint_begin_stage(&fourth, &m, &all.s, why, sizeof why));
        for (int i = 0; i < 2; i++) {
            lay_out_member(&m, &part[i], i, 2);
            int64_t count = part[i].s.weight / 4, stride = (count + shards - 1) / shards;
            memset(mine, 0, (size_t)n * 12);
            for (int k = 0; k < 3; k++)
                cut_out(whole + k * n, &all, &part[i], i, mine + k * count);
            float *state = checkpoint_read_stage(dir, 3, &m, &part[i].s, why, sizeof why);
            cr_assert(state, "%s", why);
            cr_expect(!memcmp(state, mine, (size_t)count * 12), "member %d reads its part", i);
            free(state);
            for (int k = 0; i == 1 && k < 3; k++)
                memset(mine + k * count + part[i].l[4].param / 4, 7, 32);
            for (int64_t first = 0; first < count; first += stride) {
                int64_t left = count - first;
                struct checkpoint_shard shard = {first, left < stride ? left : stride, mine + first,
                                                 mine + count + first, count};
                cr_assert(checkpoint_write_shard(&fourth, &m, &part[i].s, &shard, why, sizeof why), "%s", why);
            }
        }
        cr_assert(checkpoint_end_stage(&fourth, why, sizeof why));
        char *got = slurp(in_dir("step-00000004/stage-0000.safetensors"), &got_bytes);
        char *step = strstr(got + 8, "\"step\":\"4\"");
        cr_assert(step && got_bytes == bytes);
        step[8] = '3';
        cr_expect(!memcmp(got, wanted, bytes), "%d shards", shards);
    }
    free(whole);
    free(mine);
    m.vocab = 8; /* a larger model: the whole layer's size matters */
    lay_out_member(&m, &part[1], 1, 2);
    cr_expect_null(checkpoint_read_stage(dir, 3, &m, &part[1].s, why, sizeof why));
    cr_expect(strstr(why, "layer.0.token is 6 x 4, but this model's is 8 x 4"), "%s", why);
}
