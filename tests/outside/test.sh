#!/usr/bin/env bash
# `pianola verify` against an independent checker: handwritten programs and mutants of compiled ones, judged by
# tests/outside/checker.py, which knows the text form and the machine from their description alone and shares nothing
# with the compiler.
#
#   tests/outside/test.sh                                        4,000 mutants, always the same, about two minutes
#   python3 -B tests/outside/attack.py 100000 7                  more, of another seed
cd "$(dirname "$0")/../.." || exit 2
. tests/support/environment.sh
exec python3 -B tests/outside/attack.py "${CASES:-4000}"
