/* The plans of the graphs in scale.cpp, as pianola-export writes them. The matrix begins at byte 88 of the parameters,
 * which does not suit a GPU, so its gradient is computed in work. */
#include <pianola/aoti.h>

enum { FLOAT = 6, ROWS = 8, IN = 22, OUT = 20, WORKSPACE = 4 << 20 };
enum { DX = 1024, DSCALE = 2048, DW = 3072, PRODUCT = 8192 }; /* places in work */

extern "C" struct aoti_code scale_code;
extern "C" aoti_function scale_forward_graph, scale_input_graph, scale_weight_graph;

#define X_IN                                                                                                           \
    {                                                                                                                  \
        {AOTI_X, 0}, FLOAT, 2, {ROWS, IN}, { IN, 1 }                                                                   \
    }
#define H_IN                                                                                                           \
    {                                                                                                                  \
        {AOTI_STASH, 0}, FLOAT, 2, {ROWS, IN}, { IN, 1 }                                                               \
    }
#define SCALE_IN                                                                                                       \
    {                                                                                                                  \
        {AOTI_W, 0}, FLOAT, 1, {IN}, { 1 }                                                                             \
    }
#define W_IN                                                                                                           \
    {                                                                                                                  \
        {AOTI_W, 4 * IN}, FLOAT, 2, {IN, OUT}, { OUT, 1 }                                                              \
    }
#define DY_IN                                                                                                          \
    {                                                                                                                  \
        {AOTI_DY, 0}, FLOAT, 2, {ROWS, OUT}, { OUT, 1 }                                                                \
    }
#define EXTRA_IN                                                                                                       \
    {                                                                                                                  \
        {AOTI_EXTRA, 0}, FLOAT, 2, {ROWS, IN}, { IN, 1 }                                                               \
    }
static const struct aoti_input forward_in[] = {X_IN, SCALE_IN, W_IN};
static const struct aoti_input input_in[] = {DY_IN, SCALE_IN, W_IN};
static const struct aoti_input weight_in[] = {X_IN, H_IN, DY_IN, EXTRA_IN};

static const struct aoti_allocation forward_tape[] = {
    {{AOTI_STASH, 0}, 4 * ROWS *IN, 0}, {{AOTI_Y, 0}, 4 * ROWS *OUT, 0}, {{AOTI_WORK, PRODUCT}, WORKSPACE, 0}};
static const struct aoti_allocation input_tape[] = {
    {{AOTI_EXTRA, 0}, 4 * ROWS *IN, 0}, {{AOTI_WORK, PRODUCT}, WORKSPACE, 0}, {{AOTI_DX, 0}, 4 * ROWS *IN, DX}};
static const struct aoti_allocation weight_tape[] = {
    {{AOTI_DW, 4 * IN}, 4 * IN *OUT, DW}, {{AOTI_WORK, PRODUCT}, WORKSPACE, 0}, {{AOTI_DW, 0}, 4 * IN, DSCALE}};
static const int32_t forward_out[] = {1, 0}, input_out[] = {2, 0}, weight_out[] = {2, 0};

static struct aoti_graph graph_of(const char *name, aoti_function *run) {
    struct aoti_graph graph = {};
    graph.name = name;
    graph.machine = "sm_80";
    graph.run = run;
    graph.code = &scale_code;
    graph.tensors = 8;
    return graph;
}

extern "C" void scale_forward_cuda(const struct pianola_unit_call *call) {
    struct aoti_graph graph = graph_of("scale_forward", scale_forward_graph);
    graph.input = forward_in, graph.tape = forward_tape, graph.output = forward_out;
    graph.inputs = 3, graph.outputs = 2, graph.allocations = 3;
    aoti_run_cuda(&graph, call);
}
extern "C" void scale_input_cuda(const struct pianola_unit_call *call) {
    struct aoti_graph graph = graph_of("scale_input", scale_input_graph);
    graph.input = input_in, graph.tape = input_tape, graph.output = input_out;
    graph.inputs = 3, graph.outputs = 2, graph.allocations = 3;
    aoti_run_cuda(&graph, call);
}
extern "C" void scale_weight_cuda(const struct pianola_unit_call *call) {
    struct aoti_graph graph = graph_of("scale_weight", scale_weight_graph);
    graph.input = weight_in, graph.tape = weight_tape, graph.output = weight_out;
    graph.inputs = 4, graph.outputs = 2, graph.allocations = 3;
    aoti_run_cuda(&graph, call);
}
