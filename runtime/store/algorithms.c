#include "algorithms.h"
#include "durable.h"
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char header[] = "device\tcublaslt\tproduct\talgorithm\n", apart[] = "apart";
enum { KEYS = 3 }; /* fields that name a product */

/* Returns where the field after n tabs begins in a complete line, or NULL if there are fewer. */
static const char *field(const char *line, int n) {
    const char *end = strchr(line, '\n');
    for (; n > 0; n--, line++)
        if (!(line = memchr(line, '\t', (size_t)(end - line))))
            return NULL;
    return line;
}

static bool is_apart(const char *value, size_t n) { return n == strlen(apart) && memcmp(value, apart, n) == 0; }

/* Returns what is wrong with a complete line after the header, or NULL. */
static const char *wrong(const char *line) {
    const char *value = field(line, KEYS), *end = strchr(line, '\n');
    size_t n = value ? (size_t)(end - value) : 0, digits = 0;
    if (!value || field(line, KEYS + 1))
        return "expected a device, a version, a product and an algorithm, with tabs between them";
    while (digits < n && isxdigit((unsigned char)value[digits]))
        digits++;
    if (!is_apart(value, n) && (n != 2 * ALGORITHM_BYTES || digits < n))
        return "the algorithm is not 128 hexadecimal digits";
    return NULL;
}

static bool check_algorithms(const struct algorithms *all, char *why, size_t nwhy) {
    int number = 1;
    for (const char *line = all->text, *next; *line; line = next, number++) {
        const char *end = strchr(line, '\n'), *trouble = end ? NULL : "the line is cut off";
        next = end ? end + 1 : "";
        if (!trouble && number == 1)
            trouble = strncmp(line, header, strlen(header)) == 0 ? NULL : "this is not a file of algorithms";
        else if (!trouble)
            trouble = wrong(line);
        if (trouble) {
            snprintf(why, nwhy, "%s:%d: %s; fix the file, or remove it to time all algorithms again", all->path, number,
                     trouble);
            return false;
        }
    }
    return true;
}

bool algorithms_read(struct algorithms *all, const char *path, char *why, size_t nwhy) {
    int64_t bytes;
    *all = (struct algorithms){.path = path};
    if (access(path, F_OK) != 0 && errno == ENOENT)
        return true;
    int fd = durable_open(path, &bytes, why, nwhy);
    if (fd < 0)
        return false;
    all->n = (size_t)bytes;
    all->text = calloc(1, all->n + 1);
    bool ok = all->text;
    if (!ok)
        snprintf(why, nwhy, "%s: no memory", path);
    ok = ok && durable_read(fd, path, all->text, all->n, 0, why, nwhy);
    close(fd);
    if (ok && strlen(all->text) < all->n) {
        snprintf(why, nwhy, "%s: has bytes that are not text", path);
        ok = false;
    }
    return ok && check_algorithms(all, why, nwhy);
}

static int digit(char c) { return isdigit((unsigned char)c) ? c - '0' : tolower((unsigned char)c) - 'a' + 10; }

bool algorithms_find(const struct algorithms *all, const char *key, struct algorithm *found) {
    size_t n = strlen(key);
    int number = 1;
    for (const char *line = all->text; line && *line; line = strchr(line, '\n') + 1, number++) {
        if (strncmp(line, key, n) != 0 || line[n] != '\t')
            continue;
        const char *value = line + n + 1;
        *found = (struct algorithm){.line = number, .apart = is_apart(value, strcspn(value, "\n"))};
        for (int i = 0; !found->apart && i < ALGORITHM_BYTES; i++)
            found->bytes[i] = (unsigned char)(digit(value[2 * i]) << 4 | digit(value[2 * i + 1]));
        return true;
    }
    return false;
}

bool algorithms_join(struct algorithms *all, const char *text, size_t n) {
    char *more = realloc(all->text, all->n + n + 1);
    if (!more)
        return false;
    memcpy(more + all->n, text, n);
    all->text = more;
    all->n += n;
    more[all->n] = 0;
    return true;
}

bool algorithms_add(struct algorithms *all, const char *key, const struct algorithm *algorithm) {
    char value[2 * ALGORITHM_BYTES + 1];
    for (int i = 0; i < ALGORITHM_BYTES; i++)
        snprintf(value + 2 * (size_t)i, 3, "%02x", algorithm->bytes[i]);
    const char *last = algorithm->apart ? apart : value;
    return (all->n > 0 || algorithms_join(all, header, strlen(header))) && algorithms_join(all, key, strlen(key)) &&
           algorithms_join(all, "\t", 1) && algorithms_join(all, last, strlen(last)) && algorithms_join(all, "\n", 1);
}

bool algorithms_write(const struct algorithms *all, char *why, size_t nwhy) {
    struct durable file;
    if (!durable_begin(&file, all->path, why, nwhy))
        return false;
    durable_write(&file, all->text, all->n);
    return durable_end(&file);
}

void algorithms_free(struct algorithms *all) {
    free(all->text);
    *all = (struct algorithms){.path = all->path};
}
