/* SHA-256 and HMAC-SHA-256 on the published vectors of their standards. */
#include "store/sha256.h"
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static const char *hex(struct digest d) {
    static char out[65];
    for (int i = 0; i < 32; i++)
        snprintf(out + 2 * i, 3, "%02x", d.byte[i]);
    return out;
}

static struct digest hashed(const void *bytes, size_t n, size_t at_once) {
    struct sha256 h = sha256_begin();
    for (size_t at = 0; at < n; at += at_once)
        sha256_add(&h, (const char *)bytes + at, n - at < at_once ? n - at : at_once);
    return sha256_end(&h);
}

/* FIPS 180-4's examples: less than a block, a length that needs a second block, and a million bytes. */
Test(sha256, standard) {
    static char million[1000000];
    const char *two = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    memset(million, 'a', sizeof million);
    cr_expect_str_eq(hex(hashed("", 0, 1)), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    cr_expect_str_eq(hex(hashed("abc", 3, 3)), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    cr_expect_str_eq(hex(hashed(two, 56, 5)), "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    cr_expect_str_eq(hex(hashed(million, sizeof million, 999)),
                     "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

/* RFC 4231, test cases 1, 2, 3, 6 and 7: keys shorter and longer than a block. */
Test(sha256, keyed) {
    char key[131], data[50];
    memset(key, 0x0b, 20);
    cr_expect_str_eq(hex(hmac_sha256(key, 20, "Hi There", 8)),
                     "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    cr_expect_str_eq(hex(hmac_sha256("Jefe", 4, "what do ya want for nothing?", 28)),
                     "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    memset(key, 0xaa, sizeof key);
    memset(data, 0xdd, sizeof data);
    cr_expect_str_eq(hex(hmac_sha256(key, 20, data, sizeof data)),
                     "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
    const char *six = "Test Using Larger Than Block-Size Key - Hash Key First";
    cr_expect_str_eq(hex(hmac_sha256(key, sizeof key, six, strlen(six))),
                     "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    const char *seven = "This is a test using a larger than block-size key and a larger than block-size data. The key "
                        "needs to be hashed before being used by the HMAC algorithm.";
    cr_expect_str_eq(hex(hmac_sha256(key, sizeof key, seven, strlen(seven))),
                     "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
}

Test(sha256, any_bit_counts) {
    struct digest a = hashed("abc", 3, 3), b = a;
    cr_expect(digest_same(&a, &b));
    for (int i = 0; i < 32; i++) {
        b.byte[i] ^= 0x40;
        cr_expect(!digest_same(&a, &b), "byte %d", i);
        b = a;
    }
}
