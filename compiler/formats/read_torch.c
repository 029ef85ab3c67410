/* Reads PyTorch's pipelining CSV into a schedule script with a `sequence`.
 *
 * One row per rank, one cell per action:
 *
 *     cell = "" | stage op [microbatch] | "(" cell ";" cell ")OVERLAP_F_B"                  (also within quotes)
 *     op   = F | I | B | W | SEND_F | RECV_F | SEND_B | RECV_B | WAIT_SEND_F | WAIT_SEND_B   (with a microbatch)
 *          | UNSHARD | RESHARD | REDUCE_GRAD | WAIT_REDUCE_GRAD                              (without)
 *
 * I is the input's gradient, W the weights', B both. A send names the source stage, a receive the destination stage.
 * Earlier versions of PyTorch have no waits, and PyTorch 2.5 spells the three gradients B, W and BW.
 *
 * A file has either the jobs alone, and then may have empty cells, or also all communication, and then may not. PyTorch
 * accepts many files that cannot run. Here every cell must match the grammar, and each microbatch must pass each stage
 * once. Each tensor that changes ranks must be sent and received by the right ranks, in the same order on both, and the
 * rows must run to their ends. */
#include "read_torch.h"
#include <ctype.h>
#include <limits.h>

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

const char *torch_spelled(const struct csv *csv, const struct action *action) {
    const char *word = !csv->old              ? action_name[action->what]
                       : action->what == OP_I ? "B"
                       : action->what == OP_B ? "BW"
                                              : action_name[action->what];
    return action->b < 0 ? format("%d%s", action->s, word) : format("%d%s%d", action->s, word, action->b);
}

/* Returns whether a file is such a CSV: after any blanks, commas, quotes and parentheses, it begins with a number,
 * which no script does. */
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
        FAIL(csv, &a, "'%.*s' is not a pair, such as (0F3;1B2)OVERLAP_F_B", (int)(end - p), p);
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
             "'%.*s' is not an action; an action is a stage, then F, I, B, W, SEND_F, RECV_F, SEND_B, RECV_B, "
             "WAIT_SEND_F or WAIT_SEND_B and a microbatch, or UNSHARD, RESHARD, REDUCE_GRAD or WAIT_REDUCE_GRAD, such "
             "as 0F3 or 2UNSHARD",
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
        die_at(csv->file, csv->src, action.row, 0, "row %d has no job: every rank needs a row with at least one job",
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
        FAIL(csv, &empty, "this cell is empty; a schedule with %s must have no empty cells", "communication");
}

/* Renames the backwards of a file in PyTorch 2.5's spelling. A file with BW uses it, and so does one with W, B and no
 * I. */
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
             "%dBW%d is PyTorch 2.5's spelling of a full backward, but %s in row %d, column %d belongs to a later "
             "version, which writes %dB%d",
             whole->s, whole->b, torch_spelled(csv, first[OP_I]), first[OP_I]->row, first[OP_I]->column, whole->s,
             whole->b);
    csv->old = whole || (first[OP_W] && first[OP_B] && !first[OP_I]);
    for (struct action *action = csv->action; csv->old && action < csv->action + csv->n; action++)
        if (action->what == OP_B && !action->bw)
            action->what = OP_I;
}

static void check_pairs(const struct csv *csv) {
    for (const struct action *a = csv->action, *b = a + 1; b < csv->action + csv->n; a++, b++) {
        bool backward = a->what == OP_B || a->what == OP_I, other = b->what == OP_B || b->what == OP_I;
        if (a->pair && !(a->what == OP_F && other) && !(b->what == OP_F && backward))
            FAIL(csv, a, "%s and %s cannot overlap: only a forward and a backward can", torch_spelled(csv, a),
                 torch_spelled(csv, b));
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
    torch_check(&csv);
    put(out, "-- PyTorch's schedule %s, imported.\n", strcmp(file, "-") == 0 ? "from standard input" : tame(file));
    if (csv.old)
        put(out, "-- From PyTorch 2.5's spelling, in which B is the input gradient, W the weight gradient and BW both; "
                 "here they are I, W and B.\n");
    if (csv.comms)
        put(out, "-- Its messages were checked and left out: the compiler places its own.\n");
    put(out, "return schedule {\n  workers = %d, stages = %d, batches = %d,\n  sequence = {\n", csv.rows, csv.stages,
        csv.batches);
    for (int r = 0; r < csv.rows; r++)
        put_actions(out, &csv, r);
    put(out, "  },\n}\n");
}
