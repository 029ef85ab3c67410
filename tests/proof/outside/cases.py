"""Programs that are each wrong, or right, for one reason: small compiled ones with changes to their text, by hand.

A case has a subject, a program, whether it is right, and changes. A change (old, new) replaces text at its
first occurrence; a number n in front skips n occurrences. The old text must be there.
"""

import glob

PIECES = "tests/passes/sharded/pieces.lua BYTES -D workers=2 -D batches=2 "
SCHEDULES = {
    "pipeline": "schedules/1f1b.lua -D workers=2 -D batches=2",
    "reduced": "schedules/ddp.lua -D workers=3 -D stages=1 -D batches=3",
    "split": "schedules/zb_h1.lua -D workers=2 -D batches=1",
    "tokens": "tests/papers/formulas/needs.lua -D batches=2 -D many=1",
    "table": "schedules/serial.lua -D stages=1 -D batches=2 TIED",
    "gathered": "schedules/fsdp.lua -D workers=2 -D stages=1 -D batches=2",
    "in place": "schedules/zero1.lua -D workers=2 -D stages=1 -D batches=2",
    "broadcast": "schedules/fsdp_whole.lua -D workers=3 -D stages=2 -D batches=3",
    "shard by shard": "tests/passes/sharded/elsewhere.lua -D workers=2 -D chunks=1 -D batches=2",
    "host": "tests/judges/offload.lua -D workers=1 -D stages=1 -D batches=2 -D state=true --model schedules/models/gpt.lua "
            "-D layers=1 -D width=16 -D heads=2 -D context=8 -D rows=2",
    "in parts": PIECES + "-D stages=1 -D F=1 -D bucket=9000 -D layers=2",
    "two in parts": PIECES + "-D stages=2 -D F=1 -D bucket=8192 -D layers=4",
    "table in parts": "tests/passes/sharded/pieces.lua -D workers=2 -D batches=2 -D stages=2 -D F=1 -D bucket=600 TIED",
    "owned in pieces": PIECES + "-D stages=1 -D F=1 -D zero=1 -D bucket=9000 -D layers=2",
    "sent in pieces": PIECES + "-D stages=1 -D F=0 -D bucket=9000 -D layers=2",
    "split in parts": PIECES + "-D stages=2 -D F=0 -D bucket=9000 -D split=true -D layers=4",
    "rounds": "schedules/accumulate.lua -D workers=2 -D stages=2 -D batches=4 -D slots=0 -D sums=1",
    "passed on": "schedules/tawpipe.lua -D workers=4 -D stages=1 -D batches=4 -D group=2 -D slots=1",
    "far table": "schedules/1f1b.lua -D workers=2 -D batches=2 TIED",
}


def change(text, edits):
    for e in edits:
        n, old, new = e if len(e) == 3 else (0, *e)
        at = -1
        for _ in range(n + 1):
            at = text.index(old, at + 1)
        text = text[:at] + new + text[at + len(old):]
    return text


GROWTH = """pianola 1
program growth workers 2 stages 1 batches 1
rank 0 lane compute
F 0 0 w=weight(0) stash=stash(0,0)
W 0 0 wstash=wstash(0,0) dw=wgrad(0) wait(RECV_W 0 0 from 1) free(wstash(0,0))
U 0 dw=wgrad(0) w=weight(0) wait(SERVE 0#0 to 1)
rank 0 lane send 1
SERVE 0#0 to 1 t=weight(0)
SEND_S 0 0 to 1 t=stash(0,0) wait(F 0 0) free(stash(0,0))
rank 0 lane recv 1
RECV_W 0 0 from 1 t=wstash(0,0) wait(SEND_S 0 0 to 1)
rank 0 issue
1 0 1 2 0*2
rank 0 memory 6
weight(0) 0 1
wgrad(0) 1 1
stash(0,0) 2 1 grows wstash(0,0)
wstash(0,0) 2 2
rank 1 lane compute
I 0 0 w=weight(0)#0 stash=stash(0,0) wstash=wstash(0,0) wait(RECV_S 0 0 from 0) free(stash(0,0) weight(0)#0)
rank 1 lane send 0
SEND_W 0 0 to 0 t=wstash(0,0) wait(I 0 0) free(wstash(0,0))
rank 1 lane recv 0
FETCH 0#0 from 0 t=weight(0)#0
RECV_S 0 0 from 0 t=stash(0,0)
rank 1 issue
2*2 0 1
rank 1 memory 6
weight(0)#0 0 1
stash(0,0) 1 1 grows wstash(0,0)
wstash(0,0) 1 2
"""

PAIR = """pianola 1
program pair workers 2 stages 1 batches 2
rank 0 lane compute
F 0 0 w=weight(0) stash=stash(0,0)
B 0 0 w=weight(0) stash=stash(0,0) dw=wgrad(0) free(stash(0,0))
U 0 dw=wgrad(0) w=weight(0) wait(ADD 0 from 1)
rank 0 lane send 1
SERVE 0#0 to 1 t=weight(0)
rank 0 lane recv 1
RECV_G 0 from 1 t=wgrad(0)#1
ADD 0 from 1 src=wgrad(0)#1 dw+=wgrad(0) wait(B 0 0) free(wgrad(0)#1)
rank 0 issue
1 0*2 2*2 0
rank 0 memory 4
weight(0) 0 1
wgrad(0) 1 1
stash(0,0) 2 1
wgrad(0)#1 3 1
rank 1 lane compute
F 0 1 w=weight(0)#0 stash=stash(0,1) wait(FETCH 0#0 from 0)
B 0 1 w=weight(0)#0 stash=stash(0,1) dw=wgrad(0) free(stash(0,1) weight(0)#0)
rank 1 lane send 0
SEND_G 0 to 0 t=wgrad(0) wait(B 0 1) free(wgrad(0))
rank 1 lane recv 0
FETCH 0#0 from 0 t=weight(0)#0
rank 1 issue
2 0*2 1
rank 1 memory 4
weight(0)#0 0 1
stash(0,1) 1 1
wgrad(0) 2 1
"""

# Stage 0 is at home on rank 0; ranks 1 and 2 send parts of its gradient.
PARTS = """pianola 1
program parts workers 3 stages 1 batches 3
rank 0 lane compute
F 0 0 w=weight(0) stash=stash(0,0)
B 0 0 w=weight(0) stash=stash(0,0) dw=wgrad(0) free(stash(0,0))
U 0 dw=wgrad(0) w=weight(0) wait(ADD 0 from 2, SERVE 0#0 to 1, SERVE 0#0 to 2)
rank 0 lane send 1
SERVE 0#0 to 1 t=weight(0)
rank 0 lane send 2
SERVE 0#0 to 2 t=weight(0)
rank 0 lane recv 1
RECV_G 0 from 1 t=wgrad(0)#1
ADD 0 from 1 src=wgrad(0)#1 dw+=wgrad(0) wait(B 0 0) free(wgrad(0)#1)
rank 0 lane recv 2
RECV_G 0 from 2 t=wgrad(0)#2
ADD 0 from 2 src=wgrad(0)#2 dw+=wgrad(0) wait(ADD 0 from 1) free(wgrad(0)#2)
rank 0 issue
1 2 0*2 3*2 4*2 0
rank 0 memory 5
weight(0) 0 1
wgrad(0) 1 1
stash(0,0) 2 1
wgrad(0)#1 3 1
wgrad(0)#2 4 1
""" + "".join(f"""rank {r} lane compute
F 0 {r} w=weight(0)#0 stash=stash(0,{r}) wait(FETCH 0#0 from 0)
B 0 {r} w=weight(0)#0 stash=stash(0,{r}) dw=wgrad(0) free(stash(0,{r}) weight(0)#0)
rank {r} lane send 0
SEND_G 0 to 0 t=wgrad(0) wait(B 0 {r}) free(wgrad(0))
rank {r} lane recv 0
FETCH 0#0 from 0 t=weight(0)#0
rank {r} issue
2 0*2 1
rank {r} memory 4
weight(0)#0 0 1
stash(0,{r}) 1 1
wgrad(0) 2 1
""" for r in (1, 2))

BY_HAND = {"growth": GROWTH, "pair": PAIR, "parts": PARTS}

ALL_IN_THE_FIRST = ("dw=wgrad(0)[2/4]", "dw=wgrad(0)[2/4] dw=wgrad(0)[1/4] dw=wgrad(0)[0/4]")
BORDER_IN_A_PIECE = ("parts B 0: 16384-32768 0-16384", "parts B 0: 20480-32768 0-20480")
MADE_BY_TWO = [BORDER_IN_A_PIECE] + [
    (f"B 0 {b}[1/2] w=weight(0) stash=stash(0,{b}) dw=", f"B 0 {b}[1/2] w=weight(0) stash=stash(0,{b}) dw=wgrad(0)[2/4] dw=")
    for b in "01"]
ALL_BY_THE_FIRST = [("parts B 0: 16384-32768 0-16384", "parts B 0: 0-32768 -")] + [
    edit for b in "01" for edit in (
        (f"stash=stash(0,{b}) dw=wgrad(0)[3/4] dw=wgrad(0)[2/4]",
         f"stash=stash(0,{b}) dw=wgrad(0)[3/4] dw=wgrad(0)[2/4] dw=wgrad(0)[1/4] dw=wgrad(0)[0/4]"),
        (f"stash=stash(0,{b}) dw=wgrad(0)[1/4] dw=wgrad(0)[0/4] free(", f"stash=stash(0,{b}) free("))]
ONLY_FREES = (" dw=wgrad(0)[1/4] dw=wgrad(0)[0/4] free(", " free(")

CASES = [
    ("growth over two ranks, as it is", "growth", True, []),
    ("wstash arrives while the stash in its place is still being sent", "growth", False,
     [(" wait(SEND_S 0 0 to 1)", "")]),
    ("wstash arrives in the place of a stash that lives on", "growth", False,
     [("t=stash(0,0) wait(F 0 0) free(stash(0,0))", "t=stash(0,0) wait(F 0 0)"),
      ("wait(RECV_W 0 0 from 1) free(wstash(0,0))", "wait(RECV_W 0 0 from 1) free(wstash(0,0) stash(0,0))")]),
    ("what the stash grows by lies on the fetched weights", "growth", False,
     [("weight(0)#0 0 1", "weight(0)#0 2 1")]),
    ("the update waits for the SERVE through its lane, the sending of the stash and the arrival of what came of it",
     "growth", True, [("w=weight(0) wait(SERVE 0#0 to 1)", "w=weight(0)")]),
    ("the update while weights are being served: the part has come from there", "pair", False, []),
    ("the same, waiting", "pair", True, [("wait(ADD 0 from 1)", "wait(ADD 0 from 1, SERVE 0#0 to 1)")]),
    ("the part of one rank twice, of the other never", "parts", False,
     [("ADD 0 from 2 src=wgrad(0)#2", "ADD 0 from 2 src=wgrad(0)#1"), ("wait(B 0 0) free(wgrad(0)#1)", "wait(B 0 0)"),
      ("free(wgrad(0)#2)", "free(wgrad(0)#1 wgrad(0)#2)")]),
    ("two parts added at the same time", "parts", False,
     [("wait(ADD 0 from 1) free", "wait(B 0 0) free"),
      ("wait(ADD 0 from 2, SERVE", "wait(ADD 0 from 1, ADD 0 from 2, SERVE")]),
    ("parts received in one place one after the other, as issued only", "parts", False,
     [("wgrad(0)#2 4 1", "wgrad(0)#2 3 1")]),
    ("the same, waiting for the ADD", "parts", True,
     [("wgrad(0)#2 4 1", "wgrad(0)#2 3 1"),
      ("RECV_G 0 from 2 t=wgrad(0)#2", "RECV_G 0 from 2 t=wgrad(0)#2 wait(ADD 0 from 1)")]),
    ("parts in one place, waiting for the arrival and not for the ADD", "parts", False,
     [("wgrad(0)#2 4 1", "wgrad(0)#2 3 1"),
      ("RECV_G 0 from 2 t=wgrad(0)#2", "RECV_G 0 from 2 t=wgrad(0)#2 wait(RECV_G 0 from 1)")]),
    ("an ADD writes where the job has written: its contribution is gone", "parts", False,
     [("src=wgrad(0)#1 dw+=", "src=wgrad(0)#1 dw=")]),
    ("the sum in another order", "parts", True,
     [("dw=wgrad(0) free(stash(0,0))", "dw+=wgrad(0) wait(ADD 0 from 2) free(stash(0,0))"),
      ("src=wgrad(0)#1 dw+=wgrad(0) wait(B 0 0)", "src=wgrad(0)#1 dw=wgrad(0)"),
      ("wait(ADD 0 from 2, SERVE 0#0 to 1, SERVE", "wait(SERVE 0#0 to 1, SERVE"),
      ("1 2 0*2 3*2 4*2 0", "1 2 0 3*2 4*2 0*2")]),
    ("a reduction over two of three homes", "reduced", False,
     [("lane group 0,1,2", "lane group 0,1"), ("lane group 0,1,2", "lane group 0,1"),
      ("ALL_REDUCE 0 by ring dw=wgrad(0) wait(B 0 2)\n", ""),
      ("w=weight(0) wait(ALL_REDUCE 0)\nrank 2", "w=weight(0)\nrank 2"), (2, "0*2 1 0", "0*3")]),
    ("a member of a reduction that only one other knows", "reduced", False, [("lane group 0,1,2", "lane group 0,1")]),
    ("an update before the reduction at one home", "reduced", False,
     [(2, "w=weight(0) wait(ALL_REDUCE 0)", "w=weight(0)"), (2, "0*2 1 0", "0*3 1")]),
    ("a backward adds to the gradient while it is reduced", "reduced", False, [(" wait(B 0 2)", "")]),
    ("the stash of one home is the place where its gradient comes later", "reduced", False, [(0, "stash(0,0) 2 1",
      "stash(0,0) 1 1")]),
    ("a table that gets the gradient of one use twice", "table", False, [("dv+=wgrad(1)", "dv=wgrad(1)")]),
    ("a table whose embedding reads the other weights", "table", False,
     [("w=weight(0) v=weight(1)", "w=weight(1) v=weight(0)")]),
    ("the table's gradient and the stage's exchanged", "table", False,
     [("dw=wgrad(0) dv=wgrad(1)", "dw=wgrad(1) dv=wgrad(0)"),
      ("dw+=wgrad(0) dv+=wgrad(1)", "dw+=wgrad(1) dv+=wgrad(0)"),
      ("U 0 dw=wgrad(0)", "U 0 dw=wgrad(1)"), ("U 1 dw=wgrad(1)", "U 1 dw=wgrad(0)")]),
    ("both uses of the table, yet only of microbatch 0 of one", "far table", False, [("dv+=wgrad(2)", "dv=wgrad(2)")]),
    ("the table's part lost at its home", "far table", False, [("src=wgrad(2)#1 dw+=", "src=wgrad(2)#1 dw=")]),
    ("the optimizer's state of another stage", "table", False,
     [("opt=opt(0)", "opt=opt(1)"), (1, "opt=opt(1)", "opt=opt(0)")]),
    ("the workspace lies on a stash", "table", False, [("stash(0,0) 237568", "stash(0,0) 180224")]),
    ("bytes of an activation are written anew when its receive has only ended elsewhere", "pipeline", False,
     [(" wait(SEND_F 0 0 to 1)", "")]),
    ("the same behind the arrival of what was made from it", "pipeline", False,
     [("RECV_B 1 0 from 1 t=grad(1,0) wait(SEND_F 0 1 to 1)", "RECV_B 1 0 from 1 t=grad(1,0) wait(F 0 1)")]),
    ("a gradient overtakes the bytes of the stash that it needs", "pipeline", False,
     [("grad(1,1) 2 1", "grad(1,1) 3 1")]),
    ("waits that run in a circle through two lanes", "pipeline", False,
     [("SEND_F 0 1 to 1 t=act(0,1) wait(F 0 1)", "SEND_F 0 1 to 1 t=act(0,1) wait(F 0 1, RECV_B 1 0 from 1)")]),
    ("a circle through two ranks: every send before any receive", "pipeline", False,
     [("2 0 2 0 1 0*2 1 0", "2 0*2 1 2 0*2 1 0"), ("0 1 0 1 2 0 2 0*2", "0 1 0 2 1 0 2 0*2")]),
    ("a token read before it can have come", "tokens", False,
     [("wait(RECV_F 0 1 from 0) free(act(0,1) token(0,0)#0)", "wait(RECV_F 0 0 from 0) free(act(0,1) token(0,0)#0)")]),
    ("a token of another job", "tokens", False,
     [("F 0 0 w=weight(0) stash=stash(0,0) y=act(0,0) done=token(0,0)#0",
      "F 0 0 w=weight(0) stash=stash(0,0) y=act(0,0)"),
      ("SEND_T 0 0#0 to 1 t=token(0,0)#0 free(token(0,0)#0)", "SEND_T 0 0#0 to 1")]),
    ("a need that nothing keeps", "tokens", False, [("needs F 0 1:", "needs F 0 1: B 1 0")]),
    ("a job that needs itself", "tokens", False, [("needs F 0 1:", "needs F 0 1: F 0 1")]),
    ("jobs that need each other", "tokens", False,
     [("needs F 0 0:", "needs F 0 0: F 0 1"), ("needs F 0 1:", "needs F 0 1: F 0 0")]),
    ("a need of the same rank, which its order keeps", "tokens", True, [("needs F 0 1:", "needs F 0 1: F 0 0")]),
    ("a split backward that keeps nothing for the weight gradient", "split", False,
     [("I 0 0 w=weight(0) stash=stash(0,0) dy=grad(1,0) wstash=wstash(0,0)",
      "I 0 0 w=weight(0) stash=stash(0,0) dy=grad(1,0)")]),
    ("shards that are gathered in another order than the homes say", "gathered", False,
     [("homes 0: 0 1", "homes 0: 1 0")]),
    ("the same at all ends", "gathered", True,
     [("homes 0: 0 1", "homes 0: 1 0"), ("gather 0,1", "gather 1,0"), ("gather 0,1", "gather 1,0"),
      ("group 0,1", "group 1,0"), ("group 0,1", "group 1,0")]),
    ("an update before the sum has been scattered", "gathered", False,
     [("w=wshard(0) wait(REDUCE_SCATTER 0)", "w=wshard(0) wait(ALL_GATHER 0#0)")]),
    ("an update that waits for no gather: the others' gradients come from behind it", "gathered", True, []),
    ("a member's gradient is scattered while it is still written", "gathered", False, [(" wait(B 0 0)", "")]),
    ("gathered in the place of the shards", "gathered", False, [("weight(0)#0 2 2", "weight(0)#0 0 2")]),
    ("the piece of another replica is updated", "in place", False, [("w=weight(0)[0/2] wait", "w=weight(0)[1/2] wait")]),
    ("both replicas update each other's piece, as nobody says", "in place", False,
     [("homes 0 zero 1: 0, 1", "homes 0 zero 1: 1, 0")]),
    ("what a reduction in place leaves behind is no sum", "in place", False,
     [("U 0 dw=wgrad(0)[0/2] w=weight(0)[0/2]", "U 0 dw=wgrad(0) w=weight(0)")]),
    ("an update that nobody hears of", "in place", False,
     [("ALL_GATHER 0 by ring src=weight(0)[0/2] w=weight(0) wait(U 0)\n", ""), ("rank 0 lane gather 0,1\n", ""),
      ("0*2 2 0 1", "0*2 1 0"), ("ALL_GATHER 0 by ring src=weight(0)[1/2] w=weight(0) wait(U 0)\n", ""),
      ("rank 1 lane gather 0,1\n", ""), ("0*2 2 0 1", "0*2 1 0")]),
    ("gathered before the update", "in place", False, [(" wait(U 0)", "")]),
    ("a root that updates while it is still heard: another's start does not end it", "broadcast", False,
     [("w=weight(1) wait(BROADCAST 1#0 from 1)", "w=weight(1)")]),
    ("two shards in each other's place", "shard by shard", False,
     [("w=weight(0)#0[0/2]", "w=weight(0)#0[1/2]"), ("t=weight(0)#0[1/2]", "t=weight(0)#0[0/2]")]),
    ("a job that does not wait for the last shard", "shard by shard", False, [(" wait(FETCH 0#0 from 1)", "")]),
    ("a shard of the gradient never added", "shard by shard", False,
     [("TAKE 0 src=wgrad(0)[0/2] dw=gshard(0)", "TAKE 0 src=wgrad(0)[1/2] dw=gshard(0)")]),
    ("the stash leaves before it is written", "host", False, [("t=hstash(0,0) wait(F 0 0)", "t=hstash(0,0)")]),
    ("the stash comes back before it has left", "host", False, [(" wait(OFFLOAD_S 0 0)", "")]),
    ("a backward that does not wait for its stash", "host", False, [(" wait(RELOAD_S 0 0)", "")]),
    ("a backward with the stash that has left", "host", False, [("stash=rstash(0,0)", "stash=stash(0,0)")]),
    ("the stash of one microbatch comes back as that of the other", "host", False,
     [("RELOAD_S 0 1 src=hstash(0,1)", "RELOAD_S 0 1 src=hstash(0,0)"), (" free(hstash(0,0))", ""),
      ("free(hstash(0,1))", "free(hstash(0,0) hstash(0,1))"), ("host 133632", "host 168960"),
      ("hstash(0,1) 98304", "hstash(0,1) 133632")]),
    ("both stashes in host memory at a time, in one place", "host", False,
     [("0 1 2 0*2 1 2 0", "0 1 0 1 2 0 2 0"), ("\nF 0 1 w=weight(0) stash=stash(0,1)", ""),
      ("B 0 0 w", "F 0 1 w=weight(0) stash=stash(0,1)\nB 0 0 w"), ("stash(0,1) 139264", "stash(0,1) 234496"),
      ("memory 234496", "memory 274432"), ("wait(OFFLOAD_S 0 1)", "wait(OFFLOAD_S 0 1, B 0 0)")]),
    ("the same in two places", "host", True,
     [("0 1 2 0*2 1 2 0", "0 1 0 1 2 0 2 0"), ("\nF 0 1 w=weight(0) stash=stash(0,1)", ""),
      ("B 0 0 w", "F 0 1 w=weight(0) stash=stash(0,1)\nB 0 0 w"), ("\nstash(0,1) 139264", "\nstash(0,1) 234496"),
      ("memory 234496 host 133632", "memory 274432 host 168960"), ("hstash(0,1) 98304", "hstash(0,1) 133632"),
      ("wait(OFFLOAD_S 0 1)", "wait(OFFLOAD_S 0 1, B 0 0)")]),
    ("offsets of the two memories have nothing to do with each other", "host", True,
     [("hopt(0) 0 ", "hopt(0) 35328 "), ("hstash(0,0) 98304", "hstash(0,0) 0"), ("hstash(0,1) 98304", "hstash(0,1) 0")]),
    ("more room in host memory than a stash takes up", "host", False,
     [("hstash(0,0) 98304 35328", "hstash(0,0) 98304 35392"), ("hstash(0,1) 98304 35328", "hstash(0,1) 98304 35392"),
      ("host 133632", "host 133696")]),
    ("more in host memory than it has", "host", False, [("host 133632", "host 133631")]),
    ("a job reads from host memory", "host", False,
     [("stash=rstash(0,0)", "stash=hstash(0,0)"), ("free(rstash(0,0))", "free(rstash(0,0) hstash(0,0))"),
      (" free(hstash(0,0))\n", "\n")]),
    ("an OFFLOAD that stays in the rank's own memory", "host", False,
     [("t=hstash(0,0)", "t=rstash(0,0)"),
      ("RELOAD_S 0 0 src=hstash(0,0) t=rstash(0,0) wait(OFFLOAD_S 0 0) free(hstash(0,0))\n", ""),
      ("wait(RELOAD_S 0 0)", "wait(OFFLOAD_S 0 0)"), ("0 1 2 0*2 1 2 0", "0 1 0*2 1 2 0"),
      ("hstash(0,0) 98304 35328\n", ""), ("\nrstash(0,0) 139264", "\nrstash(0,0) 234496"),
      ("memory 234496", "memory 274432")]),
    ("an update before the optimizer's state is back", "host", False, [(" wait(RELOAD_O 0)", "")]),
    ("the state leaves before it is updated", "host", False, [("t=hopt(0) wait(U 0)", "t=hopt(0)")]),
    ("the same, waiting for its own arrival only", "host", False, [("t=hopt(0) wait(U 0)", "t=hopt(0) wait(RELOAD_O 0)")]),
    ("the updated state is forgotten", "host", False,
     [("OFFLOAD_O 0 src=opt(0) t=hopt(0) wait(U 0) free(opt(0))\n", ""),
      ("w=weight(0) wait(RELOAD_O 0)", "w=weight(0) wait(RELOAD_O 0) free(opt(0))"), ("2 0 2 0 1\n", "2 0 2 0\n")]),
    ("pieces reduced before the part that makes them", "in parts", False, [(" wait(B 0 0[0/2])", "")]),
    ("pieces that wait for the part before theirs", "in parts", False, [("wait(B 0 0[1/2])", "wait(B 0 0[0/2])")]),
    ("a piece that two parts make is reduced after the first", "in parts", False, MADE_BY_TWO),
    ("the same after the second", "in parts", True,
     MADE_BY_TWO + [("0*2 1*2 0 1*2 0", "0*3 1*4 0")] + [edit for b in "01" for edit in (
         ("ring dw=wgrad(0)[2/4]\n", f"ring dw=wgrad(0)[2/4] wait(B 0 {b}[1/2])\n"),
         (f"dw=wgrad(0)[1/4] wait(B 0 {b}[1/2])", "dw=wgrad(0)[1/4]"))]),
    ("a piece that is reduced before the part that contributes to it, and is named by the one before", "in parts", False,
     [("dw=wgrad(0)[3/4] dw=wgrad(0)[2/4]", "dw=wgrad(0)[3/4] dw=wgrad(0)[2/4] dw=wgrad(0)[1/4]"),
      ("dw=wgrad(0)[1/4] dw=wgrad(0)[0/4]", "dw=wgrad(0)[0/4]"), ("dw=wgrad(0)[1/4] wait(B 0 0[1/2])", "dw=wgrad(0)[1/4]"),
      ("dw=wgrad(0)[0/4]\n", "dw=wgrad(0)[0/4] wait(B 0 0[1/2])\n")]),
    ("a piece that no part makes", "in parts", False, [("dw=wgrad(0)[1/4] dw=wgrad(0)[0/4]", "dw=wgrad(0)[1/4]")]),
    ("a piece that the second part writes anew: what the first contributed to it is gone", "in parts", False,
     [BORDER_IN_A_PIECE, ("dw=wgrad(0)[3/4] dw=wgrad(0)[2/4]", "dw=wgrad(0)[1/2]"),
      ("dw=wgrad(0)[1/4] dw=wgrad(0)[0/4]", "dw=wgrad(0)[2/4] dw=wgrad(0)[1/4] dw=wgrad(0)[0/4]"),
      ("wait(B 0 0[0/2])", "wait(B 0 0[1/2])")]),
    ("a piece that the first part writes and the second adds to", "in parts", False,
     [ALL_IN_THE_FIRST, (ONLY_FREES[0], " dw+=wgrad(0)[2/4] free("), ("wait(B 0 0[0/2])", "wait(B 0 0[1/2])")]),
    ("a piece between the two parts that make it, cleared", "in parts", False,
     [("B 0 0[1/2]", "ZERO 0 dw=wgrad(0)[2/4]\nB 0 0[1/2]"), ("0*3 1*4 0", "0*4 1*4 0"),
      (ONLY_FREES[0], " dw=wgrad(0)[2/4] dw=wgrad(0)[1/4] dw=wgrad(0)[0/4] free("),
      ("wait(B 0 0[0/2])", "wait(B 0 0[1/2])")]),
    ("a part left out", "in parts", False, 2 * [("B 0 0[0/2]", "B 0 0[0/3]"), ("B 0 0[1/2]", "B 0 0[1/3]")]),
    ("one part more than there are", "in parts", False,
     [("dw=wgrad(0)[0/4] free(stash(0,0))", "dw=wgrad(0)[0/4]\nB 0 0[2/3] w=weight(0) stash=stash(0,0) free(stash(0,0))"),
      ("0*3 1*4 0", "0*4 1*4 0")]),
    ("parts in the wrong order", "in parts", False, [("B 0 0[0/2]", "B 0 0[9/9]"), ("B 0 0[1/2]", "B 0 0[0/2]"),
      ("B 0 0[9/9]", "B 0 0[1/2]"), ("wait(B 0 0[0/2])", "wait(B 0 0[9/9])"), ("wait(B 0 0[1/2])", "wait(B 0 0[0/2])"),
      ("wait(B 0 0[9/9])", "wait(B 0 0[1/2])")]),
    ("a stash freed after the first part", "in parts", False,
     [("dw=wgrad(0)[2/4]\nB", "dw=wgrad(0)[2/4] free(stash(0,0))\nB"),
      ("dw=wgrad(0)[0/4] free(stash(0,0))", "dw=wgrad(0)[0/4]")]),
    ("one part writes its pieces and the next adds to nothing", "in parts", False,
     [("dw=wgrad(0)[1/4] dw=wgrad(0)[0/4]", "dw+=wgrad(0)[1/4] dw+=wgrad(0)[0/4]")]),
    ("pieces of one part written and added to", "in parts", False,
     [("dw=wgrad(0)[1/4] dw=wgrad(0)[0/4]", "dw+=wgrad(0)[1/4] dw=wgrad(0)[0/4]")]),
    ("another backward between two parts, which has all that it needs", "split in parts", False,
     [("W 1 0[0/2] wstash=wstash(1,0) dw=wgrad(1)[3/4] dw=wgrad(1)[2/4]\n", ""),
      ("W 0 0 w", "W 1 0[0/2] wstash=wstash(1,0) dw=wgrad(1)[3/4] dw=wgrad(1)[2/4]\nW 0 0 w"),
      ("0*5 2*8 0 1*2 0", "0*6 2*8 1*2 0")]),
    ("an update between parts of another set's backward", "two in parts", True,
     [("U 1 dw=wgrad(1) w=weight(1) wait(ALL_REDUCE 1#0)\n", ""),
      ("B 0 0[1/2]", "U 1 dw=wgrad(1) w=weight(1) wait(ALL_REDUCE 1#0)\nB 0 0[1/2]"), ("0*4 1*4 0*2 1*4 0*2",
      "0*5 1*4 0*2 1*4 0")]),
    ("an update of what the next part reads", "in parts", False,
     ALL_BY_THE_FIRST + [(" wait(B 0 0[1/2])", ""),
      ("U 0 dw=wgrad(0) w=weight(0) wait(ALL_REDUCE 0#0)\n", ""),
      ("B 0 0[1/2]", "U 0 dw=wgrad(0) w=weight(0) wait(ALL_REDUCE 0#0)\nB 0 0[1/2]"), ("0*3 1*4 0", "0*2 1*4 0*2")]),
    ("the same behind it", "in parts", True, ALL_BY_THE_FIRST + [(" wait(B 0 0[1/2])", "")]),
    ("a gradient of which the first part is said to make all", "two in parts", False,
     [("dx=grad(1,0) dw=wgrad(1)[1/4]", "dw=wgrad(1)[1/4]")]),
    ("a part that does not say that it adds to the table's gradient", "table in parts", False,
     [("dw=wgrad(0)[3/4] dw=wgrad(0)[2/4] dv=wgrad(2)", "dw=wgrad(0)[3/4] dw=wgrad(0)[2/4]")]),
    ("one user's part of the table in place of the other's", "table in parts", False,
     [("src=wgrad(2)#2 dw+=wgrad(2)", "src=wgrad(2)#2 dw=wgrad(2)")]),

    ("a piece reduced to a root that has no place for it", "owned in pieces", False,
     [("REDUCE 0#3 to 1", "REDUCE 0#3 to 0"), ("REDUCE 0#3 to 1", "REDUCE 0#3 to 0")]),
    ("a piece that lies on the sum of another", "owned in pieces", False,
     [("src=wgrad(0)[1/4] dw=wgrad(0)[1/4]", "src=wgrad(0)[1/4] dw=wgrad(0)[0/4]")]),
    ("a piece summed onto itself", "owned in pieces", False,
     [("src=wgrad(0)[1/4] dw=wgrad(0)[1/4]", "src=wgrad(0)[1/4] dw+=wgrad(0)[1/4]")]),
    ("a piece sent in the place of another", "sent in pieces", False, [("t=wgrad(0)[3/4]", "t=wgrad(0)[2/4]")]),
    ("a piece added in the place of another", "sent in pieces", False,
     [("src=wgrad(0)#1[3/4] dw+=wgrad(0)[3/4]", "src=wgrad(0)#1[3/4] dw+=wgrad(0)[2/4]")]),
    ("what has been received is freed with a piece left", "sent in pieces", False,
     [("dw+=wgrad(0)[1/4]", "dw+=wgrad(0)[1/4] free(wgrad(0)#1)"),
      ("dw+=wgrad(0)[0/4] free(wgrad(0)#1)", "dw+=wgrad(0)[0/4]")]),
    ("a round that takes the first one's place in the shard", "rounds", False,
     [("src=wgrad(0)#2 dw+=gshard(0)", "src=wgrad(0)#2 dw=gshard(0)")]),
    ("a stash in the place of a round that is still being reduced", "rounds", False, [(", REDUCE_SCATTER 0#0)", ")")]),
    ("weights passed on before they have come", "passed on", False,
     [("t=weight(0)#0 wait(FETCH 0#0 from 0)", "t=weight(0)#0")]),
    ("a huge arena whose sums pass 2^63", "pipeline", False,
     [("rank 0 memory 5", "rank 0 memory 4611686018427387904"),
      ("act(0,1) 4 1", "act(0,1) 4611686018427387903 9223372036854775807")]),
]


def texts(show):
    """Yields (what, text, right) for every case; show() compiles a schedule."""
    programs = {**BY_HAND, **{name: show(schedule) for name, schedule in SCHEDULES.items()}}
    for what, program, right, edits in CASES:
        yield what, change(programs[program], edits), right
    for file in sorted(glob.glob("tests/proof/verify/*_team_*.txt") + glob.glob("tests/proof/verify/*ed_ranges*.txt")):
        with open(file, encoding="utf-8") as f:
            yield file, f.read(), "proved_" in file
