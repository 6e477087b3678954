#!/usr/bin/env bash
# No operator has code of its own in the compiler: fails when a source of src/ or include/ names one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

names='attention|softmax|mamba|chunk_scan|chunk_state|conv2d|rms_?norm|layer_?norm|retention|gated_ffn|\bmla\b|\bgemm\b'
folders=()
for folder in src include; do [[ -d $folder ]] && folders+=("$folder"); done
if grep -rniE "$names" "${folders[@]}"; then
  echo "operators: the lines above name an operator; the compiler may know only tensors, axes and expressions" >&2
  exit 1
fi
echo "operators: none named in ${folders[*]}"
