/* Model files in the GGUF format, versions 2 and 3 (github.com/ggml-org/ggml, docs/gguf.md). Files are mapped; only
 * tensors are read, and metadata that changes their meaning. Other metadata are skipped; compiler/models reads the
 * tokenizer. Nothing in a file is trusted. */
#ifndef PIANOLA_GGUF_H
#define PIANOLA_GGUF_H
#include "named.h"

/* Adds the file's tensors to the list, and sets its information on the model. data: the whole file. Returns false and
 * sets why to the file and what is wrong with it. */
bool gguf_tensors(const char *path, const uint8_t *data, size_t size, struct named_list *list, struct named_said *said,
                  char *why, size_t nwhy);
#endif
