/* Hostile files: each rule of the format broken, and the message that names it. */
#include "checkpoint_room.h"

TestSuite(safetensors, .init = make_dir, .fini = remove_dir);

#define T(name, shape, from, to)                                                                                       \
    "\"" name "\":{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":[" from "," to "]}"

static const struct {
    const char *header;
    int data;            /* bytes of data after the header */
    const char *message; /* NULL: a valid file */
} hostile[] = {
    {"{" T("a", "[2]", "0", "8") "}", 8, NULL},
    {"{}", 0, NULL},
    {" {}", 0, "byte 0 of the header: expected {"},
    {"{\"__metadata__\":{},\n\t" T("b", "[]", "8", "12") "," T("a", "[2,1]", "0", "8") "}   ", 12, NULL},
    {"{" T("z", "[0,5]", "0", "0") "," T("a", "[1]", "0", "4") "}", 4, NULL},
    {"{" T("a", "[2]", "0", "8") "," T("b", "[2]", "4", "12") "}", 12, "tensor b overlaps a"},
    {"{" T("a", "[2]", "0", "8") "," T("b", "[2]", "0", "8") "}", 8, "tensor b overlaps a"},
    {"{" T("a", "[2]", "0", "8") "," T("b", "[1]", "12", "16") "}", 16, "4 bytes before tensor b belong to no tensor"},
    {"{" T("a", "[2]", "4", "12") "}", 12, "4 bytes before tensor a belong to no tensor"},
    {"{" T("a", "[2]", "0", "8") "}", 9, "1 bytes after the last tensor belong to no tensor"},
    {"{}", 4, "4 bytes after the last tensor belong to no tensor"},
    {"{" T("a", "[2]", "0", "8") "}", 7, "data_offsets [0,8] are not within the 7 bytes of data"},
    {"{" T("a", "[2]", "8", "0") "}", 8, "data_offsets [8,0] are not within"},
    {"{" T("a", "[2]", "9223372036854775800", "9223372036854775807") "}", 8, "are not within the 8 bytes"},
    {"{" T("a", "[2]", "0", "9223372036854775808") "}", 8, "a number beyond 9223372036854775807"},
    {"{" T("a", "[2]", "0", "18446744073709551624") "}", 8, "a number beyond"},
    {"{" T("a", "[3]", "0", "8") "}", 8, "its shape takes 12 bytes, its data_offsets 8"},
    {"{" T("a", "[2,2]", "0", "8") "}", 8, "its shape takes 16 bytes"},
    {"{" T("a", "[]", "0", "8") "}", 8, "its shape takes 4 bytes"},
    {"{" T("a", "[4611686018427387904,4]", "0", "8") "}", 8, "its shape is beyond any file"},
    {"{" T("a", "[4611686018427387905]", "0", "8") "}", 8, "its shape is beyond any file"},
    {"{" T("a", "[1,1,1,1,2]", "0", "8") "}", 8, "more than 4 dimensions"},
    {"{" T("a", "[-2]", "0", "8") "}", 8, "expected a whole number"},
    {"{" T("a", "[2.0]", "0", "8") "}", 8, "expected ]"},
    {"{" T("a", "[02]", "0", "8") "}", 8, "expected a whole number"},
    {"{" T("a", "[2,]", "0", "8") "}", 8, "expected a whole number"},
    {"{" T("a", "[[2]]", "0", "8") "}", 8, "expected a whole number"},
    {"{" T("a", "2", "0", "8") "}", 8, "expected ["},
    {"{" T("a", "\"2\"", "0", "8") "}", 8, "expected ["},
    {"{" T("a", "[2]", "0", "8,8") "}", 8, "expected ]"},
    {"{" T("a", "[1]", "0", "4") "," T("a", "[1]", "4", "8") "}", 8, "tensor a appears twice"},
    {"{" T("a", "[0]", "0", "0") "," T("a", "[0]", "0", "0") "}", 0, "tensor a appears twice"},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "__metadata__ appears twice"},
    {"{\"__metadata__\":{\"k\":\"1\",\"j\":\"2\",\"k\":\"3\"}}", 0, "metadata k appears twice"},
    {"{\"__metadata__\":{\"k\":1}}", 0, "expected a string"},
    {"{\"__metadata__\":[]}", 0, "expected {"},
    {"{\"__metadata__\":{\"k\":{\"k\":{}}}}", 0, "expected a string"},
    {"{\"a\":{\"dtype\":\"F16\",\"shape\":[4],\"data_offsets\":[0,8]}}", 8,
     "tensor a: dtype F16; only F32 is read here"},
    {"{\"a\":{\"dtype\":5,\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "expected a string"},
    {"{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "needs dtype, shape and data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "needs dtype, shape and data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[0]}}", 0, "needs dtype, shape and data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"shape\":[2],\"data_offsets\":[0,8]}}", 8,
     "shape is unknown, or given twice"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"x\":0}}", 8, "x is unknown, or given twice"},
    {"{\"a\":{}}", 0, "expected a string"},
    {"{\"a\":[]}", 0, "expected {"},
    {"{\"a\":null}", 0, "expected {"},
    {"", 0, "byte 0 of the header: expected {"},
    {"[]", 0, "byte 0 of the header: expected {"},
    {"{", 0, "expected a string"},
    {"{\"a", 0, "a string does not end"},
    {"{\"a\"", 0, "expected :"},
    {"{\"a\":", 0, "expected {"},
    {"{}}", 0, "more after the end"},
    {"{},", 0, "more after the end"},
    {"{\"a\\u0062\":{}}", 0, "a string with escapes"},
    {"{\"\xff\":{}}", 0, "other characters than plain ASCII"},
    {"{\"a\nb\":{}}", 0, "other characters than plain ASCII"},
    {"{" T("a", "[1]", "0", "4") ","
                                 "}",
     4, "expected a string"},
    {"{" T("a", "[1]", "0", "4") " " T("b", "[1]", "4", "8") "}", 8, "expected }"},
};

static void spill_tensors(const char *path, uint64_t length, const char *header, size_t nheader, size_t data) {
    char *s = fresh((int64_t)(8 + nheader + data));
    memcpy(s, &length, 8);
    memcpy(s + 8, header, nheader);
    spill(path, s, 8 + nheader + data);
}

Test(safetensors, hostile_headers_are_refused_by_name) {
    const char *path = in_dir("hostile");
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
        size_t n = strlen(hostile[i].header);
        spill_tensors(path, n, hostile[i].header, n, (size_t)hostile[i].data);
        if (hostile[i].message)
            refused(path, hostile[i].message);
        else
            cr_expect(opens(path), "%s: %s", hostile[i].header, why);
    }
    cr_assert_eq(truncate(path, 0), 0);
    refused(path, "has 0 bytes, too few for a safetensors file");
    cr_assert_eq(truncate(path, 7), 0);
    refused(path, "has 7 bytes, too few");
    static const uint64_t lies[] = {3, 1000, 99999999, 100000001, INT64_MAX, UINT64_MAX - 7, UINT64_MAX};
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        spill_tensors(path, lies[i], "{}", 2, 0);
        refused(path, lies[i] > 100000000 ? "but at most 100000000 are allowed" : "but the file is shorter");
    }
    spill_tensors(path, 1, "{}", 2, 0);
    refused(path, "expected a string");
    char *deep = fresh(100000);
    memset(deep, '[', 100000);
    memcpy(deep, "{\"a\":", 5);
    spill_tensors(path, 100000, deep, 100000, 0);
    refused(path, "expected {");
    refused(dir, "is not a regular file");
    cr_assert_eq(mkfifo(in_dir("pipe"), 0666), 0);
    refused(in_dir("pipe"), "is not a regular file");
    refused(in_dir("nowhere"), "No such file or directory");
}

Test(safetensors, many_tensors_and_metadata_take_no_quadratic_time) {
    size_t n = 0;
    char *s = fresh(40000000);
    n += (size_t)sprintf(s, "{\"__metadata__\":{\"x\":\"\"");
    for (int i = 0; i < 200000; i++)
        n += (size_t)sprintf(s + n, ",\"%d\":\"\"", i);
    n += (size_t)sprintf(s + n, "}");
    for (int i = 0; i < 200000; i++)
        n += (size_t)sprintf(s + n, "," T("%d", "[0]", "0", "0"), i);
    n += (size_t)sprintf(s + n, "}");
    spill_tensors(in_dir("many"), n, s, n, 0);
    struct safetensors *f = safetensors_open(in_dir("many"), why, sizeof why);
    cr_assert(f, "%s", why);
    cr_expect_eq(f->n, 200000);
    safetensors_close(f);
}

/* Errors after any number of tensors are refused, so with and without room for one more. */
Test(safetensors, trouble_after_any_number_is_refused) {
    for (int k = 0; k < 100; k++) {
        char *s = fresh(20000);
        size_t n = (size_t)sprintf(s, "{\"__metadata__\":{");
        for (int i = 0; i < k; i++)
            n += (size_t)sprintf(s + n, "\"%d\":\"\",", i);
        n += (size_t)sprintf(s + n, "\"x\":5}}");
        spill_tensors(in_dir("trouble"), n, s, n, 0);
        refused(in_dir("trouble"), "expected a string");
        n = (size_t)sprintf(s, "{");
        for (int i = 0; i < k; i++)
            n += (size_t)sprintf(s + n, T("%d", "[0]", "0", "0") ",", i);
        n += (size_t)sprintf(s + n, T("x", "[1]", "0", "0") "}");
        spill_tensors(in_dir("trouble"), n, s, n, 0);
        refused(in_dir("trouble"), "its shape takes 4 bytes");
    }
}
