#!/usr/bin/env python3
"""Writes what bench/results/ holds into the documents: tables between their markers, and a plot.

    python3 -m venv .venv && .venv/bin/pip install -r scripts/requirements-plots.txt
    .venv/bin/python scripts/measured.py            # tables and docs/images/h200.svg
    scripts/measured.py --tables                    # tables only; needs no package
    scripts/measured.py --check                     # fails when a table does not hold what the file holds

h200.json and h200-earlier.json hold whole kernels beside their peers, the newest first (its rows that are headlines
are what README and the plot show), h200-neighbours.json the sizes next to some of theirs, h200-choices.json what single choices gave, and h200-counters.json what the hardware counters said. Numbers in
the documents come from these files alone.
"""

import argparse
import json
import pathlib
import re
import shlex
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
PLOT = ROOT / "docs" / "images" / "h200.svg"


def described(row):
    """(kernel, sizes) of a row, out of the command that was timed."""
    words = shlex.split(row["command"])
    kernel = pathlib.Path(next(w for w in words if w.endswith(".stask"))).stem
    if "--kernel" in words:
        kernel = words[words.index("--kernel") + 1]
    given = [words[i + 1] for i, w in enumerate(words) if w in ("--dim", "--size")]
    options = [words[i + 1] for i, w in enumerate(words) if w == "--option"]
    sizes = " ".join(text.replace("=", "") for text in given)
    flags = [text.split("=")[0] if text.endswith("=true") else f"not {text.split('=')[0]}" if text.endswith("=false")
             else text for text in options]
    return kernel, ", ".join([sizes, *flags])


def rate(ms, tflops):
    return f"{ms * 1000:.0f} us" + (f", {tflops:.0f} TFLOP/s" if tflops else "")


def table(results):
    lines = [f"Measured on an {results['card']} ({results['clock']}), {results['date']}, beside PyTorch "
             f"{results['torch']}; `{results['command']}`:", "",
             "| kernel | sizes | PipeThreader | peer | speed |", "|---|---|---|---|---|"]
    for row in results["rows"]:
        kernel, sizes = described(row)
        ours = rate(row["ms"], row.get("tflops"))
        theirs = f"{rate(row['peer_ms'], row.get('peer_tflops'))} ({row['peer'].split(' (')[0]})" if row.get("peer_ms") else "none"
        speed = f"{row['ratio']:.2f} x" if row.get("ratio") else ""
        lines.append(f"| {kernel} | {sizes} | {ours} | {theirs} | {speed} |")
    return "\n".join(lines) + "\n"


def headlines(results):
    return {**results, "rows": [row for row in results["rows"] if row.get("headline")]}


def headline_table(results):
    return table(headlines(results))


def choices(results):
    lines = ["| what | before | after | runs |", "|---|---|---|---|"]
    for row in results["rows"]:
        kept = "" if row["kept"] else ", not kept"
        lines.append(f"| {row['name']} | {row['before_us']} us | {row['after_us']} us{kept} | {row['runs']} |")
    return "\n".join(lines) + "\n"


def counters(results):
    lines = [f"Measured on an {results['card']} ({results['clock']}), {results['date']}; `{results['command']}`:", "",
             "| kernel | sizes | schedule | time | clock | instructions a cycle | instructions | tensor core busy | L2 "
             "| device memory |",
             "|---|---|---|---|---|---|---|---|---|---|"]
    for row in results["rows"]:
        kernel, sizes = described(row)
        lines.append(f"| {kernel} | {sizes} | {row['schedule']} | {row['us']:.0f} us | {row['clock_ghz']} GHz | "
                     f"{row['instructions_per_cycle']} | {row['million_instructions']} M | "
                     f"{row['tensor_active_percent']:.0f}% | {row['l2_percent']:.0f}% | {row['memory_tb_per_s']} TB/s |")
    return "\n".join(lines) + "\n"


# Each document's tables: the word in their markers, the file, and how its table is written.
TABLES = {
    "README.md": [("measured", "h200.json", headline_table)],
    "docs/performance.md": [
        ("measured", "h200.json", table),
        ("earlier", "h200-earlier.json", table),
        ("neighbours", "h200-neighbours.json", table),
        ("choices", "h200-choices.json", choices),
        ("counters", "h200-counters.json", counters),
    ],
}


def loaded(name):
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def plot(results):
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "pipethreader", "font.size": 9,
                                "font.family": "sans-serif"})
    from matplotlib import pyplot

    rows = [row for row in results["rows"] if row.get("tflops") and row.get("peer_tflops")]
    figure, axes = pyplot.subplots(figsize=(8, 0.5 * len(rows) + 1.1), layout="constrained")
    places = range(len(rows))
    for offset, key, name, colour in ((-0.2, "tflops", "PipeThreader", "#2a6f97"),
                                      (0.2, "peer_tflops", "peer", "#b8b8b8")):
        values = [row[key] for row in rows]
        bars = axes.barh([p + offset for p in places], values, 0.38, label=name, color=colour)
        labels = [f"{v:.0f}" if key == "tflops" else f"{v:.0f} {row['peer'].split(' (')[0]}"
                  for v, row in zip(values, rows)]
        axes.bar_label(bars, labels, padding=3, fontsize=8)
    axes.set_yticks(places, ["\n".join(described(row)) for row in rows], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel(f"TFLOP/s on an {results['card']}, {results['date']}")
    axes.margins(x=0.22)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper right", ncols=2, frameon=False)
    PLOT.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(PLOT, metadata={"Date": None, "Creator": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", action="store_true", help="write the tables, draw nothing")
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a table is not up to date")
    given = parser.parse_args()
    stale = []
    for name, tables in TABLES.items():
        document = ROOT / name
        text = document.read_text(encoding="utf-8")
        for word, file, write in tables:
            marked = re.compile(rf"(<!-- {word} -->\n).*?(<!-- end of {word} -->)", re.S)
            if not marked.search(text):
                print(f"{name}: error: the markers of its table '{word}' are missing", file=sys.stderr)
                return 1
            now = write(loaded(file))
            written = marked.sub(lambda found, now=now: found[1] + now + found[2], text)
            if written != text:
                stale.append((name, file))
            text = written
        if not given.check:
            document.write_text(text, encoding="utf-8")
    if given.check and stale:
        for name, file in stale:
            print(f"{name}: error: a table is not that of bench/results/{file}", file=sys.stderr)
        print("  hint: run scripts/measured.py", file=sys.stderr)
        return 1
    if not given.check and not given.tables:
        plot(headlines(loaded("h200.json")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
