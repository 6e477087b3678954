#!/usr/bin/env python3
"""clang-tidy over src/, in parallel. A file is skipped when it, all headers of the project and .clang-tidy are as they
were when it last passed; what passed is remembered in build/.tidy."""

import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
PASSED = BUILD / ".tidy"
INCLUDE = re.compile(rb'^\s*#\s*include\s*[<"]([a-z_]+/[^>"]+)[>"]', re.M)


def closure(path, seen):
    """The project's own files that a source includes, itself among them."""
    if path in seen or not path.is_file():
        return
    seen.add(path)
    for name in INCLUDE.findall(path.read_bytes()):
        closure(ROOT / "src" / name.decode(), seen)
        closure(ROOT / "include" / name.decode(), seen)


def key_of(path, version):
    files = set()
    closure(path, files)
    digest = hashlib.sha256(version + (ROOT / ".clang-tidy").read_bytes())
    for file in sorted(files):
        digest.update(str(file.relative_to(ROOT)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def check(tool, path):
    done = subprocess.run(
        [tool, "--quiet", "-p", str(BUILD), "--warnings-as-errors=*", str(path)],
        capture_output=True, text=True, cwd=ROOT, check=False)
    # "N warnings generated" is noise about headers that are not ours.
    noise = re.compile(r"^(\d+ warnings? (and \d+ errors? )?generated|\d+ warnings treated as errors|Suppressed .*|Use -header-filter.*)")
    text = "\n".join(line for line in (done.stdout + done.stderr).splitlines() if not noise.match(line))
    return done.returncode == 0, text


def main():
    tool = shutil.which("clang-tidy-14") or shutil.which("clang-tidy")
    if tool is None:
        print("tidy: clang-tidy is not installed; scripts/bootstrap.sh check installs it", file=sys.stderr)
        return 1
    commands = json.loads((BUILD / "compile_commands.json").read_text())
    sources = sorted({pathlib.Path(c["file"]) for c in commands if pathlib.Path(c["file"]).is_relative_to(ROOT / "src")})
    if sys.argv[1:]:
        sources = [s for s in sources if any(word in str(s.relative_to(ROOT)) for word in sys.argv[1:])]
    version = subprocess.run([tool, "--version"], capture_output=True, check=True).stdout
    PASSED.mkdir(exist_ok=True)
    keys = {source: key_of(source, version) for source in sources}
    todo = [s for s in sources if not (PASSED / keys[s]).exists()]
    # The largest first, so that the last ones to finish are short.
    todo.sort(key=lambda s: -s.stat().st_size)
    start, failed = time.monotonic(), 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = {pool.submit(check, tool, source): source for source in todo}
        for job in concurrent.futures.as_completed(jobs):
            fine, text = job.result()
            if fine:
                (PASSED / keys[jobs[job]]).touch()
            else:
                failed += 1
                print(text, file=sys.stderr)
    print(f"tidy: {len(sources)} files, {len(todo)} looked at, {failed} with findings, {time.monotonic() - start:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
