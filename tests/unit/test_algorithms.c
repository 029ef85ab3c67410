/* The file of cuBLASLt's algorithms: reading, lookup, additions and errors. */
#include "store/algorithms.h"
#include "text_file.h"
#include <stdio.h>
#include <string.h>

#define HEADER "device\tcublaslt\tproduct\talgorithm\n"
#define D16    "0123456789abcdef"
#define DIGITS D16 D16 D16 D16 D16 D16 D16 D16

static const char *read_why(const char *text, size_t n) {
    static char why[512];
    char *path = text_file(text, n);
    struct algorithms all;
    *why = 0;
    cr_assert_eq(algorithms_read(&all, path, why, sizeof why), *why == 0);
    if (*why)
        cr_assert(strncmp(why, path, strlen(path)) == 0, "%s", why);
    algorithms_free(&all);
    unlink(path);
    return *why ? why + strlen(path) : why;
}
static bool refused(const char *text, const char *how) {
    const char *why = read_why(text, strlen(text));
    return strncmp(why, how, strlen(how)) == 0;
}

Test(algorithms, found_by_device_version_and_product) {
    const char *text = HEADER "GPU one\t130100\tNN 8\t" DIGITS "\nGPU one\t130100\tNN 16\tapart\n"
                              "GPU one\t130200\tNN 8\tapart\nGPU\t130100\tNN 8\tapart\n";
    char why[512] = "", *path = text_file(text, strlen(text));
    struct algorithms all;
    struct algorithm found;
    cr_assert(algorithms_read(&all, path, why, sizeof why), "%s", why);
    cr_assert(algorithms_find(&all, "GPU one\t130100\tNN 8", &found));
    cr_assert(found.line == 2 && !found.apart && found.bytes[0] == 0x01 && found.bytes[63] == 0xef);
    cr_assert(algorithms_find(&all, "GPU one\t130100\tNN 16", &found));
    cr_assert(found.line == 3 && found.apart);
    cr_assert(algorithms_find(&all, "GPU\t130100\tNN 8", &found) && found.line == 5);
    cr_assert(!algorithms_find(&all, "GPU\t130200\tNN 8", &found));
    cr_assert(!algorithms_find(&all, "GPU one\t130100\tNN 1", &found));
    algorithms_free(&all);
    unlink(path);
}

Test(algorithms, what_is_added_is_found_again_and_the_rest_stays) {
    const char *text = HEADER "another\t1\tNN 8\t" DIGITS "\n";
    char why[512] = "", *path = text_file(text, strlen(text));
    struct algorithms all, again;
    struct algorithm one = {.line = 0}, found;
    for (int i = 0; i < ALGORITHM_BYTES; i++)
        one.bytes[i] = (unsigned char)(255 - 3 * i);
    cr_assert(algorithms_read(&all, path, why, sizeof why), "%s", why);
    cr_assert(algorithms_add(&all, "GPU\t2\tTN 8", &one));
    cr_assert(algorithms_write(&all, why, sizeof why), "%s", why);
    cr_assert(algorithms_read(&again, path, why, sizeof why), "%s", why);
    cr_assert_eq(strncmp(again.text, text, strlen(text)), 0);
    cr_assert(again.n == all.n && strcmp(again.text, all.text) == 0);
    cr_assert(algorithms_find(&again, "GPU\t2\tTN 8", &found) && found.line == 3);
    cr_assert_eq(memcmp(found.bytes, one.bytes, sizeof one.bytes), 0);
    algorithms_free(&again);
    algorithms_free(&all);
    unlink(path);
}

Test(algorithms, the_first_line_brings_the_header) {
    struct algorithms all = {.path = "/none/of/these"};
    struct algorithm one = {.apart = true};
    cr_assert(algorithms_add(&all, "GPU\t2\tTN 8", &one));
    cr_assert_str_eq(all.text, HEADER "GPU\t2\tTN 8\tapart\n");
    char why[512] = "";
    cr_assert(!algorithms_write(&all, why, sizeof why));
    algorithms_free(&all);
    cr_assert(algorithms_read(&all, "/none/of/these", why, sizeof why) && all.n == 0, "no file is no trouble");
}

Test(algorithms, what_is_wrong_with_which_line) {
    cr_assert(!*read_why("", 0) && !*read_why(HEADER, strlen(HEADER)), "no line is no trouble");
    cr_assert(refused("text\n", ":1: this is not a file of algorithms"));
    cr_assert(refused(HEADER "a\tb\tc\tapart\na\tb\tc\n", ":3: expected a device"));
    cr_assert(refused(HEADER "a\tb\tc\tapart\tapart\n", ":2: expected a device"));
    cr_assert(refused(HEADER "\n", ":2: expected a device"));
    cr_assert(refused(HEADER "a\tb\tc\t" DIGITS "0\n", ":2: the algorithm is not"));
    cr_assert(refused(HEADER "a\tb\tc\t" D16 "\n", ":2: the algorithm is not"));
    cr_assert(refused(HEADER "a\tb\tc\t\n", ":2: the algorithm is not"));
    cr_assert(refused(HEADER "a\tb\tc\tapar\n", ":2: the algorithm is not"));
    cr_assert(refused(HEADER "a\tb\tc\t" DIGITS, ":2: the line is cut off"));
    char text[] = HEADER "a\tb\tc\t" DIGITS "\n";
    text[sizeof text - 10] = 'g';
    cr_assert(refused(text, ":2: the algorithm is not"));
    cr_assert(strstr(read_why("dev\0ice\n", 8), "not text"));
    cr_assert(refused("devi", ":1: the line is cut off"));
}

/* A file cut anywhere but between lines is refused. */
Test(algorithms, cut_anywhere) {
    const char *text = HEADER "GPU one\t130100\tNN 8\t" DIGITS "\nGPU one\t130100\tNN 16\tapart\n";
    for (size_t n = 1; n < strlen(text); n++)
        cr_assert_eq(*read_why(text, n) == 0, text[n - 1] == '\n', "%zu bytes", n);
}
