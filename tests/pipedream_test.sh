#!/bin/sh
exec "$(dirname "$0")/pipedream/test.sh"
