/* A CUDA device as ranks see it; shared by device_cuda.cu, the transports, and those who run steps. */
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
/* The way of microbatches to the device. Two copies in pinned host memory alternate. */
struct cuda_feed {
    char *input;                           /* the pass's microbatches, data_bytes each, where they are as written out */
    char *whole;                           /* with slices: a microbatch that is cut, on the host; else NULL */
    char *staged[2];                       /* pinned host memory: microbatches on their way to input */
    cudaEvent_t sent[2];                   /* they have been copied */
    int64_t count;                         /* how often they have been filled */
    struct cuda_range fed[NSECTIONS];      /* the whole microbatches that a section reads, as written out */
    const struct rt_layer *reader, *loser; /* the layers that say which rows of inputs, of targets, are read; or NULL */
};
/* The way of a step's losses and norm back, in pinned host memory. Those of two steps alternate. */
struct cuda_result {
    struct cuda_range *lost, *lost_at[NSECTIONS + 1]; /* microbatches, or slices, whose losses section s makes:
                                                         [lost_at[s], lost_at[s + 1]) */
    float *told[2];                                   /* the losses [batches] */
    int64_t norm_at;                                  /* the norm in the arena; -1: it has none */
    uint64_t *norm[2];
    uint64_t *found;     /* the norm before the step under way began its own */
    cudaEvent_t came[2]; /* they have arrived */
};
struct cuda_rank {
    char *arena; /* device memory: the plan's arena, then the buffers below */
    char *host;  /* pinned host memory: the plan's arena there, of host_bytes; NULL: it has none */
    int64_t host_bytes;
    struct cuda_feed feed;
    struct cuda_result result;
    float *loss;              /* of each microbatch as written out, and one more for recomputed forwards */
    struct rt_routed *routed; /* of all forwards so far; after it, of those before the last step */
    int64_t *counted;         /* as in struct cuda_number */
    uint64_t seed;            /* of the training: of its weights and of what it draws */
    void *workspace;          /* for the products on the compute lane */
    cudaStream_t *lane;
    cudaEvent_t *event;     /* per instruction; NULL unless others wait for it */
    int64_t *issued;        /* per instruction: how often it was enqueued */
    uint32_t *reached;      /* pinned host memory, as in struct replay, written by the device. NULL: not watched */
    struct cuda_span *span; /* per instruction, if steps are timed; else NULL */
    enum cuda_timed timed;  /* the pass being enqueued */
    bool captured;          /* it is, into a graph */
    int ahead;              /* from a part of a backward to the next: see cuda_backward_part */
    bool turned;            /* so far, what lanes with messages and copies have done ends */
    cudaEvent_t turn;       /* here. Of a transport that is chained */
    const struct cuda_transport *transport;
    void *link;     /* the transport's own */
    char *extra;    /* its device memory, extra(p, rank) bytes */
    char why[1024]; /* cuda_take failed */
};

/* How messages travel between ranks on GPUs. Functions that a transport does not need are NULL. */
struct cuda_transport {
    const char *name; /* for messages */
    /* More than the name, for the line about the run. captured: in a graph. NULL: the name says all. */
    const char *(*about)(bool captured);
    bool one_host; /* for ranks on one host, which may share a device; else each has its own */
    /* Enqueues on x's lane. False: not yet, the other side has not come (loopback). */
    bool (*message)(void *link, struct replay *re, const struct rt_instr *x);
    bool (*collective)(void *link, struct replay *re, const struct rt_instr *x);
    /* Makes the rank's only allocation, plan included, of a kind other ranks' devices can reach. NULL with why. */
    char *(*take)(int rank, size_t bytes, char *why, size_t n);
    void (*give)(char *p);
    /* Device memory that it needs besides the plan: part of the same allocation, at extra. */
    int64_t (*extra)(const struct rt_program *p, int rank);
    /* Device memory that others take for it, at most, as far as can be told before. groups: as for open. */
    int64_t (*beside)(const struct rt_program *p, int rank, const int32_t *groups);
    /* Between ranks that are processes; collective: sets own->link as soon as there is something to abort. Ends the
     * process on failure. groups: as in rt_program. The caller keeps all arguments alive until close. */
    void (*open)(const struct world *world, const struct rt_program *p, const int32_t *groups, struct cuda_rank *own);
    /* Polled while work is under way. NULL, or an error, after which that work will not end. */
    const char *(*progress)(void *link);
    /* Ends work under way, its results undefined. May never return; any thread may call it, once. */
    void (*abort)(void *link);
    void (*close)(void *link);
    /* In a graph, a rank's messages come one after another, in issue order: device_cuda.cu says why. */
    bool chained;
};
extern const struct device cuda_device;
static inline struct cuda_rank *cuda_rank_of(const struct replay *re) { return (struct cuda_rank *)re->self; }
/* Tells whether a lane carries messages: such a lane begins with one. */
static inline bool cuda_has_messages(const struct rt_rank *k, int lane) {
    return k->lane_at[lane] < k->lane_at[lane + 1] && is_message(k->ins[k->lane_ins[k->lane_at[lane]]].op);
}

/* Bytes of device memory that a rank takes; in host memory it takes its plan's. */
int64_t cuda_rank_bytes(const struct rt_program *p, int rank, const struct cuda_transport *transport);
/* cudaMalloc. NULL with why, which speaks of a lack of memory only where that is the reason. */
char *cuda_allocate(size_t bytes, char *why, size_t n);
/* Allocates what a rank's replay needs; the caller sets own->link. watched: the device reports its progress in
 * re->reached. Returns NULL, or why it failed. */
const char *cuda_take(struct replay *re, struct cuda_rank *own, const struct rt_program *p, int rank,
                      const struct cuda_transport *transport, bool watched);
void cuda_release(struct replay *re, struct cuda_rank *own);
/* Timing: events at every instruction's begin and end, recorded in steps enqueued while own->timed is set; the
 * transport marks a message's. Stamps are seconds of the device's clock, for a step that began at `began`, with event
 * `since`; read them once it has ended, and before its events are recorded anew. */
const char *cuda_time(struct cuda_rank *own, const struct rt_rank *k);
void cuda_mark(const struct cuda_rank *own, int32_t i, bool end, cudaStream_t stream);
void cuda_stamps(const struct cuda_rank *own, const struct rt_rank *k, cudaEvent_t since, double began,
                 struct rt_stamp *stamp);
/* Initial weights at the homes, and the learning rate. */
bool cuda_begin(struct replay *re, const struct start *start, char *why, size_t nwhy);
/* What a home has learned: in host memory, of which mirror has room for all of it; and the other way. */
struct checkpoint_shard cuda_pull(const struct replay *re, const struct rt_home *home, float *mirror);
void cuda_push(struct replay *re, const struct rt_home *home, const float *weight, const float *moments);

/* feed_cuda.cu: microbatches and losses. Whole microbatches that are written out: slices are counted elsewhere. */
int32_t cuda_written(const struct rt_program *p);
/* Allocates feed.whole and result.lost, and says what each section reads and makes. False: no memory on the host. */
bool cuda_plan_feeds(struct cuda_rank *own, const struct rt_program *p, const struct rt_rank *k);
/* What a job reads of them, in device memory. */
struct rt_batch cuda_input(const struct replay *re, const struct rt_instr *x);
/* Before a pass of a step: makes its microbatches and sends them to the device, on stream. */
void cuda_feed(struct replay *re, int64_t step, int64_t pass, const struct data *data, cudaStream_t stream);
/* After a pass: sends its losses back, on stream. */
void cuda_tell(struct replay *re, int64_t pass, cudaStream_t stream);

/* step_cuda.cu: steps of n ranks that share this thread and its device, pass after pass on a stream. The first step is
 * enqueued lane by lane; with graph, each section is captured in the second, and launched from then on. */
struct cuda_steps {
    int n;
    struct replay *replay;
    struct cuda_rank *rank;
    bool graph;
    enum cuda_timing timing;                        /* with events around every instruction */
    const struct data *data;                        /* NULL: these ranks read none */
    void (*wait)(void *context, cudaEvent_t event); /* until it has happened. NULL: by blocking */
    void *context;
    cudaStream_t origin;     /* where a pass begins and ends */
    cudaEvent_t fork, *join; /* join: per rank and lane */
    int joins;
    cudaEvent_t begin[2], end[2];                      /* of a step, alternating */
    cudaEvent_t passed[2];                             /* likewise of a pass, where a step has several: its end */
    double *ended[2];                                  /* of a step, alternating: when its passes ended, */
    int64_t noted;                                     /* the first so many of this run; seconds since begin */
    cudaGraphExec_t exec[NSECTIONS], timed[NSECTIONS]; /* the captured sections, and those with those events */
    int64_t turn[NSECTIONS];                           /* how often each has been enqueued */
    double at;                                         /* when the step that was last asked for began, */
    int64_t asked;                                     /* and 1 + its number; 0: none was */
    int64_t first, run;                                /* the first step; steps so far */
    double busy; /* seconds that this thread took to enqueue all but the first two */
};
/* The caller has set n, replay, rank, graph, timing, and, for programs that repeat a period, data and wait. False: no
 * memory on the host. */
bool steps_open(struct cuda_steps *steps);
/* Enqueues a step, the microbatches of whose first pass are in place, and the copies of its losses. */
void steps_run(struct cuda_steps *steps, int64_t step, bool timed);
/* Enqueues a run that is no training, lane by lane: step `step` of a validation on data, NULL where these ranks read
 * none, or what settles the last step. All steps so far have ended; `next` is the one to come, whose places for losses
 * and a norm it takes and whose microbatches it overwrites. */
void steps_beside(struct cuda_steps *steps, enum purpose purpose, int64_t next, int64_t step, const struct data *data);
/* Enqueues the step that has ended once more, as if it had not been, with its microbatches; data: as in steps_beside.
 */
void steps_again(struct cuda_steps *steps, int64_t step, bool timed, const struct data *data);
/* When the instructions of a rank, in the timed step enqueued last, which has ended, ran; those of the period, the last
 * time. stamp: seconds since the first step that this was called for began. It and steps_when are called for every step
 * from then on, before the next is enqueued. */
void steps_times(struct cuda_steps *steps, int64_t step, int rank, struct rt_stamp *stamp);
/* Likewise the ends of the last stage's updates on the rank, as when[updates_per_step]: those of their passes. */
void steps_when(struct cuda_steps *steps, int64_t step, int rank, double *when);
void steps_close(struct cuda_steps *steps);

/* fault_cuda.cu: which instruction is being enqueued, for messages and profilers. It may already be over when the
 * device runs it. */
void cuda_enter(const struct replay *re, const struct rt_instr *x);
void cuda_leave(void);
/* "1F3", "RECV_F 1 3 from 0" */
void cuda_instr_name(const struct rt_program *p, const struct rt_instr *x, char *out, size_t n);
/* Into why, of n bytes: the call, the error's name and text, and where it may come from. Returns why. */
const char *cuda_trouble(cudaError_t code, const char *call, char *why, size_t n);

/* nvtx.cu: ranges for profilers on this thread, named like the instructions */
void nvtx_begin(const struct rt_program *p, const struct rt_instr *x);
void nvtx_end(void);
#endif
