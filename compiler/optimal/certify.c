/* The proof of a lower bound, written down for others to check: compiler/README.md, "Certificates". */
#include "ir/program.h"
#include "optimal.h"

static bool covers(const struct optimum *optimum, int i) {
    const struct visited *v = &optimum->cover;
    return v->kept[i];
}

int covering_states(const struct instance *in, const struct optimum *optimum) {
    int n = 0;
    (void)in;
    for (int i = 0; optimum->proof == PROOF_COVER && i < optimum->cover.n; i++)
        n += covers(optimum, i);
    return n;
}

static void put_class(struct text *t, const struct instance *in, int c) {
    const struct class *class = &in->class[c];
    put(t, "class %d %s%d rank %d time %lld items %d take %lld give %lld\n", c, op_name[class->d], class->s,
        class->rank, (long long)class->time, class->items, (long long)class->take, (long long)class->give);
}

static void put_lags(struct text *t, const struct instance *in, int c) {
    const struct class *class = &in->class[c];
    if (!class->nlags)
        return;
    put(t, "%s %d:", class->pool ? "pool" : "after", c);
    for (int l = 0; l < class->nlags; l++)
        put(t, " %d+%lld", class->lag[l].from, (long long)class->lag[l].ticks);
    put_word(t, "\n");
}

static void put_state(struct text *t, const struct instance *in, const struct visited *v, int i) {
    const int32_t *row = v->word + v->at[i], *recent = row + in->n + in->ranks + 1;
    int32_t n = row[in->n + in->ranks];
    put_word(t, "at ");
    put_int(t, v->time[i]);
    put_word(t, ":");
    for (int c = 0; c < in->n; c++) {
        put_word(t, " ");
        put_int(t, row[c]);
    }
    for (int32_t k = 0; k < n; k++) {
        if (k == 0 || recent[2 * k] != recent[2 * k - 2]) {
            put_word(t, " | ");
            put_int(t, recent[2 * k]);
        }
        put_word(t, " ");
        put_int(t, -recent[2 * k + 1]);
    }
    put_word(t, "\n");
}

/* States were found layer by layer, but layers ahead grow meanwhile: by time, in the order in which they were found. */
static int32_t *states_by_time(const struct optimum *optimum, int n) {
    const struct visited *v = &optimum->cover;
    int32_t *list = NEW(int32_t, n), *half = NEW(int32_t, n);
    n = 0;
    for (int i = 0; i < v->n; i++)
        if (covers(optimum, i))
            list[n++] = i;
    for (int width = 1; width < n; width *= 2) { /* a merge sort, which is stable */
        for (int at = 0; at < n; at += 2 * width) {
            int a = at, middle = at + width < n ? at + width : n, b = middle, end = at + 2 * width < n ? at + 2 * width : n;
            for (int k = at; k < end; k++)
                half[k] = b == end || (a < middle && v->time[list[a]] <= v->time[list[b]]) ? list[a++] : list[b++];
        }
        int32_t *swap = list;
        list = half;
        half = swap;
    }
    return list;
}

void emit_certificate(struct text *t, const struct instance *in, const struct optimum *optimum, const char *command) {
    char buf[32];
    put(t, "pianola bound 1\nschedule %s\ntick %s\nlimit %lld\nranks %d\n", command, number(in->tick, buf),
        (long long)optimum->lower, in->ranks);
    for (int r = 0; r < in->ranks; r++)
        if (in->room[r] < INT64_MAX)
            put(t, "room %d %lld\n", r, (long long)in->room[r]);
    for (int c = 0; c < in->n; c++)
        put_class(t, in, c);
    for (int c = 0; c < in->n; c++)
        put_lags(t, in, c);
    if (optimum->proof == PROOF_WORK) {
        put_word(t, "proof work\nend\n");
        return;
    }
    int n = covering_states(in, optimum);
    const int32_t *list = states_by_time(optimum, n);
    put(t, "proof cover %d\n", n);
    for (int i = 0; i < n; i++)
        put_state(t, in, &optimum->cover, list[i]);
    put_word(t, "end\n");
}
