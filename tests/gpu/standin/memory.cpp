/* Memory: each allocation lies between two guard pages, ends at the second, starts full of NaN, and has an address that
 * is never reused. So a kernel that leaves it, or comes late, is detected and named. Device memory is a memfd, so that
 * other processes can map it, followed by a page that counts them. */
#include "standin.h"
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

static const size_t page = 4096;
static void install(void);

static int *counter(int fd, size_t body) {
    void *p = mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)body);
    return p == MAP_FAILED ? nullptr : (int *)p;
}

void *memory_new(size_t bytes, memory_kind kind, const char *what) {
    machine &m = the();
    check_creation(what);
    check_not_capturing(what);
    size_t body = (bytes + page - 1) / page * page, span = body + 2 * page;
    char *map = (char *)mmap(nullptr, span, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    int fd = kind == DEVICE ? memfd_create("standin", MFD_CLOEXEC) : -1;
    if (map == MAP_FAILED || (kind == DEVICE && (fd < 0 || ftruncate(fd, (off_t)(body + page)) != 0)) ||
        mmap(map + page, body, PROT_READ | PROT_WRITE, MAP_FIXED | (fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED),
             fd, 0) == MAP_FAILED)
        broken("MEMORY", "%s of %zu bytes: the machine has no more", what, bytes);
    memset(map + page, 0xff, body);
    install();
    if (kind == DEVICE)
        mprotect(map + page, body, PROT_NONE);
    memory a = {};
    a.at = map + page + body - (bytes + 255) / 256 * 256;
    a.bytes = bytes;
    a.kind = kind;
    a.alive = true;
    a.device = me()->device;
    a.fd = fd;
    a.id = m.nids++;
    a.map = map;
    a.mapped = span;
    a.opens = kind == DEVICE ? counter(fd, body) : nullptr;
    m.memories[(uintptr_t)map] = a;
    if (kind == DEVICE)
        m.allocated += bytes;
    return a.at;
}

memory *memory_find(const void *p) {
    auto &all = the().memories;
    auto next = all.upper_bound((uintptr_t)p);
    if (next == all.begin())
        return nullptr;
    memory &a = std::prev(next)->second;
    return (const char *)p < a.map + a.mapped ? &a : nullptr;
}

void memory_free(void *p, memory_kind kind, const char *what) {
    memory *a = memory_find(p);
    check_not_capturing(what);
    if (!a || a->at != p || a->kind != kind)
        broken("MEMORY", "%s of %p, which is no such allocation", what, p);
    if (!a->alive)
        broken("MEMORY", "%s of %p a second time", what, p);
    if (a->registered > 0)
        broken("NCCL", "%s of %p, which is registered with a communicator", what, p);
    if (kind == DEVICE && __atomic_load_n(a->opens, __ATOMIC_ACQUIRE) > 0)
        broken("MEMORY", "%s of %p, which another process has open: it calls cudaIpcCloseMemHandle first", what, p);
    if (kind == IMPORTED)
        __atomic_fetch_sub(a->opens, 1, __ATOMIC_RELEASE);
    if (a->opens)
        munmap(a->opens, page);
    a->alive = false;
    forget_memory(a->map);
    mmap(a->map, a->mapped, PROT_NONE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (a->fd >= 0)
        close(a->fd);
    if (kind == DEVICE)
        the().allocated -= a->bytes;
}

void check_range(const range &r, const char *what, bool pinned_too) {
    memory *a = memory_find(r.at);
    const char *does = r.write ? "writes" : "reads";
    if (!a)
        broken("MEMORY", "%s %s %zu bytes at %p, which is %s", what, does, r.bytes, r.at,
               pinned_too ? "neither device nor pinned host memory" : "no device memory");
    if (!a->alive)
        broken("MEMORY", "%s %s %zu bytes at %p, after the free of that memory", what, does, r.bytes, r.at);
    if (!pinned_too && a->kind == PINNED)
        broken("MEMORY", "%s %s %zu bytes at %p, which is host memory", what, does, r.bytes, r.at);
    if ((const char *)r.at < a->at || (const char *)r.at + r.bytes > a->at + a->bytes)
        broken("MEMORY", "%s %s %zu bytes at byte %td of an allocation of %zu bytes", what, does, r.bytes,
               (const char *)r.at - a->at, a->bytes);
}

void check_inside(const void *p, const char *what) {
    if (p) /* an empty tensor may lie one past the end */
        check_range({p, 0, false}, text("%s has an argument that", what).c_str(), true);
}

/* ---- accesses to device memory ---- */

enum { AT_ONCE = 256 << 10 }; /* bytes that a fault opens where nobody asks which pages work touches */
static struct {
    const work *now; /* work that runs, or null */
    pthread_t by;
    std::vector<range> pages; /* pages that the work has touched */
    struct sigaction before;
} watched;

static void protect(const range &r, int how) {
    memory *a = memory_find(r.at);
    uintptr_t from = (uintptr_t)r.at / page * page, to = ((uintptr_t)r.at + r.bytes + page - 1) / page * page;
    if (a && a->alive && a->kind != PINNED && to > from)
        mprotect((void *)from, to - from, how);
}
opened::opened(std::vector<range> all) : ranges(std::move(all)) {
    for (auto &r : ranges)
        protect(r, PROT_READ | PROT_WRITE);
}
opened::~opened() {
    for (auto &r : ranges)
        protect(r, PROT_NONE);
}

/* Not async-signal-safe, but faults come from the program's own loads and stores, never from inside a library. */
static void fault(int, siginfo_t *info, void *context) {
    char *at = (char *)info->si_addr, *start = (char *)((uintptr_t)at / page * page);
    bool write = true, ours = watched.now && pthread_equal(watched.by, pthread_self());
    const char *who = ours ? watched.now->what.c_str() : "the program itself";
    memory *a = memory_find(at);
#ifdef __x86_64__
    write = ((ucontext_t *)context)->uc_mcontext.gregs[REG_ERR] & 2;
#else
    (void)context;
#endif
    const char *does = write ? "writes" : "reads";
    if (!a && ours)
        broken("MEMORY", "%s %s at %p, which is no device memory", who, does, (void *)at);
    if (!a) {
        sigaction(SIGSEGV, &watched.before, nullptr); /* retries with the earlier handler */
        return;
    }
    if (!a->alive)
        broken("MEMORY", "%s %s at %p, after the free of that memory", who, does, (void *)at);
    bool within = start >= a->map + page && start < a->map + a->mapped - page;
    if (!ours || !within)
        broken("MEMORY", "%s %s at byte %td of an allocation of %zu bytes of %s memory", who, does, at - a->at,
               a->bytes, a->kind == PINNED ? "pinned" : "device");
    if (the().pages) {
        mprotect(start, page, write ? PROT_READ | PROT_WRITE : PROT_READ);
        watched.pages.push_back({start, page, write});
        return;
    }
    uintptr_t piece = (uintptr_t)start / AT_ONCE * AT_ONCE; /* the rest of a piece is likely to follow */
    char *from = std::max((char *)piece, a->map + page),
         *to = std::min((char *)piece + AT_ONCE, a->map + a->mapped - page);
    mprotect(from, (size_t)(to - from), PROT_READ | PROT_WRITE);
    watched.pages.push_back({from, (size_t)(to - from), true});
}

/* Gives the thread a signal stack, because a kernel's fibers have small stacks. */
static void watch_thread(void) {
    if (me()->altstack)
        return;
    stack_t s = {};
    s.ss_size = 64 << 10;
    s.ss_sp = mmap(nullptr, s.ss_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    sigaltstack(&s, nullptr);
    me()->altstack = true;
}

static void install(void) {
    static bool installed;
    struct sigaction act = {};
    if (installed)
        return;
    installed = true;
    act.sa_sigaction = fault;
    act.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &act, &watched.before);
}

void run_work(const work &w, std::vector<range> &touched) {
    std::vector<range> known = w.touches;
    if (w.word)
        known.push_back({w.word, 4, true});
    opened memory(known);
    install();
    watch_thread();
    watched.pages.clear();
    watched.by = pthread_self();
    watched.now = &w;
    w.run();
    watched.now = nullptr;
    for (auto &r : watched.pages)
        protect(r, PROT_NONE);
    if (the().pages)
        touched.insert(touched.end(), watched.pages.begin(), watched.pages.end());
}

/* ---- between processes ---- */

struct handle {
    char magic[8];
    int pid, fd, device;
    size_t bytes, body;
};

extern "C" cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *out, void *p) {
    entered here("cudaIpcGetMemHandle");
    check_creation(call);
    check_not_capturing(call);
    memory *a = memory_find(p);
    if (!a || !a->alive || a->kind != DEVICE || a->at != p)
        broken("MEMORY", "cudaIpcGetMemHandle of %p, which is not the start of a device allocation", p);
    if (!the().ipc)
        return me()->last = cudaErrorNotSupported;
    if (a->nccl)
        broken("MEMORY", "cudaIpcGetMemHandle of memory that cudaMalloc did not give");
    handle h = {"standin", getpid(), a->fd, a->device, a->bytes, a->mapped - 2 * page};
    memset(out, 0, sizeof *out);
    memcpy(out, &h, sizeof h);
    a->exported = true;
    the().remote = true;
    return cudaSuccess;
}

/* In the process that made the handle (for ranks as threads), returns the pointer itself. CUDA would reject that. */
extern "C" cudaError_t cudaIpcOpenMemHandle(void **p, cudaIpcMemHandle_t in, unsigned int flags) {
    entered here("cudaIpcOpenMemHandle");
    check_creation(call);
    check_not_capturing(call);
    handle h;
    memcpy(&h, &in, sizeof h);
    if (memcmp(h.magic, "standin", 8) != 0 || flags != cudaIpcMemLazyEnablePeerAccess)
        broken("MEMORY", "cudaIpcOpenMemHandle of what is no handle, or without cudaIpcMemLazyEnablePeerAccess");
    if (h.pid == getpid()) {
        for (auto &e : the().memories)
            if (e.second.alive && e.second.fd == h.fd && e.second.kind == DEVICE) {
                *p = e.second.at;
                the().remote = false;
                return cudaSuccess;
            }
        broken("MEMORY", "cudaIpcOpenMemHandle of memory that was freed");
    }
    if (h.device != me()->device && !the().peers)
        return me()->last = cudaErrorPeerAccessUnsupported;
    string path = text("/proc/%d/fd/%d", h.pid, h.fd);
    int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
    size_t span = h.body + 2 * page;
    char *map = (char *)mmap(nullptr, span, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (fd < 0 || map == MAP_FAILED ||
        mmap(map + page, h.body, PROT_READ | PROT_WRITE, MAP_FIXED | MAP_SHARED, fd, 0) == MAP_FAILED)
        return me()->last = cudaErrorInvalidValue;
    memory a = {};
    a.opens = counter(fd, h.body);
    __atomic_fetch_add(a.opens, 1, __ATOMIC_RELEASE);
    install();
    mprotect(map + page, h.body, PROT_NONE);
    a.at = map + page + h.body - (h.bytes + 255) / 256 * 256;
    a.bytes = h.bytes;
    a.kind = IMPORTED;
    a.alive = true;
    a.device = me()->device;
    a.fd = fd;
    a.map = map;
    a.mapped = span;
    the().memories[(uintptr_t)map] = a;
    the().remote = true;
    *p = a.at;
    return cudaSuccess;
}

extern "C" cudaError_t cudaIpcCloseMemHandle(void *p) {
    entered here("cudaIpcCloseMemHandle");
    memory *a = memory_find(p);
    if (a && a->alive && a->kind == DEVICE && a->exported) /* belongs to a thread of this process */
        return cudaSuccess;
    memory_free(p, IMPORTED, call);
    return cudaSuccess;
}
