/* Operands in a GPU's memory. A pattern before and after each operand must stay unchanged. If a kernel touches memory
 * beyond the pattern, only the GPU itself can report it. */
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
extern "C" {
#include "unit_room.h"
}

enum { GUARD = 4096, PATTERN = 0xa5 };

static char *device_begin_of(const struct room *room) { return (char *)room->self; }

static bool device_open_room(struct room *room, int64_t bytes) {
    void *at = NULL;
    room->bytes = bytes;
    if (cudaMalloc(&at, (size_t)bytes + 2 * GUARD) != cudaSuccess) {
        (void)cudaGetLastError();
        return false;
    }
    room->self = at;
    room->at = (char *)at + GUARD;
    return cudaMemset(at, PATTERN, (size_t)bytes + 2 * GUARD) == cudaSuccess;
}

static void device_close_room(struct room *room) { (void)cudaFree(room->self); }
static void device_set_room(struct room *room, const void *bytes) {
    (void)cudaMemcpy(room->at, bytes, (size_t)room->bytes, cudaMemcpyHostToDevice);
}
static void device_fill_room(struct room *room, int byte) { (void)cudaMemset(room->at, byte, (size_t)room->bytes); }
static void device_get_room(const struct room *room, void *bytes) {
    (void)cudaMemcpy(bytes, room->at, (size_t)room->bytes, cudaMemcpyDeviceToHost);
}
static void device_protect_room(const struct room *, bool) {}

static int64_t device_outside_room(const struct room *room) {
    unsigned char before[GUARD], after[GUARD];
    (void)cudaMemcpy(before, device_begin_of(room), GUARD, cudaMemcpyDeviceToHost);
    (void)cudaMemcpy(after, room->at + room->bytes, GUARD, cudaMemcpyDeviceToHost);
    for (int i = 0; i < GUARD; i++)
        if (after[i] != PATTERN)
            return i;
    for (int i = GUARD - 1; i >= 0; i--)
        if (before[i] != PATTERN)
            return ROOM_CLEAN - (GUARD - i);
    return ROOM_CLEAN;
}

static bool device_room_has(const struct room *room, const char *address) {
    return address >= device_begin_of(room) && address < room->at + room->bytes + GUARD;
}

static struct unit_fault device_call_unit(pianola_unit_function *function, struct pianola_unit_call *call) {
    struct unit_fault fault;
    cudaStream_t stream = NULL;
    memset(&fault, 0, sizeof fault);
    cudaError_t code = cudaDeviceSynchronize();
    if (code == cudaSuccess)
        code = cudaStreamCreate(&stream);
    call->stream = stream;
    if (code == cudaSuccess)
        function(call);
    if (code == cudaSuccess && (code = cudaGetLastError()) == cudaSuccess)
        code = cudaStreamSynchronize(stream);
    if (stream)
        (void)cudaStreamDestroy(stream);
    if (code != cudaSuccess) {
        fault.kind = unit_fault::CALL_FAILED;
        snprintf(fault.why, sizeof fault.why, "%s", cudaGetErrorString(code));
    }
    return fault;
}

extern "C" const struct unit_memory unit_memory_cuda = {
    "_cuda",         device_open_room,    device_close_room,   device_set_room, device_fill_room,
    device_get_room, device_protect_room, device_outside_room, device_room_has, device_call_unit};
