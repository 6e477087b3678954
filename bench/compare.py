"""Times kernels of the library beside PyTorch's (cuBLAS, cuDNN attention) and, where it can be imported, mamba_ssm's in
the same run, and writes a JSON file.

Each row alternates: `pipethreader bench` in bursts (a pause, warm launches, the median of 20), then the peer in the same way, for a
number of rounds; the medians over the rounds are reported. Random inputs on both sides.

    python3 bench/compare.py [--program build/pipethreader] [--device NAME or FILE] [--rounds 3] [--out FILE.json]

Needs a Hopper GPU and torch.
"""
import argparse
import datetime
import importlib
import json
import re
import statistics
import subprocess
import sys
import time

import torch
import torch.nn.functional as functional
from torch.nn.attention import SDPBackend, sdpa_kernel


def burst(function):
    """Median milliseconds of 20 launches after a pause of 15 ms and three warm launches."""
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
    return statistics.median(b.elapsed_time(e) for b, e in events)


def matmul_row(m, n, k):
    def peer():
        a = torch.randn(m, k, device="cuda", dtype=torch.float16)
        b = torch.randn(n, k, device="cuda", dtype=torch.float16)
        return lambda: a @ b.t()

    return {"kernel": "kernels/matmul.stask", "dims": {"M": m, "N": n, "K": k}, "options": {}, "peer": "cuBLAS (torch)",
            "make": peer, "flops": 2 * m * n * k}


def attention_row(b, h, s, d, causal):
    def peer():
        q, k, v = (torch.randn(b, h, s, d, device="cuda", dtype=torch.float16) for _ in range(3))

        def run():
            with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                return functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

        return run

    return {"kernel": "kernels/flash_attention.stask", "dims": {"B": b, "H": h, "G": h, "S": s, "T": s, "D": d},
            "options": {"causal": str(causal).lower()}, "peer": "cuDNN attention (torch)", "make": peer,
            "flops": 4 * b * h * s * s * d // (2 if causal else 1)}


def scan_sizes(b, s):
    return {"B": b, "C": s // 256, "H": 64, "G": 1, "L": 256, "P": 64, "N": 128}


def scan_inputs(sizes):
    b, c, h, length, p, n = (sizes[name] for name in "BCHLPN")
    half = lambda *shape: torch.randn(*shape, device="cuda", dtype=torch.float16)
    decay = -torch.rand(b, h, c, length, device="cuda").cumsum(-1) / 64
    return (half(b, c, 1, length, length), half(b, c * length, h, p), torch.rand(b, h, c, length, device="cuda"), decay,
            half(b, c * length, 1, n), half(b, c, h, p, n))


def chunk_scan_row(b, s):
    sizes = scan_sizes(b, s)

    def peer():
        from mamba_ssm.ops.triton.ssd_chunk_scan import _chunk_scan_fwd
        cb, x, dt, decay, cm, st = scan_inputs(sizes)
        return lambda: _chunk_scan_fwd(cb, x, dt, decay, cm, st)

    return {"kernel": "kernels/chunk_scan.stask", "dims": sizes, "options": {}, "peer": "mamba_ssm (Triton)", "make": peer}


def chunk_state_row(b, s):
    sizes = scan_sizes(b, s)

    def peer():
        from mamba_ssm.ops.triton.ssd_chunk_state import _chunk_state_fwd
        _, x, dt, decay, bm, _ = scan_inputs(sizes)
        return lambda: _chunk_state_fwd(bm, x, dt, decay, states_in_fp32=False)

    return {"kernel": "kernels/chunk_state.stask", "dims": sizes, "options": {}, "peer": "mamba_ssm (Triton)", "make": peer}


def importable(module):
    try:
        importlib.import_module(module)
    except ImportError:
        return False
    return True


ROWS = [matmul_row(4096, 4096, 4096), matmul_row(8192, 8192, 8192), matmul_row(4096, 14336, 4096),
        attention_row(4, 16, 4096, 128, False), attention_row(4, 16, 4096, 128, True),
        attention_row(2, 16, 8192, 128, False), attention_row(2, 16, 8192, 128, True),
        attention_row(4, 32, 4096, 64, False), attention_row(4, 32, 4096, 64, True),
        attention_row(4, 8, 4096, 256, False), attention_row(4, 8, 4096, 256, True)]
if importable("mamba_ssm.ops.triton.ssd_chunk_scan"):
    ROWS += [chunk_scan_row(8, 8192), chunk_state_row(8, 8192)]


def ours(program, device, row):
    command = [program, "bench", row["kernel"], "--rounds", "1"]
    if device:
        command += ["--device", device]
    for name, size in row["dims"].items():
        command += ["--dim", f"{name}={size}"]
    for name, value in row["options"].items():
        command += ["--option", f"{name}={value}"]
    result = subprocess.run(command, capture_output=True, text=True)
    found = re.search(r"^  \S+\s+([0-9.]+) us", result.stdout, re.MULTILINE)
    if result.returncode != 0 or not found:
        sys.exit(f"{' '.join(command)}\n{result.stdout}{result.stderr}")
    return float(found.group(1)) / 1000, " ".join(command)


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--program", default="build/pipethreader")
    arguments.add_argument("--device", default="")
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--out", default="")
    options = arguments.parse_args()
    clock = subprocess.run(["nvidia-smi", "--query-gpu=clocks.max.sm", "--format=csv,noheader"], capture_output=True, text=True).stdout.strip()
    report = {"card": torch.cuda.get_device_name(), "clock": clock + " at most", "date": datetime.date.today().isoformat(),
              "command": "python3 " + " ".join(sys.argv), "torch": torch.__version__, "cudnn": torch.backends.cudnn.version(), "rows": []}
    for row in ROWS:
        mine, theirs, command = [], [], ""
        for _ in range(options.rounds):
            ms, command = ours(options.program, options.device, row)
            mine.append(ms)
            peer = row["make"]()
            theirs.append(burst(peer))
            del peer
            torch.cuda.empty_cache()
        a, b = statistics.median(mine), statistics.median(theirs)
        entry = {"command": command, "ms": round(a, 4), "peer": row["peer"], "peer_ms": round(b, 4), "ratio": round(b / a, 3)}
        if "flops" in row:
            entry["tflops"] = round(row["flops"] / a / 1e9, 1)
            entry["peer_tflops"] = round(row["flops"] / b / 1e9, 1)
        report["rows"].append(entry)
        print(f'{row["kernel"]} {row["dims"]} {row["options"]}: {entry["ms"]} ms, {row["peer"]} {entry["peer_ms"]} ms, ratio {entry["ratio"]}', flush=True)
    if options.out:
        with open(options.out, "w") as file:
            json.dump(report, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
