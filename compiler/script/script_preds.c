/* Reads pred: a schedule's own dependencies instead of the default ones. */
#include "script.h"

struct reader {
    struct script *S;
    lua_State *L;
    struct spec *sp;
    int pred, dir; /* stack indices of the function, and of "F", the first direction */
};

/* Reads entry i of the list at that stack index. Returns whether it is an integer. */
static bool integer_entry(lua_State *L, int list, int i, lua_Integer *x) {
    int isint = 0;
    bool number = lua_rawgeti(L, list, i) == LUA_TNUMBER;
    *x = number ? lua_tointegerx(L, -1, &isint) : 0;
    lua_pop(L, 1);
    return isint;
}

/* Returns the job that the item on top of the stack names, {s, b, d} or with slices {s, b, d, q}; -1: its microbatch is
 * not written out. */
static int32_t pred_item(struct reader *reader, int item) {
    lua_State *L = reader->L;
    const struct spec *sp = reader->sp;
    int top = lua_gettop(L), d = -1, slices = sp->names.slices;
    lua_Integer s = -1, b = -1, q = 0;
    bool numbers = lua_istable(L, top) && integer_entry(L, top, 1, &s) && integer_entry(L, top, 2, &b) &&
                   (!slices || integer_entry(L, top, 4, &q));
    if (numbers && lua_rawgeti(L, top, 3) == LUA_TSTRING) {
        size_t n;
        const char *text = lua_tolstring(L, -1, &n);
        d = direction(text, n);
    }
    if (d < 0)
        function_fail(L, reader->pred, "pred", "%s returned a list whose item %d is not a job; an item is %s",
                      call_name(reader->S), item,
                      slices ? "{s, b, d, q}, such as {0, 3, \"F\", 1}" : "{s, b, d}, such as {0, 3, \"F\"}");
    lua_settop(L, top);
    bool known = s >= 0 && s < sp->stages && b >= 0 && b < sp->updates.step && q >= 0 && q < slices_of(&sp->names);
    lua_Integer there = known ? b * slices_of(&sp->names) + q - reader->S->later : 0;
    if (known && !slices && (there < 0 || there >= sp->batches))
        return -1;
    if (!known || there >= sp->batches || job_at(sp, (int)s, (int)there, d) < 0)
        function_fail(L, reader->pred, "pred", "pred() says %s needs %lld%s%lld%s, but there is no such job",
                      job_name(&reader->sp->names, reader->S->call.s, reader->S->call.b, reader->S->call.d),
                      (long long)s, op_name[d], (long long)b, slices ? format(".%lld", (long long)q) : "");
    return job_at(sp, (int)s, (int)there, d);
}

/* The growing list of dependencies. */
struct preds {
    size_t n, capacity;
    int32_t *last; /* [job]: 1 + the job that last named it, since a job may name it twice */
};

static void add_pred(struct spec *sp, struct preds *list, int k, int32_t p) {
    if (p < 0 || list->last[p] == k + 1)
        return;
    list->last[p] = k + 1;
    GROW(sp->pred, list->capacity, list->n + 1);
    sp->pred[list->n++] = p;
}

/* Calls pred() for job k. */
static void ask_pred(struct reader *reader, struct preds *preds, int k) {
    lua_State *L = reader->L;
    struct spec *sp = reader->sp;
    const struct job *j = &sp->job[k];
    int b = j->b + reader->S->later;
    call_begin(reader->S, "pred", j->s, b, j->d);
    lua_pushvalue(L, reader->pred);
    lua_pushinteger(L, j->s);
    push_batch(reader->S, b);
    lua_pushvalue(L, reader->dir + j->d);
    lua_call(L, 3 + push_slice(reader->S, b), 1);
    int list = lua_gettop(L);
    if (!lua_istable(L, list))
        function_fail(L, reader->pred, "pred", "%s returned %s; return a list of jobs {s, b, d}, or {} for none",
                      call_name(reader->S), describe(L, list));
    for (int i = 1; lua_rawgeti(L, list, i) != LUA_TNIL; i++, lua_settop(L, list)) {
        int32_t p = pred_item(reader, i);
        spend(L, 60);
        add_pred(sp, preds, k, p);
    }
    if (preds->n > INT32_MAX - 2 * (size_t)sp->njobs)
        function_fail(L, reader->pred, "pred", "pred() gives more than %zu dependencies", preds->n);
    lua_settop(L, list - 1);
    call_end(reader->S);
}

/* Reads all dependencies. With --recompute, pred() is not called for R, since the script may not know of them. Every R
 * then needs its forward, and its backward needs R. */
void read_preds(struct owners *owners) {
    struct spec *sp = owners->sp;
    struct reader reader = {.S = owners->S, .L = owners->S->L, .sp = sp};
    reader.pred = function_field(owners->t, "pred", "a list of the jobs {s, b, d} that a job needs");
    if (!reader.pred)
        return;
    reader.dir = lua_gettop(reader.L) + 1;
    for (int d = 0; d < NDIRS; d++)
        lua_pushstring(reader.L, op_name[d]);
    bool knows = !sp->declared.recompute; /* otherwise the script did not ask for all R */
    struct preds preds = {.last = NEW(int32_t, sp->njobs)};
    sp->pred_at = NEW(int32_t, sp->njobs + 1);
    for (int k = 0; k < sp->njobs; k++) {
        const struct job *j = &sp->job[k];
        if (j->d != OP_R || knows)
            ask_pred(&reader, &preds, k);
        if (j->d == OP_R)
            add_pred(sp, &preds, k, job_at(sp, j->s, j->b, OP_F));
        if (j->d == OP_B || j->d == OP_I)
            add_pred(sp, &preds, k, job_at(sp, j->s, j->b, OP_R));
        sp->pred_at[k + 1] = (int32_t)preds.n;
    }
    if (!sp->pred)
        sp->pred = NEW(int32_t, 1); /* custom dependencies, although the list is empty */
}
