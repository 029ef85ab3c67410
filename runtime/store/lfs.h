/* Git LFS pointers. Git LFS keeps large files elsewhere, and replaces each with a pointer, a text of three lines. A
 * clone without `git lfs pull` has pointers under the files' names. A run could mistake one for its text and train on
 * it. */
#ifndef PIANOLA_LFS_H
#define PIANOLA_LFS_H
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define LFS_POINTER "is a Git LFS pointer, not the file: fetch the file with `git lfs pull`, or download it"

static inline bool is_lfs_pointer(const char *s, size_t n) {
    static const char begin[] = "version https://git-lfs.github.com/spec/";
    return n > sizeof begin - 1 && memcmp(s, begin, sizeof begin - 1) == 0;
}
#endif
