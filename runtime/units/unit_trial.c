#include "unit_trial.h"
#include "store/hash.h"
#include <dlfcn.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define X(name, access) #name,
const char *const operand_name[NOPERANDS] = {OPERANDS(X)};
#undef X
#define X(name, access) access,
static const char *const access_of[NOPERANDS] = {OPERANDS(X)};
#undef X
static const char *const operation_name[UNIT_OPERATIONS] = {"forward", "input", "weight"};

bool trial_says(const struct trial *t, enum unit_operation op, const char *fmt, ...) {
    va_list ap;
    int n = t->of->names(t, op, t->why, t->nwhy);
    va_start(ap, fmt);
    if (n >= 0 && (size_t)n < t->nwhy)
        vsnprintf(t->why + n, t->nwhy - (size_t)n, fmt, ap);
    va_end(ap);
    return false;
}

/* ---- a unit ---- */

static bool unit_runs(const struct trial *t, enum unit_operation op) { return unit_has(t->l->unit, op); }
static int name_unit(const struct trial *t, char *out, size_t n) {
    return snprintf(out, n, "unit '%s'", t->l->unit->name);
}
static int name_function(const struct trial *t, enum unit_operation op, char *out, size_t n) {
    const char *name = t->l->unit->name;
    return snprintf(out, n, "unit '%s' of layer %d: %s_%s%s ", name, t->l->index, name, operation_name[op],
                    t->memory->suffix);
}

/* Returns the bytes of the first n inputs of the unit, which lie one after the other here. */
static int64_t bytes_of_inputs(const struct trial *t, int n) {
    int64_t bytes = 0;
    for (int i = 0; i < n; i++)
        bytes += 4 * (int64_t)t->m->rows * t->m->input_of_units[t->l->unit->input[i]].columns;
    return bytes;
}

static int64_t unit_bytes(const struct trial *t, enum operand operand) {
    const struct rt_layer *l = t->l;
    const struct rt_unit *unit = l->unit;
    int64_t in = 4 * (int64_t)l->rows * l->in, out = 4 * (int64_t)rows_out(l) * l->out, work = 0;
    for (int op = 0; op < UNIT_OPERATIONS; op++)
        work = unit->work[op] > work ? unit->work[op] : work;
    switch (operand) {
    case OPERAND_x:
    case OPERAND_dx: return in;
    case OPERAND_y:
    case OPERAND_dy: return out;
    case OPERAND_stash: return unit->stash;
    case OPERAND_extra: return unit->extra;
    case OPERAND_work: return work;
    case OPERAND_w:
    case OPERAND_dw: return 4 * l->nparam;
    case OPERAND_frozen: return 4 * unit_elements(unit, true);
    case OPERAND_tokens: return unit->side & UNIT_READS_TOKENS ? 4 * (int64_t)t->m->rows : 0;
    case OPERAND_targets: return unit->side & UNIT_READS_TARGETS ? 4 * (int64_t)t->m->rows : 0;
    case OPERAND_inputs: return bytes_of_inputs(t, unit->ninputs);
    case OPERAND_seed: return unit->side & UNIT_READS_SEED ? 8 : 0;
    default: return 0;
    }
}

static bool unit_has_operand(const struct trial *t, enum unit_operation op, enum operand operand) {
    const struct rt_unit *unit = t->l->unit;
    if (operand == OPERAND_work)
        return unit->work[op] > 0;
    return op == UNIT_FORWARD || (operand == OPERAND_x   ? unit->keeps & UNIT_KEEPS_X
                                  : operand == OPERAND_y ? unit->keeps & UNIT_KEEPS_Y
                                                         : true);
}

float trial_random(uint64_t key, int64_t i) {
    return (float)((double)(host_hash(key, (uint64_t)i) >> 11) * 0x1p-52 - 1);
}

static void draw_inputs(const struct trial *t) {
    for (int k = 0; k < t->l->unit->ninputs; k++) {
        const struct rt_input *input = &t->m->input_of_units[t->l->unit->input[k]];
        int32_t *integer = (int32_t *)(void *)(t->value[OPERAND_inputs] + bytes_of_inputs(t, k));
        for (int64_t i = 0; i < (int64_t)t->m->rows * input->columns; i++)
            if (input->floats)
                ((float *)(void *)integer)[i] = trial_random(OPERAND_inputs, i);
            else
                integer[i] = (int32_t)(host_hash(OPERAND_inputs, (uint64_t)i) % (uint64_t)input->below);
    }
}

/* Draws parameters as at the start of a training, plus a little noise, so that none is 0. Treats frozen ones alike. */
static bool draw_unit(const struct trial *t) {
    const struct rt_unit *unit = t->l->unit;
    struct rt_unit_parameter one[MOST_PARAMETERS];
    struct rt_unit all = *unit;
    struct rt_layer alone = *t->l;
    const struct rt_stage stage = {
        .layer = &alone, .nlayers = 1, .weight = t->room[OPERAND_w].bytes + t->room[OPERAND_frozen].bytes};
    char *to[] = {t->value[OPERAND_w], t->value[OPERAND_frozen]};
    alone.unit = &all;
    alone.nparam += unit_elements(unit, true);
    alone.param = 0;
    all.parameter = one;
    for (int i = 0; i < unit->nparameters; i++) {
        one[i] = unit->parameter[i];
        one[i].frozen = false;
    }
    float *w = malloc((size_t)alone.nparam * sizeof *w + 1);
    if (!w)
        return false;
    draw_inputs(t);
    host_init(t->m, &stage, w, 1);
    for (int64_t i = 0; i < alone.nparam; i++)
        w[i] += 0.02f * trial_random(OPERAND_w, i);
    const struct rt_parameters parameters = parameters_of(t->m, &alone, false);
    int64_t from = 0;
    for (int i = 0; i < parameters.n; from += parameters.at[i++].count) {
        size_t bytes = (size_t)parameters.at[i].count * sizeof *w;
        memcpy(to[unit->parameter[i].frozen], w + from, bytes);
        to[unit->parameter[i].frozen] += bytes;
    }
    free(w);
    return true;
}

static struct unit_fault call_unit_in_room(const struct trial *t, enum unit_operation op, char *const at[NOPERANDS]) {
    struct pianola_unit_call call = {.rows = t->l->rows, .out_rows = rows_out(t->l), .in = t->l->in, .out = t->l->out};
    call.x = at[OPERAND_x], call.y = at[OPERAND_y];
    call.stash = at[OPERAND_stash], call.extra = at[OPERAND_extra], call.work = at[OPERAND_work];
    call.w = at[OPERAND_w], call.dw = at[OPERAND_dw], call.dy = at[OPERAND_dy], call.dx = at[OPERAND_dx];
    call.frozen = at[OPERAND_frozen];
    for (int i = 0; i < t->l->unit->ninputs && at[OPERAND_inputs]; i++)
        call.inputs[i] = at[OPERAND_inputs] + bytes_of_inputs(t, i);
    call.tokens = (const int32_t *)(const void *)at[OPERAND_tokens];
    call.targets = (const int32_t *)(const void *)at[OPERAND_targets];
    call.seed = (const uint64_t *)(const void *)at[OPERAND_seed];
    call.add = op == UNIT_WEIGHT && t->add;
    call.config = t->l->unit->code->config;
    return t->memory->call(t->l->unit->code->run[op], &call);
}

const struct subject subject_unit = {unit_runs,         unit_bytes,    unit_has_operand, draw_unit,
                                     call_unit_in_room, name_function, name_unit};

/* ---- operands ---- */

static bool trial_has(const struct trial *t, enum unit_operation op, enum operand operand) {
    if (access_of[operand][op] == '-' || t->room[operand].bytes == 0 || (operand == OPERAND_dx && t->without_dx))
        return false;
    return t->of->has(t, op, operand);
}

bool trial_writes(const struct trial *t, enum unit_operation op, enum operand operand) {
    return trial_has(t, op, operand) && access_of[operand][op] == 'W';
}

static void draw_operand(const struct trial *t, enum operand operand) {
    float *value = (float *)(void *)t->value[operand];
    int32_t *token = (int32_t *)(void *)t->value[operand];
    int64_t n = t->room[operand].bytes / 4;
    bool tokens = t->m->input == INPUT_TOKENS && (operand == OPERAND_tokens || operand == OPERAND_targets);
    for (int64_t i = 0; i < n; i++)
        if (tokens)
            token[i] = operand == OPERAND_targets && t->m->labels && i % 4 == 3
                           ? -1 /* does not count */
                           : (int32_t)(host_hash((uint64_t)operand, (uint64_t)i) % (uint64_t)t->m->vocab);
        else
            value[i] = trial_random((uint64_t)operand, i);
}

/* Says that there is no memory for a trial. */
static bool says_no_memory(const struct trial *t) {
    char name[128];
    t->of->name(t, name, sizeof name);
    snprintf(t->why, t->nwhy, "no memory to check %s", name);
    return false;
}

bool unit_trial_open(struct trial *t) {
    memset(t->room, 0, sizeof t->room);
    memset(t->value, 0, sizeof t->value);
    int64_t most = 0;
    for (int operand = 0; operand < NOPERANDS; operand++) {
        int64_t bytes = t->of->bytes(t, operand);
        if (bytes == 0)
            continue;
        t->value[operand] = calloc(1, (size_t)bytes);
        if (!t->value[operand] || !t->memory->open(&t->room[operand], bytes)) {
            t->room[operand].bytes = 0;
            return says_no_memory(t);
        }
        most = bytes > most ? bytes : most;
    }
    t->now = malloc((size_t)most);
    if (!t->now)
        return says_no_memory(t);
    static const uint8_t drawn[] = {OPERAND_x, OPERAND_dy, OPERAND_tokens, OPERAND_targets, OPERAND_seed};
    for (size_t i = 0; i < sizeof drawn; i++)
        draw_operand(t, drawn[i]);
    return t->of->draw(t) || says_no_memory(t);
}

void unit_trial_close(struct trial *t) {
    for (int operand = 0; operand < NOPERANDS; operand++) {
        if (t->room[operand].bytes > 0)
            t->memory->close(&t->room[operand]);
        free(t->value[operand]);
    }
    free(t->now);
}

/* ---- runs ---- */

/* Names the operands that a call does not have, for messages. */
static const char *missing_operands(const struct trial *t, enum unit_operation op, char *out, size_t n) {
    size_t at = 0;
    out[0] = 0;
    for (int operand = 0; operand < NOPERANDS; operand++)
        if (!trial_has(t, op, operand) && at < n)
            at += (size_t)snprintf(out + at, n - at, "%s%s", at ? ", " : "", operand_name[operand]);
    return out;
}

/* Names the signal of a fault and the place of its code, for messages. */
static const char *place_of_fault(const struct unit_fault *fault, char *out, size_t n) {
    const char *name = fault->signal == SIGBUS ? "SIGBUS" : "SIGSEGV";
    Dl_info library;
    if (!fault->code || dladdr(fault->code, &library) == 0 || !library.dli_fname)
        snprintf(out, n, "%s in code of no library", name);
    else {
        const char *slash = strrchr(library.dli_fname, '/');
        snprintf(out, n, "%s at offset 0x%llx of %s", name,
                 (unsigned long long)(fault->code - (const char *)library.dli_fbase),
                 slash ? slash + 1 : library.dli_fname);
    }
    return out;
}

/* Reports the memory that a call touched but must not touch. */
static bool says_fault(const struct trial *t, enum unit_operation op, const struct unit_fault *fault) {
    char names[128], place[256];
    if (fault->kind == CALL_FAILED)
        return trial_says(t, op, "fails: %s", fault->why);
    for (int operand = 0; operand < NOPERANDS; operand++) {
        const struct room *room = &t->room[operand];
        const char *name = operand_name[operand];
        if (room->bytes == 0 || !t->memory->has(room, fault->address))
            continue;
        long long at = fault->address - room->at;
        if (at >= 0 && at < room->bytes)
            return trial_says(t, op, "writes byte %lld of %s, which it may only read", at, name);
        return trial_says(t, op, "touches byte %lld of %s, which has %lld bytes", at, name, (long long)room->bytes);
    }
    if ((uintptr_t)fault->address < 1u << 20)
        return trial_says(t, op,
                          "uses a pointer that is NULL in its call: one of %s (keeps, stash, extra, work and side in "
                          "the model script say what there is)",
                          missing_operands(t, op, names, sizeof names));
    return trial_says(t, op, "touches address %p, where none of its operands is: %s", (const void *)fault->address,
                      place_of_fault(fault, place, sizeof place));
}

int64_t trial_difference(const struct trial *t, enum operand operand, const char *copy) {
    const struct room *room = &t->room[operand];
    int64_t i = 0;
    t->memory->get(room, t->now);
    while (i < room->bytes && t->now[i] == copy[i])
        i++;
    return i < room->bytes ? i : -1;
}

/* Checks that a call has not changed the bytes around an operand, nor an operand that it may only read. */
static bool check_operand(const struct trial *t, enum unit_operation op, enum operand operand) {
    const struct room *room = &t->room[operand];
    int64_t outside = t->memory->outside(room);
    if (outside != ROOM_CLEAN)
        return trial_says(t, op, "writes byte %lld of %s, which has %lld bytes",
                          (long long)(outside > ROOM_CLEAN ? room->bytes + outside : outside - ROOM_CLEAN),
                          operand_name[operand], (long long)room->bytes);
    if (trial_writes(t, op, operand) || !trial_has(t, op, operand))
        return true;
    int64_t at = trial_difference(t, operand, t->value[operand]);
    return at < 0 ||
           trial_says(t, op, "writes byte %lld of %s, which it may only read", (long long)at, operand_name[operand]);
}

bool trial_run(struct trial *t, enum unit_operation op, int fill) {
    const struct unit_memory *memory = t->memory;
    char *at[NOPERANDS];
    for (int operand = 0; operand < NOPERANDS; operand++) {
        struct room *room = &t->room[operand];
        at[operand] = trial_has(t, op, operand) ? room->at : NULL;
        if (!at[operand])
            continue;
        bool reads = !trial_writes(t, op, operand);
        if (reads || (operand == OPERAND_dw && t->add))
            memory->set(room, t->value[operand]);
        else
            memory->fill(room, fill);
        memory->protect(room, reads);
    }
    struct unit_fault fault = t->of->call(t, op, at);
    bool ok = fault.kind == CALL_RETURNED || says_fault(t, op, &fault);
    for (int operand = 0; operand < NOPERANDS; operand++)
        if (t->room[operand].bytes > 0) {
            memory->protect(&t->room[operand], false);
            ok = ok && check_operand(t, op, operand);
        }
    return ok;
}
