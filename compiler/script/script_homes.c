/* Who owns the weights: the ranks and lists of ranks that w() returns, each list kept once in spec.list, and zero. */
#include "script.h"
#include <string.h>

/* ---- lists, built rank by rank ---- */

static void list_begin(struct lists *lists, int workers) {
    if (!lists->member)
        lists->member = NEW(int32_t, workers);
    lists->number++;
    lists->n = 0;
}

static bool list_add(struct lists *lists, int32_t rank) {
    if (lists->member[rank] == lists->number)
        return false;
    lists->member[rank] = lists->number;
    GROW(lists->rank, lists->cap, (size_t)lists->n + 1);
    lists->rank[lists->n++] = rank;
    return true;
}

static uint64_t hash_of(const int32_t *rank, int n) {
    uint64_t hash = 0;
    for (int i = 0; i < n; i++)
        hash = hash_add(hash, rank[i]);
    return hash;
}

/* Doubles the table and enters all lists anew. */
static void grow(struct lists *lists, const struct spec *sp) {
    lists->map = map_new(2 * (size_t)sp->nlists + 16);
    for (int i = 0; i < sp->nlists; i++) {
        uint32_t at = map_start(&lists->map, hash_of(sp->list[i].rank, sp->list[i].n));
        while (lists->map.slot[at])
            at = map_next(&lists->map, at);
        lists->map.slot[at] = i + 1;
    }
    lists->room = 2 * sp->nlists + 16;
}

static int32_t list_end(struct lists *lists, struct spec *sp) {
    if (lists->n == 1)
        return lists->rank[0];
    if (sp->nlists == lists->room)
        grow(lists, sp);
    uint32_t at = map_start(&lists->map, hash_of(lists->rank, lists->n));
    for (int32_t i; (i = lists->map.slot[at] - 1) >= 0; at = map_next(&lists->map, at))
        if (sp->list[i].n == lists->n && !memcmp(sp->list[i].rank, lists->rank, sizeof *lists->rank * (size_t)lists->n))
            return sp->workers + i;
    int32_t *rank = NEW(int32_t, lists->n);
    memcpy(rank, lists->rank, sizeof *rank * (size_t)lists->n);
    GROW(sp->list, lists->cap_list, (size_t)sp->nlists + 1);
    sp->list[sp->nlists++] = (struct home){lists->n, rank};
    lists->map.slot[at] = sp->nlists;
    return sp->workers + sp->nlists - 1;
}

/* ---- what w() returned ---- */

int rank_result(struct owners *owners, int index, const char *what) {
    lua_State *L = owners->S->L;
    int isint = 0, type = lua_type(L, index), workers = owners->sp->workers;
    lua_Integer x = type == LUA_TNUMBER ? lua_tointegerx(L, index, &isint) : 0;
    if (isint && x >= 0 && x < workers)
        return (int)x;
    const char *job = job_name(owners->S->s, owners->S->b, owners->S->d), *value = describe(L, index);
    if (isint)
        function_fail(L, owners->w, "w", "w() returned %s %s for %s, but workers = %d; ranks are 0 to %d", what, value,
                      job, workers, workers - 1);
    if (type == LUA_TNUMBER)
        function_fail(L, owners->w, "w", "w() returned %s %s for %s; ranks are integers, and // divides to one", what,
                      value, job);
    if (type == LUA_TTABLE && !strcmp(what, "compute rank"))
        function_fail(
            L, owners->w, "w",
            "w() returned a list of ranks as compute rank for %s; teams are not supported yet, return one rank", job);
    function_fail(L, owners->w, "w", "w() returned %s %s for %s; return two ranks: home, compute", what, value, job);
}

/* Most calls return the list of the call before: then no rank need be checked anew. */
static bool is_home(lua_State *L, int index, int n, struct home home) {
    bool same = n == home.n;
    for (int i = 1, isint; same && i <= n; i++, lua_pop(L, 1))
        same = lua_rawgeti(L, index, i) == LUA_TNUMBER && lua_tointegerx(L, -1, &isint) == home.rank[i - 1] && isint;
    return same;
}

/* The home that w() returned: a rank, or a list of them. */
int32_t home_result(struct owners *owners, int index) {
    lua_State *L = owners->S->L;
    if (lua_type(L, index) != LUA_TTABLE)
        return rank_result(owners, index, "home");
    struct lists *lists = owners->lists;
    int n = (int)lua_rawlen(L, index = lua_absindex(L, index));
    if (lists->n > 1 && is_home(L, index, n, home_of(owners->sp, &lists->home))) {
        spend(L, n);
        return lists->home;
    }
    const char *job = job_name(owners->S->s, owners->S->b, owners->S->d);
    if (n == 0)
        function_fail(L, owners->w, "w", "w() returned an empty list as home for %s; name at least one rank", job);
    list_begin(lists, owners->sp->workers);
    for (int i = 1; i <= n; i++, lua_pop(L, 1)) {
        lua_rawgeti(L, index, i);
        int rank = rank_result(owners, -1, "home");
        if (!list_add(lists, rank))
            function_fail(L, owners->w, "w", "w() returned a list with rank %d twice as home for %s", rank, job);
    }
    spend(L, n);
    return lists->home = list_end(lists, owners->sp);
}

/* ---- replicas ---- */

/* Different homes of a stage are replicas: lists of one length, without a rank in common. */
void check_replicas(struct owners *owners) {
    const struct spec *sp = owners->sp;
    const struct job **owner = NEW(const struct job *, sp->workers); /* of each rank: a job that names it as home */
    int32_t *seen = NEW(int32_t, sp->workers + sp->nlists);          /* 1 + the last stage that named this home */
    const struct job *first = sp->job;                               /* of the stage */
    for (const struct job *j = sp->job; sp->nlists && j < sp->job + sp->njobs; j++) {
        struct home home = home_of(sp, &j->home);
        first = j->s == first->s ? first : j;
        if (seen[j->home] == j->s + 1)
            continue;
        seen[j->home] = j->s + 1;
        const char *job = job_name(j->s, j->b, j->d);
        if (home.n != home_of(sp, &first->home).n)
            function_fail(owners->S->L, owners->w, "w",
                          "w() returned %d rank%s as home for %s, but %d for %s; the homes of a stage are replicas, so "
                          "let their lists be equally long",
                          home.n, home.n == 1 ? "" : "s", job, home_of(sp, &first->home).n,
                          job_name(first->s, first->b, first->d));
        for (int i = 0; i < home.n; i++) {
            const struct job *other = owner[home.rank[i]];
            if (other && other->s == j->s)
                function_fail(owners->S->L, owners->w, "w",
                              "w() returned rank %d in the home for %s and in another for %s; the homes of a stage are "
                              "replicas, so let them have no rank in common",
                              home.rank[i], job, job_name(other->s, other->b, other->d));
            owner[home.rank[i]] = j;
        }
    }
}

/* zero: 0, 1 or 2, or a function(s) that returns it. */
void read_zero(struct owners *owners) {
    lua_State *L = owners->S->L;
    struct spec *sp = owners->sp;
    int type = push_field(owners->t, "zero"), f = lua_gettop(L);
    if (type != LUA_TNIL)
        sp->zero = NEW(uint8_t, sp->stages);
    for (int s = 0; sp->zero && s < sp->stages; s++) {
        call_begin(owners->S, "zero", s, -1, -1);
        lua_pushvalue(L, f);
        if (type == LUA_TFUNCTION) {
            lua_pushinteger(L, s);
            lua_call(L, 1, 1);
        }
        int isint = 0;
        lua_Integer x = lua_type(L, -1) == LUA_TNUMBER ? lua_tointegerx(L, -1, &isint) : -1;
        static const char must[] = "0, 1 (replicas share the optimizer's state) or 2 (and the gradient)";
        if (type == LUA_TFUNCTION && (!isint || x < 0 || x > 2))
            function_fail(L, f, "zero", "%s returned %s; return %s", call_name(owners->S), describe(L, -1), must);
        if (!isint || x < 0 || x > 2)
            field_fail(L, owners->t->line, "zero", "'zero' must be %s, or a function(s) that returns it; not %s", must,
                       describe(L, -1));
        sp->zero[s] = (uint8_t)x;
        lua_settop(L, f);
        call_end(owners->S);
    }
    lua_settop(L, f - 1);
}
