"""Shared by the Python tests of this folder: counts of passed and failed checks, and the command's JSON."""
import json
import subprocess
import sys

passed = failed = 0


def expect(what, good, said):
    global passed, failed
    passed += good
    failed += not good
    if not good:
        print(f"{what}: {said}")


def run(*command):
    """Returns the JSON that the command prints, or its error under "error"."""
    r = subprocess.run(command, capture_output=True, text=True)
    return json.loads(r.stdout) if r.returncode == 0 else {"error": r.stderr}


def finish():
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed > 0)
