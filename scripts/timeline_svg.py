#!/usr/bin/env python3
"""Draws some iterations of a trace that `explain --trace` wrote, as an SVG: a row for each lane and unit.

    build/pipethreader explain kernels/flash_attention.stask --dim B=4 --dim H=16 --dim G=16 --dim S=4096 \
        --dim T=4096 --dim D=128 --trace out/timeline.json
    scripts/timeline_svg.py out/timeline.json docs/images/timeline.svg
"""

import argparse
import html
import json
import sys

WIDTH, LABEL, ROW, BAR = 960, 170, 30, 22
COLOURS = ("#7fb3d5", "#f0b27a", "#82c99d", "#d7a9e3", "#f1948a", "#a9cce3", "#f7dc6f", "#a3b18a", "#c9ada7", "#bde0fe")


def steady_window(events, first, count):
    """Cycles between the starts of two iterations, as the tensor core's rows (else any row) see them."""
    starts = {}
    for event in events:
        iteration = event["args"]["iteration"]
        if event["cat"] == "work" and iteration >= 0:
            key = (event["row"].endswith("tensor core"), iteration)
            starts[key] = min(starts.get(key, float("inf")), event["args"]["start_cycle"])
    for tensor in (True, False):
        if (tensor, first) in starts and (tensor, first + count) in starts:
            return starts[tensor, first], starts[tensor, first + count]
    sys.exit(f"error: the trace does not have the iterations {first} to {first + count}")


def bar(event, window, y, colours):
    begin, end = window
    scale = (WIDTH - LABEL - 10) / (end - begin)
    start = event["args"]["start_cycle"]
    left = LABEL + (max(start, begin) - begin) * scale
    right = LABEL + (min(start + event["args"]["cycles"], end) - begin) * scale
    if right - left < 0.5:
        return ""
    name = event["name"] + (f" ({event['args']['iteration']})" if event["args"]["iteration"] >= 0 else "")
    if event["cat"] == "wait":
        paint = 'fill="#888" fill-opacity="0.25"'
    else:
        paint = f'fill="{colours.setdefault(event["name"], COLOURS[len(colours) % len(COLOURS)])}" stroke="#0006"'
    text = ""
    if event["cat"] == "work" and right - left > 6.2 * len(name):
        text = f'<text x="{left + 4:.1f}" y="{y + 16}" fill="#000">{html.escape(name)}</text>'
    return (f'<rect x="{left:.1f}" y="{y + 1}" width="{right - left:.1f}" height="{BAR}" {paint}>'
            f"<title>{html.escape(name)}</title></rect>{text}\n")


def stacked(events):
    """Events of one row on as few lines as keep them apart."""
    ends, lines = [], []
    for event in sorted(events, key=lambda e: e["args"]["start_cycle"]):
        start = event["args"]["start_cycle"]
        line = next((i for i, end in enumerate(ends) if end <= start + 1e-6), len(ends))
        if line == len(ends):
            ends.append(0)
        ends[line] = start + event["args"]["cycles"]
        lines.append((line, event))
    return lines, len(ends)


def draw(trace, first, count):
    names = {e["tid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"}
    events = [dict(e, row=names[e["tid"]]) for e in trace["traceEvents"] if e["ph"] == "X"]
    window = steady_window(events, first, count)
    seen = [e for e in events
            if e["args"]["start_cycle"] < window[1] and e["args"]["start_cycle"] + e["args"]["cycles"] > window[0]]
    colours, body, y = {}, "", 8
    for row in names.values():
        own = [e for e in seen if e["row"] == row]
        if not any(e["cat"] == "work" for e in own):
            continue
        lines, height = stacked(own)
        body += f'<text x="6" y="{y + 16}">{html.escape(row)}</text>\n'
        for line, event in lines:
            body += bar(event, window, y + line * (BAR + 2), colours)
        y += (height - 1) * (BAR + 2) + ROW
    cycles = window[1] - window[0]
    for mark in range(5):
        x = LABEL + (WIDTH - LABEL - 10) * mark / 4
        body += f'<text x="{x:.0f}" y="{y + 12}" text-anchor="middle">{cycles * mark / 4:.0f}</text>\n'
    body += f'<text x="6" y="{y + 12}">cycles</text>\n'
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH + 20} {y + 20}" width="{WIDTH + 20}" '
            f'font-family="sans-serif" font-size="12">\n<rect width="100%" height="100%" fill="#fff"/>\n{body}</svg>\n')


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace")
    parser.add_argument("svg")
    parser.add_argument("--first", type=int, default=4, help="iteration that the picture begins with")
    parser.add_argument("--count", type=int, default=2, help="iterations that it shows")
    given = parser.parse_args()
    with open(given.trace, encoding="utf-8") as file:
        trace = json.load(file)
    with open(given.svg, "w", encoding="utf-8") as file:
        file.write(draw(trace, given.first, given.count))
    return 0


if __name__ == "__main__":
    sys.exit(main())
