/* Compares each rank's own program with the compiled program in memory, member by member:
 * readback DIR SCHEDULE MODEL [KEY=VALUE]... loads DIR/rank<k>, built as shared libraries, and calls their main with
 * this file's rank_main. Prints differences, and exits 1 if there are any. Members of structs are compared without
 * being named here.
 */
#include "cli/pipeline.h"
#include "passes/runtime_program.h"
#include <dlfcn.h>
#include <string.h>

static const struct rt_program *said;
static int rank, differences;

int rank_main(int argc, char **argv, const struct rt_program *self) {
    (void)argc, (void)argv;
    said = self;
    return 0;
}

static void check(bool same, const char *what, int i) {
    if (!same && differences++ < 8)
        printf("rank %d: %s %d differs\n", rank, what, i);
}

/* Returns whether two structs are equal except for the pointers that `without` clears in x and y. */
#define ALIKE(type, one, other, without)                                                                               \
    do {                                                                                                               \
        type x = *(one), y = *(other);                                                                                 \
        without;                                                                                                       \
        __builtin_clear_padding(&x);                                                                                   \
        __builtin_clear_padding(&y);                                                                                   \
        alike = memcmp(&x, &y, sizeof x) == 0;                                                                         \
    } while (0)

static bool same_buffer(const struct rt_buffer *a, const struct rt_buffer *b) {
    return !a || !b ? a == b : a->off == b->off && a->bytes == b->bytes;
}

static bool same_buffers(const struct rt_buffer *const *a, const struct rt_buffer *const *b) {
    if (!a || !b)
        return a == b;
    for (; *a && same_buffer(*a, *b); a++, b++)
        ;
    return *a == *b;
}

static bool same_numbers(const int32_t *a, const int32_t *b, int32_t end) {
    if (!a || !b)
        return a == b;
    for (; *a != end && *a == *b; a++, b++)
        ;
    return *a == *b;
}

static void check_instr(const struct rt_instr *a, const struct rt_instr *b, int i) {
    bool alike;
    ALIKE(struct rt_instr, a, b, (x.at = y.at, x.more = y.more, x.kv = y.kv, x.also = y.also));
    for (int role = 0; role < NROLES; role++)
        alike = alike && same_buffer(operand_in(a, role), operand_in(b, role));
    alike = alike && same_buffers(a->more, b->more) && same_buffers(a->kv, b->kv);
    check(alike && same_numbers(a->also, b->also, 0), op_row(b->op)->name, i);
}

static bool same_text(const char *a, const char *b) { return !a || !b ? a == b : strcmp(a, b) == 0; }

/* FLOP are the compiler's alone. */
static void check_unit(const struct rt_unit *a, const struct rt_unit *b, int l) {
    bool alike;
    check(!a == !b, "whether a unit, layer", l);
    if (!a || !b)
        return;
    ALIKE(struct rt_unit, a, b,
          (x.name = y.name, x.data = y.data, x.parameter = y.parameter, x.code = y.code,
           memcpy(x.flop, y.flop, sizeof x.flop)));
    check(alike && same_text(a->name, b->name) && same_text(a->data, b->data), "the unit of layer", l);
    for (int i = 0; i < b->nparameters && alike; i++) {
        ALIKE(struct rt_unit_parameter, &a->parameter[i], &b->parameter[i], x.name = y.name);
        check(alike && same_text(a->parameter[i].name, b->parameter[i].name), "a parameter of layer", l);
    }
}

static void check_stages(const struct rt_stage *a, const struct rt_stage *b, int n) {
    for (int s = 0; s < n; s++) {
        bool alike;
        ALIKE(struct rt_stage, &a[s], &b[s], x.layer = y.layer);
        check(alike, "stage", s);
        for (int l = 0; l < b[s].nlayers && alike; l++) {
            ALIKE(struct rt_layer, &a[s].layer[l], &b[s].layer[l], x.unit = y.unit);
            check(alike, "layer", l);
            check_unit(a[s].layer[l].unit, b[s].layer[l].unit, l);
        }
    }
}

static void check_inputs(const struct rt_model *a, const struct rt_model *b) {
    for (int k = 0; k < b->ninputs; k++) {
        const struct rt_input *x = &a->input_of_units[k], *y = &b->input_of_units[k];
        check(same_text(x->name, y->name) && x->columns == y->columns && x->floats == y->floats && x->below == y->below,
              "input of units", k);
    }
}

static void check_model(const struct rt_model *a, const struct rt_model *b, int nlayers) {
    bool alike;
    ALIKE(struct rt_model, a, b, (x.names = y.names, x.input_of_units = y.input_of_units));
    check(alike && !a->names == !b->names, "the model", 0);
    if (alike)
        check_inputs(a, b);
    for (int l = 0; a->names && b->names && l < nlayers; l++) {
        const struct rt_names *x = &a->names[l], *y = &b->names[l];
        const char *one[] = {x->hf, x->gguf, x->data}, *other[] = {y->hf, y->gguf, y->data};
        for (int i = 0; i < 3; i++)
            check(!one[i] || !other[i] ? one[i] == other[i] : !strcmp(one[i], other[i]), "names of layer", l);
    }
}

static void check_rank(const struct rt_rank *a, const struct rt_rank *b) {
    bool alike;
    ALIKE(struct rt_rank, a, b,
          (x.ins = y.ins, x.lane = y.lane, x.home = y.home, x.frozen = y.frozen, x.work = y.work,
           x.lane_ins = y.lane_ins, x.lane_at = y.lane_at, x.place = y.place));
    check(alike && same_buffer(a->work, b->work), "the rank", b->number);
    for (int i = 0; i < b->nins && alike; i++)
        check_instr(&a->ins[i], &b->ins[i], i);
    for (int l = 0; l < b->nlanes && alike; l++)
        check(!strcmp(a->lane[l], b->lane[l]), "lane", l);
    for (int i = 0; i < b->nfrozen && alike; i++) {
        ALIKE(struct rt_frozen, &a->frozen[i], &b->frozen[i], (void)0);
        check(alike, "frozen parameters", i);
    }
    for (int h = 0; h < b->nhomes && alike; h++) {
        ALIKE(struct rt_home, &a->home[h], &b->home[h], (void)0);
        check(alike, "home", h);
    }
}

/* Each group ends with a -1, and the list with another. */
static void check_groups(const int32_t *a, const int32_t *b) {
    for (int g = 0; *a >= 0 || *b >= 0; g++) {
        check(same_numbers(a, b, -1), "group", g);
        for (; *a >= 0; a++)
            ;
        for (; *b >= 0; b++)
            ;
        a++, b++;
    }
}

/* wanted: the rank's view, with the stream of the whole program. hash: every rank's. */
static void check_program(const struct rt_program *a, const struct rt_program *wanted, uint64_t hash, int nlayers) {
    bool alike;
    ALIKE(struct rt_program, a, wanted,
          (x.name = y.name, x.hash = y.hash, x.model = y.model, x.stage = y.stage, x.slice = y.slice,
           x.groups = y.groups, x.rank = y.rank, x.msg = y.msg));
    check(alike && !strcmp(a->name, wanted->name) && a->hash == hash && !a->msg, "the program", 0);
    check_model(a->model, wanted->model, nlayers);
    check(!a->slice == !wanted->slice, "slices", 0);
    check_stages(a->stage, wanted->stage, wanted->sets);
    if (a->slice && wanted->slice)
        check_stages(a->slice, wanted->slice, wanted->stages * wanted->model->slices);
    check_groups(a->groups, wanted->groups);
    check_rank(a->rank, wanted->rank);
}

static void load(const char *path) {
    void *program = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    int (*run)(int argc, char **argv) = NULL;
    if (program)
        *(void **)&run = dlsym(program, "main");
    if (!run || run(0, NULL) != 0)
        die("%s: %s", path, dlerror());
}

int main(int argc, char **argv) {
    if (argc < 4)
        die("readback DIR SCHEDULE MODEL [KEY=VALUE]...");
    struct compile c = {.args = {.schedule = argv[2], .model = argv[3], .nset = argc - 4}};
    c.args.set = (const char **)(void *)(argv + 4);
    compile_all(&c, "");
    const struct rt_program *all = runtime_program(c.costs, c.program);
    uint64_t hash = 0;
    for (rank = 0; rank < c.program->workers; rank++) {
        struct runtime_view *view = runtime_view(c.costs, c.program, rank);
        view->program.rank = &all->rank[rank];
        load(format("%s/rank%d", argv[1], rank));
        hash = rank ? hash : said->hash;
        check_program(said, &view->program, hash, c.spec->model->nlayers);
    }
    free_all();
    return differences > 0;
}
