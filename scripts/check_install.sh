#!/usr/bin/env bash
# Installs the build to a temporary place and builds and runs examples/cmake_consumer against it, as a user would.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cmake --install build --prefix "$scratch/installed" >"$scratch/install.log" || {
  cat "$scratch/install.log" >&2
  exit 1
}
cmake -S examples/cmake_consumer -B "$scratch/build" -G Ninja -DCMAKE_PREFIX_PATH="$scratch/installed" >"$scratch/configure.log" || {
  cat "$scratch/configure.log" >&2
  exit 1
}
cmake --build "$scratch/build"
(cd "$scratch" && ./build/consumer)
(cd "$scratch" && installed/bin/pipethreader devices >/dev/null)
echo "install: the library links and runs from $(basename "$scratch"), the program finds its devices"
