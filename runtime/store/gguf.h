/* Files of models in the GGUF format, versions 2 and 3 (github.com/ggml-org/ggml, docs/gguf.md): mapped, and read as
 * far as tensors go, and what changes what they mean. Other metadata are passed over; the tokenizer among them is
 * compiler/models' to read. Nothing in a file is trusted. */
#ifndef PIANOLA_GGUF_H
#define PIANOLA_GGUF_H
#include "named.h"

/* Adds the file's tensors to the list, and sets what it says of its model. data: the whole file. False: why names the
 * file and what is wrong. */
bool gguf_tensors(const char *path, const uint8_t *data, size_t size, struct named_list *list, struct named_said *said,
                  char *why, size_t nwhy);
#endif
