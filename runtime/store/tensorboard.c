#include "tensorboard.h"
#include "durable.h"
#include <errno.h>
#include <math.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- records ---- */

static uint32_t masked_crc(const uint8_t *s, size_t n) {
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < n; i++) {
        crc ^= s[i];
        for (int k = 0; k < 8; k++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0); /* Castagnoli's polynomial, reflected */
    }
    crc = ~crc;
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static void put_record(FILE *f, const uint8_t *data, size_t n) {
    uint64_t length = n;
    uint32_t of_length = masked_crc((const uint8_t *)&length, sizeof length), of_data = masked_crc(data, n);
    fwrite(&length, sizeof length, 1, f);
    fwrite(&of_length, sizeof of_length, 1, f);
    fwrite(data, 1, n, f);
    fwrite(&of_data, sizeof of_data, 1, f);
}

/* ---- protocol buffers ---- */

struct message {
    uint8_t s[1024];
    size_t n;
};
enum { VARINT, FIXED64, BYTES, FIXED32 = 5 }; /* wire types */

static void add_varint(struct message *m, uint64_t x) {
    for (; x >= 128; x >>= 7)
        m->s[m->n++] = (uint8_t)(x | 128);
    m->s[m->n++] = (uint8_t)x;
}

static void add_field(struct message *m, int field, int wire) { add_varint(m, (uint64_t)(field << 3 | wire)); }

static void put_fixed(struct message *m, int field, int wire, const void *x, size_t n) {
    add_field(m, field, wire);
    memcpy(m->s + m->n, x, n);
    m->n += n;
}

static void put_field_bytes(struct message *m, int field, const void *s, size_t n) {
    add_field(m, field, BYTES);
    add_varint(m, n);
    memcpy(m->s + m->n, s, n);
    m->n += n;
}

static struct message begin_event(int64_t step) {
    struct timespec now;
    struct message event = {.n = 0};
    clock_gettime(CLOCK_REALTIME, &now);
    double at = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    put_fixed(&event, 1, FIXED64, &at, sizeof at);
    add_field(&event, 2, VARINT);
    add_varint(&event, (uint64_t)step);
    return event;
}

static void put_scalar(struct message *summary, const char *tag, double x) {
    struct message value = {.n = 0};
    float narrow = (float)x;
    put_field_bytes(&value, 1, tag, strlen(tag));
    put_fixed(&value, 2, FIXED32, &narrow, sizeof narrow);
    put_field_bytes(summary, 1, value.s, value.n);
}

/* ---- the file ---- */

static bool settle_file(struct tensorboard *board, char *why, size_t nwhy) {
    if (fflush(board->f) == 0)
        return true;
    snprintf(why, nwhy, "%s: %s", board->path, strerror(errno));
    return false;
}

bool tensorboard_open(struct tensorboard *board, const char *dir, int64_t from, char *why, size_t nwhy) {
    static const char version[] = "brain.Event:2";
    char host[65] = "host";
    if (!durable_folder(dir, why, nwhy))
        return false;
    gethostname(host, sizeof host - 1);
    snprintf(board->path, sizeof board->path, "%s/events.out.tfevents.%010lld.%s.%ld.0", dir, (long long)time(NULL),
             host, (long)getpid());
    board->f = fopen(board->path, "wxe");
    if (!board->f) {
        snprintf(why, nwhy, "%s: %s", board->path, strerror(errno));
        return false;
    }
    struct message first = begin_event(0), begins = begin_event(from + 1), start = {.n = 0};
    put_field_bytes(&first, 3, version, strlen(version));
    put_record(board->f, first.s, first.n);
    add_field(&start, 1, VARINT); /* SessionLog.START */
    add_varint(&start, 1);
    put_field_bytes(&begins, 7, start.s, start.n);
    if (from > 0)
        put_record(board->f, begins.s, begins.n);
    return settle_file(board, why, nwhy);
}

static bool write_summary(struct tensorboard *board, int64_t step, const struct message *summary, char *why,
                          size_t nwhy) {
    struct message event = begin_event(step);
    put_field_bytes(&event, 5, summary->s, summary->n);
    put_record(board->f, event.s, event.n);
    return settle_file(board, why, nwhy);
}

bool tensorboard_line(struct tensorboard *board, int64_t step, const struct metric *metric, int n, char *why,
                      size_t nwhy) {
    struct message summary = {.n = 0};
    for (const struct metric *m = metric; m < metric + n; m++)
        if (m->tag && (m->always || isfinite(m->value)))
            put_scalar(&summary, m->tag, m->value);
    return write_summary(board, step, &summary, why, nwhy);
}

void tensorboard_close(struct tensorboard *board) {
    if (board->f)
        fclose(board->f);
}
