/* Reads Python's pickles of plain values, protocol 2, as PyTorch's flight recorder writes them: None, truth values,
 * numbers, text, lists, tuples and dictionaries. Other opcodes call functions or make objects of classes, which the
 * pickle names; they are refused by name, and nothing is ever called. */
#include "value.h"
#include <limits.h>
#include <string.h>

struct pickle {
    const char *file;
    const unsigned char *from, *at, *end;
    struct value **stack, **memo;
    size_t *mark; /* heights of the stack */
    size_t depth, nmarks, cap_stack, cap_memo, cap_mark, nmemo;
};

static _Noreturn void pickle_die(const struct pickle *pickle, const char *what) {
    die("%s: byte %td: %s", pickle->file, pickle->at - pickle->from, what);
}

/* Consumes n bytes and returns them. */
static const unsigned char *next_bytes(struct pickle *pickle, size_t n) {
    if ((size_t)(pickle->end - pickle->at) < n)
        pickle_die(pickle, "the pickle ends within a value");
    pickle->at += n;
    return pickle->at - n;
}

/* Consumes an integer of n bytes, at most 8, the lowest first. */
static int64_t take_integer(struct pickle *pickle, size_t n, bool has_sign) {
    const unsigned char *s = next_bytes(pickle, n);
    uint64_t x = 0;
    for (size_t i = n; i-- > 0;)
        x = x << 8 | s[i];
    if (has_sign && n > 0 && n < 8 && s[n - 1] & 0x80)
        x |= ~(uint64_t)0 << 8 * n;
    return (int64_t)x;
}

/* ---- the stack ---- */

static void push_value(struct pickle *pickle, struct value value) {
    GROW(pickle->stack, pickle->cap_stack, pickle->depth + 1);
    pickle->stack[pickle->depth] = NEW(struct value, 1);
    *pickle->stack[pickle->depth++] = value;
}

/* Returns the value that is n below the top. */
static struct value *value_below(const struct pickle *pickle, size_t n) {
    size_t floor = pickle->nmarks ? pickle->mark[pickle->nmarks - 1] : 0;
    if (pickle->depth < floor + n + 1)
        pickle_die(pickle, "the pickle takes a value that it has not built");
    return pickle->stack[pickle->depth - 1 - n];
}

/* Returns the height of the last mark, and forgets it. */
static size_t pop_mark(struct pickle *pickle) {
    if (!pickle->nmarks)
        pickle_die(pickle, "the pickle lacks a mark");
    return pickle->mark[--pickle->nmarks];
}

/* Moves the values above height `from` to a list or dictionary. */
static void move_items(struct pickle *pickle, struct value *to, size_t from, enum value_kind kind) {
    if (to->kind != kind || (kind == V_DICT && (pickle->depth - from) % 2))
        pickle_die(pickle, "the pickle adds items to a value that cannot hold them");
    for (size_t i = from; i < pickle->depth; i++)
        add_item(to, pickle->stack[i]);
    pickle->depth = from;
}

static void add_marked(struct pickle *pickle, enum value_kind kind) {
    size_t from = pop_mark(pickle);
    if (from == (pickle->nmarks ? pickle->mark[pickle->nmarks - 1] : 0))
        pickle_die(pickle, "the pickle adds items to nothing");
    move_items(pickle, pickle->stack[from - 1], from, kind);
}

static void push_tuple(struct pickle *pickle, size_t from) {
    struct value tuple = {.kind = V_LIST};
    move_items(pickle, &tuple, from, V_LIST);
    push_value(pickle, tuple);
}

static void push_small_tuple(struct pickle *pickle, size_t n) {
    value_below(pickle, n - 1);
    push_tuple(pickle, pickle->depth - n);
}

static void push_text(struct pickle *pickle) {
    size_t n = (size_t)take_integer(pickle, 4, false);
    const unsigned char *s = next_bytes(pickle, n);
    if (n > INT_MAX)
        pickle_die(pickle, "text of more than 2 GiB");
    push_value(pickle, (struct value){.kind = V_TEXT, .text = format("%.*s", (int)n, (const char *)s)});
}

static void push_long(struct pickle *pickle) {
    size_t n = (size_t)take_integer(pickle, 1, false);
    if (n > 8)
        pickle_die(pickle, "a number of more than 64 bits");
    push_value(pickle, (struct value){.kind = V_INT, .number = take_integer(pickle, n, true)});
}

static void push_real(struct pickle *pickle) {
    const unsigned char *s = next_bytes(pickle, 8); /* the highest byte first */
    uint64_t bits = 0;
    for (int i = 0; i < 8; i++)
        bits = bits << 8 | s[i];
    struct value value = {.kind = V_REAL};
    memcpy(&value.real, &bits, sizeof bits);
    push_value(pickle, value);
}

/* ---- the memo ---- */

static void put_memo(struct pickle *pickle, size_t at) {
    if (at > (size_t)(pickle->end - pickle->from))
        pickle_die(pickle, "a memo of more values than the pickle has");
    GROW(pickle->memo, pickle->cap_memo, at + 1);
    for (; pickle->nmemo <= at; pickle->nmemo++)
        pickle->memo[pickle->nmemo] = NULL;
    pickle->memo[at] = value_below(pickle, 0);
}

static void get_memo(struct pickle *pickle, size_t at) {
    if (at >= pickle->nmemo || !pickle->memo[at])
        pickle_die(pickle, "the pickle takes a value from its memo that is not there");
    GROW(pickle->stack, pickle->cap_stack, pickle->depth + 1);
    pickle->stack[pickle->depth++] = pickle->memo[at];
}

/* ---- opcodes ---- */

static _Noreturn void refuse_opcode(const struct pickle *pickle, unsigned char opcode) {
    static const struct {
        unsigned char opcode;
        const char *name;
    } known[] = {{'c', "GLOBAL"}, {0x93, "STACK_GLOBAL"}, {'R', "REDUCE"},    {'b', "BUILD"},     {'i', "INST"},
                 {'o', "OBJ"},    {0x81, "NEWOBJ"},       {'P', "PERSID"},    {'Q', "BINPERSID"}, {0x82, "EXT1"},
                 {0x83, "EXT2"},  {0x84, "EXT4"},         {0x92, "NEWOBJ_EX"}};
    const char *name = format("0x%02x", opcode);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        name = known[i].opcode == opcode ? known[i].name : name;
    die("%s: byte %td: the pickle has the opcode %s, but only plain values are read: numbers, text, lists and "
        "dictionaries",
        pickle->file, pickle->at - pickle->from - 1, name);
}

static void push_item_of(struct pickle *pickle, unsigned char opcode) {
    struct value *key = value_below(pickle, 1);
    if (opcode == 'a') {
        move_items(pickle, key, pickle->depth - 1, V_LIST);
        return;
    }
    move_items(pickle, value_below(pickle, 2), pickle->depth - 2, V_DICT);
}

/* Runs an opcode that pushes a value. Returns false if it is none. */
static bool push_constant(struct pickle *pickle, unsigned char opcode) {
    switch (opcode) {
    case 'N': push_value(pickle, (struct value){.kind = V_NULL}); return true;
    case 0x88:
    case 0x89: push_value(pickle, (struct value){.kind = V_BOOL, .number = opcode == 0x88}); return true;
    case 'K': push_value(pickle, (struct value){.kind = V_INT, .number = take_integer(pickle, 1, false)}); return true;
    case 'M': push_value(pickle, (struct value){.kind = V_INT, .number = take_integer(pickle, 2, false)}); return true;
    case 'J': push_value(pickle, (struct value){.kind = V_INT, .number = take_integer(pickle, 4, true)}); return true;
    case 0x8a: push_long(pickle); return true;
    case 'G': push_real(pickle); return true;
    case 'X': push_text(pickle); return true;
    case ']':
    case ')': push_value(pickle, (struct value){.kind = V_LIST}); return true;
    case '}': push_value(pickle, (struct value){.kind = V_DICT}); return true;
    }
    return false;
}

static void run_opcode(struct pickle *pickle, unsigned char opcode) {
    if (push_constant(pickle, opcode))
        return;
    switch (opcode) {
    case 0x80: next_bytes(pickle, 1); return;
    case '(':
        GROW(pickle->mark, pickle->cap_mark, pickle->nmarks + 1);
        pickle->mark[pickle->nmarks++] = pickle->depth;
        return;
    case 'q': put_memo(pickle, (size_t)take_integer(pickle, 1, false)); return;
    case 'r': put_memo(pickle, (size_t)take_integer(pickle, 4, false)); return;
    case 'h': get_memo(pickle, (size_t)take_integer(pickle, 1, false)); return;
    case 'j': get_memo(pickle, (size_t)take_integer(pickle, 4, false)); return;
    case 'a':
    case 's': push_item_of(pickle, opcode); return;
    case 'e': add_marked(pickle, V_LIST); return;
    case 'u': add_marked(pickle, V_DICT); return;
    case 't': push_tuple(pickle, pop_mark(pickle)); return;
    case 0x85:
    case 0x86:
    case 0x87: push_small_tuple(pickle, opcode - 0x84); return;
    }
    refuse_opcode(pickle, opcode);
}

struct value *pickle_value(const char *file, const char *s, size_t n) {
    const unsigned char *bytes = (const unsigned char *)s;
    struct pickle pickle = {.file = file, .from = bytes, .at = bytes, .end = bytes + n};
    for (unsigned char opcode; (opcode = *next_bytes(&pickle, 1)) != '.';)
        run_opcode(&pickle, opcode);
    if (pickle.depth != 1 || pickle.nmarks)
        pickle_die(&pickle, "the pickle does not end with one value");
    return pickle.stack[0];
}
