/* A trace as a viewer would show it, read back from either format by the rules of its importer. */
#ifndef PIANOLA_TRACE_READER_H
#define PIANOLA_TRACE_READER_H
#include <stddef.h>
#include <stdint.h>

struct seen_track {
    char name[64], rank[64]; /* the lane, and the process it belongs to */
};

struct seen_slice {
    int track;
    int64_t t, end;
    char name[32], category[16];
    int64_t step, stage, mb, peer, bytes, update, version; /* -1: missing */
    int64_t flow_out, flow_in;                             /* ids; 0: none */
};

struct seen_level {
    char rank[64];
    int64_t t, bytes;
};

struct seen_instant { /* about a rank's whole process */
    char rank[64], name[32];
    int64_t t;
};

struct seen {
    struct seen_track *track;
    struct seen_slice *slice;
    struct seen_level *level;
    struct seen_instant *instant;
    size_t ntracks, nslices, nlevels, ninstants;
};

/* Read a trace; each fails the test if the text breaks a rule of its format. */
struct seen read_chrome(const char *s, size_t n);
struct seen read_pftrace(const char *s, size_t n);
/* Reads the kernels of one rank's file as Holistic Trace Analysis does, in file order; track: the stream. */
struct seen read_hta(const char *s, size_t n, int rank);
#endif
