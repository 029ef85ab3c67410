#include "unit_file.h"
#include "../../runtime/store/sha256.h"
#include "base/base.h"
#include "base/path.h"
#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static _Noreturn void refuse_file(const struct unit_files *files, int i, const char *why) {
    die_at(files->script, NULL, files->line, 0, "unit '%s': %s: %s", files->unit->name, files->file[i], why);
}

/* Reads the beginning of an ELF file at an offset of a file. Returns whether there is one. The fields up to e_machine
 * are the same for all classes. */
static bool read_elf(FILE *file, long at, Elf64_Ehdr *elf) {
    memset(elf, 0, sizeof *elf);
    return fseek(file, at, SEEK_SET) == 0 && fread(elf, offsetof(Elf64_Ehdr, e_version), 1, file) == 1 &&
           memcmp(elf->e_ident, ELFMAG, SELFMAG) == 0;
}

/* Reads the header of an archive's first object. */
static bool read_archive(FILE *file, Elf64_Ehdr *elf) {
    enum { MAGIC = 8, HEADER = 60, SIZE = 48 };
    char header[HEADER + 1] = "";
    for (long at = MAGIC; fseek(file, at, SEEK_SET) == 0 && fread(header, HEADER, 1, file) == 1;) {
        if (read_elf(file, at + HEADER, elf))
            return true;
        long size = strtol(header + SIZE, NULL, 10);
        if (size < 0)
            return false;
        at += HEADER + size + size % 2;
    }
    return false;
}

/* Returns the header of a shared library, or of an archive's first object. Dies if the file is neither. */
static Elf64_Ehdr library_header(const struct unit_files *files, int i) {
    static const char archive[] = "!<arch>\n";
    Elf64_Ehdr elf;
    char magic[sizeof archive] = "";
    FILE *file = fopen(files->file[i], "rb");
    if (!file)
        refuse_file(files, i, strerror(errno));
    size_t n = fread(magic, 1, sizeof archive - 1, file);
    bool packed = n == sizeof archive - 1 && strcmp(magic, archive) == 0;
    bool found = packed ? read_archive(file, &elf) : read_elf(file, 0, &elf) && elf.e_type == ET_DYN;
    fclose(file);
    if (!found)
        refuse_file(files, i, "is not a library: it must be a shared library (.so) or an archive of objects (.a)");
    return elf;
}

static const char *machine_name(const Elf64_Ehdr *elf) {
    static const struct {
        int machine;
        const char *name;
    } names[] = {{EM_386, "x86"},     {EM_X86_64, "x86-64"}, {EM_ARM, "Arm"},  {EM_AARCH64, "AArch64"},
                 {EM_PPC64, "Power"}, {EM_RISCV, "RISC-V"},  {EM_S390, "s390"}};
    const char *bits = elf->e_ident[EI_CLASS] == ELFCLASS64 ? "64 bits" : "32 bits";
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].machine == elf->e_machine)
            return format("%s with %s", names[i].name, bits);
    return format("machine number %d with %s", elf->e_machine, bits);
}

/* Dies if a library is for another machine than this program. */
static void check_machine(const struct unit_files *files, int i) {
    Elf64_Ehdr elf = library_header(files, i), own;
    FILE *self = fopen("/proc/self/exe", "rb");
    bool known = self && read_elf(self, 0, &own);
    if (self)
        fclose(self);
    if (known && (elf.e_machine != own.e_machine || elf.e_ident[EI_CLASS] != own.e_ident[EI_CLASS] ||
                  elf.e_ident[EI_DATA] != own.e_ident[EI_DATA]))
        refuse_file(files, i,
                    format("is a library for %s, but this program is for %s; build it for this machine",
                           machine_name(&elf), machine_name(&own)));
}

struct rt_unit_library check_unit_file(const struct unit_files *files, int i) {
    struct stat st;
    struct rt_unit_library library = {last_part(files->file[i]), 0, NULL};
    if (access(files->file[i], R_OK) != 0 || stat(files->file[i], &st) != 0)
        refuse_file(files, i, strerror(errno));
    if (!S_ISREG(st.st_mode))
        refuse_file(files, i, "is not a regular file");
    if (i < files->nsources)
        return library;
    check_machine(files, i);
    char *hex = NEW(char, SHA256_HEX);
    library.bytes = sha256_file(files->file[i], hex);
    library.sha256 = hex;
    if (library.bytes < 0)
        refuse_file(files, i, strerror(errno));
    if (files->sha256[i] && strcmp(files->sha256[i], hex) != 0)
        refuse_file(files, i, format("was altered: its SHA-256 is %s, but the script says %s", hex, files->sha256[i]));
    return library;
}
