#!/usr/bin/env bash
# Times the kernels of the library on the GPU of this machine, against a peer where one is found. `make bench` builds first.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

program=build/pipethreader
if ! "$program" devices --gpu >/dev/null 2>&1; then
  echo "bench: no Hopper GPU was found here; 'pipethreader devices' says what was looked for" >&2
  exit 1
fi
"$program" bench kernels/matmul.stask --dim M=8192 --dim N=8192 --dim K=8192
for causal in true false; do
  "$program" bench kernels/flash_attention.stask --option causal=$causal \
    --dim B=4 --dim H=16 --dim G=16 --dim S=4096 --dim T=4096 --dim D=128
done
