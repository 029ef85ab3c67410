"""Checks what a command writes to a terminal while it trains: live.py STEPS COMMAND... Only stderr is the terminal."""
import os
import pty
import re
import subprocess
import sys

steps = int(sys.argv[1])
mine, its = pty.openpty()
process = subprocess.Popen(sys.argv[2:], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=its)
os.close(its)
seen = b""
try:
    while piece := os.read(mine, 65536):
        seen += piece
except OSError:  # how Linux reports that the other side is closed
    pass
if process.wait():
    sys.exit(f"exit code {process.returncode}: {seen!r}")

text = seen.decode()
pieces = re.findall(r"\r\033\[K(training: [^\r\033]*)(\r\n)?", text)
told = [re.fullmatch(r"training: step (\d+)/(\d+)  loss [\d.]+  rate [\d.e-]+  \d+ tokens/s  \d+ s left", line) for line, _ in pieces]
if len(told) < 2 or not all(told):
    sys.exit(f"not rewritten: {text!r}")
done = [int(line[1]) for line in told]
if done != sorted(set(done)) or {int(line[2]) for line in told} != {steps}:
    sys.exit(f"out of order: {text!r}")
if [bool(end) for _, end in pieces] != [False] * (len(pieces) - 1) + [True]:
    sys.exit(f"only the last one ends its line: {text!r}")

# The final screen: for each line, the text since it was last erased.
screen = [line.split("\033[K")[-1].lstrip("\r") for line in text.split("\r\n")]
left = [line for line in screen if "training: step" in line]
if left != [pieces[-1][0]] or any("\033" in line or "\r" in line for line in screen):
    sys.exit(f"left on the screen: {left}")
beside = [line for line in screen if "validation" in line]
if not all(re.fullmatch(r"validation: step \d+  loss [\d.]+", line) for line in beside):
    sys.exit(f"validation: {beside}")
print(f"{done[-1]} of {steps} told, rewritten, and one line left, beside {len(beside)} of validation")
