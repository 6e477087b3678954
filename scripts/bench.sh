#!/usr/bin/env bash
# Times the suites of bench/suites.toml on the GPU of this machine, beside cuBLAS where both can do it: those that are named,
# or all. `make bench` builds first.
#
#     scripts/bench.sh [SUITE...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

program=build/pipethreader
if ! "$program" devices --gpu >/dev/null 2>&1; then
  echo "bench: no Hopper GPU was found here; 'pipethreader devices' says what was looked for" >&2
  exit 1
fi
suites=("$@")
if [[ ${#suites[@]} -eq 0 ]]; then
  mapfile -t suites < <(sed -n 's/^\[\[\(.*\)\]\]$/\1/p' bench/suites.toml | awk '!seen[$0]++')
fi
"$program" bench "${suites[@]/#/--suite=}"
