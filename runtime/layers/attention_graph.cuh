/* Attention as graphs of cuDNN's operations.
 *
 * cuDNN takes a graph of operations and recognises the pattern. The two patterns below are attention's forward and
 * backward as cuDNN's own C++ front end lowers them (NVIDIA/cudnn-frontend 1.23: composite SDPA, causal,
 * deterministic). q, k and v lie side by side in a row, and so do the heads in each. The statistics are the same as
 * attention.cu's: the natural logarithm of the sum of exponentials, heads side by side. */
#ifndef PIANOLA_ATTENTION_GRAPH_CUH
#define PIANOLA_ATTENTION_GRAPH_CUH
#include "cudnn_graph.cuh"

/* ---- tensors ---- */

/* Names of tensors in memory. */
enum name { Q = 1, K, V, O, DO, STATISTICS, DQ, DK, DV, SUMS, SCALE, ONE, LEAST, NAMES };

struct tensors { /* rows: per sequence */
    struct graph *g;
    int64_t sequences, heads, rows, dim;
};

/* Returns one of `side` tensors that lie side by side in a row; turned: transposed. */
static descriptor heads_of(const struct tensors *tensors, int64_t name, int side, bool turned) {
    int64_t row = side * tensors->heads * tensors->dim, c = turned ? tensors->dim : tensors->rows,
            d = turned ? tensors->rows : tensors->dim;
    return graph_tensor(tensors->g, name, MEMORY, CUDNN_DATA_BFLOAT16,
                        {{tensors->sequences, tensors->heads, c, d},
                         {tensors->rows * row, tensors->dim, turned ? 1 : row, turned ? row : 1}});
}

/* Returns a tensor of one number per row and head, heads side by side. */
static descriptor graph_numbers(const struct tensors *tensors, int64_t name) {
    return graph_tensor(tensors->g, name, MEMORY, CUDNN_DATA_FLOAT,
                        {{tensors->sequences, tensors->heads, tensors->rows, 1},
                         {tensors->rows * tensors->heads, 1, tensors->heads, 1}});
}
static descriptor inner_numbers(const struct tensors *tensors) {
    return graph_tensor(tensors->g, 0, VIRTUAL, CUDNN_DATA_FLOAT,
                        {{tensors->sequences, tensors->heads, tensors->rows, 1},
                         {tensors->rows * tensors->heads, tensors->rows, 1, 1}});
}

static descriptor square(const struct tensors *tensors, cudnnDataType_t type, bool turned) {
    return graph_tensor(tensors->g, 0, VIRTUAL, type,
                        {{tensors->sequences, tensors->heads, tensors->rows, tensors->rows},
                         {tensors->heads * tensors->rows * tensors->rows, tensors->rows * tensors->rows,
                          turned ? 1 : tensors->rows, turned ? tensors->rows : 1}});
}
static descriptor graph_scores(const struct tensors *tensors) { return square(tensors, CUDNN_DATA_FLOAT, false); }

static descriptor constant(const struct tensors *tensors, int64_t name) {
    return graph_tensor(tensors->g, name, VALUE, CUDNN_DATA_FLOAT, {{1, 1, 1, 1}, {1, 1, 1, 1}});
}

/* Sets scores to LEAST where the column is past the row. */
static descriptor mask(const struct tensors *tensors, descriptor s) {
    struct graph *graph = tensors->g;
    descriptor row =
        pointwise(graph, CUDNN_POINTWISE_GEN_INDEX, s, NULL, NULL, square(tensors, CUDNN_DATA_INT32, false), 2);
    descriptor column =
        pointwise(graph, CUDNN_POINTWISE_GEN_INDEX, s, NULL, NULL, square(tensors, CUDNN_DATA_INT32, false), 3);
    descriptor seen =
        pointwise(graph, CUDNN_POINTWISE_CMP_GE, row, column, NULL, square(tensors, CUDNN_DATA_BOOLEAN, false));
    return pointwise(graph, CUDNN_POINTWISE_BINARY_SELECT, s, constant(tensors, LEAST), seen, graph_scores(tensors));
}

/* ---- the two graphs ---- */

static void forward_graph(const struct tensors *tensors) {
    struct graph *graph = tensors->g;
    descriptor s =
        graph_multiply(graph, heads_of(tensors, Q, 3, false), heads_of(tensors, K, 3, true), graph_scores(tensors));
    s = mask(tensors, pointwise(graph, CUDNN_POINTWISE_MUL, s, constant(tensors, SCALE), NULL, graph_scores(tensors)));
    descriptor top = graph_reduce(graph, CUDNN_REDUCE_TENSOR_MAX, s, inner_numbers(tensors));
    descriptor below = pointwise(graph, CUDNN_POINTWISE_SUB, s, top, NULL, graph_scores(tensors));
    descriptor e = pointwise(graph, CUDNN_POINTWISE_EXP, below, NULL, NULL, graph_scores(tensors));
    descriptor sum = graph_reduce(graph, CUDNN_REDUCE_TENSOR_ADD, e, inner_numbers(tensors));
    descriptor log = pointwise(graph, CUDNN_POINTWISE_LOG, sum, NULL, NULL, inner_numbers(tensors));
    pointwise(graph, CUDNN_POINTWISE_ADD, top, log, NULL, graph_numbers(tensors, STATISTICS));
    descriptor p = pointwise(graph, CUDNN_POINTWISE_DIV, e, sum, NULL, square(tensors, CUDNN_DATA_BFLOAT16, false));
    graph_multiply(graph, p, heads_of(tensors, V, 3, false), heads_of(tensors, O, 1, false));
}

static void backward_graph(const struct tensors *tensors) {
    struct graph *graph = tensors->g;
    descriptor q = heads_of(tensors, Q, 3, false), k = heads_of(tensors, K, 3, true),
               dy = heads_of(tensors, DO, 1, false);
    descriptor scale = constant(tensors, SCALE),
               part = graph_tensor(
                   graph, 0, VIRTUAL, CUDNN_DATA_FLOAT,
                   {{tensors->sequences, tensors->heads, tensors->rows, tensors->dim},
                    {tensors->rows * tensors->heads * tensors->dim, tensors->rows * tensors->dim, tensors->dim, 1}});
    pointwise(graph, CUDNN_POINTWISE_MUL, dy, heads_of(tensors, O, 1, false), NULL, part);
    descriptor sums = graph_reduce(graph, CUDNN_REDUCE_TENSOR_ADD, part, inner_numbers(tensors));
    sums = pointwise(graph, CUDNN_POINTWISE_MUL, sums, constant(tensors, ONE), NULL, graph_numbers(tensors, SUMS));

    descriptor s = graph_multiply(graph, q, k, graph_scores(tensors));
    s = pointwise(graph, CUDNN_POINTWISE_MUL, s, scale, NULL, graph_scores(tensors));
    s = mask(tensors,
             pointwise(graph, CUDNN_POINTWISE_SUB, s, graph_numbers(tensors, STATISTICS), NULL, graph_scores(tensors)));
    descriptor p = pointwise(graph, CUDNN_POINTWISE_EXP, s, NULL, NULL, graph_scores(tensors));
    graph_multiply(graph, graph_turn(graph, p, square(tensors, CUDNN_DATA_BFLOAT16, true)), dy,
                   heads_of(tensors, DV, 3, false));

    descriptor dp = graph_multiply(graph, dy, heads_of(tensors, V, 3, true), graph_scores(tensors));
    dp = pointwise(graph, CUDNN_POINTWISE_SUB, dp, sums, NULL, graph_scores(tensors));
    descriptor ds = pointwise(graph, CUDNN_POINTWISE_MUL, dp, p, NULL, graph_scores(tensors));
    ds = pointwise(graph, CUDNN_POINTWISE_MUL, ds, scale, NULL, graph_scores(tensors));
    graph_multiply(graph, graph_turn(graph, ds, square(tensors, CUDNN_DATA_BFLOAT16, true)), q,
                   heads_of(tensors, DK, 3, false));
    int64_t row = 3 * tensors->heads * tensors->dim;
    descriptor straight = graph_tensor(graph, 0, VIRTUAL, CUDNN_DATA_FLOAT,
                                       {{tensors->sequences, tensors->heads, tensors->rows, tensors->dim},
                                        {tensors->rows * row, tensors->dim, row, 1}});
    graph_multiply(graph, ds, graph_turn(graph, k, straight), heads_of(tensors, DQ, 3, false));
}
#endif
