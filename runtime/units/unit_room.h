/* Memory for a unit's operands with guards around it, on the host or on a device. */
#ifndef PIANOLA_UNIT_ROOM_H
#define PIANOLA_UNIT_ROOM_H
#include "rt.h"

/* The guarded memory of one operand. */
struct room {
    char *at;      /* the operand, where the unit's functions find it; a multiple of 64 */
    int64_t bytes; /* size of the operand */
    void *self;    /* data of struct unit_memory's functions */
};

/* How a call ended. */
struct unit_fault {
    enum { CALL_RETURNED, CALL_FAULTED, CALL_FAILED } kind;
    const char *address; /* CALL_FAULTED: the first address that it must not touch */
    const char *code;    /* CALL_FAULTED: the instruction; NULL: unknown */
    int signal;          /* CALL_FAULTED: SIGSEGV or SIGBUS */
    char why[128];       /* CALL_FAILED: the device's error */
};

enum { ROOM_CLEAN = -1 };
struct unit_memory {
    const char *suffix;                             /* ends the names of the unit's functions: "" or "_cuda" */
    bool (*open)(struct room *room, int64_t bytes); /* false: no memory */
    void (*close)(struct room *room);
    void (*set)(struct room *room, const void *bytes); /* copies them into the operand */
    void (*fill)(struct room *room, int byte);
    void (*get)(const struct room *room, void *bytes);
    /* Forbids writes to the operand, or allows them. Nothing is forbidden on a device. */
    void (*protect)(const struct room *room, bool readonly);
    /* Returns where a byte outside the operand has changed. After the operand: its distance from the end, from 0.
     * Before it: ROOM_CLEAN minus its distance from the beginning, from 1. ROOM_CLEAN: none has changed. */
    int64_t (*outside)(const struct room *room);
    /* Returns whether the room, guards included, has this address. */
    bool (*has)(const struct room *room, const char *address);
    struct unit_fault (*call)(pianola_unit_function *function, struct pianola_unit_call *call);
};
extern const struct unit_memory unit_memory_host; /* room_host.c */
extern const struct unit_memory unit_memory_cuda; /* room_cuda.cu */
#endif
