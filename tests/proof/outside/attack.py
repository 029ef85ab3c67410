"""Tests `pianola verify` against a second opinion. attack.py MUTANTS [SEED]; $PIANOLA is the program.

Every base (bases.txt) is right, and every case by hand (cases.py) has its stated verdict. Of MUTANTS mutants of the
bases (mutate.py), verify proves none that checker.py calls wrong. It refutes none that checker.py calls right, except
by rules that only verify has: STRICTER. One mutant in ten is also played in random runs of the machine (player.py);
checker.py must call wrong what these find wrong. The same seed gives the same mutants. Failures are kept in
build/outside/.
"""

import os
import random
import re
import shlex
import subprocess
import sys
from collections import Counter

import cases
# these register their changes
import change_host, change_meaning, change_memory, change_names, change_order, change_parts, change_shards, change_updates
from checker import judge
from mutate import draft, mutant
from player import play
from program import Unreadable

PIANOLA = os.environ.get("PIANOLA", "build/pianola")
TIED = "--model schedules/models/gpt.lua -D tied=true -D layers=2 -D width=16 -D heads=2 -D context=8 -D rows=2"
BYTES = "--model schedules/models/integers.lua -D width=64"  # weights of several pieces
STRICTER = (  # verify's complaints about programs that would still run correctly
    r"puts \S+ into the buffer of ",                         # a buffer must hold the tensor that it is named for
    r"does not match the message's name",                    # so must a message
    r"not rank \d+'s part of ",                              # so must the source of an ADD
    r"a message carries one tensor",
    r"needs token\S+ as t, but ",                            # even if other messages enforce the order
    r"operands that hold tensors; the job graph says",
    r"has \d+ bytes, fewer than (weight|stash)",             # a gradient is at least as large as its weights, a wstash
    r"has \d+ bytes, fewer than what stage \d+ reads",       # as its stash; also a kept input, and its gradient
    r"keeps a stash, although R makes one|no R reads it",           # F keeps either the stash or the input
    r"and nothing else, as optimizer state",                 # an optimizer has state everywhere, or nowhere
    r"cannot grow into",                                     # `grows` where nothing does
    r"`needs .*` names .* twice",
    r"is out of order: parts must name all pieces",          # pieces go from the last to the first
    r"a job must not take a piece",                                 # although the job runs whole
    r"there is \w+, but no such job",                   # in a later period: for example, R only before the period
    r"updates that are jobs cannot be proved together with",
    r"pred\(\) of ",                                         # what a job reads must be among its needs
)
passed, failed = Counter(), Counter()


def expect(what, good, why=lambda: ""):
    (passed if good else failed)[what] += 1
    if not good:
        print(f"{what}: {why()}")


def show(schedule):
    if schedule.endswith(".txt"):
        with open(schedule, encoding="utf-8") as f:
            return f.read()
    words = shlex.split(schedule.replace("TIED", TIED).replace("BYTES", BYTES))
    command = [PIANOLA, "show", *words, "--format", "streams"]
    return subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout


def verify(text):
    """Returns 0 proved, 1 refuted, 2 unreadable or None for a crash or hang, with the output."""
    try:
        r = subprocess.run([PIANOLA, "verify", "-"], input=text.encode("utf-8"), capture_output=True, timeout=60)
    except subprocess.TimeoutExpired:
        return None, "no answer in a minute"
    said = (r.stdout + r.stderr).decode("utf-8", "replace")
    return (r.returncode if r.returncode in (0, 1, 2) and "Sanitizer" not in said else None), said


def opinion(text):
    """Returns a verdict like verify's, 0 right or 1 wrong, and judge()'s answer."""
    try:
        answer = judge(text)
    except Unreadable as e:
        return 2, ([str(e)], [], None, None)
    return (1 if answer[0] else 0), answer


def keep(text, name):
    os.makedirs("build/outside", exist_ok=True)
    with open(f"build/outside/{name}.txt", "w", encoding="utf-8") as f:
        f.write(text)
    return f"build/outside/{name}.txt"


def compare(text, name, rng):
    code, said = verify(text)
    mine, (wrong, strict, p, steps) = opinion(text)
    where = lambda: f"{keep(text, name)}: verify: {code} {said.strip()}\nchecker: {mine} {(wrong + strict)[:3]}"
    expect("an answer", code is not None, where)
    expect("proved is right", code != 0 or mine == 0, where)
    if mine == 0 and code in (1, 2) and not strict:
        expect("right is proved", any(re.search(s, said) for s in STRICTER), where)
    if steps is not None and rng.random() < 0.1:
        why = play(p, steps, 3, rng)
        expect("random runs find nothing that the checker does not", why is None or mine, lambda: f"{where()}\n{why}")
    return code


def main():
    count, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    with open(os.path.join(os.path.dirname(__file__), "bases.txt"), encoding="utf-8") as f:
        schedules = f.read().splitlines()
    bases = []
    for schedule in schedules:
        text = show(schedule)
        expect("a base is right", opinion(text)[0] == 0, lambda: f"{schedule}: {opinion(text)[1][0]}")
        expect("a base is proved", verify(text)[0] == 0, lambda: schedule)
        bases.append(draft(text))
    for what, text, right in cases.texts(show):
        code, mine = verify(text)[0], opinion(text)[0]
        expect("by hand", (code == 0) == right == (mine == 0), lambda: f"{what}: verify {code}, checker {mine}")
    said = Counter()
    for i in range(count):
        rng = random.Random(f"{seed}-{i}")  # its own generator, so that a mutant does not depend on earlier ones
        text, _ = mutant(rng.choice(bases), rng)
        said[compare(text, f"{seed}-{i}", rng)] += 1
    print(f"{count} mutants: {said[1]} refuted, {said[0]} proved and right, {said[2]} unreadable")
    print(f"{sum(passed.values())} passed, {sum(failed.values())} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
