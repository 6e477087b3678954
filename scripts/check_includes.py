#!/usr/bin/env python3
"""Holds every #include of src/, include/ and tools/ to the edges of cmake/edges.txt."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
# Own declarations stand in for these, so that the project builds without them.
FORBIDDEN = re.compile(r"^(cuda|cuda_runtime|cuda_runtime_api|nvrtc|cublas.*|cudnn.*|nvml|hip/.*)(\.h)?$")


def read_edges(errors):
    """Folder -> set of folders that it may include."""
    edges = {}
    path = ROOT / "cmake" / "edges.txt"
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = re.fullmatch(r"([a-z_]+):((?: [a-z_]+)*)\s*", line)
        if not match:
            errors.append(f"cmake/edges.txt:{number}: error: expected 'folder: dependency ...', found '{line}'")
            continue
        folder, names = match.group(1), match.group(2).split()
        if folder in edges:
            errors.append(f"cmake/edges.txt:{number}: error: '{folder}' has two lines")
        edges[folder] = set(names)
        for name in names:
            # Bottom-up: what is named must stand above, which rules out cycles.
            if name not in edges or name == folder:
                errors.append(f"cmake/edges.txt:{number}: error: '{folder}' names '{name}', which has no line above")
    for folder in sorted(p.name for p in (ROOT / "src").iterdir() if p.is_dir()):
        if folder not in edges:
            errors.append(f"cmake/edges.txt:1: error: src/{folder} has no line")
    return edges


def home_of(path):
    """The name by which the edges know the folder of a file, and the file's own folder for quoted neighbours."""
    parts = path.relative_to(ROOT).parts
    return {"src": parts[1], "include": "public", "tools": "tools"}[parts[0]]


def check_line(target, quoted, home, edges):
    """What is wrong with including `target` from `home`; None if nothing is."""
    if FORBIDDEN.match(target):
        return f"'{target}' is a vendor's header: declare what is needed, as src/runtime does"
    folder = target.split("/")[0] if "/" in target else None
    if folder == "pipethreader":
        folder = "public"
    if folder is None or folder not in edges:
        if not quoted:
            return None  # a library's or the system's
        if home == "tools":
            return None  # a neighbour in the same folder
        return f"\"{target}\" does not name a folder of src/: write \"folder/file.h\""
    if folder == home or folder in edges[home]:
        return None
    allowed = ", ".join(sorted(edges[home])) or "nothing"
    return f"'{home}' may not include '{target}': cmake/edges.txt allows it {allowed}"


def main():
    errors = []
    edges = read_edges(errors)
    files = 0
    for top in ("src", "include", "tools"):
        for path in sorted((ROOT / top).rglob("*")):
            if path.suffix not in (".h", ".cpp", ".def") or not path.is_file():
                continue
            if len(path.relative_to(ROOT).parts) < 3:
                errors.append(f"{path.relative_to(ROOT)}:1: error: sources live in a folder of {top}/")
                continue
            files += 1
            home = home_of(path)
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                match = INCLUDE.match(line)
                if not match or home not in edges:
                    continue
                problem = check_line(match.group(2), match.group(1) == '"', home, edges)
                if problem:
                    errors.append(f"{path.relative_to(ROOT)}:{number}: error: {problem}")
    for error in errors:
        print(error, file=sys.stderr)
    if errors:
        return 1
    print(f"includes: {files} files keep to the {len(edges)} lines of cmake/edges.txt")
    return 0


if __name__ == "__main__":
    sys.exit(main())
