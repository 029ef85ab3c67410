/* Rooms on the host: memory between two guards that nobody may touch. An operand ends at the second guard, except for
 * bytes that align it. The memory before and after it holds a pattern that must stay. A fault is caught and ends the
 * call. */
#include "unit_room.h"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

enum { ALIGNMENT = 64, PATTERN = 0xa5, GUARD = 1 << 20 };

static int64_t page_bytes(void) { return sysconf(_SC_PAGESIZE); }
static int64_t rounded_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

/* Return the pages between the guards, and their bytes. */
static char *pages_of(const struct room *room) { return (char *)room->self + GUARD; }
static int64_t bytes_of_pages(const struct room *room) {
    return rounded_up(rounded_up(room->bytes, ALIGNMENT), page_bytes());
}

static bool open_room(struct room *room, int64_t bytes) {
    room->bytes = bytes;
    int64_t inner = bytes_of_pages(room);
    room->self = mmap(NULL, (size_t)(inner + 2 * GUARD), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room->self == MAP_FAILED || (inner > 0 && mprotect(pages_of(room), (size_t)inner, PROT_READ | PROT_WRITE) != 0))
        return false;
    memset(pages_of(room), PATTERN, (size_t)inner);
    room->at = pages_of(room) + inner - rounded_up(bytes, ALIGNMENT);
    return true;
}

static void close_room(struct room *room) { munmap(room->self, (size_t)(bytes_of_pages(room) + 2 * GUARD)); }
static void set_room(struct room *room, const void *bytes) { memcpy(room->at, bytes, (size_t)room->bytes); }
static void fill_room(struct room *room, int byte) { memset(room->at, byte, (size_t)room->bytes); }
static void get_room(const struct room *room, void *bytes) { memcpy(bytes, room->at, (size_t)room->bytes); }

static void protect_room(const struct room *room, bool readonly) {
    mprotect(pages_of(room), (size_t)bytes_of_pages(room), readonly ? PROT_READ : PROT_READ | PROT_WRITE);
}

static int64_t outside_room(const struct room *room) {
    const char *begin = pages_of(room), *end = begin + bytes_of_pages(room);
    for (const char *at = room->at + room->bytes; at < end; at++)
        if (*(const unsigned char *)at != PATTERN)
            return at - (room->at + room->bytes);
    for (const char *at = room->at - 1; at >= begin; at--)
        if (*(const unsigned char *)at != PATTERN)
            return ROOM_CLEAN - (room->at - at);
    return ROOM_CLEAN;
}

static bool room_has(const struct room *room, const char *address) {
    const char *begin = room->self;
    return address >= begin && address < begin + bytes_of_pages(room) + 2 * GUARD;
}

/* ---- calls ---- */

static sigjmp_buf after_fault;
static const char *volatile fault_address, *volatile fault_code;
static volatile int fault_signal;
static pthread_t caller;
static struct sigaction before_segv, before_bus;

/* Returns the instruction that was interrupted, or NULL on processors that are not known here. */
static const char *code_of(const void *context) {
    const ucontext_t *at = context;
#if defined __x86_64__
    return (const char *)(uintptr_t)at->uc_mcontext.gregs[REG_RIP];
#elif defined __aarch64__
    return (const char *)(uintptr_t)at->uc_mcontext.pc;
#else
    (void)at;
    return NULL;
#endif
}

static void on_fault(int sig, siginfo_t *info, void *context) {
    if (!pthread_equal(pthread_self(), caller)) { /* a thread that the unit started: it cannot jump back */
        signal(sig, SIG_DFL);
        return;
    }
    fault_address = info->si_addr;
    fault_code = code_of(context);
    fault_signal = sig;
    siglongjmp(after_fault, 1);
}

static void catch_faults(bool catches) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    caller = pthread_self();
    sigaction(SIGSEGV, catches ? &action : &before_segv, catches ? &before_segv : NULL);
    sigaction(SIGBUS, catches ? &action : &before_bus, catches ? &before_bus : NULL);
}

static struct unit_fault call_unit(pianola_unit_function *function, struct pianola_unit_call *call) {
    struct unit_fault fault = {.kind = CALL_RETURNED};
    catch_faults(true);
    if (sigsetjmp(after_fault, 1) == 0)
        function(call);
    else {
        fault.kind = CALL_FAULTED;
        fault.address = fault_address;
        fault.code = fault_code;
        fault.signal = fault_signal;
    }
    catch_faults(false);
    return fault;
}

const struct unit_memory unit_memory_host = {"",       open_room,    close_room,   set_room, fill_room,
                                             get_room, protect_room, outside_room, room_has, call_unit};
