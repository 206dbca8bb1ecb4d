"""Writes engine/tests/golden/weights/: files of torch.save that the reader of weights must take or refuse.

    pip install -r tests/generators/requirements.txt
    python tests/generators/weights.py

To be small, all tensors of a network share one storage of 1024 values, value i of which is ((37 i) mod 64 - 32) / 64:
exact in every type of float. The tensor at place k of the state dict sorted by name begins at value k and steps by
STRIDES along its axes. What the files hold beside them is what training code saves.
"""

import os
import pathlib
import pickle

import torch

from lmscnet_torch import LmscNet
from sscnet_torch import SscNet

STRIDES = (2, 1, 7, 5, 3)
FOLDER = pathlib.Path(__file__).parents[2] / "engine" / "tests" / "golden" / "weights"


def base(dtype=torch.float32):
    return ((torch.arange(1024) * 37 % 64 - 32) / 64).to(dtype)


def strided(network, values, prefix=""):
    """The state dict with the shared values instead of its own."""
    state = network.state_dict()
    out = {}
    for place, name in enumerate(sorted(name for name in state if not name.endswith("num_batches_tracked"))):
        shape = state[name].shape
        out[prefix + name] = values.as_strided(shape, STRIDES[: len(shape)], place)
    counters = {prefix + name: state[name] for name in state if name.endswith("num_batches_tracked")}
    return out | counters


class Command:
    """What a hostile file does to a reader that runs pickles."""

    def __reduce__(self):
        return os.system, ("touch the-pickle-was-run",)


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    single, multi = LmscNet(8, 3, False), LmscNet(8, 3, True)
    torch.save(strided(single, base()), FOLDER / "lmscnet-ss.pt")
    torch.save(strided(single, base()), FOLDER / "lmscnet-ss-legacy.pt", _use_new_zipfile_serialization=False)
    torch.save(strided(single, base(torch.bfloat16)), FOLDER / "lmscnet-ss-protocol4.pth", pickle_protocol=4)
    # As LMSCNet's training code saves, of a network on several GPUs, in half precision, with the state of Adam.
    small = torch.nn.Linear(2, 1)
    optimizer = torch.optim.Adam(small.parameters())
    small(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.98)
    checkpoint = {
        "startEpoch": 4,
        "model": strided(multi, base(torch.float16), prefix="module."),
        "optimizer": optimizer.state_dict(),
        "scheduler": scheduler.state_dict(),
        "best": 0.5,
    }
    torch.save(checkpoint, FOLDER / "lmscnet-checkpoint.pth")
    torch.save({"state_dict": strided(SscNet(3), base(torch.float64))}, FOLDER / "sscnet.pt")

    # To be refused.
    torch.save({"model": strided(SscNet(2), base()), "note": Command()}, FOLDER / "hostile.pt")
    torch.save({"weight": torch.ones(4), "note": Command()}, FOLDER / "hostile-protocol4.pt", pickle_protocol=4)
    torch.save(torch.nn.Linear(2, 2), FOLDER / "module.pt")
    both = strided(SscNet(2), base())
    torch.save({"student": both, "teacher": dict(both)}, FOLDER / "two-networks.pt")
    integers = strided(SscNet(2), base())
    integers["conv1_1.bias"] = torch.arange(16)
    torch.save(integers, FOLDER / "integers.pt")
    infinite = strided(SscNet(2), base())
    infinite["conv2_2.bias"] = torch.cat([torch.zeros(31), torch.tensor([float("inf")])])
    torch.save(infinite, FOLDER / "infinite.pt")
    (FOLDER / "plain.pt").write_bytes(pickle.dumps({"a": 1}, protocol=2))
    for path in sorted(FOLDER.iterdir()):
        print(f"{path.name}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
