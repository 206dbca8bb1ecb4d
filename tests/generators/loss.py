"""Writes engine/tests/golden/loss.safetensors: class-weighted cross-entropy and its gradient by PyTorch.

    pip install -r tests/generators/requirements.txt
    python tests/generators/loss.py

Cases over logits [2, 4, 2, 3, 5]: `plain`; `ignore` (a third of the targets is 255); `absent` (class 2 never occurs);
`all-ignored` (the loss is defined as 0 with zero gradient, where PyTorch divides 0 by 0); `large` (logits of +-1e4).
"""

import pathlib

import numpy as np
import torch
from safetensors.numpy import save_file
from torch.nn.functional import cross_entropy

SHAPE = (2, 4, 2, 3, 5)
WEIGHTS = torch.tensor([0.045, 0.9, 0.3, 0.06])
IGNORE = 255


def main():
    generator = np.random.default_rng(7)
    golden = {"weights": WEIGHTS.numpy()}
    for case in ("plain", "ignore", "absent", "all-ignored", "large"):
        logits = generator.normal(0.0, 2.0, SHAPE).astype(np.float32)
        targets = generator.integers(0, SHAPE[1], (SHAPE[0], *SHAPE[2:])).astype(np.int32)
        if case == "ignore":
            targets[generator.random(targets.shape) < 1 / 3] = IGNORE
        if case == "absent":
            targets[targets == 2] = 0
        if case == "all-ignored":
            targets[:] = IGNORE
        if case == "large":
            logits *= 5e3
        leaf = torch.tensor(logits, requires_grad=True)
        loss = cross_entropy(leaf, torch.tensor(targets).long(), weight=WEIGHTS, ignore_index=IGNORE)
        if case == "all-ignored":
            loss = leaf.sum() * 0.0
        loss.backward()
        golden[f"{case}.logits"] = logits
        golden[f"{case}.targets"] = targets
        golden[f"{case}.loss"] = loss.detach().numpy().reshape(1)
        golden[f"{case}.gradient"] = leaf.grad.numpy()
    path = pathlib.Path(__file__).parents[2] / "engine" / "tests" / "golden" / "loss.safetensors"
    save_file(golden, path)


if __name__ == "__main__":
    main()
