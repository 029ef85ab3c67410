/* `pianola import`: converts PyTorch's schedule CSV to a schedule script. */
#include "base/read_file.h"
#include "command.h"
#include "files.h"
#include "formats/formats.h"

int cmd_import(const struct settings *settings) {
    const char *path = settings->file[0];
    struct text t = {0};
    check_destination(settings->output, settings);
    read_torch(&t, path, file_text(path));
    write_file(settings->output ? settings->output : "-", &t);
    return 0;
}
