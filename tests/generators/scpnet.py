"""Writes engine/tests/golden/scpnet.safetensors: logits and all gradients of SCPNet's completion block by PyTorch, with 4
channels so that the file stays small.

    pip install -r tests/generators/requirements.txt
    python tests/generators/scpnet.py

Weights and input are not stored; they follow the formulas of lmscnet.py.
"""

import numpy as np
import torch
from safetensors.numpy import save_file

from lmscnet import GOLDEN, fill
from scpnet_torch import ScpNet

CHANNELS, WIDTH, CLASSES, X, Y, Z = 2, 4, 3, 9, 7, 6


def main():
    values = np.arange(CHANNELS * Z * X * Y)
    features = torch.from_numpy((np.sin(1.3 * values) > 0.6).astype(np.float32)).reshape(1, CHANNELS, Z, X, Y)
    network = ScpNet(CLASSES, CHANNELS, WIDTH)
    with torch.no_grad():
        fill(network)
    logits = network(features)
    (logits * logits).mean().backward()
    golden = {"logits": logits.detach().numpy()}
    for name, parameter in network.named_parameters():
        golden[f"gradient.{name}"] = parameter.grad.numpy()
    save_file({key: np.ascontiguousarray(value) for key, value in golden.items()}, GOLDEN / "scpnet.safetensors")
    for key, value in golden.items():
        print(f"{key}: {value.shape}, largest {np.abs(value).max():.3g}, {(value != 0).mean():.0%} not zero")
    print("parameters of 32 channels, 1 feature, 20 classes:", sum(p.numel() for p in ScpNet(20).parameters()))


if __name__ == "__main__":
    main()
