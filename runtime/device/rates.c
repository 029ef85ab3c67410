#include "rates.h"
#include "layers/rate.h"
#include <stdio.h>

void rates_warn(const struct rt_model *m, int64_t from, int64_t steps, int64_t each, int64_t of) {
    int64_t updates = steps * each, end = m->steps > 0 ? m->steps : of * each;
    if (m->warmup > updates)
        fprintf(stderr,
                "pianola: warning: warmup = %lld, but the training has %lld updates: its rate rises only to %.4g, not "
                "to lr = %.4g\n",
                (long long)m->warmup, (long long)updates, (double)m->lr * (double)updates / (double)m->warmup,
                (double)m->lr);
    if (m->schedule == SCHEDULE_constant || updates <= end || rate_at(m, end + 1, of * each) > 0)
        return;
    int64_t first = end / each > from ? end / each : from;
    fprintf(stderr,
            "pianola: warning: the learning rate is 0 from step %lld to %lld: its schedule ends with update %lld; give "
            "it more steps (-D steps=%lld), or a final rate (-D final=0.1)\n",
            (long long)first + 1, (long long)steps, (long long)end, (long long)updates);
}
