/* `pianola verify`: proves a program from its text form alone. */
#include "base/put_json.h"
#include "base/read_file.h"
#include "command.h"
#include "formats/formats.h"
#include "verify/verify.h"

/* Prints each claim as true, false or null. null: undecided, because another claim was refuted first. */
void print_claims(const struct refutation *no) {
    printf(", \"model\": \"%s\", \"claims\": [", MACHINE_MODEL);
    for (int i = 0; i < NCLAIMS; i++)
        printf("%s{\"claim\": \"%s\", \"says\": %s, \"holds\": %s}", i ? ", " : "", claim_word[i],
               quoted(claim_what[i]),
               !no || no->holds >> i & 1 ? "true"
               : no->claim == 1 << i     ? "false"
                                         : "null");
    printf("]");
}

int cmd_verify(const struct settings *settings) {
    const char *path = settings->file[0];
    const struct program *p = read_text(path, file_text(path));
    struct refutation *no = verify_text(p);
    int claim = 0;
    while (no && no->claim >> (claim + 1))
        claim++;
    if (settings->json) {
        printf("{\"schema\": 1, \"proved\": %s", no ? "false" : "true");
        print_claims(no);
        if (no)
            printf(", \"claim\": \"%s\", \"why\": %s", claim_word[claim], quoted(no->why));
        printf("}\n");
    } else if (no)
        printf("%s: refuted (%s)\n%s\n", path, claim_word[claim], no->why);
    else
        printf("%s: proved: %s on %s, at any speed of ranks and links\n", path, p->name, counted(p->workers, "rank"));
    return no != NULL;
}
