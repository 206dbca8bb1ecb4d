"""Writes engine/tests/golden/loss_scale.json: loss scales after recorded sequences of gradient norms and overflows.

    pip install -r tests/generators/requirements.txt
    python tests/generators/loss_scale.py

`dynamic` is torch.amp.GradScaler itself, on the CPU: each step's gradient is set by hand times the scale, and the optimizer
tells whether it stepped. PyTorch knows no smallest scale; where it goes below 1 it is set to 1, as Occam's rule says.
`grad-norm` is the article's rule as Occam corrects it, in plain arithmetic: x2 where the unscaled norm is finite and above 0.1,
x0.8 where it is finite, skip and x0.5 where not, within [1, 2048]. Scales are f32 in both.
"""

import json
import math
import pathlib
import random

import numpy as np
import torch

GOLDEN = pathlib.Path(__file__).parents[2] / "engine" / "tests" / "golden"


def dynamic(norms, initial_scale, growth_steps):
    weight = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=initial_scale, growth_interval=growth_steps)
    found, scales, steps = [], [], []
    for norm in norms:
        value = math.inf if norm is None else norm
        scaler.scale(torch.zeros(1))
        weight.grad = torch.tensor([value, 0.0]) * scaler.get_scale()
        # A scale that grows at every step makes any gradient overflow in the end.
        norm = norm if torch.isfinite(weight.grad).all() else None
        weight.data.zero_()
        scaler.step(optimizer)
        scaler.update()
        if scaler.get_scale() < 1.0:
            scaler.update(1.0)
        stepped = bool((weight != 0).any())
        assert stepped == (norm is not None)
        found.append(norm)
        scales.append(scaler.get_scale())
        steps.append(stepped)
    return found, scales, steps


def grad_norm(norms, initial_scale, _):
    scale, scales, steps = np.float32(initial_scale), [], []
    for norm in norms:
        if norm is None:
            scale = scale * np.float32(0.5)
        elif norm > 0.1:
            scale = scale * np.float32(2.0)
        else:
            scale = scale * np.float32(0.8)
        scale = min(max(scale, np.float32(1.0)), np.float32(2048.0))
        scales.append(float(scale))
        steps.append(norm is not None)
    return norms, scales, steps


def sequences():
    rng = random.Random(20261201)

    def mixed(count, overflow):
        return [None if rng.random() < overflow else round(10 ** rng.uniform(-3, 2), 6) for _ in range(count)]

    yield "all good", [1.0] * 50
    yield "all overflow", [None] * 25
    yield "falls, then recovers", [None] * 12 + [0.5] * 60
    yield "an overflow just before the scale grows", ([1.0] * 6 + [None]) * 6
    yield "around the norm of 0.1", [0.1, 0.1000001, 0.0999999, 0.100001, 1e-30, 1e30] * 5
    yield "seldom", mixed(200, 0.03)
    yield "often", mixed(100, 0.3)
    yield "mostly", mixed(60, 0.8)


def main():
    out = []
    for policy, rule in (("dynamic", dynamic), ("grad-norm", grad_norm)):
        for name, norms in sequences():
            for initial_scale, growth_steps in ((512.0, 7), (2048.0, 1), (3.0, 20)):
                found, scales, steps = rule(norms, initial_scale, growth_steps)
                entry = dict(name=f"{policy} {name} from {initial_scale}", policy=policy, initial_scale=initial_scale)
                out.append(entry | dict(growth_steps=growth_steps, norms=found, scales=scales, steps=steps))
    lines = ",\n".join(json.dumps(entry, separators=(",", ":")) for entry in out)
    GOLDEN.mkdir(parents=True, exist_ok=True)
    version = torch.__version__.split("+")[0]
    (GOLDEN / "loss_scale.json").write_text(f'{{"torch": "{version}", "sequences": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
