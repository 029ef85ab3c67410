/* Gives a program's instructions their times in a dump of the flight recorder.
 *
 * Messages of an edge arrive in order, so the k-th one there is the k-th of the program's steps. Steps are counted from
 * the run's first message or, if a rank's ring buffer has lost that, back from the last one. A message lasts from when
 * it was created, or seen to start, until it was seen to be complete. If its duration was recorded, it starts that much
 * before its end.
 *
 * A dump has no jobs. A job lasts from when its input and its rank were free until it sends its output. A job that
 * sends nothing takes no time; its time counts for the rank's next job that sends. A first job without input takes
 * no time either. */
#include "flight.h"
#include "base/text.h"
#include <string.h>

/* The messages of a step from or to a peer, in their order */
struct edge {
    int32_t *ins;
    int n;
    int found, seen; /* messages in the dump: all, and those before the current one */
};

struct tracks {
    struct rank_run *run;
    const struct flight *flight;
    struct edge *edge; /* [2 * peer + send] */
    bool begun;        /* the dumps of all ranks have their first messages */
    int nsteps;
};

/* ---- edges ---- */

static int edge_of_ins(const struct instr *x) { return 2 * x->peer + is_send(x->op); }

/* A message of an edge, and the place of the job that makes it among its rank's instructions */
struct made {
    int32_t job, ins;
};

static int by_job(const void *x, const void *y) {
    const struct made *a = x, *b = y;
    return a->job - b->job;
}

/* Puts the messages in PyTorch's order, by the jobs that make them. The program may send the messages of two
 * overlapping jobs in either order. */
static void order_edge(const struct rank_run *run, struct edge *edge, int sender) {
    const struct rank *k = run->index.rank;
    struct ins_index index = ins_index(&run->p->rank[sender]);
    struct made *made = NEW(struct made, edge->n);
    for (int i = 0; i < edge->n; i++) {
        const struct instr *x = &k->ins[edge->ins[i]];
        bool forward = x->op == OP_SEND_F || x->op == OP_RECV_F;
        int32_t job = find_ins(&index, forward ? OP_F : OP_B, x->stage, x->batch);
        made[i] = (struct made){job >= 0 ? job : find_ins(&index, OP_I, x->stage, x->batch), edge->ins[i]};
    }
    sort(made, (size_t)edge->n, sizeof *made, by_job);
    for (int i = 0; i < edge->n; i++)
        edge->ins[i] = made[i].ins;
}

static void list_edges(struct tracks *tracks) {
    const struct rank_run *run = tracks->run;
    const struct rank *k = run->index.rank;
    int nedges = 2 * run->p->workers;
    tracks->edge = NEW(struct edge, nedges);
    for (int32_t i = 0; i < k->nins; i++)
        if (is_message(k->ins[i].op))
            tracks->edge[edge_of_ins(&k->ins[i])].n++;
    for (int e = 0; e < nedges; e++) {
        tracks->edge[e].ins = NEW(int32_t, tracks->edge[e].n);
        tracks->edge[e].n = 0;
    }
    for (int32_t i = 0; i < k->nins; i++)
        if (is_message(k->ins[i].op)) {
            struct edge *edge = &tracks->edge[edge_of_ins(&k->ins[i])];
            edge->ins[edge->n++] = i;
        }
    for (int e = 0; e < nedges; e++)
        if (tracks->edge[e].n)
            order_edge(run, &tracks->edge[e], e % 2 ? run->r : e / 2);
}

/* Returns the edge of a message; dies if the schedule has no message there. */
static struct edge *edge_of_message(const struct tracks *tracks, const struct flight_message *message) {
    const struct rank_run *run = tracks->run;
    int low = 0, high = run->p->workers;
    while (low < high) {
        int mid = (low + high) / 2;
        if (run->all[mid]->rank < message->peer)
            low = mid + 1;
        else
            high = mid;
    }
    if (low == run->p->workers || run->all[low]->rank != message->peer)
        die("%s: rank %d exchanges messages with rank %d, but the folder has no dump of rank %d", run->of->file,
            run->of->rank, message->peer, message->peer);
    struct edge *edge = &tracks->edge[2 * low + message->send];
    if (!edge->n)
        die("%s: rank %d has a message %s rank %d, which the schedule does not have; %s", run->of->file, run->of->rank,
            message->send ? "to" : "from", message->peer, trace_advice);
    return edge;
}

static void count_messages(struct tracks *tracks) {
    tracks->begun = true;
    for (int r = 0; r < tracks->run->p->workers; r++)
        tracks->begun &= ((const struct flight *)tracks->run->all[r])->begun;
    for (size_t i = 0; i < tracks->flight->n; i++) {
        struct edge *edge = edge_of_message(tracks, &tracks->flight->message[i]);
        edge->found++;
        int steps = (edge->found + edge->n - 1) / edge->n;
        tracks->nsteps = steps > tracks->nsteps ? steps : tracks->nsteps;
    }
    for (int k = 0; k < tracks->nsteps; k++)
        add_step(tracks->run, tracks->begun ? k + 1 : k - tracks->nsteps);
}

/* ---- messages ---- */

/* Reports a message that was not seen to complete. */
static void report_pending(const struct tracks *tracks, const struct flight_message *message, int32_t ins, int number) {
    const struct rank_run *run = tracks->run;
    if (!tracks->begun)
        die("%s: entry %lld, a message %s rank %d, is %s and not completed; which message of the schedule it is cannot "
            "be told, because the ring buffer has lost the run's first ones: record with a larger TORCH_FR_BUFFER_SIZE",
            run->of->file, (long long)message->record, message->send ? "to" : "from", message->peer, message->state);
    fprintf(stderr, "pianola: rank %d: %s of %s is %s and not completed\n", run->r, name_in_run(run, ins),
            step_name(number), message->state);
}

static void time_messages(struct tracks *tracks) {
    bool pending = false;
    for (size_t i = 0; i < tracks->flight->n; i++) {
        const struct flight_message *message = &tracks->flight->message[i];
        struct edge *edge = edge_of_message(tracks, message);
        int at = edge->seen++ + (tracks->begun ? 0 : tracks->nsteps * edge->n - edge->found);
        int32_t ins = edge->ins[at % edge->n];
        int step = at / edge->n;
        int64_t start = message->started ? message->started : message->created;
        if (message->completed && message->duration > 0)
            start = message->completed - (int64_t)message->duration;
        if (message->completed)
            set_span(tracks->run, step, ins, start, message->completed);
        else if (!pending)
            report_pending(tracks, message, ins, tracks->run->step[step].number);
        pending |= !message->completed;
    }
    tracks->run->hangs = pending;
}

/* ---- jobs ---- */

/* Times the jobs and updates of a step, as far as its messages are known. */
static void infer_jobs(const struct tracks *tracks, int step) {
    struct rank_run *run = tracks->run;
    const struct rank *k = run->index.rank;
    const struct span *at = run->step[step].at;
    int64_t free = INT64_MIN;
    for (int32_t i = 0; i < k->nins; i++) {
        const struct instr *x = &k->ins[i];
        if (is_message(x->op))
            continue;
        int32_t input = ins_before(&run->index, x->op, x->stage, x->batch);
        int32_t output = ins_after(&run->index, x->op, x->stage, x->batch);
        if ((input >= 0 && !span_known(&at[input])) || (output >= 0 && !span_known(&at[output])))
            return;
        int64_t end = output >= 0 ? at[output].start : INT64_MIN;
        free = input >= 0 && at[input].end > free ? at[input].end : free;
        if (free == INT64_MIN)
            free = end;
        if (free == INT64_MIN)
            return;
        end = end > free ? end : free;
        set_span(run, step, i, free, end);
        free = end;
    }
}

void time_flight(struct recording *recording, struct rank_run *run) {
    struct tracks tracks = {.run = run, .flight = (const struct flight *)recording};
    list_edges(&tracks);
    count_messages(&tracks);
    time_messages(&tracks);
    for (int k = 0; k < run->nsteps; k++)
        infer_jobs(&tracks, k);
}
