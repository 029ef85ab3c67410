/* Reads a dump of PyTorch's flight recorder, a pickle or JSON, as far as it has messages between two ranks.
 *
 * A message is named LIBRARY:send A->B or LIBRARY:recv B<-A, where A and B count within the entry's process group;
 * pg_config lists the group's ranks. If messages were issued together (batch_isend_irecv), the entry LIBRARY:coalesced
 * with the same p2p_seq_id, which follows them, has their times. Needs entries, record_id, profiling_name,
 * process_group and time_created_ns; other fields may be missing, as in older dumps. */
#include "flight.h"
#include "base/path.h"
#include "value.h"
#include <ctype.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

static const char key[] = "pg_config";

bool is_flight(const char *s, size_t n) {
    return n > 1 && (*s == '{' || (unsigned char)*s == 0x80) && memmem(s, n, key, sizeof key - 1) != NULL;
}

/* Returns the number of a group's member among all ranks. */
static int global_rank(const struct flight *flight, const struct value *dump, const char *group, int member) {
    const char *ranks = text_member(member_of(member_of(dump, key), group), "ranks", NULL);
    if (!ranks)
        die("%s: pg_config does not list the ranks of the process group \"%s\"", flight->recording.file, group);
    const char *p = ranks;
    for (int i = 0;; i++) {
        p += strcspn(p, "0123456789");
        if (!*p)
            die("%s: a message names rank %d of the process group \"%s\", whose ranks are %s", flight->recording.file,
                member, group, ranks);
        char *end;
        long rank = strtol(p, &end, 10);
        if (i == member && rank < INT_MAX)
            return (int)rank;
        p = end;
    }
}

/* Reads the ranks of "send 0->1" or "recv 1<-0". Returns false if the name is of another kind. */
static bool message_ends(const char *name, bool *send, int *self, int *peer) {
    int n = 0;
    *send = sscanf(name, "send %d->%d%n", self, peer, &n) == 2 && !name[n];
    return *send || (sscanf(name, "recv %d<-%d%n", self, peer, &n) == 2 && !name[n]);
}

/* Returns whether a message is part of a Python object, which stages exchange at the start, and not a job's tensor. */
static bool moves_object(const struct value *entry, bool send) {
    const struct value *types = member_of(entry, send ? "input_dtypes" : "output_dtypes");
    const char *type =
        types && types->kind == V_LIST && types->n && types->item[0]->kind == V_TEXT ? types->item[0]->text : "";
    return strcmp(type, "Long") == 0 || strcmp(type, "Byte") == 0;
}

/* Reads a time; dies if it is so large that differences could overflow. */
static int64_t time_member(const struct flight *flight, const struct value *entry, const char *name,
                           int64_t otherwise) {
    int64_t t = int_member(entry, name, otherwise);
    if (t < -1 || t > 4000000000000000000)
        die("%s: %s %lld is not a valid time", flight->recording.file, name, (long long)t);
    return t;
}

static void take_message_times(const struct flight *flight, struct flight_message *message, const struct value *entry) {
    const struct value *duration = member_of(entry, "duration_ms");
    message->started = time_member(flight, entry, "time_discovered_started_ns", 0);
    message->completed = time_member(flight, entry, "time_discovered_completed_ns", 0);
    message->duration = !duration                  ? 0
                        : duration->kind == V_REAL ? 1e6 * duration->real
                                                   : 1e6 * (double)int_member(entry, "duration_ms", 0);
    if (!(message->duration >= 0 && message->duration < 1e18))
        die("%s: duration_ms is not a valid time", flight->recording.file);
    message->state = text_member(entry, "state", "unknown");
}

/* Gives the times of a coalesced entry to the messages before it that were issued together. */
static void end_batch(struct flight *flight, const struct value *entry, const char *group) {
    int64_t sequence = int_member(entry, "p2p_seq_id", -1);
    for (size_t i = flight->n; i-- > 0;) {
        struct flight_message *message = &flight->message[i];
        if (message->sequence != sequence || strcmp(message->group, group) != 0 || message->completed)
            break;
        take_message_times(flight, message, entry);
    }
}

static void add_message(struct flight *flight, const struct value *dump, const struct value *entry) {
    const struct value *group = member_of(entry, "process_group");
    const char *name = text_member(entry, "profiling_name", ""), *colon = strrchr(name, ':');
    struct flight_message message = {.created = time_member(flight, entry, "time_created_ns", -1),
                                     .record = int_member(entry, "record_id", -1),
                                     .sequence = int_member(entry, "p2p_seq_id", -1)};
    if (!group || group->kind != V_LIST || !group->n || group->item[0]->kind != V_TEXT || !colon || message.record < 0)
        die("%s: an entry lacks record_id, profiling_name or process_group", flight->recording.file);
    message.group = group->item[0]->text;
    int self, peer;
    flight->begun |= message.record == 0;
    if (strcmp(colon, ":coalesced") == 0)
        end_batch(flight, entry, message.group);
    if (!message_ends(colon + 1, &message.send, &self, &peer) || moves_object(entry, message.send))
        return;
    if (message.created < 0)
        die("%s: entry %lld has no time_created_ns", flight->recording.file, (long long)message.record);
    if (global_rank(flight, dump, message.group, self) != flight->recording.rank)
        die("%s: its name says rank %d, but entry %lld is rank %d's: %s", flight->recording.file,
            flight->recording.rank, (long long)message.record, global_rank(flight, dump, message.group, self), name);
    message.peer = global_rank(flight, dump, message.group, peer);
    take_message_times(flight, &message, entry);
    GROW(flight->message, flight->cap, flight->n + 1);
    flight->message[flight->n++] = message;
}

/* Returns the number at the end of a name such as nccl_trace_rank_3 or dump7.json; -1: it has none. */
static int last_number(const char *file) {
    const char *name = last_part(file), *end = name + strlen(name);
    end -= has_ending(name, ".json") ? strlen(".json") : has_ending(name, ".pkl") ? strlen(".pkl") : 0;
    const char *at = end;
    while (at > name && isdigit((unsigned char)at[-1]))
        at--;
    return at == end || end - at > 9 ? -1 : atoi(at);
}

struct recording *parse_flight(const char *file, char *s, size_t n) {
    struct flight *flight = NEW(struct flight, 1);
    struct json_in j = {.file = file, .from = s, .at = s, .end = s + n};
    const struct value *dump = *s == '{' ? json_value(&j) : pickle_value(file, s, n);
    if (*s == '{')
        json_close(&j);
    const struct value *entries = member_of(dump, "entries");
    flight->recording = (struct recording){file, rank_in_file_name(file)};
    if (flight->recording.rank < 0)
        flight->recording.rank = last_number(file);
    if (flight->recording.rank < 0)
        die("%s: its name has no number; put the rank into its name, such as rank0 for rank 0", file);
    if (!entries || entries->kind != V_LIST)
        die("%s: has no entries: dump the flight recorder with its collectives", file);
    for (size_t i = 0; i < entries->n; i++)
        add_message(flight, dump, entries->item[i]);
    return &flight->recording;
}
