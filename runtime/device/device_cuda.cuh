/* The ranks' interface to a CUDA device, for device_cuda.cu, the transports, and the code that runs steps. */
#ifndef PIANOLA_DEVICE_CUDA_CUH
#define PIANOLA_DEVICE_CUDA_CUH
#include "layers/cuda_math.cuh"
extern "C" {
#include "replay.h"
#include "store/checkpoint.h"
}

struct world;
enum cuda_timing { TIME_NONE, TIME_SOME, TIME_ALL }; /* which steps of a run are timed */
enum cuda_timed { UNTIMED, TIMED, TIMED_CAPTURE };
struct cuda_span {
    cudaEvent_t begin, end;
};
struct cuda_range {
    int32_t from, to;
};
/* Transfers of microbatches to the device. Two copies in pinned host memory alternate. */
struct cuda_feed {
    char *input;                           /* the pass's microbatches, data_bytes each, at their written-out numbers */
    char *whole;                           /* with slices: a whole microbatch on the host, to be cut; else NULL */
    char *staged[2];                       /* pinned host memory: microbatches on their way to input */
    cudaEvent_t sent[2];                   /* recorded when they have been copied */
    int64_t count;                         /* fillings so far */
    struct cuda_range fed[NSECTIONS];      /* the whole microbatches that a section reads, in written-out numbers */
    const struct rt_layer *reader, *loser; /* the layers that select rows of inputs, of targets; or NULL */
};
/* Transfers of a step's losses and norm back, in pinned host memory. Two steps' results alternate. */
struct cuda_result {
    struct cuda_range *lost, *lost_at[NSECTIONS + 1]; /* microbatches, or slices, whose losses section s makes:
                                                         [lost_at[s], lost_at[s + 1]) */
    float *told[2];                                   /* losses [batches] */
    int64_t norm_at;                                  /* offset of the norm in the arena; -1: none */
    uint64_t *norm[2];
    uint64_t *found;     /* the norm before the current step began its own */
    cudaEvent_t came[2]; /* recorded when they have arrived */
};
struct cuda_rank {
    char *arena; /* device memory: the plan's arena, then the buffers below */
    char *host;  /* pinned host memory: the plan's host arena, of host_bytes; NULL: none */
    int64_t host_bytes;
    struct cuda_feed feed;
    struct cuda_result result;
    float *loss;              /* per microbatch as written out, and one more for recomputed forwards */
    struct rt_routed *routed; /* totals over all forwards so far; then the totals before the last step */
    int64_t *counted;         /* see struct cuda_number */
    uint64_t seed;            /* the training's, for its weights and random draws */
    void *workspace;          /* workspace of the products on the compute lane */
    cudaStream_t *lane;
    cudaEvent_t *event;     /* per instruction; NULL unless others wait for it */
    int64_t *issued;        /* per instruction: how often it has been enqueued */
    uint32_t *reached;      /* pinned host memory, as in struct replay, written by the device; NULL: not watched */
    struct cuda_span *span; /* per instruction, if steps are timed; else NULL */
    enum cuda_timed timed;  /* the pass being enqueued */
    bool captured;          /* whether that pass is captured into a graph */
    int ahead;              /* passed from one part of a backward to the next: see cuda_backward_part */
    bool turned;            /* turn was recorded in this pass */
    cudaEvent_t turn;       /* the end of the latest work of lanes with messages and copies; for chained transports */
    const struct cuda_transport *transport;
    void *link;     /* the transport's own */
    char *extra;    /* its device memory, extra(p, rank) bytes */
    char why[1024]; /* reason why cuda_take failed */
};

/* How messages travel between ranks on GPUs. Functions that a transport does not need are NULL. */
struct cuda_transport {
    const char *name; /* shown in messages */
    /* Returns details for the line about the run, or NULL if the name is enough. captured: in a graph. */
    const char *(*about)(bool captured);
    bool one_host; /* for ranks on one host, which may share a device; otherwise each rank has its own */
    /* Enqueues a message on x's lane. Returns false if the other side has not come yet (loopback). */
    bool (*message)(void *link, struct replay *re, const struct rt_instr *x);
    bool (*collective)(void *link, struct replay *re, const struct rt_instr *x);
    /* Makes the rank's only allocation, which includes the plan, in memory that other ranks' devices can reach. Returns
     * NULL with why on failure. */
    char *(*take)(int rank, size_t bytes, char *why, size_t n);
    void (*give)(char *p);
    /* Returns the bytes of device memory that it needs besides the plan. They are part of the same allocation, at
     * `extra`. */
    int64_t (*extra)(const struct rt_program *p, int rank);
    /* Returns an upper bound, as far as known in advance, on the device memory that libraries allocate for it. groups:
     * as for open. */
    int64_t (*beside)(const struct rt_program *p, int rank, const int32_t *groups);
    /* Connects ranks that are processes; collective. Sets own->link as soon as there is something to abort. Ends the
     * process on failure. groups: as in rt_program. The caller keeps all arguments alive until close. */
    void (*open)(const struct world *world, const struct rt_program *p, const int32_t *groups, struct cuda_rank *own);
    /* Polls the work under way. Returns NULL, or an error, after which the work will never end. */
    const char *(*progress)(void *link);
    /* Aborts the work under way, whose results are then undefined. May never return. Any thread may call it, once. */
    void (*abort)(void *link);
    void (*close)(void *link);
    /* in a graph, a rank's messages run one after another, in issue order: device_cuda.cu explains why */
    bool chained;
};
extern const struct device cuda_device;
static inline struct cuda_rank *cuda_rank_of(const struct replay *re) { return (struct cuda_rank *)re->self; }
/* Returns whether a lane carries messages: such a lane begins with one. */
static inline bool cuda_has_messages(const struct rt_rank *k, int lane) {
    return k->lane_at[lane] < k->lane_at[lane + 1] && is_message(k->ins[k->lane_ins[k->lane_at[lane]]].op);
}

/* Returns the bytes of device memory that a rank takes. In host memory, it takes exactly its plan. */
int64_t cuda_rank_bytes(const struct rt_program *p, int rank, const struct cuda_transport *transport);
/* Calls cudaMalloc. Returns NULL with why on failure; why mentions lack of memory only if that is the reason. */
char *cuda_allocate(size_t bytes, char *why, size_t n);
/* Allocates what a rank's replay needs; the caller sets own->link. watched: the device reports its progress in
 * re->reached. Returns NULL, or the reason why it failed. */
const char *cuda_take(struct replay *re, struct cuda_rank *own, const struct rt_program *p, int rank,
                      const struct cuda_transport *transport, bool watched);
void cuda_release(struct replay *re, struct cuda_rank *own);
/* Timing: events at every instruction's begin and end, recorded in steps enqueued while own->timed is set; for
 * messages, the transport records them. Stamps are seconds of the device's clock, for a step that began at `began`,
 * with event `since`. Read them after the step has ended and before its events are recorded anew. */
const char *cuda_time(struct cuda_rank *own, const struct rt_rank *k);
void cuda_mark(const struct cuda_rank *own, int32_t i, bool end, cudaStream_t stream);
void cuda_stamps(const struct cuda_rank *own, const struct rt_rank *k, cudaEvent_t since, double began,
                 struct rt_stamp *stamp);
/* Sets initial weights at the homes, and the learning rate. */
bool cuda_begin(struct replay *re, const struct start *start, char *why, size_t nwhy);
/* Copies a home's learned state to host memory, and back. mirror has room for all of it. */
struct checkpoint_shard cuda_pull(const struct replay *re, const struct rt_home *home, float *mirror);
void cuda_push(struct replay *re, const struct rt_home *home, const float *weight, const float *moments);

/* feed_cuda.cu: microbatches and losses. Returns the number of whole microbatches in the tables, where slices count
 * separately. */
int32_t cuda_written(const struct rt_program *p);
/* Allocates feed.whole and result.lost, and finds what each section reads and makes. Returns false if the host has no
 * memory. */
bool cuda_plan_feeds(struct cuda_rank *own, const struct rt_program *p, const struct rt_rank *k);
/* Returns the microbatch, or slice, that a job reads, in device memory. */
struct rt_batch cuda_input(const struct replay *re, const struct rt_instr *x);
/* Prepares a pass's microbatches before it runs, and sends them to the device, on stream. */
void cuda_feed(struct replay *re, int64_t step, int64_t pass, const struct data *data, cudaStream_t stream);
/* Sends a pass's losses back after it, on stream. */
void cuda_tell(struct replay *re, int64_t pass, cudaStream_t stream);

/* step_cuda.cu: steps of n ranks that share this thread and its device, pass after pass on a stream. The first step is
 * enqueued lane by lane. With graph, each section is captured in the second step, and launched from then on. */
struct cuda_steps {
    int n;
    struct replay *replay;
    struct cuda_rank *rank;
    bool graph;
    enum cuda_timing timing;                        /* with events around every instruction */
    const struct data *data;                        /* NULL: these ranks read none */
    void (*wait)(void *context, cudaEvent_t event); /* waits until the event has happened; NULL: by blocking */
    void *context;
    cudaStream_t origin;     /* stream on which a pass begins and ends */
    cudaEvent_t fork, *join; /* join: per rank and lane */
    int joins;
    cudaEvent_t begin[2], end[2]; /* of a step; two alternate */
    cudaEvent_t passed[2];        /* end of a pass, where a step has several; two alternate */
    double *ended[2];             /* when a step's passes ended, in seconds since its begin; two alternate */
    int64_t noted;                /* passes of this run whose ends are known */
    cudaGraphExec_t exec[NSECTIONS], timed[NSECTIONS]; /* the captured sections, without and with timing events */
    int64_t turn[NSECTIONS];                           /* how often each section has been enqueued */
    double at;                                         /* when the last step with times requested began */
    int64_t asked;                                     /* 1 + that step's number; 0: no such step */
    int64_t first, run;                                /* the first step; steps so far */
    double busy; /* seconds that this thread took to enqueue all but the first two steps */
};
/* Prepares to run steps. The caller has set n, replay, rank, graph, timing, and, for programs that repeat a period,
 * data and wait. Returns false if the host has no memory. */
bool steps_open(struct cuda_steps *steps);
/* Enqueues a step and the copies of its losses; the microbatches of its first pass are in place. */
void steps_run(struct cuda_steps *steps, int64_t step, bool timed);
/* Enqueues a run that is not training, lane by lane: step `step` of a validation on data (NULL if these ranks read
 * none), or the settling of the last step. All steps so far have ended. `next` is the next step; the run uses its
 * places for losses and a norm, and overwrites its microbatches. */
void steps_beside(struct cuda_steps *steps, enum purpose purpose, int64_t next, int64_t step, const struct data *data);
/* Enqueues the last step, which has ended, again with its microbatches, as if it had not run. data: as in
 * steps_beside. */
void steps_again(struct cuda_steps *steps, int64_t step, bool timed, const struct data *data);
/* Reads when a rank's instructions ran in the timed step that was enqueued last, which has ended; within a period, when
 * they ran last. stamp: seconds since the begin of the first step that this was called for. From then on, call it and
 * steps_when for every step, before the next is enqueued. */
void steps_times(struct cuda_steps *steps, int64_t step, int rank, struct rt_stamp *stamp);
/* Reads the ends of the last stage's updates on the rank into when[updates_per_step]: the ends of their passes. */
void steps_when(struct cuda_steps *steps, int64_t step, int rank, double *when);
void steps_close(struct cuda_steps *steps);

/* fault_cuda.cu: sets which instruction is being enqueued, for messages and profilers. The device may run it later. */
void cuda_enter(const struct replay *re, const struct rt_instr *x);
void cuda_leave(void);
/* Writes an instruction's name, such as "1F3" or "RECV_F 1 3 from 0". */
void cuda_instr_name(const struct rt_program *p, const struct rt_instr *x, char *out, size_t n);
/* Writes the call, the error's name and text, and its possible origin into why, of n bytes. Returns why. */
const char *cuda_trouble(cudaError_t code, const char *call, char *why, size_t n);

/* nvtx.cu: ranges for profilers on this thread, named after the instructions */
void nvtx_begin(const struct rt_program *p, const struct rt_instr *x);
void nvtx_end(void);
#endif
