/* PyTorch's pipelining CSV, read into a schedule script with a `sequence`.
 *
 * One row per rank, one cell per action:
 *
 *     cell = "" | stage op [microbatch] | "(" cell ";" cell ")OVERLAP_F_B"                  (also within quotes)
 *     op   = F | I | B | W | SEND_F | RECV_F | SEND_B | RECV_B | WAIT_SEND_F | WAIT_SEND_B   (with a microbatch)
 *          | UNSHARD | RESHARD | REDUCE_GRAD | WAIT_REDUCE_GRAD                              (without)
 *
 * I is the input's gradient, W the weights', B both. A send names the source stage, a receive the destination stage.
 * Earlier PyTorch has no waits; and PyTorch 2.5 spells the three B, W and BW.
 *
 * A file has either the jobs alone, and may have empty cells, or all communication too, and may not. PyTorch accepts
 * much that cannot run. Here every cell must match the grammar, each microbatch must pass each stage once, each tensor
 * that changes ranks must be sent and received by the right ranks, in the same order on both, and the rows must run to
 * their ends. */
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
    int row, column; /* of its cell, counted from 1 */
    int at;          /* the cell's position in its line, counted from 1 */
    bool pair;       /* the first of a pair; the next action is the second */
    bool bw;         /* spelled BW, as PyTorch 2.5 does; `what` is B */
};

struct csv {
    const char *file, *src;
    struct action *action;
    int32_t n, *begin; /* row r's are action[begin[r] .. begin[r + 1]) */
    size_t cap, caprows;
    int rows, stages, batches, jobs;
    bool comms;
    bool old;       /* in PyTorch 2.5's spelling */
    int32_t *index; /* [(s * batches + b) * NNUMBERED + what]: which action, or -1 */
    int *rank;      /* per stage; -1: not known yet */
};

#define FAIL(csv, a, fmt, ...)                                                                                         \
    die_at((csv)->file, (csv)->src, (a)->row, (a)->at, "row %d, column %d: " fmt, (a)->row, (a)->column, __VA_ARGS__)

/* Spelled as in the file. */
static const char *spelled(const struct csv *csv, const struct action *action) {
    const char *word = !csv->old              ? action_name[action->what]
                       : action->what == OP_I ? "B"
                       : action->what == OP_B ? "BW"
                                              : action_name[action->what];
    return action->b < 0 ? format("%d%s", action->s, word) : format("%d%s%d", action->s, word, action->b);
}

static const char *action_name_at(const struct csv *csv, int what, int s, int b) {
    return spelled(csv, &(struct action){.what = what, .s = s, .b = b});
}

/* A CSV has a number first, after any blanks, commas, quotes and parentheses; no script does. */
bool is_torch(const char *file, const char *src) {
    size_t n = strlen(file);
    return (n > 4 && strcmp(file + n - 4, ".csv") == 0) || isdigit((unsigned char)src[strspn(src, " \t\r\n,(\"")]);
}

/* ---- cells ---- */

/* Reads the number at *p, before end; -1: no number, or too large. */
static int read_number(const char **p, const char *end) {
    const char *from = *p;
    int64_t x = 0;
    for (; *p < end && **p >= '0' && **p <= '9'; (*p)++)
        x = x < INT_MAX ? x * 10 + (**p - '0') : x;
    return *p == from || x >= INT_MAX || (*from == '0' && *p > from + 1) ? -1 : (int)x;
}

/* Reads one action, which must span all of [p, end); false: it is not one. */
static bool read_action(struct action *action, const char *p, const char *end) {
    action->s = read_number(&p, end);
    const char *word = p;
    while (p < end && (isupper((unsigned char)*p) || *p == '_'))
        p++;
    size_t n = (size_t)(p - word);
    action->bw = n == 2 && memcmp(word, "BW", n) == 0;
    n -= action->bw;
    for (action->what = 0; action->what < NACTIONS; action->what++)
        if (action_name[action->what] && strlen(action_name[action->what]) == n &&
            memcmp(action_name[action->what], word, n) == 0)
            break;
    action->b = p < end ? read_number(&p, end) : -1;
    return action->s >= 0 && action->what < NACTIONS && p == end && (action->b >= 0) == (action->what < NNUMBERED);
}

static void add_action(struct csv *csv, struct action action) {
    GROW(csv->action, csv->cap, (size_t)csv->n + 1);
    csv->action[csv->n++] = action;
    csv->comms |= action.what >= NDIRS;
    csv->jobs += action.what < NDIRS;
    csv->stages = action.s >= csv->stages ? action.s + 1 : csv->stages;
    csv->batches = action.b >= csv->batches ? action.b + 1 : csv->batches;
}

static void read_pair(struct csv *csv, struct action a, const char *p, const char *end) {
    static const char tail[] = ")OVERLAP_F_B";
    size_t n = sizeof tail - 1;
    const char *close = end - n, *middle = memchr(p, ';', (size_t)(end - p));
    struct action b = a;
    if ((size_t)(end - p) < n || memcmp(close, tail, n) != 0 || !middle || middle > close ||
        !read_action(&a, p + 1, middle) || !read_action(&b, middle + 1, close))
        FAIL(csv, &a, "'%.*s' is no pair, such as (0F3;1B2)OVERLAP_F_B", (int)(end - p), p);
    a.pair = true;
    add_action(csv, a);
    add_action(csv, b);
}

static void trim(const char **p, const char **end) {
    while (*p < *end && (**p == ' ' || **p == '\t'))
        ++*p;
    while (*p < *end && ((*end)[-1] == ' ' || (*end)[-1] == '\t'))
        --*end;
}

/* Reads the cell [p, end) at the position in action. Returns whether it is non-empty. */
static bool read_cell(struct csv *csv, struct action action, const char *p, const char *end) {
    const char *from = p;
    trim(&p, &end);
    if (end - p >= 2 && *p == '"' && end[-1] == '"') {
        p++, end--;
        trim(&p, &end);
    }
    action.at += (int)(p - from);
    if (p == end)
        return false;
    if (*p == '(')
        read_pair(csv, action, p, end);
    else if (read_action(&action, p, end))
        add_action(csv, action);
    else
        FAIL(csv, &action,
             "'%.*s' is no action; one is a stage, then F, I, B, W, SEND_F, RECV_F, SEND_B, RECV_B, WAIT_SEND_F or "
             "WAIT_SEND_B and a microbatch, or UNSHARD, RESHARD, REDUCE_GRAD or WAIT_REDUCE_GRAD, such as 0F3 or "
             "2UNSHARD",
             (int)(end - p), p);
    return true;
}

/* Stores the first empty cell in *empty, if that is not set yet. */
static void read_csv_row(struct csv *csv, const char *line, const char *end, struct action *empty) {
    struct action action = {.row = csv->rows + 1, .column = 1, .at = 1};
    int before = csv->jobs;
    for (const char *p = line;; action.column++) {
        const char *comma = memchr(p, ',', (size_t)(end - p)), *stop = comma ? comma : end;
        action.at = (int)(p - line) + 1;
        if (!read_cell(csv, action, p, stop) && !empty->row)
            *empty = action;
        if (!comma)
            break;
        p = comma + 1;
    }
    if (csv->jobs == before)
        die_at(csv->file, csv->src, action.row, 0, "row %d has no job: each rank has a row, and something to do",
               action.row);
    csv->rows++;
    GROW(csv->begin, csv->caprows, (size_t)csv->rows + 1);
    csv->begin[csv->rows] = csv->n;
}

static void read_rows(struct csv *csv) {
    struct action empty = {0};
    GROW(csv->begin, csv->caprows, 1);
    csv->begin[0] = 0;
    for (const char *p = csv->src; p[strspn(p, " \t\r\n")];) {
        const char *newline = strchr(p, '\n'), *end = newline ? newline : p + strlen(p);
        read_csv_row(csv, p, end > p && end[-1] == '\r' ? end - 1 : end, &empty);
        p = newline ? newline + 1 : end;
    }
    if (csv->rows == 0)
        die("%s: empty; expected a row of cells per rank", csv->file);
    if (csv->comms && empty.row)
        FAIL(csv, &empty, "this cell is empty; in a schedule with %s none may be", "communication");
}

/* Renames the backwards of a file in PyTorch 2.5's spelling. It is in it if it has BW, or W beside B and no I. */
static void respell(struct csv *csv) {
    const struct action *whole = NULL, *first[NDIRS] = {0};
    for (int32_t i = csv->n - 1; i >= 0; i--) {
        const struct action *action = &csv->action[i];
        whole = action->bw ? action : whole;
        if (action->what < NDIRS)
            first[action->what] = action;
    }
    if (whole && first[OP_I])
        FAIL(csv, whole,
             "%dBW%d is PyTorch 2.5's spelling of a whole backward, but %s in row %d, column %d is of a later one: "
             "later ones say %dB%d",
             whole->s, whole->b, spelled(csv, first[OP_I]), first[OP_I]->row, first[OP_I]->column, whole->s, whole->b);
    csv->old = whole || (first[OP_W] && first[OP_B] && !first[OP_I]);
    for (struct action *action = csv->action; csv->old && action < csv->action + csv->n; action++)
        if (action->what == OP_B && !action->bw)
            action->what = OP_I;
}

static void check_pairs(const struct csv *csv) {
    for (const struct action *a = csv->action, *b = a + 1; b < csv->action + csv->n; a++, b++) {
        bool backward = a->what == OP_B || a->what == OP_I, other = b->what == OP_B || b->what == OP_I;
        if (a->pair && !(a->what == OP_F && other) && !(b->what == OP_F && backward))
            FAIL(csv, a, "%s and %s cannot overlap: a forward and a backward do", spelled(csv, a), spelled(csv, b));
    }
}

/* ---- everything is present, once, and in its place ---- */

static int32_t find_action(const struct csv *csv, int what, int s, int b) {
    return csv->index[((int64_t)s * csv->batches + b) * NNUMBERED + what];
}

/* B or I; -1: neither. */
static int32_t find_backward(const struct csv *csv, int s, int b) {
    int32_t whole = find_action(csv, OP_B, s, b);
    return whole >= 0 ? whole : find_action(csv, OP_I, s, b);
}

static void check_place(struct csv *csv, const struct action *action) {
    int r = action->row - 1;
    if (csv->rank[action->s] >= 0 && csv->rank[action->s] != r)
        FAIL(csv, action, "stage %d is rank %d's, by row %d: a stage belongs to one rank", action->s,
             csv->rank[action->s], csv->rank[action->s] + 1);
    csv->rank[action->s] = r;
}

static void index_actions(struct csv *csv) {
    if ((int64_t)csv->stages * csv->batches * 2 > csv->jobs)
        die("%s: stages up to %d and microbatches up to %d need %lld jobs at least, but there are %d", csv->file,
            csv->stages - 1, csv->batches - 1, 2LL * csv->stages * csv->batches, csv->jobs);
    int64_t n = (int64_t)csv->stages * csv->batches * NNUMBERED;
    csv->index = NEW(int32_t, n);
    csv->rank = NEW(int, csv->stages);
    for (int64_t i = 0; i < n; i++)
        csv->index[i] = -1;
    for (int s = 0; s < csv->stages; s++)
        csv->rank[s] = -1;
    for (int32_t i = 0; i < csv->n; i++) {
        const struct action *action = &csv->action[i];
        check_place(csv, action);
        if (action->b < 0)
            continue;
        int32_t *at = &csv->index[((int64_t)action->s * csv->batches + action->b) * NNUMBERED + action->what];
        if (*at >= 0)
            FAIL(csv, action, "%s is already in row %d, column %d", spelled(csv, action), csv->action[*at].row,
                 csv->action[*at].column);
        *at = i;
    }
}

static void check_jobs(const struct csv *csv, int s, int b) {
    static const uint8_t part[2] = {OP_I, OP_W};
    const char *rule = csv->old ? "a backward is BW, or B and W" : "a backward is B, or I and W";
    int32_t forward = find_action(csv, OP_F, s, b), whole = find_action(csv, OP_B, s, b);
    int32_t half[2] = {find_action(csv, OP_I, s, b), find_action(csv, OP_W, s, b)};
    bool split = half[0] >= 0 || half[1] >= 0;
    if (forward < 0 || (whole < 0 && !split))
        die("%s: there is no %s; every microbatch passes every stage forward and backward", csv->file,
            action_name_at(csv, forward < 0 ? OP_F : OP_B, s, b));
    if (!split || (whole < 0 && half[0] >= 0 && half[1] >= 0))
        return;
    const struct action *one = &csv->action[half[half[0] < 0]], *other = whole < 0 ? NULL : &csv->action[whole];
    if (other)
        FAIL(csv, one, "%s beside %s in row %d, column %d: %s", spelled(csv, one), spelled(csv, other), other->row,
             other->column, rule);
    FAIL(csv, one, "%s is nowhere; %s", action_name_at(csv, part[half[0] >= 0], s, b), rule);
}

/* The tensor that stage s passes to its neighbour `to`: sent if they are on different ranks, else not. */
static void check_message(const struct csv *csv, int s, int to, int b) {
    int send = to > s ? SEND_F : SEND_B, pair[2] = {find_action(csv, send, s, b), find_action(csv, send + 1, to, b)};
    bool crosses = csv->rank[s] != csv->rank[to];
    for (int i = 0; i < 2; i++) {
        struct action wanted = {.what = send + i, .s = i ? to : s, .b = b};
        if (pair[i] >= 0 && !crosses)
            FAIL(csv, &csv->action[pair[i]], "%s, but stages %d and %d are on one rank", spelled(csv, &wanted), s, to);
        if (pair[i] < 0 && crosses)
            die("%s: there is no %s in row %d, and stages %d and %d are on ranks %d and %d", csv->file,
                spelled(csv, &wanted), csv->rank[wanted.s] + 1, s, to, csv->rank[s], csv->rank[to]);
    }
}

static void check_complete(const struct csv *csv) {
    for (int s = 0; s < csv->stages; s++)
        for (int b = 0; b < csv->batches; b++)
            check_jobs(csv, s, b);
    for (int32_t i = 0; csv->comms && i < csv->n; i++) {
        const struct action *action = &csv->action[i];
        bool first = action->what == RECV_F || action->what == SEND_B,
             last = action->what == SEND_F || action->what == RECV_B;
        if ((first && action->s == 0) || (last && action->s == csv->stages - 1))
            FAIL(csv, action, "%s, but stage %d is the %s", spelled(csv, action), action->s, first ? "first" : "last");
    }
    for (int s = 0; csv->comms && s + 1 < csv->stages; s++)
        for (int b = 0; b < csv->batches; b++) {
            check_message(csv, s, s + 1, b);
            check_message(csv, s + 1, s, b);
        }
}

/* The send that a receive gets, as an index; -1: the action is no receive. */
static int32_t matching_send(const struct csv *csv, const struct action *action) {
    return action->what == RECV_F   ? find_action(csv, SEND_F, action->s - 1, action->b)
           : action->what == RECV_B ? find_action(csv, SEND_B, action->s + 1, action->b)
                                    : -1;
}

/* PyTorch matches the messages from one rank to another by order alone: a receive gets whatever was sent next. */
static void check_order(const struct csv *csv) {
    int32_t *last = NEW(int32_t, csv->rows); /* per sender: its newest receive so far, which may be in an earlier row */
    memset(last, -1, sizeof *last * (size_t)csv->rows);
    for (int32_t i = 0; i < csv->n; i++) {
        const struct action *action = &csv->action[i];
        int32_t send = matching_send(csv, action);
        if (send < 0)
            continue;
        int from = csv->action[send].row - 1;
        const struct action *before = last[from] < 0 ? NULL : &csv->action[last[from]];
        if (before && before->row == action->row && matching_send(csv, before) > send)
            FAIL(csv, before,
                 "%s is received before %s, but rank %d sends %s before %s (row %d, column %d): messages from one rank "
                 "to another are matched by order, so receive them as they are sent",
                 spelled(csv, before), spelled(csv, action), from, spelled(csv, &csv->action[send]),
                 spelled(csv, &csv->action[matching_send(csv, before)]), from + 1, csv->action[send].column);
        last[from] = i;
    }
}

/* A wait follows its send; if any send is waited for, all are. */
static void check_waits(const struct csv *csv) {
    const struct action *one = NULL;
    for (int32_t i = 0; i < csv->n; i++) {
        const struct action *action = &csv->action[i];
        if (action->what != WAIT_SEND_F && action->what != WAIT_SEND_B)
            continue;
        struct action send = {.what = action->what == WAIT_SEND_F ? SEND_F : SEND_B, .s = action->s, .b = action->b};
        int32_t at = find_action(csv, send.what, action->s, action->b);
        if (at < 0 || at > i)
            FAIL(csv, action, "%s, but no %s is before it", spelled(csv, action), spelled(csv, &send));
        one = action;
    }
    for (int32_t i = 0; one && i < csv->n; i++) {
        const struct action *action = &csv->action[i];
        if ((action->what == SEND_F || action->what == SEND_B) &&
            find_action(csv, action->what == SEND_F ? WAIT_SEND_F : WAIT_SEND_B, action->s, action->b) < 0)
            FAIL(csv, action, "no wait for %s, but there is %s in row %d", spelled(csv, action), spelled(csv, one),
                 one->row);
    }
}

/* ---- weights: present when used, if ever resharded; reduced at the end ---- */

static void check_weights(const struct csv *csv) {
    bool *managed = NEW(bool, csv->stages), *held = NEW(bool, csv->stages), *reduced = NEW(bool, csv->stages),
         *waited = NEW(bool, csv->stages);
    for (int32_t i = 0; i < csv->n; i++)
        managed[csv->action[i].s] |= csv->action[i].what == UNSHARD || csv->action[i].what == RESHARD;
    for (const struct action *action = csv->action; action < csv->action + csv->n; action++) {
        if (action->what < NDIRS && managed[action->s] && !held[action->s])
            FAIL(csv, action, "%s needs weights that no %dUNSHARD has brought", spelled(csv, action), action->s);
        if (action->what < NDIRS && action->what != OP_F && action->what != OP_I && reduced[action->s])
            FAIL(csv, action, "%s comes after %dREDUCE_GRAD", spelled(csv, action), action->s);
        if (action->what == UNSHARD || action->what == RESHARD) {
            if (held[action->s] == (action->what == UNSHARD))
                FAIL(csv, action, "%s, but stage %d's weights are %s", spelled(csv, action), action->s,
                     held[action->s] ? "there" : "not there");
            held[action->s] = action->what == UNSHARD;
        }
        if (action->what == WAIT_REDUCE_GRAD && !reduced[action->s])
            FAIL(csv, action, "%s, but no %dREDUCE_GRAD is before it", spelled(csv, action), action->s);
        if (action->what == REDUCE_GRAD || action->what == WAIT_REDUCE_GRAD) {
            bool *once = action->what == REDUCE_GRAD ? reduced : waited;
            if (once[action->s])
                FAIL(csv, action, "a second %s", spelled(csv, action));
            once[action->s] = true;
        }
    }
}

/* ---- the rows run to their ends ---- */

/* What an action waits for, apart from earlier ones in its row; -1: nothing. which: 0 or 1, as there may be two. */
static int32_t need_of(const struct csv *csv, const struct action *action, int which) {
    int s = action->s, b = action->b;
    bool from_below = s > 0 && (!csv->comms || csv->rank[s - 1] == csv->rank[s]);
    bool from_above = s + 1 < csv->stages && (!csv->comms || csv->rank[s + 1] == csv->rank[s]);
    switch (action->what) {
    case OP_F:
        return which || s == 0 ? -1 : from_below ? find_action(csv, OP_F, s - 1, b) : find_action(csv, RECV_F, s, b);
    case OP_B:
    case OP_I:
        if (which == 0)
            return find_action(csv, OP_F, s, b);
        return s + 1 == csv->stages ? -1 : from_above ? find_backward(csv, s + 1, b) : find_action(csv, RECV_B, s, b);
    case OP_W: return which ? -1 : find_action(csv, OP_I, s, b);
    case SEND_F: return which ? -1 : find_action(csv, OP_F, s, b);
    case RECV_F:
    case RECV_B: return which ? -1 : matching_send(csv, action);
    case SEND_B: return which ? -1 : find_backward(csv, s, b);
    case WAIT_SEND_F: return which ? -1 : find_action(csv, RECV_F, s + 1, b);
    case WAIT_SEND_B: return which ? -1 : find_action(csv, RECV_B, s - 1, b);
    default: return -1;
    }
}

/* What the action still waits for; -1: nothing. */
static int32_t missing(const struct csv *csv, const struct action *action, const bool *done) {
    for (int k = 0; k < 2; k++) {
        int32_t need = need_of(csv, action, k);
        if (need >= 0 && !done[need])
            return need;
    }
    return -1;
}

static void check_runs(const struct csv *csv) {
    bool *done = NEW(bool, csv->n);
    int32_t *at = NEW(int32_t, csv->rows), left = csv->n;
    memcpy(at, csv->begin, sizeof *at * (size_t)csv->rows);
    for (bool more = true; more;) {
        more = false;
        for (int r = 0; r < csv->rows; r++)
            while (at[r] < csv->begin[r + 1]) {
                const struct action *action = &csv->action[at[r]];
                if (missing(csv, action, done) >= 0 || (action->pair && missing(csv, action + 1, done) >= 0))
                    break;
                for (int k = 0; k <= action->pair; k++, left--)
                    done[at[r] + k] = true;
                at[r] += 1 + action->pair;
                more = true;
            }
    }
    /* Report an action that waits for its own row, if any: it says more than those that wait for it. */
    for (int own = 1; left > 0 && own >= 0; own--)
        for (int r = 0; r < csv->rows; r++) {
            const struct action *action = &csv->action[at[r]];
            if (at[r] == csv->begin[r + 1])
                continue;
            action += missing(csv, action, done) < 0; /* the second of a pair */
            const struct action *need = &csv->action[missing(csv, action, done)];
            if (own && need->row != action->row)
                continue;
            FAIL(csv, action, "%s never runs: it needs %s, which %s", spelled(csv, action), spelled(csv, need),
                 need->row == action->row ? "comes later in this row"
                                          : format("row %d, column %d never gets to", need->row, need->column));
        }
}

/* ---- the script ---- */

static void put_actions(struct text *out, const struct csv *csv, int r) {
    int width = 4;
    put(out, "    {");
    for (int32_t i = csv->begin[r]; i < csv->begin[r + 1]; i++) {
        const struct action *action = &csv->action[i];
        if (action->what >= NDIRS)
            continue;
        const char *name = job_name(NULL, action->s, action->b, action->what);
        const char *entry = action->pair
                                ? format(" \"%s+%s\",", name, job_name(NULL, action[1].s, action[1].b, action[1].what))
                                : format(" \"%s\",", name);
        i += action->pair;
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
    struct csv csv = {.file = file, .src = src};
    read_rows(&csv);
    respell(&csv);
    check_pairs(&csv);
    index_actions(&csv);
    check_complete(&csv);
    check_order(&csv);
    check_waits(&csv);
    check_weights(&csv);
    check_runs(&csv);
    put(out, "-- PyTorch's schedule %s, imported.\n", strcmp(file, "-") == 0 ? "from standard input" : tame(file));
    if (csv.old)
        put(out,
            "-- In PyTorch 2.5's spelling, in which B is the input's gradient, W the weights' and BW both: here I, W "
            "and B.\n");
    if (csv.comms)
        put(out, "-- Its messages have been checked and left out: the compiler places its own.\n");
    put(out, "return schedule {\n  workers = %d, stages = %d, batches = %d,\n  sequence = {\n", csv.rows, csv.stages,
        csv.batches);
    for (int r = 0; r < csv.rows; r++)
        put_actions(out, &csv, r);
    put(out, "  },\n}\n");
}
