/* The messages in one rank's dump of the flight recorder, as read_flight.c passes them to flight_times.c. */
#ifndef PIANOLA_FLIGHT_H
#define PIANOLA_FLIGHT_H
#include "recording.h"

struct flight_message {
    bool send;
    int peer;                            /* as PyTorch numbers ranks */
    int64_t created, started, completed; /* nanoseconds since 1970; 0: not known to have happened */
    double duration;                     /* nanoseconds; 0: not recorded */
    int64_t record, sequence;            /* record_id and p2p_seq_id */
    const char *group, *state;
};

struct flight {
    struct recording recording;
    struct flight_message *message; /* in the order in which they were issued */
    size_t n, cap;
    bool begun; /* whether the dump has the run's first record: the ring buffer has lost none */
};
#endif
