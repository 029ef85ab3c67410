/* Reads words of the program's text form: numbers, buffer names, instruction labels. */
#include "read_text.h"
#include <string.h>

bool read_if(struct reader *in, const char *word) {
    const char *p = in->p;
    for (; *word; word++, p++)
        if (*p != *word)
            return false;
    in->p = p;
    return true;
}

void read_word(struct reader *in, const char *word) {
    if (!read_if(in, word))
        FAIL(in, in->p, "expected \"%s\"", word);
}

void read_end(struct reader *in) {
    if (!*in->p)
        FAIL(in, in->p, "the file ends inside a line: is it cut off?");
    if (*in->p != '\n')
        FAIL(in, in->p, "expected the end of the line");
    in->start = ++in->p;
    in->line++;
}

int64_t read_integer(struct reader *in, const char *what, int64_t least, int64_t most) {
    const char *at = in->p;
    int64_t v = 0;
    bool fits = true;
    for (; *in->p >= '0' && *in->p <= '9'; in->p++) {
        int digit = *in->p - '0';
        fits = fits && v <= (INT64_MAX - digit) / 10;
        v = fits ? v * 10 + digit : v;
    }
    if (in->p == at || (*at == '0' && in->p > at + 1) || !fits || v < least || v > most) {
        in->p = at;
        if (most == INT64_MAX || most == INT32_MAX)
            FAIL(in, at, "expected %s, a number from %lld", what, (long long)least);
        FAIL(in, at, "expected %s, a number from %lld to %lld", what, (long long)least, (long long)most);
    }
    return v;
}

static bool letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

int read_name(struct reader *in, const char *what, const char *const *names, int n) {
    size_t len = 0;
    while (letter(in->p[len]))
        len++;
    for (int i = 0; i < n; i++)
        if (names[i][0] == in->p[0] && strlen(names[i]) == len && !memcmp(names[i], in->p, len)) {
            in->p += len;
            return i;
        }
    if (!len)
        FAIL(in, in->p, "expected %s", what);
    char word[64];
    snprintf(word, sizeof word, "%.*s", (int)(len < 63 ? len : 63), in->p);
    const char *near = nearest(word, names, n);
    FAIL(in, in->p, "\"%s\" is not %s%s%s%s", word, what, near ? "; did you mean \"" : "", near ? near : "",
         near ? "\"?" : "");
}

int read_lane_kind(struct reader *in, const char *where) {
    int kind = lane_kind(&in->p);
    if (kind >= 0)
        return kind;
    struct text words = {0};
    for (int i = 0; i < NLANEKINDS; i++)
        put(&words, "%s\"%s\"", i == 0 ? "" : i < NLANEKINDS - 1 ? ", " : " or ", lanekind_row(i)->word);
    FAIL(in, in->p, "%sexpected %s", where, words.s);
}

/* Reads a stage. Jobs and their tensors belong to a stage. Weights and their gradients may also belong to a table,
 * numbered after the stages, or to what a team shares, which has the stage's name. */
int32_t read_stage(struct reader *in, bool of_job) {
    const struct program *p = in->prog;
    int32_t s = (int32_t)read_integer(in, "a stage", 0, script_stages(&p->names, p->stages) - 1 + (p->tied && !of_job));
    if (!p->names.member)
        return s;
    int32_t first = s == p->names.stages ? p->stages : p->names.first[s];
    const struct member *member = &p->names.member[first];
    if (member->place < 0)
        return first;
    if (!of_job && first < p->stages && p->names.shared && *in->p != '.')
        return p->names.shared[first];
    if (!read_if(in, "."))
        FAIL(in, in->p, "stage %d has a team of %d: expected a member, as in %d.0", s, member->size, s);
    return first + (int32_t)read_integer(in, "a member of the team", 0, member->size - 1);
}

/* Reads a microbatch; with slices, one of its slices, "3.1". */
int32_t read_batch(struct reader *in) {
    int slices = slices_of(&in->prog->names);
    int32_t b = (int32_t)read_integer(in, "a microbatch", 0, in->prog->batches / slices - 1);
    if (!in->prog->names.slices)
        return b;
    read_word(in, ".");
    return b * slices + (int32_t)read_integer(in, "a slice", 0, slices - 1);
}

/* Reads a rank that the current list, number `listed` of the file, does not have yet. */
int32_t read_new_rank(struct reader *in) {
    const char *at = in->p;
    int32_t rank = (int32_t)read_integer(in, "a rank", 0, in->prog->workers - 1);
    if (in->in_list[rank] == in->listed)
        FAIL(in, at, "rank %d comes twice", rank);
    in->in_list[rank] = in->listed;
    return rank;
}

struct buf read_buffer_name(struct reader *in) {
    const char *at = in->p;
    int kind = read_name(in, "a kind of buffer", kind_name, NKINDS);
    struct buf b = {.kind = (uint8_t)kind, .stage = -1, .batch = -1, .inst = -1, .grows = -1, .off = -1};
    if (!is_of_rank(kind) && read_if(in, "(")) {
        b.stage = read_stage(in, kind_has_batch[kind]);
        if (kind_has_batch[kind]) {
            read_word(in, ",");
            b.batch = read_batch(in);
        }
        read_word(in, ")");
    } else if (!is_of_rank(kind))
        FAIL(in, at, "a buffer is written %s(%s)", kind_name[kind],
             kind_has_batch[kind] ? "stage,microbatch" : "stage");
    at = in->p;
    if (read_if(in, "#")) {
        if (kind_row(kind)->number == NUMBER_ONE)
            FAIL(in, at, "a rank has one %s of each name, without instances", kind_name[kind]);
        b.inst = (int32_t)read_integer(in, "the number of an instance", 0, INT32_MAX);
    }
    return b;
}

bool op_has_batch(int op) { return is_job(op) || kind_has_batch[op_row(op)->tensor]; }

/* Returns whether an operation may have an instance number. Operations that move gradients may: the number of a piece,
 * of a round, or the second number of a set, over replicas. */
static bool op_has_instance(int op) {
    bool weights = (is_message(op) || op == OP_COPY) && kind_row(op_row(op)->tensor)->number == NUMBER_INSTANCE;
    return weights || (op_row(op)->tensor == K_wgrad && op != OP_ZERO);
}

struct instr read_label(struct reader *in) {
    struct instr x = {.batch = -1, .peer = -1, .inst = -1, .msg = -1};
    x.op = (uint8_t)read_name(in, "an operation", op_name, NOPS);
    read_word(in, " ");
    x.stage = read_stage(in, op_has_batch(x.op));
    if (op_has_batch(x.op)) {
        read_word(in, " ");
        x.batch = read_batch(in);
    }
    if (x.op == OP_U && in->prog->update) {
        read_word(in, " ");
        int most = in->prog->batches / in->prog->update[x.stage] - 1;
        x.batch = (int32_t)read_integer(in, "the number of an update", 0, most);
    }
    const char *at = in->p;
    if (is_job(x.op) && read_if(in, "[")) {
        const struct exchanges *exchange = in->prog->exchange;
        if (x.op != OP_B && x.op != OP_W && (!exchange || !exchange[(int64_t)x.stage * NDIRS + x.op].n))
            FAIL(in, at, "%s does not run in parts: only B and W do, and jobs that exchange data with a team",
                 op_name[x.op]);
        x.part = (uint8_t)read_integer(in, "the number of a part", 0, UINT8_MAX - 1);
        read_word(in, "/");
        x.last = (uint8_t)(read_integer(in, "how many parts", x.part + 1 > 2 ? x.part + 1 : 2, UINT8_MAX) - 1);
        read_word(in, "]");
    }
    if (read_if(in, "#")) {
        if (!op_has_instance(x.op))
            FAIL(in, at, "%s has no instances", op_name[x.op]);
        x.inst = (int32_t)read_integer(in, "the number of an instance", 0, INT32_MAX);
    }
    if (has_peer(x.op) || has_root(x.op)) {
        read_word(in, is_send(x.op) || x.op == OP_REDUCE ? " to " : " from ");
        x.peer = (int32_t)read_integer(in, "a rank", 0, in->prog->workers - 1);
    }
    return x;
}
