#!/usr/bin/env bash
# Records the reviewed dumps of tests/golden/stages/ anew and shows what changed. Recording is not approving: read the
# difference before it is committed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cmake --build build --target golden_stages_golden_test >build/record.log 2>&1 || {
  cat build/record.log >&2
  exit 1
}
mkdir -p tests/golden/stages
PIPETHREADER_RECORD=1 build/tests/golden_stages_golden_test --gtest_brief=1
git --no-pager diff --stat -- tests/golden/stages
git --no-pager status --short -- tests/golden/stages
