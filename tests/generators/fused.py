"""Writes engine/tests/golden/fused.safetensors: occupancy head and voxel encoder with their gradients by PyTorch.

    pip install -r tests/generators/requirements.txt
    python tests/generators/fused.py

Evaluated in f64 from inputs in f32 that are multiples of 1/64, which f16 holds exactly. Names are CASE.TENSOR:

    plain.{x [2, 8, 150], weight [20, 8], bias, labels i32 [2, 150], class_weights, gradient, loss, by_x, by_weight, by_bias}
    focal.{...}      the focal loss of gamma 2 of 33 classes
    encoder.{features [260, 9], order i32, starts i32, weight [32, 9], bias, gradient, y, by_features, by_weight, by_bias}

Labels that are no class are ignored. Some voxels of the encoder have no point.
"""

import pathlib

import numpy as np
import torch
from safetensors.numpy import save_file
from torch.nn import functional as F

random = np.random.default_rng(5)
out = {}


def values(*shape):
    return torch.from_numpy((random.integers(-128, 129, shape) / 64).astype(np.float32))


def keep(case, **tensors):
    for name, tensor in tensors.items():
        array = tensor.detach().numpy()
        out[f"{case}.{name}"] = np.ascontiguousarray(array.astype(np.int32 if array.dtype == np.int64 else np.float32))


def head(case, classes, gamma):
    x, weight, bias, gradient = values(2, 8, 150), values(classes, 8), values(classes), values(2, 150)
    class_weights = values(classes).abs()
    labels = torch.from_numpy(random.integers(0, classes + 3, (2, 150)))
    leaves = [tensor.double().requires_grad_() for tensor in (x, weight, bias)]
    logits = F.conv1d(leaves[0], leaves[1][:, :, None], leaves[2])
    known = torch.where(labels < classes, labels, -100)
    loss = F.cross_entropy(logits, known, class_weights.double(), reduction="none", ignore_index=-100)
    if gamma > 0:
        own = F.softmax(logits, 1).gather(1, labels.clamp(max=classes - 1)[:, None])[:, 0]
        loss = loss * (1 - own) ** gamma
    loss.backward(gradient.double())
    by_x, by_weight, by_bias = (leaf.grad for leaf in leaves)
    keep(case, x=x, weight=weight, bias=bias, labels=labels, class_weights=class_weights, gradient=gradient)
    keep(case, loss=loss, by_x=by_x, by_weight=by_weight, by_bias=by_bias)


head("plain", 20, 0)
head("focal", 33, 2)

counts = random.integers(0, 12, 40)
counts[[0, 7, 39]] = 0
starts = np.concatenate([[0], np.cumsum(counts)])
order = random.permutation(260)[: starts[-1]]
features, weight, bias, gradient = values(260, 9), values(32, 9), values(32), values(40, 32)
leaves = [tensor.double().requires_grad_() for tensor in (features, weight, bias)]
rows = F.relu(F.linear(*leaves))
none = torch.zeros(32, dtype=torch.float64)
voxels = [rows[order[a:b]].max(0).values if b > a else none for a, b in zip(starts[:-1], starts[1:])]
y = torch.stack(voxels)
y.backward(gradient.double())
by_features, by_weight, by_bias = (leaf.grad for leaf in leaves)
keep("encoder", features=features, order=torch.from_numpy(order), starts=torch.from_numpy(starts))
keep("encoder", weight=weight, bias=bias, gradient=gradient, y=y)
keep("encoder", by_features=by_features, by_weight=by_weight, by_bias=by_bias)

save_file(out, pathlib.Path(__file__).parents[2] / "engine/tests/golden/fused.safetensors")
