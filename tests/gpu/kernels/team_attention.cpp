/* Attention divided among a team, on a GPU or on the stand-in, against the host layers on the same random data.
 * Compares what each member gives to its team, what it makes of what it gets, and attention to what all have gathered.
 *
 * Data is rounded to the model's precision first, and every space begins with the same numbers. So what a layer must
 * not touch is compared too. Layers that only move numbers give the same bits. Each case runs again with blocks and
 * threads in reverse order, and must give the same bits. */
#include "device.h"
#include "layers/team_attention.h"
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic" /* C's compound literals */
extern "C" {
#include "layers/host.h"
}
#pragma GCC diagnostic pop

static int passed, failed;

struct shape {
    int members, member, context, sequences, heads, kv_heads, dim, rope;
    bool runs; /* whether members have a run of rows each, else two chunks of each sequence */
    int columns() const { return (heads + 2 * kv_heads) * dim; }
    int width() const { return heads * dim; }
};

static void check(bool fine, const char *what, const char *precision, const struct shape *s) {
    passed += fine;
    failed += !fine;
    if (!fine)
        printf("    member %d of %d, context %d, %d sequences, %d heads of %d, %d of keys, rope %d, %s: %s FAILED\n",
               s->member, s->members, s->context, s->sequences, s->heads, s->dim, s->kv_heads, s->rope, precision,
               what);
}

/* ---- a layer on one side: spaces of equal size; SP_STASH and SP_WORK hold floats ---- */

static bool holds_floats(int space) { return space == SP_STASH || space == SP_WORK; }

struct side {
    struct rt_model m;
    struct rt_layer l[2]; /* the layer is the second, and the attention before it the first */
    struct rt_bind at;
    int64_t values;
};

template <typename T> static struct side side_of(const struct shape *s, int kind, float *const *numbers, int64_t n) {
    struct side k = {};
    k.m.precision = sizeof(T) == 2 ? BF16 : FP32;
    k.values = n;
    for (struct rt_layer &l : k.l) {
        int whole = s->context * s->sequences, rows = whole / s->members;
        l.kind = &l == &k.l[1] ? kind : LAYER_attention;
        l.rows = kind == LAYER_to_rows ? whole : rows, l.out_rows = kind == LAYER_to_heads ? whole : rows;
        l.in = l.out = s->columns();
        if (l.kind == LAYER_attention)
            l.out = s->width();
        else if (kind == LAYER_again_kv)
            l.in = l.out = s->width();
        else if (kind == LAYER_to_heads)
            l.out = s->columns() / s->members;
        else if (kind == LAYER_to_rows)
            l.in = s->width() / s->members, l.out = s->width();
        l.config.attention.heads = s->heads, l.config.attention.kv_heads = kind == LAYER_to_rows ? 0 : s->kv_heads;
        l.config.attention.rope = s->rope;
        l.context = s->context;
        l.part = {s->member, s->members, s->runs ? 0 : s->context};
        l.x.space = SP_X, l.y.space = SP_Y, l.aux.space = SP_STASH;
        l.dy.space = SP_DY, l.dx.space = SP_DX, l.tmp.space = SP_WORK;
    }
    for (int i = SP_X; i <= SP_GOT; i++)
        k.at.at[i] = holds_floats(i) ? copy_of<float>(numbers[i], n) : copy_of<T>(numbers[i], n);
    return k;
}

typedef void (*host_step)(const struct host_call *c);
typedef void (*cuda_step)(const struct cuda_call *c);

static void run_host(struct side *k, host_step step) {
    struct host_call c = {&k->m, &k->l[1], &k->at};
    step(&c);
}
static void run_kernels(struct side *k, cuda_step step) {
    struct rt_bind at = bind_on_device(&k->at, NULL);
    struct cuda_call c = {};
    c.m = &k->m, c.l = &k->l[1], c.at = &at;
    step(&c);
    back();
}

/* ---- comparing ---- */

template <typename T> static bool close(const char *got, const char *want, int64_t n, double tolerance) {
    const T *a = (const T *)got;
    const float *b = (const float *)want;
    double largest = 1;
    for (int64_t i = 0; i < n; i++)
        largest = fmax(largest, fabs((double)b[i]));
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)widen(a[i]) - (double)b[i]) <= tolerance * largest)) {
            printf("    value %lld: %.9g instead of %.9g, the largest being %.9g\n", (long long)i, (double)widen(a[i]),
                   (double)b[i], largest);
            return false;
        }
    return true;
}

/* Runs one or two steps of a layer, the second on the first one's results. */
template <typename T>
static void compare(const struct shape *s, int kind, const char *what, const host_step (&host)[2],
                    const cuda_step (&cuda)[2], double tolerance) {
    const char *precision = sizeof(T) == 2 ? "bf16" : "fp32";
    int64_t n = (int64_t)s->context * s->sequences * s->columns() * 2; /* more than any of its tensors has */
    float *numbers[SP_GOT + 1];
    for (float *&p : numbers) {
        p = (float *)fresh((size_t)n * sizeof *p);
        for (int64_t i = 0; i < n; i++)
            p[i] = widen(narrow<T>((float)random_bits() / (1 << 30) - 1));
    }
    struct side want = side_of<float>(s, kind, numbers, n);
    struct side got = side_of<T>(s, kind, numbers, n), again = side_of<T>(s, kind, numbers, n);
    for (int i = 0; i < 2 && host[i]; i++) {
        run_host(&want, host[i]);
        run_kernels(&got, cuda[i]);
        grid_reverse = true;
        run_kernels(&again, cuda[i]);
        grid_reverse = false;
    }
    bool fine = true, same = true;
    for (int i = SP_X; i <= SP_GOT; i++) {
        fine = fine && (holds_floats(i) ? close<float>(got.at.at[i], want.at.at[i], n, tolerance)
                                        : close<T>(got.at.at[i], want.at.at[i], n, tolerance));
        size_t bytes = (size_t)n * (holds_floats(i) ? 4 : sizeof(T));
        same = same && memcmp(got.at.at[i], again.at.at[i], bytes) == 0;
    }
    check(fine, what, precision, s);
    check(same, "the same bits again", precision, s);
    check(release(), "nothing written behind the end", precision, s);
}

static void host_forward_step(const struct host_call *c) { host_attend_to_team(c, false); }
static void host_backward_step(const struct host_call *c) { host_attend_to_team(c, true); }
static void cuda_forward_step(const struct cuda_call *c) { cuda_attend_to_team(c, false); }
static void cuda_backward_step(const struct cuda_call *c) { cuda_attend_to_team(c, true); }

template <typename T> static void compare_all(const struct shape *s) {
    double near = sizeof(T) == 2 ? 0.02 : 4e-6, moved = s->rope == 0 ? 0 : sizeof(T) == 2 ? 0.005 : 1e-6;
    bool heads_fit = s->heads % s->members == 0 && s->kv_heads % s->members == 0;
    if (!s->runs) {
        compare<T>(s, LAYER_attention, "attention", {host_forward_step, host_backward_step},
                   {cuda_forward_step, cuda_backward_step}, near);
        compare<T>(s, LAYER_gather_kv, "gather_kv gives", {host_gather_kv_halves.give}, {cuda_gather_kv_halves.give},
                   moved);
        compare<T>(s, LAYER_gather_kv, "gather_kv gets gradients", {host_gather_kv_halves.get_back},
                   {cuda_gather_kv_halves.get_back}, moved);
        compare<T>(s, LAYER_again_kv, "again_kv gives", {host_again_kv_halves.give_back},
                   {cuda_again_kv_halves.give_back}, 0);
    }
    const struct {
        int kind;
        const char *name;
        const struct host_halves *host;
        const struct cuda_halves *cuda;
    } both[] = {{LAYER_to_heads, "to_heads", &host_to_heads_halves, &cuda_to_heads_halves},
                {LAYER_to_rows, "to_rows", &host_to_rows_halves, &cuda_to_rows_halves}};
    for (const auto &l : both)
        if (heads_fit) {
            compare<T>(s, l.kind, l.name, {l.host->give, l.host->get}, {l.cuda->give, l.cuda->get}, 0);
            compare<T>(s, l.kind, l.name, {l.host->give_back, l.host->get_back}, {l.cuda->give_back, l.cuda->get_back},
                       0);
        }
}

/* Pieces begin at cache lines, so both precisions have the same distances only if neither leaves a gap. */
static bool same_pieces(const struct shape *s) {
    int rows = s->context * s->sequences / s->members;
    return rows * s->dim % 32 == 0;
}

int main() {
    static const struct { int members, context; } team[] = {{2, 4}, {2, 144}, {3, 42}, {4, 64}};
    for (const auto &t : team)
        for (int member = 0; member < t.members; member += t.members - 1)
            for (int way = 0; way < 4; way++) {
                int heads = 2 * t.members, dim = way % 2 ? 16 : 6;
                struct shape s = {t.members, member,
                                  t.context, 2,
                                  heads,     way < 2 ? heads / 2 : heads,
                                  dim,       way == 1 || way == 2 ? 10000 : 0,
                                  way == 3};
                compare_all<float>(&s);
                if (same_pieces(&s))
                    compare_all<__nv_bfloat16>(&s);
            }
    printf("team attention: %d passed, %d failed\n", passed, failed);
    return failed > 0;
}
