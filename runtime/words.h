/* The words of a rank's table of instructions (rank.h), as macros. Included before the table to define them and after
 * it to undefine them, so that they affect nothing else in a program or its headers. */
#ifndef PIANOLA_WORDS
#define PIANOLA_WORDS
#define I(op, stage, batch, lane, meets, operands, waits) {OP_##op, stage, batch, lane, meets, {operands}, {waits}},
#define END                                                                                                            \
    {                                                                                                                  \
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, {{0, 0, 0, 0}}, { 0 }                                                               \
    }
#define alone                                  -1, -1, -1, 0, 0, 0
/* Layers [first, behind) of the stage; put_off: the weight gradient of layer first + 1 comes with a later part, which
 * runs weights. */
#define layers(first, behind)                  -1, -1, -1, first, behind, SWEEP_ALL
#define put_off(first, behind)                 -1, -1, -1, first, behind, SWEEP_PUT_OFF
#define weights(first, behind)                 -1, -1, -1, first, behind, SWEEP_WEIGHTS
#define to(peer, message)                      peer, message, -1, 0, 0, 0
#define from(peer, message)                    peer, message, -1, 0, 0, 0
#define group(number, message)                 number, message, -1, 0, 0, 0
#define group_with_root(number, message, root) number, message, root, 0, 0, 0
#define after(...)                             __VA_ARGS__
/* Piece k of n of a buffer, which is its offset and its bytes. */
#define piece(...)                 piece_of(__VA_ARGS__)
#define piece_of(off, bytes, k, n) (off) + (bytes) / (n) * (k), (bytes) / (n), (bytes) / (n) * (k)
/* One per role of ops.h; set_dw, set_dv and set_norm mark a first contribution, which writes. Each is followed by the bytes of
 * its buffer that lie before it: before a whole buffer, none. */
#define operand(role, ...)                                                                                             \
    { role, operand_of(__VA_ARGS__, 0, 0) }
#define operand_of(off, bytes, before, ...) off, bytes, before
#define w(...)                              operand(ROLE_w + 1, __VA_ARGS__),
#define x(...)                              operand(ROLE_x + 1, __VA_ARGS__),
#define y(...)                              operand(ROLE_y + 1, __VA_ARGS__),
#define stash(...)                          operand(ROLE_stash + 1, __VA_ARGS__),
#define input(...)                          operand(ROLE_input + 1, __VA_ARGS__),
#define dy(...)                             operand(ROLE_dy + 1, __VA_ARGS__),
#define dx(...)                             operand(ROLE_dx + 1, __VA_ARGS__),
#define wstash(...)                         operand(ROLE_wstash + 1, __VA_ARGS__),
#define dw(...)                             operand(ROLE_dw + 1, __VA_ARGS__),
#define set_dw(...)                         operand(-(ROLE_dw + 1), __VA_ARGS__),
#define opt(...)                            operand(ROLE_opt + 1, __VA_ARGS__),
#define t(...)                              operand(ROLE_t + 1, __VA_ARGS__),
#define src(...)                            operand(ROLE_src + 1, __VA_ARGS__),
#define done(...)                           operand(ROLE_done + 1, __VA_ARGS__),
#define v(...)                              operand(ROLE_v + 1, __VA_ARGS__),
#define dv(...)                             operand(ROLE_dv + 1, __VA_ARGS__),
#define kv(...)                             operand(ROLE_kv + 1, __VA_ARGS__),
#define own(...)                            operand(ROLE_own + 1, __VA_ARGS__),
#define dkv(...)                            operand(ROLE_dkv + 1, __VA_ARGS__),
#define dpast(...)                          operand(ROLE_dpast + 1, __VA_ARGS__),
#define set_dv(...)                         operand(-(ROLE_dv + 1), __VA_ARGS__),
#define u(...)                              operand(ROLE_u + 1, __VA_ARGS__),
#define du(...)                             operand(ROLE_du + 1, __VA_ARGS__),
#define set_du(...)                         operand(-(ROLE_du + 1), __VA_ARGS__),
#define give(...)                           operand(ROLE_give + 1, __VA_ARGS__),
#define got(...)                            operand(ROLE_got + 1, __VA_ARGS__),
#define work(...)                           operand(ROLE_work + 1, __VA_ARGS__),
#define norm(...)                           operand(ROLE_norm + 1, __VA_ARGS__),
#define set_norm(...)                       operand(-(ROLE_norm + 1), __VA_ARGS__),
#else
#undef PIANOLA_WORDS
#undef I
#undef END
#undef alone
#undef layers
#undef put_off
#undef weights
#undef to
#undef from
#undef group
#undef group_with_root
#undef after
#undef piece
#undef piece_of
#undef operand
#undef operand_of
#undef w
#undef x
#undef y
#undef stash
#undef input
#undef dy
#undef dx
#undef wstash
#undef dw
#undef set_dw
#undef opt
#undef t
#undef src
#undef done
#undef v
#undef dv
#undef kv
#undef own
#undef dkv
#undef dpast
#undef set_dv
#undef u
#undef du
#undef set_du
#undef give
#undef got
#undef work
#undef norm
#undef set_norm
#endif
