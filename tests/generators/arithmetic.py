"""Writes engine/tests/golden/arithmetic.safetensors: layers and their gradients by PyTorch, for the layouts of tensors.

    pip install -r tests/generators/requirements.txt
    python tests/generators/arithmetic.py

Inputs are not stored: value i of tensor k is sin(0.7 i + k), computed in f64 and rounded to f32. Tensor 0 is the input,
1 the weight, 2 the bias, 3 the upstream gradient. Computed in f64. Every option differs from axis to axis.
"""

import pathlib

import numpy as np
import torch
from safetensors.numpy import save_file
from torch.nn import functional

GOLDEN = pathlib.Path(__file__).parents[2] / "engine" / "tests" / "golden"

CASES = {
    "linear": (functional.linear, (2, 3, 4), (5, 4), {}),
    "conv2d": (
        functional.conv2d,
        (2, 4, 7, 8),
        (6, 2, 3, 2),
        dict(groups=2, stride=(2, 1), padding=(1, 2), dilation=(2, 3)),
    ),
    "conv3d": (
        functional.conv3d,
        (2, 4, 5, 6, 7),
        (6, 2, 2, 3, 4),
        dict(groups=2, stride=(1, 2, 3), padding=(1, 2, 3), dilation=(3, 2, 1)),
    ),
    "conv_transpose2d": (
        functional.conv_transpose2d,
        (2, 4, 3, 4),
        (4, 3, 3, 4),
        dict(groups=2, stride=(3, 2), padding=(1, 2), dilation=(2, 1), output_padding=(2, 1)),
    ),
    "conv_transpose3d": (
        functional.conv_transpose3d,
        (2, 4, 2, 3, 2),
        (4, 3, 2, 3, 4),
        dict(groups=2, stride=(2, 3, 1), padding=(1, 0, 2), dilation=(1, 2, 3), output_padding=(1, 2, 0)),
    ),
}


def wave(shape, k):
    values = np.sin(0.7 * np.arange(np.prod(shape)) + k).astype(np.float32)
    return torch.from_numpy(values.astype(np.float64)).reshape(shape)


def main():
    golden = {}
    for name, (layer, shape_x, shape_weight, options) in CASES.items():
        transposed = "transpose" in name
        channels_out = shape_weight[1] * options["groups"] if transposed else shape_weight[0]
        x, weight, bias = wave(shape_x, 0), wave(shape_weight, 1), wave((channels_out,), 2)
        for leaf in (x, weight, bias):
            leaf.requires_grad_()
        y = layer(x, weight, bias, **options)
        y.backward(wave(tuple(y.shape), 3))
        golden[f"{name}.y"] = y
        for part, leaf in (("x", x), ("weight", weight), ("bias", bias)):
            golden[f"{name}.gradient.{part}"] = leaf.grad
    golden = {name: np.ascontiguousarray(value.detach().numpy().astype(np.float32)) for name, value in golden.items()}
    save_file(golden, GOLDEN / "arithmetic.safetensors")
    for name, value in golden.items():
        print(f"{name}: {value.shape}, largest {np.abs(value).max():.3g}")


if __name__ == "__main__":
    main()
