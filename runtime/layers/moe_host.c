/* A mixture of experts on the host, as moe.h defines it. */
#include "host.h"
#include "moe.h"
#include "product.h"
#include <string.h>

static struct routing routing_of(const struct host_call *c) { return routing_at(c->l, host_at(c, c->l->aux)); }

/* ---- route ---- */

static void softmax(float *p, int n) {
    float top = p[0];
    for (int e = 1; e < n; e++)
        top = p[e] > top ? p[e] : top;
    for (int e = 0; e < n; e++)
        p[e] = host_exp(p[e] - top);
    float norm = 1 / host_sum(p, n);
    for (int e = 0; e < n; e++)
        p[e] *= norm;
}

static bool is_among(const int32_t *expert, int n, int e) {
    for (int i = 0; i < n; i++)
        if (expert[i] == e)
            return true;
    return false;
}

/* Chooses the token's experts, and their weights. */
static void choose(const struct rt_layer *l, const float *p, int32_t *expert, float *weight) {
    const struct moe_config *moe = &l->config.moe;
    float sum = 0;
    for (int k = 0; k < moe->top; k++) {
        int best = -1;
        for (int e = 0; e < moe->experts; e++)
            if (!is_among(expert, k, e) && (best < 0 || p[e] > p[best]))
                best = e;
        expert[k] = best;
        weight[k] = p[best];
        sum += p[best];
    }
    for (int k = 0; k < moe->top && moe->top > 1; k++)
        weight[k] /= sum;
}

/* Assigns places to the tokens of a sequence, from row `first` on. */
static void seat(const struct rt_layer *l, const struct routing *r, int sequence) {
    const struct moe_config *moe = &l->config.moe;
    int32_t *load = r->load + (int64_t)sequence * moe->experts;
    int first = sequence * l->context;
    memset(load, 0, sizeof *load * (size_t)moe->experts);
    for (int k = 0; k < moe->top; k++)
        for (int t = first; t < first + l->context; t++) {
            int32_t choice = t * moe->top + k, e = r->expert[choice], place = load[e]++;
            r->row[choice] = place < moe->places ? (e * r->sequences + sequence) * moe->places + place : -1;
            if (r->row[choice] >= 0)
                r->choice[r->row[choice]] = choice;
        }
}

static void count_pairs(const struct host_call *c, const struct routing *r) {
    const struct rt_layer *l = c->l;
    const struct moe_config *moe = &l->config.moe;
    for (int64_t i = 0; i < (int64_t)r->sequences * moe->experts; i++) {
        c->at->routed->pairs += r->load[i];
        c->at->routed->dropped += r->load[i] > moe->places ? r->load[i] - moe->places : 0;
    }
}

static void route_forward(const struct host_call *c) {
    const struct rt_layer *l = c->l;
    const struct moe_config *moe = &l->config.moe;
    const struct routing r = routing_of(c);
    const float *x = host_x(c);
    float *y = host_at(c, l->y);
    size_t bytes = (size_t)l->in * sizeof *y;
    host_product((struct product){l->rows, moe->experts, l->in, .a = plain(x, l->in),
                                  .b = plain(host_w(c), moe->experts), .c = r.probability, .stride = moe->experts});
    for (int64_t t = 0; t < r.tokens; t++) {
        softmax(r.probability + t * moe->experts, moe->experts);
        choose(l, r.probability + t * moe->experts, r.expert + t * moe->top, r.weight + t * moe->top);
    }
    for (int i = 0; i < r.places; i++)
        r.choice[i] = -1;
    for (int s = 0; s < r.sequences; s++)
        seat(l, &r, s);
    if (c->at->routed)
        count_pairs(c, &r);
    for (int64_t i = 0; i < r.places; i++)
        if (r.choice[i] >= 0)
            memcpy(y + i * l->in, x + (int64_t)(r.choice[i] / moe->top) * l->in, bytes);
        else
            memset(y + i * l->in, 0, bytes);
}

/* Returns the balancing loss's contribution to the gradient of a sequence's probabilities of an expert, per choice that
 * falls on it. Like other losses, it is a mean over the microbatch's rows, and over the step's microbatches if one
 * update ends the step. */
static float balance_each(const struct host_call *c) {
    const struct rt_layer *l = c->l;
    const struct moe_config *moe = &l->config.moe;
    float mean = (float)c->m->rows * (float)(c->m->update > 0 ? 1 : c->m->batches);
    return moe->balance * (float)moe->experts / ((float)l->context * (float)moe->top) / mean;
}

/* Turns d, the gradient of a token's weights (0 except at its experts), into the gradient of its logits. */
static void differentiate(const struct rt_layer *l, const struct routing *r, int64_t t, float each, float *d) {
    const struct moe_config *moe = &l->config.moe;
    const float *p = r->probability + t * moe->experts, *weight = r->weight + t * moe->top;
    const int32_t *expert = r->expert + t * moe->top, *load = r->load + t / l->context * moe->experts;
    float sum = 0, mean = 0, dot = 0;
    for (int k = 0; k < moe->top; k++) {
        sum += p[expert[k]];
        mean += d[expert[k]] * weight[k];
    }
    for (int k = 0; k < moe->top && moe->top > 1; k++)
        d[expert[k]] = (d[expert[k]] - mean) / sum;
    for (int e = 0; e < moe->experts; e++) {
        d[e] += each * (float)load[e];
        dot += d[e] * p[e];
    }
    for (int e = 0; e < moe->experts; e++)
        d[e] = p[e] * (d[e] - dot);
}

/* Leaves the gradient of the logits in tmp, since the weight gradient needs it too. */
static void route_input(const struct host_call *c) {
    const struct rt_layer *l = c->l;
    const struct moe_config *moe = &l->config.moe;
    const struct routing r = routing_of(c);
    const float *dy = host_at(c, l->dy);
    float *d = host_at(c, l->tmp), *dx = host_at(c, l->dx), each = balance_each(c);
    for (int64_t t = 0; t < r.tokens; t++)
        differentiate(l, &r, t, each, d + t * moe->experts);
    host_product((struct product){l->rows, l->in, moe->experts, .a = plain(d, moe->experts),
                                  .b = turned(host_w(c), moe->experts), .c = dx, .stride = l->in});
    for (int64_t i = 0; i < (int64_t)r.tokens * moe->top; i++)
        for (int j = 0; j < l->in && r.row[i] >= 0; j++)
            dx[i / moe->top * l->in + j] += dy[(int64_t)r.row[i] * l->in + j];
}

static void route_weight(const struct host_call *c) {
    const struct rt_layer *l = c->l;
    const struct moe_config *moe = &l->config.moe;
    host_product((struct product){l->in, moe->experts, l->rows, .a = turned(host_x(c), l->in),
                                  .b = plain(host_at(c, l->tmp), moe->experts), .c = host_dw(c), .stride = moe->experts,
                                  .add = !host_first(c)});
}

/* ---- experts: all have equally many rows, one expert's after the other's ---- */

static void experts_forward(const struct host_call *c) {
    const struct rt_layer *l = c->l;
    const struct moe_config *moe = &l->config.moe;
    int64_t rows = l->rows / moe->experts;
    for (int64_t e = 0; e < moe->experts; e++)
        host_product((struct product){(int)rows, l->out, l->in, .a = plain(host_x(c) + e * rows * l->in, l->in),
                                      .b = plain(host_w(c) + e * l->in * l->out, l->out),
                                      .c = host_at(c, l->y) + e * rows * l->out, .stride = l->out});
}

static void experts_input(const struct host_call *c) {
    const struct rt_layer *l = c->l;
    const struct moe_config *moe = &l->config.moe;
    int64_t rows = l->rows / moe->experts;
    for (int64_t e = 0; e < moe->experts; e++)
        host_product((struct product){(int)rows, l->in, l->out,
                                      .a = plain(host_at(c, l->dy) + e * rows * l->out, l->out),
                                      .b = turned(host_w(c) + e * l->in * l->out, l->out),
                                      .c = host_at(c, l->dx) + e * rows * l->in, .stride = l->in});
}

static void experts_weight(const struct host_call *c) {
    const struct rt_layer *l = c->l;
    const struct moe_config *moe = &l->config.moe;
    int64_t rows = l->rows / moe->experts;
    for (int64_t e = 0; e < moe->experts; e++)
        host_product((struct product){l->in, l->out, (int)rows, .a = turned(host_x(c) + e * rows * l->in, l->in),
                                      .b = plain(host_at(c, l->dy) + e * rows * l->out, l->out),
                                      .c = host_dw(c) + e * l->in * l->out, .stride = l->out, .add = !host_first(c)});
}

/* ---- combine: aux and tmp are the route's; it leaves the gradient of the weights in tmp ---- */

static void combine_forward(const struct host_call *c) {
    const struct rt_layer *l = c->l;
    const struct moe_config *moe = &l->config.moe;
    const struct routing r = routing_of(c);
    const float *x = host_x(c);
    float *y = host_at(c, l->y);
    memset(y, 0, sizeof *y * (size_t)r.tokens * (size_t)l->out);
    for (int64_t i = 0; i < (int64_t)r.tokens * moe->top; i++)
        for (int j = 0; j < l->out && r.row[i] >= 0; j++)
            y[i / moe->top * l->out + j] += r.weight[i] * x[(int64_t)r.row[i] * l->out + j];
}

static void combine_input(const struct host_call *c) {
    const struct rt_layer *l = c->l;
    const struct moe_config *moe = &l->config.moe;
    const struct routing r = routing_of(c);
    const float *x = host_x(c), *dy = host_at(c, l->dy);
    float *dx = host_at(c, l->dx), *d = host_at(c, l->tmp);
    memset(d, 0, sizeof *d * (size_t)r.tokens * (size_t)moe->experts);
    for (int64_t i = 0; i < r.places; i++) {
        int64_t choice = r.choice[i], t = choice / moe->top;
        for (int j = 0; j < l->in; j++)
            dx[i * l->in + j] = choice >= 0 ? r.weight[choice] * dy[t * l->in + j] : 0;
        if (choice >= 0)
            d[t * moe->experts + r.expert[choice]] = host_dot(dy + t * l->in, x + i * l->in, l->in);
    }
}

/* ---- for a team that divides the experts: to_experts and to_tokens move between places of all experts for a member's
 * sequences, [expert][its sequences' places], and places of its experts for all sequences. Members exchange equal
 * blocks, which lie in the order of the members: to each, or from each, the places of its experts ---- */

/* Turns [a][b][n] into [b][a][n]. */
static void swap_blocks(float *to, const float *from, int64_t a, int64_t b, int64_t n) {
    for (int64_t i = 0; i < a; i++)
        for (int64_t j = 0; j < b; j++)
            memcpy(to + (j * a + i) * n, from + (i * b + j) * n, (size_t)n * sizeof *to);
}

static struct blocks blocks_of(const struct host_call *c) { return blocks_at(c->l); }
static float *given(const struct host_call *c) { return (float *)(void *)c->at->at[SP_GIVE]; }
static const float *got(const struct host_call *c) { return (const float *)(const void *)c->at->at[SP_GOT]; }

static void to_experts_give(const struct host_call *c) {
    const struct blocks b = blocks_of(c);
    swap_blocks(given(c), host_x(c), 1, b.members * b.experts, b.n);
}
static void to_experts_get(const struct host_call *c) {
    const struct blocks b = blocks_of(c);
    swap_blocks(host_at(c, c->l->y), got(c), b.members, b.experts, b.n);
}
static void to_experts_give_back(const struct host_call *c) {
    const struct blocks b = blocks_of(c);
    swap_blocks(given(c), host_at(c, c->l->dy), b.experts, b.members, b.n);
}
static void to_experts_get_back(const struct host_call *c) {
    const struct blocks b = blocks_of(c);
    swap_blocks(host_at(c, c->l->dx), got(c), 1, b.members * b.experts, b.n);
}

static void to_tokens_give(const struct host_call *c) {
    const struct blocks b = blocks_of(c);
    swap_blocks(given(c), host_x(c), b.experts, b.members, b.n);
}
static void to_tokens_get(const struct host_call *c) {
    const struct blocks b = blocks_of(c);
    swap_blocks(host_at(c, c->l->y), got(c), 1, b.members * b.experts, b.n);
}
static void to_tokens_give_back(const struct host_call *c) {
    const struct blocks b = blocks_of(c);
    swap_blocks(given(c), host_at(c, c->l->dy), 1, b.members * b.experts, b.n);
}
static void to_tokens_get_back(const struct host_call *c) {
    const struct blocks b = blocks_of(c);
    swap_blocks(host_at(c, c->l->dx), got(c), b.members, b.experts, b.n);
}

const struct host_layer host_to_experts = {NULL, NULL, NULL};
const struct host_layer host_to_tokens = {NULL, NULL, NULL};
const struct host_halves host_to_experts_halves = {to_experts_give, to_experts_get, to_experts_give_back,
                                                   to_experts_get_back};
const struct host_halves host_to_tokens_halves = {to_tokens_give, to_tokens_get, to_tokens_give_back,
                                                  to_tokens_get_back};
const struct host_layer host_route = {route_forward, route_input, route_weight};
const struct host_layer host_experts = {experts_forward, experts_input, experts_weight};
const struct host_layer host_combine = {combine_forward, combine_input, NULL};
