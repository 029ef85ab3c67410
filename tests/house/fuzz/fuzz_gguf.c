/* GGUF files of weights: everything read lies within the file, and every value can be read. */
#include "fuzz.h"
#include "../../../runtime/store/gguf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct named_list list = {0};
    struct named_said said;
    char why[256];
    float line[64];
    uint8_t *file = malloc(size + 1); /* the exact size, for the sanitizer */
    if (!file)
        abort();
    memcpy(file, data, size);
    if (gguf_tensors("fuzzed.gguf", file, size, &list, &said, why, sizeof why) && ++inputs_read)
        for (size_t i = 0; i < list.n; i++) {
            const struct named *tensor = &list.at[i];
            int64_t n = 1;
            for (int d = 0; d < tensor->ndims; d++)
                n *= tensor->dim[d];
            for (int64_t at = 0; at < n; at += 64)
                values_read(tensor->type, tensor->data, at, n - at < 64 ? n - at : 64, line);
        }
    free(list.at);
    free(file);
    return 0;
}
