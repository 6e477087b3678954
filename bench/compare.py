"""Times the suites of bench/suites.toml beside their peers in the same run: PyTorch's (cuBLAS, cuDNN attention, its own
kernels for rows) and, where it can be imported, mamba_ssm's. Writes a table and a JSON file.

Each row alternates: `pipethreader bench` in bursts (a pause, warm launches, the median of 20), then the peer in the same way, for a
number of rounds; the medians over the rounds are reported. Random inputs on both sides. Rows with `replay` time a captured graph of
so many launches on both sides.

    python3 bench/compare.py [--program build/pipethreader] [--device NAME or FILE] [--suite NAME ...] [--only TEXT]
                             [--rounds 3] [--out FILE.json]

Needs a Hopper GPU and torch. A row whose peer cannot be imported is timed alone.
"""
import argparse
import datetime
import importlib.util
import json
import pathlib
import re
import statistics
import subprocess
import sys
import time
import tomllib

import torch
import torch.nn.functional as functional
from torch.nn.attention import SDPBackend, sdpa_kernel

ROOT = pathlib.Path(__file__).resolve().parent.parent


def median_ms(function, launches):
    """Median milliseconds of a launch, of 20 bursts of `launches`, after a pause of 15 ms and three warm ones."""
    torch.cuda.synchronize()
    time.sleep(0.015)
    for _ in range(3):
        function()
    events = []
    for _ in range(20):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        function()
        end.record()
        events.append((begin, end))
    torch.cuda.synchronize()
    return statistics.median(b.elapsed_time(e) for b, e in events) / launches


def captured(function, launches):
    """A function that replays a graph of so many launches."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            function()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(launches):
            function()
    return graph.replay


def random(*shape, dtype=torch.float16):
    return torch.randn(*shape, device="cuda", dtype=dtype)


def product(s, dtype=torch.float16, rows=False):
    a = random(s["M"], s["K"], dtype=dtype)
    if rows:
        b = random(s["K"], s["N"], dtype=dtype)
        return lambda: a @ b
    b = random(s["N"], s["K"], dtype=dtype)
    return lambda: a @ b.t()


def attention(s, causal):
    q = random(s["B"], s["H"], s["S"], s["D"])
    k, v = (random(s["B"], s["G"], s["T"], s["D"]) for _ in range(2))

    def run():
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=s["H"] != s["G"])

    return run


def scan_inputs(s):
    b, c, h, g, length, p, n = (s[name] for name in "BCHGLPN")
    decay = -torch.rand(b, h, c, length, device="cuda").cumsum(-1) / 64
    return (random(b, c, g, length, length), random(b, c * length, h, p), torch.rand(b, h, c, length, device="cuda"), decay,
            random(b, c * length, g, n), random(b, c, h, p, n))


def chunk_scan(s):
    from mamba_ssm.ops.triton.ssd_chunk_scan import _chunk_scan_fwd
    cb, x, dt, decay, cm, st = scan_inputs(s)
    return lambda: _chunk_scan_fwd(cb, x, dt, decay, cm, st)


def chunk_state(s):
    from mamba_ssm.ops.triton.ssd_chunk_state import _chunk_state_fwd
    _, x, dt, decay, bm, _ = scan_inputs(s)
    return lambda: _chunk_state_fwd(bm, x, dt, decay, states_in_fp32=False)


def rows(function):
    def make(s):
        x, w, bias = random(s["M"], s["N"]), random(s["N"]), random(s["N"])
        return lambda: function(x, w, bias)

    return make


# What the peers are called in tables, the module that they need, and a function from sizes to what is timed.
PEERS = {
    "matmul": ("cuBLAS", "torch", product),
    "matmul_bf16": ("cuBLAS", "torch", lambda s: product(s, torch.bfloat16)),
    "matmul_b_rows": ("cuBLAS", "torch", lambda s: product(s, rows=True)),
    "attention": ("cuDNN attention", "torch", lambda s: attention(s, False)),
    "causal_attention": ("cuDNN attention", "torch", lambda s: attention(s, True)),
    "chunk_scan": ("mamba_ssm", "mamba_ssm", chunk_scan),
    "chunk_state": ("mamba_ssm", "mamba_ssm", chunk_state),
    "softmax": ("torch", "torch", rows(lambda x, w, bias: torch.softmax(x, -1))),
    "rms_norm": ("torch", "torch", rows(lambda x, w, bias: functional.rms_norm(x, w.shape, w))),
    "layer_norm": ("torch", "torch", rows(lambda x, w, bias: functional.layer_norm(x, w.shape, w, bias))),
}


def entries(suites):
    """One dictionary for each line of sizes."""
    with open(ROOT / "bench" / "suites.toml", "rb") as file:
        known = tomllib.load(file)
    for name in suites or known:
        for row in known[name]:
            for sizes in row["sizes"]:
                yield {**row, "suite": name, "sizes": dict(zip(row["dims"], sizes))}


def command_of(program, device, row):
    command = [program, "bench", "kernels/" + row["file"], "--rounds", "1"]
    if device:
        command += ["--device", device]
    if "kernel" in row:
        command += ["--kernel", row["kernel"]]
    for name, size in row["sizes"].items():
        command += ["--dim", f"{name}={size}"]
    for name, value in row.get("options", {}).items():
        command += ["--option", f"{name}={str(value).lower()}"]
    if "replay" in row:
        command += ["--replay", str(row["replay"])]
    return command


def ours(command):
    """Milliseconds and TFLOP/s that `bench` prints; nothing of the latter for kernels without products."""
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    found = re.search(r"^  pipethreader\s+([0-9.]+) us(?:\s+([0-9.]+) TFLOP/s)?", result.stdout, re.MULTILINE)
    if result.returncode != 0 or not found:
        raise RuntimeError(f"{' '.join(command)}\n{result.stdout}{result.stderr}")
    return float(found[1]) / 1000, float(found[2]) if found[2] else None


def measure(row, command, rounds):
    label, module, make = PEERS.get(row.get("peer"), ("", "", None))
    launches = row.get("replay", 1)
    mine, theirs, tflops = [], [], None
    for _ in range(rounds):
        ms, tflops = ours(command)
        mine.append(ms)
        if make and importlib.util.find_spec(module):
            function = make(row["sizes"])
            theirs.append(median_ms(captured(function, launches) if launches > 1 else function, launches))
            del function
            torch.cuda.empty_cache()
    entry = {"suite": row["suite"], "command": " ".join(command), "ms": round(statistics.median(mine), 5)}
    work = tflops * mine[-1] if tflops else None  # 10^9 operations
    if work:
        entry["tflops"] = round(work / entry["ms"], 1)
    if theirs:
        entry |= {"peer": label, "peer_ms": round(statistics.median(theirs), 5)}
        entry["ratio"] = round(entry["peer_ms"] / entry["ms"], 3)
        if work:
            entry["peer_tflops"] = round(work / entry["peer_ms"], 1)
    return entry


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--program", default="build/pipethreader")
    arguments.add_argument("--device", default="")
    arguments.add_argument("--suite", action="append", default=[], help="which; all if none is named")
    arguments.add_argument("--only", default="", help="rows whose command matches this regular expression")
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--out", default="")
    options = arguments.parse_args()
    clock = subprocess.run(["nvidia-smi", "--query-gpu=clocks.max.sm", "--format=csv,noheader"], capture_output=True, text=True).stdout.strip()
    report = {"card": torch.cuda.get_device_name(), "clock": clock + " at most", "date": datetime.date.today().isoformat(),
              "command": "python3 " + " ".join(sys.argv), "torch": torch.__version__, "cudnn": torch.backends.cudnn.version(), "rows": []}
    failures = 0
    for row in entries(options.suite):
        command = command_of(options.program, options.device, row)
        if not re.search(options.only, " ".join(command)):
            continue
        try:
            entry = measure(row, command, options.rounds)
        except RuntimeError as error:
            print(f"compare: {error}", file=sys.stderr, flush=True)
            failures += 1
            continue
        report["rows"].append(entry)
        sizes = " ".join(f"{name}{size}" for name, size in row["sizes"].items())
        peer = f'{entry["peer"]} {1000 * entry["peer_ms"]:.1f} us, ratio {entry["ratio"]:.3f}' if "peer" in entry else "no peer"
        print(f'{row.get("kernel", row["file"])} {row.get("options", "")} {sizes}: {1000 * entry["ms"]:.1f} us'
              f'{" " + str(entry["tflops"]) + " TFLOP/s" if "tflops" in entry else ""}, {peer}', flush=True)
        if options.out:
            pathlib.Path(options.out).write_text(json.dumps(report, indent=1) + "\n")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
