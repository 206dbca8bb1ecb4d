"""Writes engine/tests/golden/sscnet.safetensors: logits and gradients of SSCNet-full by PyTorch.

    pip install -r tests/generators/requirements.txt
    python tests/generators/sscnet.py

Weights and input are not stored; they follow the formulas of lmscnet.py.
"""

import numpy as np
import torch
from safetensors.numpy import save_file

from lmscnet import GOLDEN, fill
from sscnet_torch import SscNet

CLASSES, X, Y, Z = 3, 16, 8, 8


def main():
    voxels = np.arange(Z * X * Y)
    occupancy = torch.from_numpy((np.sin(1.3 * voxels) > 0.6).astype(np.float32)).reshape(1, 1, Z, X, Y)
    network = SscNet(CLASSES)
    with torch.no_grad():
        fill(network)
    logits = network(occupancy)
    (logits * logits).sum().backward()
    golden = {"logits": logits.detach().numpy()}
    gradients = {name: parameter.grad.numpy() for name, parameter in network.named_parameters()}
    # Few numbers see every kind of layer.
    golden["gradient.conv1_1.weight"] = gradients["conv1_1.weight"][:1]
    for name in ("conv1_1.bias", "reduction2_1.bias", "conv2_1.bias", "conv3_2.bias", "conv3_5.bias", "conv3_8.bias"):
        golden[f"gradient.{name}"] = gradients[name]
    golden["gradient.conv4_2.bias"] = gradients["conv4_2.bias"]
    # Channels 0 and 1 are zero everywhere.
    golden["gradient.deconv_classes.weight.from.2"] = gradients["deconv_classes.weight"][2:4]
    golden["gradient.deconv_classes.bias"] = gradients["deconv_classes.bias"]
    save_file({key: np.ascontiguousarray(value) for key, value in golden.items()}, GOLDEN / "sscnet.safetensors")
    for key, value in golden.items():
        print(f"{key}: {value.shape}, largest {np.abs(value).max():.3g}")


if __name__ == "__main__":
    main()
