#include "read_file.h"
#include "base.h"
#include <errno.h>
#include <string.h>

/* Normalises text from other systems' editors: drops a byte order mark, and ends lines with \n. */
static size_t plain_text(char *s, size_t n) {
    size_t to = 0, from = n >= 3 && !memcmp(s, "\xef\xbb\xbf", 3) ? 3 : 0;
    if (memchr(s, 0, n))
        return n; /* it is binary */
    for (; from < n; from++)
        if (s[from] != '\r' || s[from + 1] != '\n')
            s[to++] = s[from];
    s[to] = 0;
    return to;
}

/* The first bytes of the pointer that Git LFS puts in a large file's place (runtime/store/lfs.h). */
static const char pointer[] = "version https://git-lfs.github.com/spec/";

const char *(*read_file_guess)(const char *missing);

static _Noreturn void refuse_missing(const char *path, int err) {
    const char *meant = err == ENOENT && read_file_guess ? read_file_guess(path) : NULL;
    die("%s: %s%s%s%s", path, strerror(err), meant ? "; did you mean " : "", meant ? meant : "", meant ? "?" : "");
}

char *read_file(const char *path, size_t *size) {
    static bool stdin_was_read;
    bool in = strcmp(path, "-") == 0;
    if (in && stdin_was_read)
        die("-: stdin can be read only once; name a file for one of the two");
    stdin_was_read |= in;
    FILE *f = in ? stdin : fopen(path, "rb");
    if (!f)
        refuse_missing(path, errno);
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
    if (n >= strlen(pointer) && memcmp(s, pointer, strlen(pointer)) == 0)
        die("%s: is a Git LFS pointer, not the file: fetch the file with `git lfs pull`, or download it", path);
    s[n] = 0;
    n = plain_text(s, n);
    if (size)
        *size = n;
    return s;
}

const char *file_text(const char *path) {
    size_t size;
    const char *s = read_file(path, &size);
    if (strlen(s) != size)
        die("%s: byte %zu is zero: this is not text", path, strlen(s));
    return s;
}
