"""Training steps of LMSCNet-SS, batch 1, on the CPU: Occam beside PyTorch, in one go, with the ratio.

    pip install -r tests/generators/requirements.txt
    python tests/peers/lmscnet_step.py [--threads 2] [64x64x16 ...]

Both do forward, cross-entropy and backward of the same network on a tenth of the voxels occupied; medians of a few
steps after one that warms up. Memory: heap bytes Occam counts; of PyTorch the growth of its process's peak resident set.
"""

import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).parents[2]
# Grid x, y, z; classes; timed steps. As in engine/examples/step_time.rs.
SHAPES = {"64x64x16": (12, 5), "128x128x16": (20, 3), "256x256x32": (20, 3)}


def pytorch(name, threads):
    import numpy as np
    import torch

    sys.path.insert(0, str(ROOT / "tests" / "generators"))
    from lmscnet_torch import LmscNet

    torch.set_num_threads(threads)
    classes, steps = SHAPES[name]
    x, y, z = map(int, name.split("x"))
    hashes = (np.arange(x * y * z + 1, dtype=np.uint32) * np.uint32(2_654_435_761)) >> np.uint32(16)
    occupancy = torch.from_numpy((hashes[:-1] % 10 == 0).astype(np.float32)).reshape(1, z, x, y)
    targets = torch.from_numpy((hashes[1:] % classes).astype(np.int64)).reshape(1, z, x, y)
    torch.manual_seed(0)
    network = LmscNet(z, classes, multiscale=False)
    weights = torch.ones(classes)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = []
    for _ in range(steps + 1):
        network.zero_grad()
        start = time.perf_counter()
        loss = torch.nn.functional.cross_entropy(network(occupancy)[0], targets, weight=weights, ignore_index=255)
        loss.backward()
        seconds.append(time.perf_counter() - start)
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    line = {"who": "pytorch", "version": torch.__version__, "grid": name, "classes": classes, "threads": threads}
    line |= {"steps": steps, "seconds_per_step": statistics.median(seconds[1:]), "peak_bytes": peak, "loss": loss.item()}
    print(json.dumps(line))


def build():
    """Builds the example and says where it lies."""
    command = ["cargo", "build", "--release", "-p", "occam-engine", "--example", "step_time", "--message-format=json"]
    done = subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    messages = [json.loads(line) for line in done.stdout.splitlines()]
    return next(m["executable"] for m in messages if m.get("target", {}).get("name") == "step_time" and m.get("executable"))


def run(command, threads):
    environment = os.environ | {"RAYON_NUM_THREADS": str(threads)}
    done = subprocess.run(command, check=True, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
    print(done.stdout, end="", flush=True)
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("grids", nargs="*", default=list(SHAPES))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only-pytorch", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only_pytorch:
        return pytorch(options.grids[0], options.threads)
    ours_program = build()
    rows = []
    for name in options.grids:
        # One process a measurement: each has its own peak.
        ours = run([ours_program, name], options.threads)
        peer = [sys.executable, __file__, "--only-pytorch", "--threads", str(options.threads), name]
        rows.append((name, ours, run(peer, options.threads)))
    print("| grid | classes | Occam s/step | PyTorch s/step | ratio | Occam peak MiB | PyTorch peak MiB |")
    print("|---|---|---|---|---|---|---|")
    for name, ours, theirs in rows:
        a, b = ours["seconds_per_step"], theirs["seconds_per_step"]
        peaks = [round(side["peak_bytes"] / 2**20) for side in (ours, theirs)]
        print(f"| {name} | {ours['classes']} | {a:.2f} | {b:.2f} | {a / b:.2f} | {peaks[0]} | {peaks[1]} |")


if __name__ == "__main__":
    main()
