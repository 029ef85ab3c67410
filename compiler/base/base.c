#include "base.h"
#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Memory: chunks, handed out from the front and freed all at once. A large request gets a chunk of its own, so that
 * realloc can move a growing array by remapping pages, and no old copies are left behind. A scratch reuses its large
 * chunks: clearing their pages takes a fraction of the time that the kernel takes for new ones. */
struct chunk {
    struct chunk *prev, *next;
    size_t used, size; /* of what follows the header */
    size_t depth;      /* how many scratches were open when it was taken */
};
enum { CHUNK = 1 << 20, LARGE = 1 << 15, ALIGN = 16 };
_Static_assert(sizeof(struct chunk) % 8 == 0, "header");
#ifdef __SANITIZE_ADDRESS__ /* sees uses of what was given back, unless it is used again */
#define REUSED SIZE_MAX
#else
#define REUSED ((size_t)1 << 20)
#endif
static struct chunk *chunks; /* the first one is being filled */
static struct chunk *spare;  /* to be used again, of REUSED bytes at least; a list through next */
static size_t total, depth;
#define HEAD ((sizeof(struct chunk) + ALIGN - 1) & ~(size_t)(ALIGN - 1))

static struct chunk *new_chunk(size_t size) {
    struct chunk *c = calloc(1, HEAD + size); /* large ones are fresh pages: zero without being touched */
    if (!c)
        die("out of memory: %zu bytes more were needed after %zu", size, total);
    c->size = size;
    c->depth = depth;
    return c;
}

static void push_chunk(void) {
    struct chunk *c = new_chunk(CHUNK);
    if ((c->next = chunks))
        chunks->prev = c;
    chunks = c;
}

/* The smallest spare chunk that is large enough, cleared; NULL: there is none. */
static struct chunk *spare_chunk(size_t need) {
    struct chunk **best = NULL;
    for (struct chunk **c = &spare; need >= REUSED && *c; c = &(*c)->next)
        if ((*c)->size >= need && (!best || (*c)->size < (*best)->size))
            best = c;
    if (!best)
        return NULL;
    struct chunk *c = *best;
    *best = c->next;
    c->depth = depth;
    memset((char *)c + HEAD, 0, need);
    return c;
}

void *alloc(size_t bytes) {
    size_t need = (bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    total += need;
    if (need > LARGE) { /* its own, second in the list: the open chunk goes on being filled */
        if (!chunks)
            push_chunk();
        struct chunk *c = spare_chunk(need);
        c = c ? c : new_chunk(need);
        c->used = need;
        c->prev = chunks;
        if ((c->next = chunks->next))
            c->next->prev = c;
        chunks->next = c;
        return (char *)c + HEAD;
    }
    if (!chunks || chunks->size - chunks->used < need)
        push_chunk();
    void *p = (char *)chunks + HEAD + chunks->used;
    chunks->used += need;
    return p;
}

static void free_list(struct chunk **list) {
    while (*list) {
        struct chunk *next = (*list)->next;
        free(*list);
        *list = next;
    }
}

void free_all(void) {
    free_list(&chunks);
    free_list(&spare);
    total = depth = 0;
}

struct scratch scratch_begin(void) {
    if (!chunks)
        push_chunk();
    return (struct scratch){chunks, chunks->used, ++depth};
}

static void give_back(struct chunk *c) {
    *(c->prev ? &c->prev->next : &chunks) = c->next;
    if (c->next)
        c->next->prev = c->prev;
    if (c->size < REUSED) {
        free(c);
        return;
    }
    c->prev = NULL;
    c->next = spare;
    spare = c;
}

/* Its chunks come before the one that was open as it began, and, large ones, right behind that. */
void scratch_end(struct scratch s) {
    for (struct chunk *c = chunks, *next; c && (c == s.open || c->depth >= s.depth); c = next) {
        next = c->next;
        if (c != s.open)
            give_back(c);
    }
    memset((char *)s.open + HEAD + s.used, 0, s.open->used - s.used);
    s.open->used = s.used;
    depth = s.depth - 1;
}

size_t allocated(void) { return total; }

char *copy_string(const char *s) {
    size_t n = strlen(s) + 1;
    return memcpy(alloc(n), s, n);
}

char *format(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *s = alloc((size_t)n + 1);
    va_start(ap, fmt);
    vsnprintf(s, (size_t)n + 1, fmt, ap);
    va_end(ap);
    return s;
}

void *grow_bytes(void *p, size_t *cap, size_t need, size_t size) {
    size_t old = *cap, now = old ? old : 16;
    while (now < need)
        now += now / 2;
    *cap = now;
    size_t was = (old * size + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    if (was > LARGE) { /* p has a chunk of its own */
        struct chunk *c = (struct chunk *)((char *)p - HEAD), *prev = c->prev, *next = c->next;
        c = realloc(c, HEAD + now * size);
        if (!c)
            die("out of memory: %zu bytes more were needed after %zu", now * size, total);
        total += now * size - was;
        c->size = c->used = now * size;
        prev->next = c;
        if (next)
            next->prev = c;
        return (char *)c + HEAD;
    }
    void *q = alloc(now * size);
    if (old)
        memcpy(q, p, old * size);
    return q;
}

/* Normalises text from other systems' editors: drops a byte order mark, and ends lines with \n. */
static size_t plain_text(char *s, size_t n) {
    size_t to = 0, from = n >= 3 && !memcmp(s, "\xef\xbb\xbf", 3) ? 3 : 0;
    if (memchr(s, 0, n))
        return n; /* no text */
    for (; from < n; from++)
        if (s[from] != '\r' || s[from + 1] != '\n')
            s[to++] = s[from];
    s[to] = 0;
    return to;
}

char *read_file(const char *path, size_t *size) {
    static bool stdin_was_read;
    bool in = strcmp(path, "-") == 0;
    if (in && stdin_was_read)
        die("-: stdin was read already; name a file for one of the two");
    stdin_was_read |= in;
    FILE *f = in ? stdin : fopen(path, "rb");
    if (!f)
        die("%s: %s", path, strerror(errno));
    char *s = NULL;
    size_t cap = 0, n = 0, got;
    do {
        GROW(s, cap, n + 65537);
        errno = 0;
        got = fread(s + n, 1, 65536, f);
        n += got;
    } while (got > 0);
    int err = ferror(f) ? errno : 0;
    if (!in)
        fclose(f);
    if (err)
        die("%s: %s", path, strerror(err));
    s[n] = 0;
    n = plain_text(s, n);
    if (size)
        *size = n;
    return s;
}

int by_value(const void *x, const void *y) {
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

const char *file_text(const char *path) {
    size_t size;
    const char *s = read_file(path, &size);
    if (strlen(s) != size)
        die("%s: byte %zu is zero: this is no text", path, strlen(s));
    return s;
}

void put_bytes(struct text *t, const char *s, size_t n) {
    GROW(t->s, t->cap, t->n + n + 1);
    memcpy(t->s + t->n, s, n);
    t->n += n;
    t->s[t->n] = 0;
}

size_t put_utf8(struct text *t, const char *s) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *c = (const unsigned char *)s;
    size_t n = *c < 0x80 ? 1 : *c < 0xc0 ? 0 : *c < 0xe0 ? 2 : *c < 0xf0 ? 3 : *c < 0xf8 ? 4 : 0, i = 1;
    uint32_t x = *c & (n > 1 ? 0x7fu >> n : 0x7fu);
    for (; i < n && (c[i] & 0xc0) == 0x80; i++)
        x = x << 6 | (c[i] & 0x3f);
    if (n == 0 || i < n || x < least[n] || x > 0x10ffff || (x >= 0xd800 && x < 0xe000) || (x & 0xfffe) == 0xfffe) {
        put_bytes(t, "\xef\xbf\xbd", 3);
        return 1;
    }
    put_bytes(t, s, n);
    return n;
}

void put(struct text *t, const char *fmt, ...) {
    char small[256];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(small, sizeof small, fmt, ap);
    va_end(ap);
    if ((size_t)n < sizeof small) {
        put_bytes(t, small, (size_t)n);
        return;
    }
    GROW(t->s, t->cap, t->n + (size_t)n + 1);
    va_start(ap, fmt);
    vsnprintf(t->s + t->n, (size_t)n + 1, fmt, ap);
    va_end(ap);
    t->n += (size_t)n;
}

const char *number(double x, char *buf) {
    if (x == floor(x) && fabs(x) < 9007199254740992.0) {
        snprintf(buf, 32, "%lld", (long long)x);
        return buf;
    }
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(buf, 32, "%.*g", digits, x);
        if (strtod(buf, NULL) == x)
            break;
    }
    return buf;
}

static int distance(const char *a, const char *b) {
    int la = (int)strlen(a), lb = (int)strlen(b), row[64];
    if (la >= 63 || lb >= 63)
        return INT_MAX; /* no name of ours is that long */
    for (int j = 0; j <= lb; j++)
        row[j] = j;
    for (int i = 1; i <= la; i++) {
        int diag = row[0];
        row[0] = i;
        for (int j = 1; j <= lb; j++) {
            int up = row[j], best = diag + (a[i - 1] != b[j - 1]);
            if (up + 1 < best)
                best = up + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            diag = up;
            row[j] = best;
        }
    }
    return row[lb];
}

const char *nearest(const char *word, const char *const *names, int n) {
    const char *best = NULL;
    int least = (int)strlen(word) / 3 + 2; /* a third of the letters may be wrong */
    for (int i = 0; i < n; i++) {
        int d = distance(word, names[i]);
        if (d < least) {
            least = d;
            best = names[i];
        }
    }
    return best;
}

void put_int(struct text *t, int64_t v) {
    char digits[24], *s = digits + sizeof digits;
    uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    do
        *--s = (char)('0' + u % 10);
    while (u /= 10);
    if (v < 0)
        *--s = '-';
    put_bytes(t, s, (size_t)(digits + sizeof digits - s));
}

const char *tame(const char *s) {
    char *t = copy_string(s);
    for (char *c = t; *c; c++)
        if (*c < ' ' || *c > '~' || strchr("\"\\*?", *c))
            *c = '_';
    return t;
}
