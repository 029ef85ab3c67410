/* PyTorch's schedule CSV: one that can be read becomes a script. The CSV of that script gives the same script again. */
#include "fuzz.h"

struct reading {
    const char *src;
    struct text script;
};

static void read_csv(void *with) {
    struct reading *r = with;
    read_torch(&r->script, "schedule.csv", r->src);
}

static void put_cell(struct text *t, const char *entry, int n) {
    int plus = (int)strcspn(entry, "+\"");
    if (plus < n)
        put(t, "(%.*s;%.*s)OVERLAP_F_B", plus, entry, n - plus - 1, entry + plus + 1);
    else
        put(t, "%.*s", n, entry);
}

/* Returns the script's jobs as a CSV without communication. Every quote in its list belongs to a job, and "-- rank"
 * ends a row. */
static char *csv_of(const char *script) {
    struct text t = {0};
    const char *row = strstr(script, "sequence = {"), *end;
    for (; (end = strstr(row, "-- rank")); row = end + 1) {
        bool first = true;
        for (const char *p = strchr(row, '"'), *close; p && p < end; p = strchr(close + 1, '"')) {
            close = strchr(p + 1, '"');
            put(&t, first ? "" : ",");
            put_cell(&t, p + 1, (int)(close - p) - 1);
            first = false;
        }
        put(&t, "\n");
    }
    return t.s;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *src = string_of(data, size);
    struct reading first = {.src = src}, second = {0};
    if (src && lives(read_csv, &first)) {
        second.src = csv_of(first.script.s);
        if (!lives(read_csv, &second) ||
            strcmp(strstr(second.script.s, "return"), strstr(first.script.s, "return")) != 0)
            abort();
    }
    free_all();
    free(src);
    return 0;
}
