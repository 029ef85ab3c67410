/* PyTorch's pipelining CSV, read into a schedule script with a `sequence`.
 *
 * A row per rank, a cell per action:
 *
 *     cell = "" | stage op [microbatch] | "(" cell ";" cell ")OVERLAP_F_B"
 *     op   = F | I | B | W | SEND_F | RECV_F | SEND_B | RECV_B | WAIT_SEND_F | WAIT_SEND_B   (with a microbatch)
 *          | UNSHARD | RESHARD | REDUCE_GRAD | WAIT_REDUCE_GRAD                              (without)
 *
 * I is the input's gradient, W the weights', B both. A send names the stage that gives, a receive the stage that takes.
 * Earlier PyTorch has no waits.
 * A file has the jobs alone, and may have empty cells; or it has all that moves tensors too, and may not. PyTorch takes
 * much that cannot run. Here every cell must be just that, each microbatch must pass each stage once, each tensor that
 * changes ranks must be sent and received where it is, and then the rows must run to their ends. */
#include "formats.h"
#include <ctype.h>
#include <limits.h>
#include <string.h>

enum {
    SEND_F = NDIRS,
    RECV_F,
    SEND_B,
    RECV_B,
    WAIT_SEND_F,
    WAIT_SEND_B,
    NNUMBERED,
    UNSHARD = NNUMBERED,
    RESHARD,
    REDUCE_GRAD,
    WAIT_REDUCE_GRAD,
    NACTIONS
};
static const char *const action_name[NACTIONS] = {[OP_F] = "F",
                                                  [OP_I] = "I",
                                                  [OP_B] = "B",
                                                  [OP_W] = "W",
                                                  [SEND_F] = "SEND_F",
                                                  [RECV_F] = "RECV_F",
                                                  [SEND_B] = "SEND_B",
                                                  [RECV_B] = "RECV_B",
                                                  [WAIT_SEND_F] = "WAIT_SEND_F",
                                                  [WAIT_SEND_B] = "WAIT_SEND_B",
                                                  [UNSHARD] = "UNSHARD",
                                                  [RESHARD] = "RESHARD",
                                                  [REDUCE_GRAD] = "REDUCE_GRAD",
                                                  [WAIT_REDUCE_GRAD] = "WAIT_REDUCE_GRAD"};

struct action {
    int what, s, b;  /* b -1: none */
    int row, column; /* of its cell, from 1 */
    int at;          /* the cell's place in its line, from 1 */
    bool pair;       /* the first of a pair; the next action is the second */
};

struct csv {
    const char *file, *src;
    struct action *action;
    int32_t n, *begin; /* row r's are action[begin[r] .. begin[r + 1]) */
    size_t cap, caprows;
    int rows, stages, batches, jobs;
    bool comms;
    int32_t *index; /* [(s * batches + b) * NNUMBERED + what]: which action, or -1 */
    int *rank;      /* of each stage; -1: not known yet */
};

#define FAIL(z, a, fmt, ...)                                                                                           \
    die_at((z)->file, (z)->src, (a)->row, (a)->at, "row %d, column %d: " fmt, (a)->row, (a)->column, __VA_ARGS__)

static const char *name_of(const struct action *a) {
    return a->b < 0 ? format("%d%s", a->s, action_name[a->what]) : format("%d%s%d", a->s, action_name[a->what], a->b);
}

/* No script begins with a number, whatever is before it in a row of cells. */
bool is_torch(const char *file, const char *src) {
    size_t n = strlen(file);
    return (n > 4 && strcmp(file + n - 4, ".csv") == 0) || isdigit((unsigned char)src[strspn(src, " \t\r\n,(")]);
}

/* ---- cells ---- */

/* Reads the number at *p, before end; -1: none, or one too large. */
static int read_number(const char **p, const char *end) {
    const char *from = *p;
    int64_t x = 0;
    for (; *p < end && **p >= '0' && **p <= '9'; (*p)++)
        x = x < INT_MAX ? x * 10 + (**p - '0') : x;
    return *p == from || x >= INT_MAX || (*from == '0' && *p > from + 1) ? -1 : (int)x;
}

/* Reads one action from all of [p, end) into a; false: it is none. */
static bool read_action(struct action *a, const char *p, const char *end) {
    a->s = read_number(&p, end);
    const char *word = p;
    while (p < end && (isupper((unsigned char)*p) || *p == '_'))
        p++;
    size_t n = (size_t)(p - word);
    for (a->what = 0; a->what < NACTIONS; a->what++)
        if (action_name[a->what] && strlen(action_name[a->what]) == n && memcmp(action_name[a->what], word, n) == 0)
            break;
    a->b = p < end ? read_number(&p, end) : -1;
    return a->s >= 0 && a->what < NACTIONS && p == end && (a->b >= 0) == (a->what < NNUMBERED);
}

static void add_action(struct csv *z, struct action a) {
    GROW(z->action, z->cap, (size_t)z->n + 1);
    z->action[z->n++] = a;
    z->comms |= a.what >= NDIRS;
    z->jobs += a.what < NDIRS;
    z->stages = a.s >= z->stages ? a.s + 1 : z->stages;
    z->batches = a.b >= z->batches ? a.b + 1 : z->batches;
}

static void read_pair(struct csv *z, struct action a, const char *p, const char *end) {
    static const char tail[] = ")OVERLAP_F_B";
    size_t n = sizeof tail - 1;
    const char *close = end - n, *middle = memchr(p, ';', (size_t)(end - p));
    struct action b = a;
    if ((size_t)(end - p) < n || memcmp(close, tail, n) != 0 || !middle || middle > close ||
        !read_action(&a, p + 1, middle) || !read_action(&b, middle + 1, close))
        FAIL(z, &a, "'%.*s' is no pair, such as (0F3;1B2)OVERLAP_F_B", (int)(end - p), p);
    bool backward = a.what == OP_B || a.what == OP_I, other = b.what == OP_B || b.what == OP_I;
    if (!(a.what == OP_F && other) && !(b.what == OP_F && backward))
        FAIL(z, &a, "%s and %s cannot overlap: a forward and a backward do", name_of(&a), name_of(&b));
    a.pair = true;
    add_action(z, a);
    add_action(z, b);
}

/* The cell [p, end) of the place a. Returns whether anything stands in it. */
static bool read_cell(struct csv *z, struct action a, const char *p, const char *end) {
    while (p < end && (*p == ' ' || *p == '\t'))
        p++, a.at++;
    while (p < end && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    if (p == end)
        return false;
    if (*p == '(')
        read_pair(z, a, p, end);
    else if (read_action(&a, p, end))
        add_action(z, a);
    else
        FAIL(z, &a,
             "'%.*s' is no action; one is a stage, then F, I, B, W, SEND_F, RECV_F, SEND_B, RECV_B, WAIT_SEND_F or "
             "WAIT_SEND_B and a microbatch, or UNSHARD, RESHARD, REDUCE_GRAD or WAIT_REDUCE_GRAD, such as 0F3 or "
             "2UNSHARD",
             (int)(end - p), p);
    return true;
}

/* The first empty cell goes to *empty, if that has none yet. */
static void read_row(struct csv *z, const char *line, const char *end, struct action *empty) {
    struct action a = {.row = z->rows + 1, .column = 1, .at = 1};
    int before = z->jobs;
    for (const char *p = line;; a.column++) {
        const char *comma = memchr(p, ',', (size_t)(end - p)), *stop = comma ? comma : end;
        a.at = (int)(p - line) + 1;
        if (!read_cell(z, a, p, stop) && !empty->row)
            *empty = a;
        if (!comma)
            break;
        p = comma + 1;
    }
    if (z->jobs == before)
        die_at(z->file, z->src, a.row, 0, "row %d has no job: each rank has a row, and something to do", a.row);
    z->rows++;
    GROW(z->begin, z->caprows, (size_t)z->rows + 1);
    z->begin[z->rows] = z->n;
}

static void read_rows(struct csv *z) {
    struct action empty = {0};
    GROW(z->begin, z->caprows, 1);
    z->begin[0] = 0;
    for (const char *p = z->src; *p;) {
        const char *newline = strchr(p, '\n'), *end = newline ? newline : p + strlen(p);
        read_row(z, p, end > p && end[-1] == '\r' ? end - 1 : end, &empty);
        p = newline ? newline + 1 : end;
    }
    if (z->rows == 0)
        die("%s: empty; expected a row of cells per rank", z->file);
    if (z->comms && empty.row)
        FAIL(z, &empty, "this cell is empty; in a schedule with %s none may be", "communication");
}

/* ---- that each is there, once, and in its place ---- */

static int32_t find(const struct csv *z, int what, int s, int b) {
    return z->index[((int64_t)s * z->batches + b) * NNUMBERED + what];
}

/* B or I; -1: neither. */
static int32_t find_backward(const struct csv *z, int s, int b) {
    int32_t whole = find(z, OP_B, s, b);
    return whole >= 0 ? whole : find(z, OP_I, s, b);
}

static void check_place(struct csv *z, const struct action *a) {
    int r = a->row - 1;
    if (z->rank[a->s] >= 0 && z->rank[a->s] != r)
        FAIL(z, a, "stage %d is rank %d's, by row %d: a stage belongs to one rank", a->s, z->rank[a->s],
             z->rank[a->s] + 1);
    z->rank[a->s] = r;
}

static void index_actions(struct csv *z) {
    if ((int64_t)z->stages * z->batches * 2 > z->jobs)
        die("%s: stages up to %d and microbatches up to %d need %lld jobs at least, but there are %d", z->file,
            z->stages - 1, z->batches - 1, 2LL * z->stages * z->batches, z->jobs);
    int64_t n = (int64_t)z->stages * z->batches * NNUMBERED;
    z->index = NEW(int32_t, n);
    z->rank = NEW(int, z->stages);
    for (int64_t i = 0; i < n; i++)
        z->index[i] = -1;
    for (int s = 0; s < z->stages; s++)
        z->rank[s] = -1;
    for (int32_t i = 0; i < z->n; i++) {
        const struct action *a = &z->action[i];
        check_place(z, a);
        if (a->b < 0)
            continue;
        int32_t *at = &z->index[((int64_t)a->s * z->batches + a->b) * NNUMBERED + a->what];
        if (*at >= 0)
            FAIL(z, a, "%s is already in row %d, column %d", name_of(a), z->action[*at].row, z->action[*at].column);
        *at = i;
    }
}

static void check_jobs(const struct csv *z, int s, int b) {
    bool whole = find(z, OP_B, s, b) >= 0, input = find(z, OP_I, s, b) >= 0, weight = find(z, OP_W, s, b) >= 0;
    if (find(z, OP_F, s, b) < 0 || (!whole && !input && !weight))
        die("%s: there is no %s; every microbatch passes every stage forward and backward", z->file,
            job_name(s, b, find(z, OP_F, s, b) < 0 ? OP_F : OP_B));
    if (whole && (input || weight))
        FAIL(z, &z->action[find(z, input ? OP_I : OP_W, s, b)],
             "%s beside %s in row %d, column %d: a backward is B, or I and W", job_name(s, b, input ? OP_I : OP_W),
             job_name(s, b, OP_B), z->action[find(z, OP_B, s, b)].row, z->action[find(z, OP_B, s, b)].column);
    if (!whole && input != weight)
        FAIL(z, &z->action[find(z, input ? OP_I : OP_W, s, b)], "%s is nowhere; a backward is B, or I and W",
             job_name(s, b, input ? OP_W : OP_I));
}

/* The tensor that stage s gives stage `to`, next to it: it is sent when they are on different ranks, else not. */
static void check_message(const struct csv *z, int s, int to, int b) {
    int send = to > s ? SEND_F : SEND_B, pair[2] = {find(z, send, s, b), find(z, send + 1, to, b)};
    bool crosses = z->rank[s] != z->rank[to];
    for (int i = 0; i < 2; i++) {
        struct action wanted = {.what = send + i, .s = i ? to : s, .b = b};
        if (pair[i] >= 0 && !crosses)
            FAIL(z, &z->action[pair[i]], "%s, but stages %d and %d are on one rank", name_of(&wanted), s, to);
        if (pair[i] < 0 && crosses)
            die("%s: there is no %s in row %d, and stages %d and %d are on ranks %d and %d", z->file, name_of(&wanted),
                z->rank[wanted.s] + 1, s, to, z->rank[s], z->rank[to]);
    }
}

static void check_complete(const struct csv *z) {
    for (int s = 0; s < z->stages; s++)
        for (int b = 0; b < z->batches; b++)
            check_jobs(z, s, b);
    for (int32_t i = 0; z->comms && i < z->n; i++) {
        const struct action *a = &z->action[i];
        bool first = a->what == RECV_F || a->what == SEND_B, last = a->what == SEND_F || a->what == RECV_B;
        if ((first && a->s == 0) || (last && a->s == z->stages - 1))
            FAIL(z, a, "%s, but stage %d is the %s", name_of(a), a->s, first ? "first" : "last");
    }
    for (int s = 0; z->comms && s + 1 < z->stages; s++)
        for (int b = 0; b < z->batches; b++) {
            check_message(z, s, s + 1, b);
            check_message(z, s + 1, s, b);
        }
}

/* A wait is for a send before it; where some sends are waited for, all are. */
static void check_waits(const struct csv *z) {
    const struct action *one = NULL;
    for (int32_t i = 0; i < z->n; i++) {
        const struct action *a = &z->action[i];
        if (a->what != WAIT_SEND_F && a->what != WAIT_SEND_B)
            continue;
        struct action send = {.what = a->what == WAIT_SEND_F ? SEND_F : SEND_B, .s = a->s, .b = a->b};
        int32_t at = find(z, send.what, a->s, a->b);
        if (at < 0 || at > i)
            FAIL(z, a, "%s, but no %s is before it", name_of(a), name_of(&send));
        one = a;
    }
    for (int32_t i = 0; one && i < z->n; i++) {
        const struct action *a = &z->action[i];
        if ((a->what == SEND_F || a->what == SEND_B) &&
            find(z, a->what == SEND_F ? WAIT_SEND_F : WAIT_SEND_B, a->s, a->b) < 0)
            FAIL(z, a, "no wait for %s, but there is %s in row %d", name_of(a), name_of(one), one->row);
    }
}

/* ---- weights: at hand when used, if they are ever sent away; reduced at the end ---- */

static void check_weights(const struct csv *z) {
    bool *managed = NEW(bool, z->stages), *held = NEW(bool, z->stages), *reduced = NEW(bool, z->stages),
         *waited = NEW(bool, z->stages);
    for (int32_t i = 0; i < z->n; i++)
        managed[z->action[i].s] |= z->action[i].what == UNSHARD || z->action[i].what == RESHARD;
    for (const struct action *a = z->action; a < z->action + z->n; a++) {
        if (a->what < NDIRS && managed[a->s] && !held[a->s])
            FAIL(z, a, "%s needs weights that no %dUNSHARD has brought", name_of(a), a->s);
        if (a->what < NDIRS && a->what != OP_F && a->what != OP_I && reduced[a->s])
            FAIL(z, a, "%s comes after %dREDUCE_GRAD", name_of(a), a->s);
        if (a->what == UNSHARD || a->what == RESHARD) {
            if (held[a->s] == (a->what == UNSHARD))
                FAIL(z, a, "%s, but stage %d's weights are %s", name_of(a), a->s, held[a->s] ? "there" : "not there");
            held[a->s] = a->what == UNSHARD;
        }
        if (a->what == WAIT_REDUCE_GRAD && !reduced[a->s])
            FAIL(z, a, "%s, but no %dREDUCE_GRAD is before it", name_of(a), a->s);
        if (a->what == REDUCE_GRAD || a->what == WAIT_REDUCE_GRAD) {
            bool *once = a->what == REDUCE_GRAD ? reduced : waited;
            if (once[a->s])
                FAIL(z, a, "a second %s", name_of(a));
            once[a->s] = true;
        }
    }
}

/* ---- that the rows run ---- */

/* What action a waits for, besides those before it in its row; -1: nothing. */
static int32_t need_of(const struct csv *z, const struct action *a, int which) {
    int s = a->s, b = a->b;
    bool from_below = s > 0 && (!z->comms || z->rank[s - 1] == z->rank[s]);
    bool from_above = s + 1 < z->stages && (!z->comms || z->rank[s + 1] == z->rank[s]);
    switch (a->what) {
    case OP_F: return which || s == 0 ? -1 : from_below ? find(z, OP_F, s - 1, b) : find(z, RECV_F, s, b);
    case OP_B:
    case OP_I:
        if (which == 0)
            return find(z, OP_F, s, b);
        return s + 1 == z->stages ? -1 : from_above ? find_backward(z, s + 1, b) : find(z, RECV_B, s, b);
    case OP_W: return which ? -1 : find(z, OP_I, s, b);
    case SEND_F: return which ? -1 : find(z, OP_F, s, b);
    case RECV_F: return which ? -1 : find(z, SEND_F, s - 1, b);
    case SEND_B: return which ? -1 : find_backward(z, s, b);
    case RECV_B: return which ? -1 : find(z, SEND_B, s + 1, b);
    case WAIT_SEND_F: return which ? -1 : find(z, RECV_F, s + 1, b);
    case WAIT_SEND_B: return which ? -1 : find(z, RECV_B, s - 1, b);
    default: return -1;
    }
}

/* What it still waits for; -1: nothing. */
static int32_t missing(const struct csv *z, const struct action *a, const bool *done) {
    for (int k = 0; k < 2; k++) {
        int32_t need = need_of(z, a, k);
        if (need >= 0 && !done[need])
            return need;
    }
    return -1;
}

static void check_runs(const struct csv *z) {
    bool *done = NEW(bool, z->n);
    int32_t *at = NEW(int32_t, z->rows), left = z->n;
    memcpy(at, z->begin, sizeof *at * (size_t)z->rows);
    for (bool more = true; more;) {
        more = false;
        for (int r = 0; r < z->rows; r++)
            while (at[r] < z->begin[r + 1]) {
                const struct action *a = &z->action[at[r]];
                if (missing(z, a, done) >= 0 || (a->pair && missing(z, a + 1, done) >= 0))
                    break;
                for (int k = 0; k <= a->pair; k++, left--)
                    done[at[r] + k] = true;
                at[r] += 1 + a->pair;
                more = true;
            }
    }
    /* One that waits for its own row says more than those that wait for it. */
    for (int own = 1; left > 0 && own >= 0; own--)
        for (int r = 0; r < z->rows; r++) {
            const struct action *a = &z->action[at[r]];
            if (at[r] == z->begin[r + 1])
                continue;
            a += missing(z, a, done) < 0; /* the second of a pair */
            const struct action *need = &z->action[missing(z, a, done)];
            if (own && need->row != a->row)
                continue;
            FAIL(z, a, "%s never runs: it needs %s, which %s", name_of(a), name_of(need),
                 need->row == a->row ? "comes later in this row"
                                     : format("row %d, column %d never gets to", need->row, need->column));
        }
}

/* ---- the script ---- */

static void put_sequence(struct text *out, const struct csv *z, int r) {
    int width = 4;
    put(out, "    {");
    for (int32_t i = z->begin[r]; i < z->begin[r + 1]; i++) {
        const struct action *a = &z->action[i];
        if (a->what >= NDIRS)
            continue;
        const char *entry =
            a->pair ? format(" \"%s+%s\",", name_of(a), name_of(a + 1)) : format(" \"%s\",", name_of(a));
        i += a->pair;
        if (width + strlen(entry) > 110) {
            put(out, "\n     ");
            width = 5;
        }
        put(out, "%s", entry);
        width += (int)strlen(entry);
    }
    put(out, " }, -- rank %d\n", r);
}

void read_torch(struct text *out, const char *file, const char *src) {
    struct csv z = {.file = file, .src = src};
    read_rows(&z);
    index_actions(&z);
    check_complete(&z);
    check_waits(&z);
    check_weights(&z);
    check_runs(&z);
    put(out, "-- PyTorch's schedule %s, imported.\n", strcmp(file, "-") == 0 ? "from standard input" : tame(file));
    if (z.comms)
        put(out, "-- Its messages have been checked and left out: the compiler places its own.\n");
    put(out, "return schedule {\n  workers = %d, stages = %d, batches = %d,\n  sequence = {\n", z.rows, z.stages,
        z.batches);
    for (int r = 0; r < z.rows; r++)
        put_sequence(out, &z, r);
    put(out, "  },\n}\n");
}
