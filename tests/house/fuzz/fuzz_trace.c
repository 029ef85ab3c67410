/* Recordings by other tools: the same file is read as the recording of both ranks of 1F1B. No known span of the steps
 * that result ends before it starts, or is free after its end. */
#include "fuzz.h"
#include "traces/recording.h"

static const char streams[] = "pianola 1\n"
                              "program 1f1b workers 2 stages 2 batches 1\n"
                              "rank 0 lane compute\n"
                              "F 0 0 w=weight(0) stash=stash(0,0) y=act(0,0)\n"
                              "B 0 0 w=weight(0) stash=stash(0,0) dy=grad(1,0) dw=wgrad(0) wait(RECV_B 1 0 from 1) "
                              "free(stash(0,0) grad(1,0))\n"
                              "U 0 dw=wgrad(0) w=weight(0)\n"
                              "rank 0 lane send 1\n"
                              "SEND_F 0 0 to 1 t=act(0,0) wait(F 0 0) free(act(0,0))\n"
                              "rank 0 lane recv 1\n"
                              "RECV_B 1 0 from 1 t=grad(1,0) wait(SEND_F 0 0 to 1)\n"
                              "rank 0 issue\n"
                              "0 1 2 0*2\n"
                              "rank 0 memory 4\n"
                              "weight(0) 0 1\n"
                              "wgrad(0) 1 1\n"
                              "stash(0,0) 2 1\n"
                              "act(0,0) 3 1\n"
                              "grad(1,0) 3 1\n"
                              "rank 1 lane compute\n"
                              "F 1 0 w=weight(1) x=act(0,0) stash=stash(1,0) wait(RECV_F 0 0 from 0) free(act(0,0))\n"
                              "B 1 0 w=weight(1) stash=stash(1,0) dx=grad(1,0) dw=wgrad(1) free(stash(1,0))\n"
                              "U 1 dw=wgrad(1) w=weight(1)\n"
                              "rank 1 lane send 0\n"
                              "SEND_B 1 0 to 0 t=grad(1,0) wait(B 1 0) free(grad(1,0))\n"
                              "rank 1 lane recv 0\n"
                              "RECV_F 0 0 from 0 t=act(0,0)\n"
                              "rank 1 issue\n"
                              "2 0*2 1 0\n"
                              "rank 1 memory 4\n"
                              "weight(1) 0 1\n"
                              "wgrad(1) 1 1\n"
                              "act(0,0) 2 1\n"
                              "stash(1,0) 3 1\n"
                              "grad(1,0) 2 1\n";

struct reading {
    const uint8_t *data;
    size_t size;
    bool flight;
    int rank;
};

static void check_steps(const struct rank_run *run) {
    for (int k = 0; k < run->nsteps; k++)
        for (int32_t i = 0; i < run->index.rank->nins; i++) {
            const struct span *span = &run->step[k].at[i];
            if (span_known(span) && (span->free > span->end || span->end < span->start))
                abort();
        }
}

static void read_recording(void *with) {
    const struct reading *r = with;
    struct recording *of[2];
    const struct program *p = read_text("streams.txt", streams);
    char *s[2];
    for (int k = 0; k < 2; k++) {
        s[k] = NEW(char, r->size + 1);
        memcpy(s[k], r->data, r->size);
        of[k] = (r->flight ? parse_flight : parse_kineto)(format("rank%d", r->rank), s[k], r->size);
        of[k]->rank = k;
    }
    struct rank_run run = {.of = of[r->rank], .all = of, .p = p, .r = r->rank, .index = ins_index(&p->rank[r->rank])};
    (r->flight ? time_flight : time_kineto)(of[r->rank], &run);
    check_steps(&run);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    bool flight = is_flight((const char *)data, size);
    for (int rank = 0; rank < 2 && size > 0 && (flight || *data == '{'); rank++)
        lives(read_recording, &(struct reading){data, size, flight, rank});
    free_all();
    return 0;
}
