#!/usr/bin/env bash
# Formats all C++ sources in place; with --check only says what differs, and fails if anything does.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tool=$(command -v clang-format-14 || command -v clang-format)
mapfile -t files < <(find src include tools tests examples bench -name '*.cpp' -o -name '*.h' 2>/dev/null | LC_ALL=C sort)
if [[ "${1:-}" == --check ]]; then
  "$tool" --dry-run -Werror "${files[@]}" || {
    echo "format: run 'make format'" >&2
    exit 1
  }
  echo "format: ${#files[@]} files as they should be"
else
  "$tool" -i "${files[@]}"
fi
