/* What each rank's program must hold, from the compiled program in memory, past all that writes and reads rank<k>.cu:
 * readback DIR SCHEDULE MODEL [KEY=VALUE]... leaves DIR/rank<k>.wanted. */
#include "cli/compile.h"
#include "cli/runtime_program.h"
#include "dump.h"
#include <errno.h>
#include <string.h>

/* What a rank knows of every stage: what an update takes, and the stage's place in its team. */
static struct rt_stage elsewhere(const struct rt_stage *stage) {
    return (struct rt_stage){
        .update = stage->update, .number = stage->number, .place = stage->place, .members = stage->members};
}

/* The stages that a rank computes or is home of; of others it knows no more. */
static struct rt_stage *stages_of(const struct rt_program *rt, const struct rt_rank *k) {
    struct rt_stage *stage = NEW(struct rt_stage, rt->sets);
    for (int s = 0; s < rt->sets; s++)
        stage[s] = elsewhere(&rt->stage[s]);
    for (int32_t i = 0; i < k->nins; i++)
        if (op_lane[k->ins[i].op] == LANE_COMPUTE)
            stage[k->ins[i].stage] = rt->stage[k->ins[i].stage];
    for (int32_t h = 0; h < k->nhomes; h++)
        stage[k->home[h].stage] = rt->stage[k->home[h].stage];
    return stage;
}

/* And their slices. */
static struct rt_stage *slice_stages(const struct rt_program *rt, const struct rt_stage *stage) {
    int slices = rt->model->slices;
    struct rt_stage *slice = NEW(struct rt_stage, rt->stages * slices + 1);
    for (int i = 0; i < rt->stages * slices; i++)
        slice[i] = stage[i / slices].nlayers ? rt->slice[i] : elsewhere(&rt->slice[i]);
    return slice;
}

static void dump_rank(const struct program *p, const struct rt_program *rt, int r, const char *path) {
    const struct rt_rank *k = &rt->rank[r];
    struct rt_instr *ins = NEW(struct rt_instr, k->nins);
    memcpy(ins, k->ins, sizeof *ins * (size_t)k->nins);
    for (int32_t i = 0; i < k->nins; i++)
        if (is_group(ins[i].op))
            ins[i].peer = p->rank[r].lane[ins[i].lane].group;
    const struct rt_stage *stage = stages_of(rt, k);
    struct rt_rank own = *k;
    struct rt_program view = *rt;
    own.ins = ins;
    view.stage = stage;
    view.slice = slice_stages(rt, stage);
    view.rank = &own;
    FILE *f = fopen(path, "w");
    if (!f)
        die("%s: %s", path, strerror(errno));
    dump(f, &view);
    if (fclose(f) != 0)
        die("%s: %s", path, strerror(errno));
}

int main(int argc, char **argv) {
    if (argc < 4)
        die("readback DIR SCHEDULE MODEL [KEY=VALUE]...");
    struct compile c = {.args = {.schedule = argv[2], .model = argv[3], .nset = argc - 4}};
    c.args.set = (const char **)(void *)(argv + 4);
    compile_all(&c, "");
    const struct rt_program *rt = runtime_program(c.spec, c.stage, c.program);
    for (int r = 0; r < c.program->workers; r++)
        dump_rank(c.program, rt, r, format("%s/rank%d.wanted", argv[1], r));
    free_all();
    return 0;
}
