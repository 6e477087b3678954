#!/usr/bin/env bash
# FlashAttention through all stages: compiled for an H100 with no GPU, its schedule shown, proved, interpreted against
# the oracle, and written out; where a Hopper GPU is found it also runs there. `make demo` builds first.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

program=build/pipethreader
kernel=kernels/flash_attention.stask
out=out/flash_attention
large=(--dim B=4 --dim H=16 --dim G=16 --dim S=4096 --dim T=4096 --dim D=128)
small=(--dim B=1 --dim H=2 --dim G=1 --dim S=200 --dim T=200 --dim D=128)

step() { printf '\n\033[1m# %s\033[0m\n%s\n' "$1" "\$ ${*:2}"; "${@:2}"; }

mkdir -p "$out"
printf 'The kernel, as a user writes it (%s):\n\n' "$kernel"
cat "$kernel"

step "Compile for an H100: search, schedule, prove, emit, assemble" \
  "$program" compile "$kernel" --device h100 "${large[@]}" --out "$out"
step "The schedule: what each unit does, and when" \
  "$program" explain "$kernel" --device h100 "${large[@]}" --html "$out/timeline.html" --trace "$out/timeline.json"
step "The proof: no race, no deadlock, at every trip count" \
  "$program" verify "$kernel" --device h100 "${large[@]}"
step "Interpreted on the CPU, compared with the oracle" \
  "$program" run "$kernel" --on cpu --device h100 "${small[@]}"

if "$program" devices --gpu >/dev/null 2>&1; then
  # The softmax scale 1/sqrt(128), times log2(e): the kernel computes in powers of 2.
  step "The same on the GPU of this machine" "$program" run "$kernel" --on gpu "${large[@]}" --set scale=0.12751743
  step "Timed" "$program" bench "$kernel" "${large[@]}"
else
  printf '\nNo Hopper GPU here: the kernel was compiled, proved and interpreted, but not run on a card.\n'
fi

printf '\nWritten to %s:\n' "$out"
ls -l "$out"
