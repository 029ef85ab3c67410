#!/usr/bin/env bash
# Checks `pianola verify` against an independent checker on handwritten programs and on mutants of compiled ones.
# tests/proof/outside/checker.py was written from the descriptions of the text form and of the machine alone, and shares
# nothing with the compiler.
#
#   tests/proof/outside/test.sh                                        the same 4,000 mutants each time, about two minutes
#   python3 -B tests/proof/outside/attack.py 100000 7                  more mutants, from another seed
cd "$(dirname "$0")/../../.." || exit 2
. tests/support/environment.sh
exec python3 -B tests/proof/outside/attack.py "${CASES:-4000}"
