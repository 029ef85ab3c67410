/* Races. Each allocation records which chain touched each of its bytes, and how far along that chain. */
#include "standin.h"

namespace {
struct access {
    const char *at;
    size_t bytes;
    bool write;
    int chain;
    uint32_t number;
    string what;
};
} // namespace
static std::map<uintptr_t, std::vector<access>> &logs(void) {
    static auto *m = new std::map<uintptr_t, std::vector<access>>;
    return *m;
}

void forget_memory(const void *at) { logs().erase((uintptr_t)at); }

/* Records a touch, and forgets the chain's earlier one of that kind: whatever follows the later follows both. */
void touch(const std::vector<range> &ranges, const string &what, const clocks &clock, int chain) {
    for (auto &r : ranges) {
        memory *a = memory_find(r.at);
        if (!a || r.bytes == 0)
            continue;
        auto &log = logs()[(uintptr_t)a->map];
        const char *at = (const char *)r.at;
        access *same = nullptr;
        for (auto &o : log) {
            if (o.at >= at + r.bytes || at >= o.at + o.bytes)
                continue;
            bool ordered = (size_t)o.chain < clock.size() && o.number <= clock[(size_t)o.chain];
            if (!ordered && (o.write || r.write))
                broken("RACE",
                       "%s %s bytes %td to %td of an allocation of %zu, and %s %s %s bytes %td to %td: nothing orders "
                       "the one after the other",
                       what.c_str(), r.write ? "writes" : "reads", at - a->at, at - a->at + (ptrdiff_t)r.bytes,
                       a->bytes, o.what == what ? "another" : "", o.what.c_str(), o.write ? "writes" : "reads",
                       o.at - a->at, o.at - a->at + (ptrdiff_t)o.bytes);
            if (o.chain == chain && o.at == at && o.bytes == r.bytes && o.write == r.write)
                same = &o;
        }
        access now = {at, r.bytes, r.write, chain, clock[(size_t)chain], what};
        if (same)
            *same = now;
        else
            log.push_back(now);
    }
}
