/* Compares the memory plan with a map of single bytes, and with a plan worked out by hand. */
#include "random_spec.h"
#include <criterion/criterion.h>
#include <stdlib.h>

static struct program *lowered(struct spec *sp, struct costs *costs) {
    struct graph *g = graph_of(sp);
    return lower_of(sp, costs, g, sched_of(sp, costs, g));
}

static int64_t round_up(int64_t n, int64_t to) { return n % to ? n + to - n % to : n; }

/* Returns the bytes that a live buffer takes, including what it grows into. */
static int64_t room(const struct rank *k, int32_t b, int64_t align) {
    int64_t bytes = k->buf[b].bytes;
    if (k->buf[b].grows >= 0 && k->buf[k->buf[b].grows].bytes > bytes)
        bytes = k->buf[k->buf[b].grows].bytes;
    return round_up(bytes, align);
}

/* ---- the reference: present and previous owners of each byte ---- */

struct bytes {
    const struct rank *k;
    int64_t align;
    int32_t *now, *before; /* per byte: the live buffer, and the previous one; -1: none */
    bool *state;           /* per buffer: 0 not yet live, 1 live or gone */
    int64_t live, peak;
};

static int compare(const void *x, const void *y) { return *(const int32_t *)x - *(const int32_t *)y; }

/* Checks that rank.over names exactly the former owners of the bytes, each once. */
static void expect_over(const struct bytes *m, int32_t b, int64_t size) {
    const struct rank *k = m->k;
    int32_t *want = NEW(int32_t, size + 1), *got = NEW(int32_t, k->over_at[b + 1] - k->over_at[b] + 1);
    int n = 0, ngot = k->over_at[b + 1] - k->over_at[b];
    for (int64_t i = 0; i < size; i++) {
        int32_t old = m->before[k->buf[b].off + i];
        bool known = old < 0;
        for (int j = 0; j < n; j++)
            known |= want[j] == old;
        if (!known)
            want[n++] = old;
    }
    cr_assert_eq(ngot, n, "buffer %d takes over %d, not %d", b, ngot, n);
    memcpy(got, k->over + k->over_at[b], sizeof *got * (size_t)n);
    qsort(got, (size_t)n, sizeof *got, compare);
    qsort(want, (size_t)n, sizeof *want, compare);
    cr_assert(!memcmp(got, want, sizeof *got * (size_t)n));
}

static void open_bytes(struct bytes *m, int32_t b) {
    int64_t size = room(m->k, b, m->align), off = m->k->buf[b].off;
    cr_assert(!m->state[b] && off >= 0 && off % m->align == 0 && off + size <= m->k->arena);
    m->state[b] = true;
    for (int64_t i = off; i < off + size; i++) {
        cr_assert_lt(m->now[i], 0, "buffers %d and %d share byte %lld", b, m->now[i], (long long)i);
        m->now[i] = b;
    }
    m->live += size;
    m->peak = m->live > m->peak ? m->live : m->peak;
}

static void close_bytes(struct bytes *m, int32_t b) {
    int64_t size = 0;
    for (int64_t i = 0; i < m->k->arena; i++) {
        int32_t old = m->now[i];
        if (old < 0 || (old != b && m->k->buf[old].grows != b))
            continue;
        m->now[i] = -1;
        m->before[i] = b;
        size++;
    }
    cr_assert_gt(size, 0, "buffer %d closes, but is not open", b);
    m->live -= size;
}

/* Returns the buffers that no event opens: they exist for the whole step. */
static bool *which_stay(const struct rank *k) {
    bool *stay = NEW(bool, k->nbufs);
    memset(stay, true, (size_t)k->nbufs);
    for (size_t e = 0; e < k->nevents; e++)
        for (int32_t b = k->event[e]; b >= 0; b = k->buf[b].grows)
            stay[b] = false;
    return stay;
}

static struct bytes follow(const struct rank *k, int64_t align) {
    struct bytes m = {.k = k, .align = align, .now = NEW(int32_t, k->arena + 1), .before = NEW(int32_t, k->arena + 1)};
    m.state = NEW(bool, k->nbufs);
    memset(m.now, -1, sizeof *m.now * (size_t)k->arena);
    memset(m.before, -1, sizeof *m.before * (size_t)k->arena);
    bool *stay = which_stay(k);
    int64_t end = 0;
    for (int32_t b = 0; b < k->nbufs; b++) {
        if (stay[b])
            open_bytes(&m, b);
        end = k->buf[b].off + room(k, b, align) > end ? k->buf[b].off + room(k, b, align) : end;
        if (k->buf[b].grows >= 0)
            cr_assert_eq(k->buf[k->buf[b].grows].off, k->buf[b].off);
    }
    if (k->nevents == 0 && align > 1) /* temporary buffers would begin on a page */
        end = round_up(end, 4096);
    cr_assert_eq(end, k->arena, "the arena ends with its last buffer");
    int64_t permanent = m.live;
    for (size_t e = 0; e < k->nevents; e++) {
        int32_t b = k->event[e];
        if (b < 0)
            close_bytes(&m, ~b);
        else {
            expect_over(&m, b, room(k, b, align));
            open_bytes(&m, b);
        }
    }
    cr_assert_eq(m.live, permanent, "all that opened has closed");
    return m;
}

/* ---- random programs ---- */

Test(mem, no_two_live_buffers_share_a_byte) {
    int reused = 0;
    for (int i = 0; i < 400; i++) {
        struct spec *sp = draw_spec((uint64_t)i / 2, ORDERS | BANDWIDTH);
        struct costs *costs = draw_stages(sp);
        struct program *p = lowered(sp, costs);
        if (i % 2)
            spare_of(sp, costs, p);
        else
            mem_of(sp, p);
        for (int r = 0; r < p->workers; r++) {
            follow(&p->rank[r], 1);
            reused += p->rank[r].over_at[p->rank[r].nbufs];
        }
        free_all();
    }
    cr_assert_gt(reused, 10000);
}

Test(mem, buffers_of_one_size_fit_without_a_gap) {
    for (int seed = 0; seed < 150; seed++) {
        struct spec *sp = draw_spec((uint64_t)seed, ORDERS);
        struct program *p = lowered(sp, unit_stages(sp));
        mem_of(sp, p);
        for (int r = 0; r < p->workers; r++)
            cr_assert_eq(p->rank[r].arena, follow(&p->rank[r], 1).peak);
        free_all();
    }
}

/* With a model, buffers are aligned to 256 bytes. Each permanent kind, and all temporary buffers, begin on a page. */
Test(mem, alignment_and_pages) {
    for (int seed = 0; seed < 40; seed++) {
        struct spec *sp = draw_spec((uint64_t)seed, 0);
        struct costs *costs = draw_stages(sp);
        sp->model = NEW(struct model, 1);
        for (int s = 0; s < sp->stages; s++)
            for (int k = 0; k < NKINDS; k++)
                costs->stage[s].bytes[k] *= 1 + 40 * (k % 5);
        struct program *p = lowered(sp, costs);
        mem_of(sp, p);
        for (int r = 0; r < p->workers; r++) {
            const struct rank *k = &p->rank[r];
            follow(k, 256);
            bool *stay = which_stay(k);
            int64_t end = 0, next = INT64_MAX;
            for (int b = 0; b < k->nbufs; b++)
                if (stay[b]) {
                    bool same = b > 0 && k->buf[b].kind == k->buf[b - 1].kind;
                    cr_assert_eq(k->buf[b].off, round_up(end, same ? 256 : 4096));
                    end = k->buf[b].off + k->buf[b].bytes;
                } else
                    next = k->buf[b].off < next ? k->buf[b].off : next;
            cr_assert(next == INT64_MAX || next == round_up(end, 4096));
        }
        free_all();
    }
}

/* ---- by hand ---- */

/* Plans a rank whose buffers have these sizes and come and go with the events. */
static struct program *plan(const int64_t *bytes, int nbufs, int32_t *event, int nevents, struct spec *sp) {
    struct program *p = NEW(struct program, 1);
    p->workers = 1;
    struct rank *k = p->rank = NEW(struct rank, 1);
    k->nbufs = nbufs;
    k->buf = NEW(struct buf, nbufs);
    for (int b = 0; b < nbufs; b++)
        k->buf[b] = (struct buf){.kind = K_act, .inst = -1, .grows = -1, .bytes = bytes[b], .off = -1};
    k->event = event;
    k->nevents = (size_t)nevents;
    mem_of(sp, p);
    return p;
}

static void expect_place(const struct program *p, int b, int64_t off, int nover, const int32_t *over) {
    const struct rank *k = &p->rank[0];
    cr_assert_eq(k->buf[b].off, off, "buffer %d is at %lld", b, (long long)k->buf[b].off);
    cr_assert_eq(k->over_at[b + 1] - k->over_at[b], nover, "buffer %d", b);
    for (int i = 0; i < nover; i++)
        cr_assert_eq(k->over[k->over_at[b] + i], over[i], "buffer %d", b);
}

/* 0: 10 bytes, 1: 20, 2: 10, 3: 8 lie in a row. 1 and 3 leave holes of 20 and (at the end) 8. 4, of 7, takes the
 * smaller hole; 0 leaves and merges with 1's hole to 30 bytes. 5, of 25, takes bytes of 0 and 1; 6, of 5, the rest of
 * 1's. 7, of 9, fits nowhere: the last hole, of 1 byte from 3, grows. */
Test(mem, best_fit_by_hand) {
    struct spec *sp = empty_spec(1, 1, 1);
    int32_t event[] = {0, 1, 2, 3, ~1, ~3, 4, ~0, 5, 6, 7};
    struct program *p = plan((int64_t[]){10, 20, 10, 8, 7, 25, 5, 9}, 8, event, 11, sp);
    expect_place(p, 0, 0, 0, NULL);
    expect_place(p, 1, 10, 0, NULL);
    expect_place(p, 2, 30, 0, NULL);
    expect_place(p, 3, 40, 0, NULL);
    expect_place(p, 4, 40, 1, (int32_t[]){3});
    expect_place(p, 5, 0, 2, (int32_t[]){0, 1});
    expect_place(p, 6, 25, 1, (int32_t[]){1});
    expect_place(p, 7, 47, 1, (int32_t[]){3});
    cr_assert_eq(p->rank[0].arena, 56);
}

/* A stash makes room for the wstash that replaces it; the next buffer waits for the wstash. */
Test(mem, a_stash_grows) {
    struct spec *sp = empty_spec(1, 1, 1);
    struct program *p = NEW(struct program, 1);
    p->workers = 1;
    struct rank *k = p->rank = NEW(struct rank, 1);
    k->nbufs = 4;
    k->buf = (struct buf[]){{.kind = K_weight, .inst = -1, .grows = -1, .bytes = 5},
                            {.kind = K_stash, .inst = -1, .grows = 2, .bytes = 10},
                            {.kind = K_wstash, .inst = -1, .grows = -1, .bytes = 14},
                            {.kind = K_act, .inst = -1, .grows = -1, .bytes = 12}};
    k->event = (int32_t[]){1, ~2, 3};
    k->nevents = 3;
    mem_of(sp, p);
    cr_assert(k->buf[0].off == 0 && k->buf[1].off == 5 && k->buf[2].off == 5 && k->arena == 19);
    expect_place(p, 3, 5, 1, (int32_t[]){2});
}

static void plan_twenty(void *sp) {
    int32_t event[] = {0, 1};
    plan((int64_t[]){12, 8}, 2, event, 2, sp);
}

Test(mem, the_cluster_s_memory_is_the_limit) {
    struct spec *sp = empty_spec(1, 1, 1);
    sp->machine.memory = 20;
    cr_assert_null(death_of(plan_twenty, sp));
    sp->machine.memory = 19;
    cr_assert_str_eq(
        death_of(plan_twenty, sp),
        "pianola: error: drawn.lua: rank 0 needs 20 bytes, 1 more than the cluster's memory of 19: weights 0, "
        "gradients 0, optimizer 0, workspace 0, the rest activations and fetched weights; it takes less with "
        "--recompute, a lower cap, offload = \"auto\", homes that several ranks share (zero1.lua, fsdp.lua), teams "
        "(-D tensor=2) or more ranks\n");
}
