"""Writes engine/tests/golden/norm_pool.safetensors: normalisation, ReLU and max pooling with their gradients by PyTorch.

    pip install -r tests/generators/requirements.txt
    python tests/generators/norm_pool.py

Normalisation is evaluated in f64 from f32 inputs; pooling and ReLU in f32, where they are exact. Values are multiples of
1/64, which f16 holds exactly. Names are CASE.TENSOR:

    batch.{x [3, 4, 35], gamma, beta, gradient, y, by_x, by_gamma, by_beta}    batch norm in training, then ReLU
    group.{...}      group norm of the same x in 2 groups, then ReLU
    layer.{...}      layer norm of x [9, 21], then ReLU
    pool2d.{x, options, gradient, y, by_x}, pool3d..., overlap..., nan...
    relu.{x, gradient, y, by_x}

`options` are window, stride and padding along D, H, W. One gamma is 0.
"""

import pathlib

import numpy as np
import torch
from safetensors.numpy import save_file
from torch.nn import functional as F

EPSILON = 1e-5
random = np.random.default_rng(11)
out = {}


def values(*shape):
    return torch.from_numpy((random.integers(-128, 129, shape) / 64).astype(np.float32))


def keep(case, **tensors):
    for name, tensor in tensors.items():
        if isinstance(tensor, torch.Tensor):
            tensor = tensor.detach().numpy()
        out[f"{case}.{name}"] = np.ascontiguousarray(tensor.astype(np.int32 if name == "options" else np.float32))


def norm(case, x, channels, function):
    gamma, beta, gradient = values(channels), values(channels), values(*x.shape)
    gamma[1] = 0.0
    leaves = [tensor.double().requires_grad_() for tensor in (x, gamma, beta)]
    y = F.relu(function(*leaves))
    y.backward(gradient.double())
    by_x, by_gamma, by_beta = (leaf.grad for leaf in leaves)
    keep(case, x=x, gamma=gamma, beta=beta, gradient=gradient, y=y, by_x=by_x, by_gamma=by_gamma, by_beta=by_beta)


def pool(case, x, window, stride, padding):
    leaf = x.clone().requires_grad_()
    y = F.max_pool3d(leaf, window, stride, padding)
    gradient = values(*y.shape)
    y.backward(gradient)
    keep(case, x=x, options=np.array(window + stride + padding), gradient=gradient, y=y, by_x=leaf.grad)


x = values(3, 4, 35)
norm("batch", x, 4, lambda x, gamma, beta: F.batch_norm(x, None, None, gamma, beta, True, 0.0, EPSILON))
norm("group", x, 4, lambda x, gamma, beta: F.group_norm(x, 2, gamma, beta, EPSILON))
norm("layer", values(9, 21), 21, lambda x, gamma, beta: F.layer_norm(x, (21,), gamma, beta, EPSILON))

# Many equal values.
ties = (values(2, 3, 5, 6, 7) * 2).round() / 2
pool("pool3d", ties, [2, 2, 2], [2, 2, 2], [0, 0, 0])
pool("pool2d", ties[:, :, :1], [1, 2, 2], [1, 2, 2], [0, 0, 0])
pool("overlap", ties, [3, 2, 3], [1, 2, 2], [1, 1, 1])
odd = ties.clone()
odd.view(-1)[::17] = torch.nan
odd.view(-1)[::5] = -torch.inf
odd.view(-1)[3::29] = torch.inf
odd[1, 2] = -torch.inf
pool("nan", odd, [2, 3, 3], [2, 1, 2], [1, 1, 1])

x = values(40)
x[:6] = torch.tensor([torch.nan, torch.inf, -torch.inf, 0.0, -0.0, 1.0])
leaf, gradient = x.clone().requires_grad_(), values(40)
y = F.relu(leaf)
y.backward(gradient)
keep("relu", x=x, gradient=gradient, y=y, by_x=leaf.grad)

save_file(out, pathlib.Path(__file__).parents[2] / "engine/tests/golden/norm_pool.safetensors")
