#include "fault.h"
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

enum { SIZE = 1 << 16, ROOM = SIZE - 64 }; /* ROOM: where a message is cut off, so that the object still ends */
static struct {
    bool on;
    atomic_flag told;
    char text[SIZE];
    size_t n;
} fault = {.told = ATOMIC_FLAG_INIT};

void fault_json(bool on) { fault.on = on; }

static void put_into_fault(const char *s, size_t n) {
    if (fault.n + n > SIZE)
        return;
    memcpy(fault.text + fault.n, s, n);
    fault.n += n;
}

static void add_word(const char *s) { put_into_fault(s, strlen(s)); }

/* Returns the length of the UTF-8 character at s, or 0 if the bytes are none. */
static size_t character(const unsigned char *s) {
    size_t n = s[0] < 0x80 ? 1 : s[0] >> 5 == 6 ? 2 : s[0] >> 4 == 14 ? 3 : s[0] >> 3 == 30 ? 4 : 0;
    for (size_t i = 1; i < n; i++)
        if (s[i] >> 6 != 2)
            return 0;
    bool longer = (n == 2 && s[0] < 0xc2) || (n == 3 && s[0] == 0xe0 && s[1] < 0xa0) ||
                  (n == 4 && s[0] == 0xf0 && s[1] < 0x90); /* than it must be */
    bool outside =
        (n == 3 && s[0] == 0xed && s[1] > 0x9f) || (n == 4 && (s[0] > 0xf4 || (s[0] == 0xf4 && s[1] > 0x8f)));
    return longer || outside ? 0 : n;
}

/* Adds n bytes as a string, with U+FFFD for invalid UTF-8. */
static void add_string(const char *s, size_t n) {
    static const char digit[] = "0123456789abcdef";
    add_word("\"");
    for (const char *end = s + n; s < end && fault.n < ROOM;) {
        unsigned char c = (unsigned char)*s;
        size_t length = character((const unsigned char *)s);
        if (c == '"' || c == '\\')
            put_into_fault((const char[]){'\\', *s}, 2);
        else if (c < 0x20)
            put_into_fault((const char[]){'\\', 'u', '0', '0', digit[c >> 4], digit[c & 15]}, 6);
        else if (length == 0)
            add_word("\\ufffd");
        else
            put_into_fault(s, length);
        s += length ? length : 1;
    }
    add_word("\"");
}

void fault_tell(const char *message) {
    if (!fault.on || atomic_flag_test_and_set(&fault.told))
        return;
    size_t n = strcspn(message, "\n");
    add_word("{\"schema\": 1, \"error\": {\"message\": ");
    add_string(message, n);
    for (int i = 0; message[n] && message[n + 1] && fault.n < ROOM; i++) {
        message += n + 1;
        n = strcspn(message, "\n");
        add_word(i ? ", " : ", \"because\": [");
        add_string(message, n);
        if (!message[n] || !message[n + 1] || fault.n >= ROOM)
            add_word("]");
    }
    add_word("}}\n");
    for (size_t at = 0; at < fault.n;) {
        ssize_t wrote = write(STDOUT_FILENO, fault.text + at, fault.n - at);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            return;
        at += (size_t)wrote;
    }
}
