#!/usr/bin/env python3
"""Holds the documents to what they say: their shell commands work, their relative links lead somewhere, kernels shown
"as it stands in" a file do, and measured tables hold what bench/results/ holds.

Only blocks opened with ```sh test are run, those of one document in order, in a scratch folder that has the project's
kernels/, devices/, examples/, scripts/ and build/ in it; what they write stays there. A comment `# prints TEXT` under a command
says that TEXT must appear in its output; `# fails N` that it must exit with N. With --links no command is run.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
SHARED = ("kernels", "devices", "examples", "build", "docs", "scripts")
LINK = re.compile(r"!?\[[^\]\n]*\]\(<?([^)\s>]+)>?\)")
CODE = re.compile(r"^```.*?^```$|^(?: {4}|\t)[^\n]*$|`[^`\n]*`", re.M | re.S)
HEADING = re.compile(r"^#+ +(.+?) *$", re.M)
BLOCK = re.compile(r"^```sh test\n(.*?)^```$", re.M | re.S)
TIMEOUT_S = 300


def documents():
    return [p for p in [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")),
                        *sorted((ROOT / "examples").rglob("*.md"))] if p.is_file()]


def commands_of(text):
    """(line, command, wanted texts, exit status) of each command of a document; lines count from 1."""
    commands = []
    for block in BLOCK.finditer(text):
        line = text[: block.start(1)].count("\n") + 1
        pending = ""
        for row in block.group(1).splitlines():
            if row.startswith("# prints ") and commands:
                commands[-1][2].append(row.removeprefix("# prints "))
            elif row.startswith("# fails ") and commands:
                commands[-1][3] = int(row.removeprefix("# fails "))
            elif row.strip() and not row.startswith("#"):
                pending += row + "\n"
                if not row.endswith("\\"):
                    commands.append([line - pending.count("\n") + 1, pending.strip(), [], 0])
                    pending = ""
            line += 1
    return commands


def run(command, folder):
    try:
        done = subprocess.run(["bash", "-c", command], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return None, f"still running after {TIMEOUT_S} s"
    return done.returncode, done.stdout


def anchors_of(text):
    """The names that a document's headings get where it is shown."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in HEADING.findall(text)}


def broken_links(document):
    """(line, link, why) of each relative link that leads nowhere."""
    text = document.read_text(encoding="utf-8")
    plain = CODE.sub(lambda code: re.sub(r"[^\n]", " ", code[0]), text)
    for found in LINK.finditer(plain):
        link = found[1]
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        line = plain[: found.start()].count("\n") + 1
        if not target.exists():
            yield line, link, "there is no such file"
        elif not target.is_relative_to(ROOT):
            yield line, link, "it leads out of the project"
        elif anchor and target.suffix == ".md" and anchor not in anchors_of(target.read_text(encoding="utf-8")):
            yield line, link, "there is no such heading"


def check_links():
    failures = total = 0
    for document in sorted(p for p in ROOT.rglob("*.md") if not is_ignored(p)):
        total += 1
        for line, link, why in broken_links(document):
            failures += 1
            print(f"{document.relative_to(ROOT)}:{line}: error: the link '{link}' leads nowhere: {why}", file=sys.stderr)
    print(f"docs: links of {total} documents, {failures} broken")
    return failures


def without_comments(kernel):
    return re.sub(r"[ ]*//[^\n]*", "", re.sub(r"^//.*\n", "", kernel, flags=re.M))


def check_kernels():
    """A kernel that a document shows "as it stands in" a file is that file, without its comments."""
    failures = 0
    for document in documents():
        text = document.read_text(encoding="utf-8")
        for found in re.finditer(r"as it stands in \[`([^`]+)`\][^\n]*\n\n((?: {4}[^\n]*\n)+)", text):
            shown = re.sub(r"^ {4}", "", found[2], flags=re.M)
            file = ROOT / found[1]
            if not file.exists() or without_comments(file.read_text(encoding="utf-8")) != shown:
                failures += 1
                line = text[: found.start()].count("\n") + 1
                print(f"{document.relative_to(ROOT)}:{line}: error: this is not what {found[1]} holds", file=sys.stderr)
    return failures


def is_ignored(path):
    return any(part.startswith(("build", ".", "out")) for part in path.relative_to(ROOT).parts[:-1])


def check_commands():
    failures = total = 0
    for document in documents():
        name = document.relative_to(ROOT)
        commands = commands_of(document.read_text(encoding="utf-8"))
        with tempfile.TemporaryDirectory() as scratch:
            for shared in SHARED:
                if (ROOT / shared).exists():
                    (pathlib.Path(scratch) / shared).symlink_to(ROOT / shared)
            for line, command, wanted, expected in commands:
                total += 1
                status, output = run(command, scratch)
                absent = [text for text in wanted if text not in output]
                if status != expected or absent:
                    failures += 1
                    found = f"exit status {status}, expected {expected}" if status != expected else "unexpected output"
                    print(f"{name}:{line}: error: {found}: {command}", file=sys.stderr)
                    for text in absent:
                        print(f"  its output lacks: {text}", file=sys.stderr)
                    print("  | " + "\n  | ".join(output.splitlines()[-20:]), file=sys.stderr)
    print(f"docs: {total} commands run, {failures} failed")
    return failures


def main():
    tables = subprocess.run([ROOT / "scripts" / "measured.py", "--check"], check=False).returncode
    failures = check_links() + check_kernels() + (0 if "--links" in sys.argv[1:] else check_commands())
    return 1 if failures or tables else 0


if __name__ == "__main__":
    sys.exit(main())
