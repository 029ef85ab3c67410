/* The threads of a block as fibers: each has a stack, and a switch preserves what a call preserves. The scheduler
 * visits the warps in order, and runs each until all of its threads wait at the block's barrier or have ended. */
#include "grid.h"
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAX_THREADS = 1024, WARP = 32, STACK = 256 << 10, GUARD = 4096 };
enum state { READY, IN_WARP, IN_BLOCK, ENDED };

struct copy {
    void *to;
    const void *from;
    size_t bytes, group;
    grid_place at;
};

struct fiber {
    void *sp;
    enum state state;
    uint3 index;
    grid_place at;  /* the place where it waits */
    unsigned mask;  /* IN_WARP: the threads for which it waits */
    grid_kind kind; /* the exchange it takes part in */
    unsigned source;
    uint64_t value, result;
    std::vector<copy> copies; /* in flight */
    size_t groups;            /* committed groups */
};

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;
bool grid_reverse;
uint64_t grid_waits;

static struct {
    const char *kernel;
    void (*body)(void *);
    void *context;
    void *shared, *scheduler;
    unsigned threads, waiting, ended;
    unsigned now; /* the running thread */
    unsigned arrived[MAX_THREADS / WARP],
        gone[MAX_THREADS / WARP];       /* arrived: lanes waiting in their warp; gone: lanes that have ended */
    unsigned ready[MAX_THREADS / WARP]; /* lanes that can run */
    fiber fibers[MAX_THREADS];
} block;

static uint3 index_of(unsigned thread) {
    return {thread % blockDim.x, thread / blockDim.x % blockDim.y, thread / (blockDim.x * blockDim.y)};
}

/* ---- switching ---- */

extern "C" void grid_switch(void **from, void *to);
#if defined __x86_64__
asm(".text\n.globl grid_switch\ngrid_switch:\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\n"
    "pop %rcx\njmp *%rcx\n"); /* processors predict a return to the caller, but here it is to another fiber */
enum {
    RETURN = 6,
    FRAME = 8
}; /* in words: index of the return address in the saved frame, and the frame's aligned size */
#elif defined __aarch64__
asm(".text\n.globl grid_switch\ngrid_switch:\n"
    "sub sp, sp, #160\n"
    "stp x19, x20, [sp]\nstp x21, x22, [sp, #16]\nstp x23, x24, [sp, #32]\nstp x25, x26, [sp, #48]\n"
    "stp x27, x28, [sp, #64]\nstp x29, x30, [sp, #80]\n"
    "stp d8, d9, [sp, #96]\nstp d10, d11, [sp, #112]\nstp d12, d13, [sp, #128]\nstp d14, d15, [sp, #144]\n"
    "mov x9, sp\nstr x9, [x0]\nmov sp, x1\n"
    "ldp x19, x20, [sp]\nldp x21, x22, [sp, #16]\nldp x23, x24, [sp, #32]\nldp x25, x26, [sp, #48]\n"
    "ldp x27, x28, [sp, #64]\nldp x29, x30, [sp, #80]\n"
    "ldp d8, d9, [sp, #96]\nldp d10, d11, [sp, #112]\nldp d12, d13, [sp, #128]\nldp d14, d15, [sp, #144]\n"
    "add sp, sp, #160\nret\n");
enum { RETURN = 11, FRAME = 20 };
#else
#error "grid_switch is written for x86-64 and aarch64"
#endif

/* Returns the lane that runs next: ready lanes take turns. At least one is ready. */
static unsigned turn(unsigned ready, unsigned last) {
    unsigned behind = grid_reverse      ? ready & ((1u << last) - 1)
                      : last + 1 < WARP ? ready >> (last + 1) << (last + 1)
                                        : 0;
    unsigned from = behind ? behind : ready;
    return grid_reverse ? 31 - (unsigned)__builtin_clz(from) : (unsigned)__builtin_ctz(from);
}

static void run(void **from, unsigned thread) {
    block.now = thread;
    threadIdx = block.fibers[thread].index;
    grid_switch(from, block.fibers[thread].sp);
}

/* Switches to the next ready thread of the warp, or to the scheduler if none is ready. */
static void yield(void) {
    unsigned lane = block.now % WARP, base = block.now - lane, ready = block.ready[base / WARP];
    void **from = &block.fibers[block.now].sp;
    if (ready)
        run(from, base + turn(ready, lane));
    else
        grid_switch(from, block.scheduler);
}

/* ---- mistakes ---- */

static void where(unsigned thread) {
    uint3 i = index_of(thread);
    fprintf(stderr, "thread (%u,%u,%u) of block (%u,%u,%u)", i.x, i.y, i.z, blockIdx.x, blockIdx.y, blockIdx.z);
}

[[noreturn]] static void mistake(unsigned thread, grid_place at, const char *what, unsigned other) {
    fprintf(stderr, "%s:%d: %s: ", at.file, at.line, block.kernel);
    where(thread);
    fprintf(stderr, " %s ", what);
    where(other);
    fprintf(stderr, "\n");
    _exit(3);
}

static bool same(grid_place a, grid_place b) {
    return a.line == b.line && (a.file == b.file || strcmp(a.file, b.file) == 0);
}

/* ---- barriers ---- */

void grid_sync(grid_place at) {
    fiber *f = &block.fibers[block.now];
    grid_waits++;
    f->at = at;
    for (unsigned t = 0; block.ended > 0 && t < block.threads; t++)
        if (block.fibers[t].state == ENDED)
            mistake(block.now, at, "waits at a __syncthreads that will never be reached by", t);
    f->state = IN_BLOCK;
    block.ready[block.now / WARP] &= ~(1u << block.now % WARP);
    if (++block.waiting < block.threads) {
        yield();
        return;
    }
    block.waiting = 0;
    for (unsigned t = 0; t < block.threads; t++) {
        if (!same(block.fibers[t].at, at))
            mistake(block.now, at, "is at another __syncthreads than", t);
        block.fibers[t].state = READY;
        block.ready[t / WARP] |= 1u << t % WARP;
    }
}

unsigned grid_lane(void) { return block.now % WARP; }

/* Gives every thread of the mask its result; the last thread to arrive calls it. */
static void complete(fiber *warp, const fiber *last) {
    unsigned mask = last->mask, ballot = 0, base = (unsigned)(warp - block.fibers);
    for (unsigned i = 0; i < WARP; i++) {
        const fiber *f = &warp[i];
        if (!(mask >> i & 1))
            continue;
        if (f->mask != mask || f->kind != last->kind || !same(f->at, last->at))
            mistake(block.now, last->at, "meets another warp operation, or another mask, of", base + i);
        ballot |= (unsigned)(f->value != 0) << i;
    }
    for (unsigned i = 0; i < WARP; i++)
        if (mask >> i & 1) {
            fiber *f = &warp[i];
            f->result = f->kind == GRID_BALLOT ? ballot : f->kind == GRID_SHUFFLE ? warp[f->source].value : 0;
            f->state = READY;
        }
    block.arrived[base / WARP] &= ~mask;
    block.ready[base / WARP] |= mask;
}

uint64_t grid_exchange(unsigned mask, grid_kind kind, uint64_t value, unsigned source, grid_place at) {
    unsigned lane = block.now % WARP, base = block.now - lane, gone = mask & block.gone[base / WARP];
    fiber *f = &block.fibers[block.now];
    unsigned *arrived = &block.arrived[base / WARP];
    grid_waits++;
    f->state = IN_WARP;
    f->at = at;
    f->mask = mask;
    f->kind = kind;
    f->source = source;
    f->value = value;
    *arrived |= 1u << lane;
    block.ready[base / WARP] &= ~(1u << lane);
    if (!(mask >> lane & 1))
        mistake(block.now, at, "is not in its own mask:", block.now);
    if (kind == GRID_SHUFFLE && !(mask >> source & 1))
        mistake(block.now, at, "takes from a thread that is not in its mask:", base + source);
    if (gone)
        mistake(block.now, at, "has a mask with a thread that is not there:", base + (unsigned)__builtin_ctz(gone));
    if ((*arrived & mask) == mask)
        complete(&block.fibers[base], f);
    else
        yield();
    return f->result;
}

/* ---- asynchronous copies ---- */

void grid_copy(void *to, const void *from, size_t bytes, grid_place at) {
    fiber *f = &block.fibers[block.now];
    if ((bytes != 4 && bytes != 8 && bytes != 16) || (uintptr_t)to % bytes || (uintptr_t)from % bytes)
        mistake(block.now, at, "copies from or to what is not aligned, or not 4, 8 or 16 bytes:", block.now);
    memset(to, 0xff, bytes);
    f->copies.push_back({to, from, bytes, f->groups, at});
}

void grid_commit(void) { block.fibers[block.now].groups++; }

void grid_wait(size_t prior) {
    fiber *f = &block.fibers[block.now];
    size_t landed = 0;
    for (; landed < f->copies.size() && f->copies[landed].group + prior < f->groups; landed++)
        memcpy(f->copies[landed].to, f->copies[landed].from, f->copies[landed].bytes);
    f->copies.erase(f->copies.begin(), f->copies.begin() + (ptrdiff_t)landed);
}

/* ---- a block ---- */

static void thread_end(void) {
    unsigned lane = block.now % WARP, warp = block.now / WARP;
    if (!block.fibers[block.now].copies.empty())
        mistake(block.now, block.fibers[block.now].copies[0].at, "ends before a copy has landed, begun by", block.now);
    block.fibers[block.now].state = ENDED;
    block.ended++;
    block.gone[warp] |= 1u << lane;
    block.ready[warp] &= ~(1u << lane);
    for (unsigned t = 0; block.waiting > 0 && t < block.threads; t++)
        if (block.fibers[t].state == IN_BLOCK)
            mistake(t, block.fibers[t].at, "waits at a __syncthreads that will never be reached by", block.now);
    for (unsigned t = warp * WARP; block.arrived[warp] && t < block.threads && t < (warp + 1) * WARP; t++)
        if (block.fibers[t].state == IN_WARP && block.fibers[t].mask >> lane & 1)
            mistake(t, block.fibers[t].at, "waits in its warp for a thread that has ended:", block.now);
}

static void entry(void) {
    block.body(block.context);
    thread_end();
    yield();
    abort(); /* an ended thread is never resumed */
}

static char *stack_of(unsigned thread) {
    static char *stacks;
    static unsigned guarded;
    if (!stacks) {
        stacks = (char *)mmap(NULL, (size_t)MAX_THREADS * STACK, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (stacks == MAP_FAILED)
            abort();
    }
    for (; guarded <= thread; guarded++)
        mprotect(stacks + (size_t)guarded * STACK, GUARD, PROT_NONE);
    return stacks + (size_t)thread * STACK;
}

/* Starts stacks at different lines of a page; otherwise all threads would share a few cache sets. */
static void prepare(unsigned thread) {
    fiber *f = &block.fibers[thread];
    void **sp = (void **)(void *)(stack_of(thread) + STACK - thread * 192 % 4096) - FRAME;
    memset(sp, 0, FRAME * sizeof *sp);
    sp[RETURN] = (void *)entry;
    f->sp = sp;
    f->state = READY;
    f->index = index_of(thread);
    f->copies.clear();
    f->groups = 0;
}

/* The program's own TLS segment. */
struct own_tls {
    char *at;
    size_t bytes;
};
static int find_tls(struct dl_phdr_info *info, size_t, void *to) {
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_TLS && info->dlpi_tls_data)
            *(own_tls *)to = {(char *)info->dlpi_tls_data, info->dlpi_phdr[i].p_memsz};
    return 1; /* the first is the program itself */
}

/* Runs a warp until none of its threads is ready. */
static bool run_warp(unsigned warp) {
    unsigned ready = block.ready[warp];
    if (ready)
        run(&block.scheduler, warp * WARP + turn(ready, grid_reverse ? 0 : WARP - 1));
    return ready;
}

/* Reports that no thread can continue: one waits in its warp for one that waits elsewhere. */
[[noreturn]] static void stuck(void) {
    unsigned t = 0, other = 0;
    while (block.fibers[t].state != IN_WARP)
        t++;
    const fiber *f = &block.fibers[t];
    for (unsigned i = 0; i < WARP; i++) {
        const fiber *o = &block.fibers[t / WARP * WARP + i];
        if (f->mask >> i & 1 && (o->state != IN_WARP || o->mask != f->mask))
            other = t / WARP * WARP + i;
    }
    mistake(t, f->at, "waits in its warp in vain for", other);
}

static void run_block(void) {
    unsigned warps = (block.threads + WARP - 1) / WARP;
    block.waiting = block.ended = 0;
    for (unsigned t = 0; t < block.threads; t++)
        prepare(t);
    for (unsigned w = 0; w < warps; w++) {
        unsigned lanes = block.threads - w * WARP;
        block.arrived[w] = 0;
        block.gone[w] = lanes < WARP ? ~0u << lanes : 0;
        block.ready[w] = ~block.gone[w];
    }
    while (block.ended < block.threads) {
        bool any = false;
        for (unsigned w = 0; w < warps; w++)
            any |= run_warp(grid_reverse ? warps - 1 - w : w);
        if (!any)
            stuck();
    }
}

void *grid_shared(void) { return block.shared; }

/* Runs one grid at a time: ranks of a program in one process may launch from their own threads. */
void grid_run(const char *kernel, dim3 grid, dim3 threads, size_t shared, void (*body)(void *), void *context) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    block.kernel = kernel;
    block.body = body;
    block.context = context;
    block.threads = threads.x * threads.y * threads.z;
    blockDim = threads;
    gridDim = grid;
    unsigned blocks = grid.x * grid.y * grid.z;
    if (blocks == 0 || block.threads == 0 || block.threads > MAX_THREADS || shared > 227 << 10) {
        fprintf(stderr, "%s: %u blocks of %u threads with %zu bytes of shared memory cannot be launched\n", kernel,
                blocks, block.threads, shared);
        _exit(3);
    }
    block.shared = aligned_alloc(16, (shared + 15) / 16 * 16); /* ASan watches its end */
    own_tls tls = {nullptr, 0};
    dl_iterate_phdr(find_tls, &tls);
    std::vector<char> kept(tls.at, tls.at + tls.bytes); /* what is thread_local on the host */
    for (unsigned i = 0; i < blocks; i++) {
        unsigned b = grid_reverse ? blocks - 1 - i : i;
        blockIdx = {b % grid.x, b / grid.x % grid.y, b / (grid.x * grid.y)};
        if (tls.bytes > 0) /* __shared__ variables are thread_local */
            memset(tls.at, 0xff, tls.bytes);
        if (shared > 0)
            memset(block.shared, 0xff, shared);
        run_block();
    }
    if (tls.bytes > 0)
        memcpy(tls.at, kept.data(), tls.bytes);
    free(block.shared);
    pthread_mutex_unlock(&lock);
}

/* ---- without a stream ---- */

/* Definitions for tests of kernels alone; the definitions of the API, if linked, override these. */
#define ALONE __attribute__((weak))
ALONE void standin_enqueue(cudaStream_t, const char *, std::function<void()> run, std::vector<const void *>) { run(); }
ALONE void cuda_must(cudaError_t, const char *) {}
extern "C" {
ALONE cudaError_t cudaFuncSetAttribute(const void *, enum cudaFuncAttribute, int) { return cudaSuccess; }
ALONE cudaError_t cudaGetLastError(void) { return cudaSuccess; }
ALONE cudaError_t cudaMemsetAsync(void *p, int byte, size_t n, cudaStream_t) { return memset(p, byte, n), cudaSuccess; }
}
