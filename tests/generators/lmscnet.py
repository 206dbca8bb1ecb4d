"""Writes engine/tests/golden/lmscnet-{ss,ms}.safetensors: logits and gradients of LMSCNet by PyTorch.

    pip install -r tests/generators/requirements.txt
    python tests/generators/lmscnet.py

Weights and input are not stored: value i of the tensor that stands at place k of the state dict sorted by name is
`scale * sin(0.7 i + k)` (see `fill`), which both sides compute in f64 and round to f32.
"""

import pathlib

import numpy as np
import torch
from safetensors.numpy import save_file

from lmscnet_torch import LmscNet

CLASSES, X, Y, Z = 5, 16, 24, 8
GOLDEN = pathlib.Path(__file__).parents[2] / "engine" / "tests" / "golden"


def fill(network):
    names = sorted(name for name, _ in network.state_dict().items() if not name.endswith("num_batches_tracked"))
    for place, name in enumerate(names):
        tensor = network.state_dict()[name]
        values = np.sin(0.7 * np.arange(tensor.numel()) + place)
        if name.endswith("running_var") or (".bn" in name and name.endswith("weight")):
            values = 1.0 + 0.5 * values
        else:
            fan_in = tensor[0].numel() if tensor.dim() > 1 else 25
            values = values * (2.0 / fan_in) ** 0.5
        tensor.copy_(torch.from_numpy(values.astype(np.float32)).reshape(tensor.shape))


def main():
    torch.manual_seed(0)
    GOLDEN.mkdir(parents=True, exist_ok=True)
    voxels = np.arange(Z * X * Y)
    occupancy = torch.from_numpy((np.sin(1.3 * voxels) > 0.6).astype(np.float32)).reshape(1, Z, X, Y)
    for name, multiscale in (("ss", False), ("ms", True)):
        network = LmscNet(Z, CLASSES, multiscale)
        with torch.no_grad():
            fill(network)
        golden = {}
        # Evaluation: running statistics. Training: those of the batch, which also move the running ones.
        for mode in ("eval", "train"):
            network.train(mode == "train")
            network.zero_grad()
            logits = network(occupancy)
            if mode == "train":
                sum((level * level).mean() for level in logits).backward()
            for scale, level in zip((1, 2, 4, 8), logits):
                if multiscale and mode == "train":
                    continue
                golden[f"{mode}.logits.{scale}"] = level.detach().numpy()
        # Few numbers see every layer: the gradients of the first and last convolutions and of a deconvolution, and the
        # running statistics after the step.
        for parameter in (
            "Encoder_block1.0.bias",
            "deconv1_2.weight",
            "deconv_1_8__1_1.bias",
            "seg_head_1_1.conv1.2.weight",
            "seg_head_1_1.bn1.2.weight",
            "seg_head_1_1.conv_classes.bias",
        ):
            golden[f"gradient.{parameter}"] = dict(network.named_parameters())[parameter].grad.numpy()
        for buffer in ("running_mean", "running_var"):
            golden[f"after.seg_head_1_1.bn2.1.{buffer}"] = network.state_dict()[f"seg_head_1_1.bn2.1.{buffer}"].numpy()
        save_file({key: np.ascontiguousarray(value) for key, value in golden.items()}, GOLDEN / f"lmscnet-{name}.safetensors")


if __name__ == "__main__":
    main()
