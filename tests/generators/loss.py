"""Writes engine/tests/golden/loss.safetensors and losses.safetensors: losses and their gradients by PyTorch.

    pip install -r tests/generators/requirements.txt
    python tests/generators/loss.py

`loss.safetensors`: class-weighted cross-entropy in f32 over logits [2, 4, 2, 3, 5]: `plain`; `ignore` (a third of the
targets is 255); `absent` (class 2 never occurs); `all-ignored` (the loss is defined as 0 with zero gradient, where
PyTorch divides 0 by 0); `large` (logits of +-1e4).

`losses.safetensors`: 200 cases of the training losses alone and together, at one scale or several, written here from
their formulas and evaluated in f64. Tensors hold all cases one after the other:

    weights [200, 6]    of cross-entropy, Lovasz-softmax, semantic and geometric affinity, focal; the focal gamma
    levels [200]        scales of a case
    shapes [levels, 5]  B, C, Z, X, Y
    ids [200, 2]        of empty and of ignored voxels
    unique [200]        0 where a voxel of a class and one of another have the same error: the Lovasz extension has a
                        corner there, and its gradient is no single one
    kinds [200]         place in KINDS
    class_weights, logits, targets, gradient, loss

Voxels of equal logits have equal errors, which may be sorted either way: it is the sum of their gradients that is
compared. Other errors are at least 1e-6 apart unless their softmax has no slope to speak of.
"""

import pathlib

import numpy as np
import torch
from safetensors.numpy import save_file
from torch.nn.functional import cross_entropy

SHAPE = (2, 4, 2, 3, 5)
WEIGHTS = torch.tensor([0.045, 0.9, 0.3, 0.06])
IGNORE = 255

KINDS = (
    "plain",
    "ignore",
    "absent",
    "one class",
    "all ignored",
    "empty crop",
    "all occupied",
    "one voxel",
    "sure",
    "strong",
    "ties",
    "equal",
    "corner",
)
# Far below what f32 holds with full precision: such a sum counts as 0.
LEAST_SUM = 1e-30


def softmax_focal(log_p, target, weights, gamma):
    """log_p [n, C], target [n]; with gamma 0 it is the weighted cross-entropy."""
    if len(target) == 0:
        return log_p.sum() * 0.0
    log_p_y, missing = (values.gather(1, target[:, None])[:, 0] for values in (log_p, others(log_p.exp())))
    w = weights[target]
    return (w * missing**gamma * -log_p_y).sum() / w.sum()


def lovasz_softmax(p, target):
    total = p.sum() * 0.0
    present = target.unique()
    for c in present:
        g = (target == c).double()
        errors = torch.where(target == c, others(p)[:, c], p[:, c])
        errors, order = torch.sort(errors, descending=True)
        g = g[order]
        jaccard = 1 - (g.sum() - g.cumsum(0)) / (g.sum() + (1 - g).cumsum(0))
        steps = torch.cat([jaccard[:1], jaccard[1:] - jaccard[:-1]])
        total = total + (errors * steps).sum()
    return total / max(len(present), 1)


def others(p):
    """1 - p, by adding up the other classes."""
    return p @ (1 - torch.eye(p.shape[1], dtype=p.dtype))


def minus_log(numerator, denominator):
    """-ln of a ratio, at most 100; nothing where the denominator is 0."""
    if denominator < LEAST_SUM:
        return denominator * 0.0
    if numerator < LEAST_SUM:
        return numerator * 0.0 + 100.0
    return -(numerator / denominator).log()


def affinity(p, not_p, t):
    """Of one class: probabilities of it and of any other, [n], and whether it is the target's."""
    t = t.double()
    found = (p * t).sum()
    precision = minus_log(found, p.sum()) if t.sum() > 0 else found * 0.0
    recall = minus_log(found, t.sum())
    specificity = minus_log((not_p * (1 - t)).sum(), (1 - t).sum())
    return precision + recall + specificity


def semantic_affinity(p, target):
    present = target.unique()
    total = p.sum() * 0.0
    for c in present:
        total = total + affinity(p[:, c], others(p)[:, c], target == c)
    return total / max(len(present), 1)


def geometric_affinity(p, target, empty):
    return affinity(others(p)[:, empty], p[:, empty], target != empty)


def loss_of_scale(logits, target, weights, class_weights, empty, ignore):
    flat = logits.movedim(1, -1).reshape(-1, logits.shape[1])
    target = target.reshape(-1).long()
    valid = target != ignore
    log_p, target = flat[valid].log_softmax(1), target[valid]
    p = log_p.exp()
    ce, lovasz, semantic, geometric, focal, gamma = weights
    return (
        ce * softmax_focal(log_p, target, class_weights, 0.0)
        + lovasz * lovasz_softmax(p, target)
        + semantic * semantic_affinity(p, target)
        + geometric * geometric_affinity(p, target, empty)
        + focal * softmax_focal(log_p, target, class_weights, gamma)
    )


def errors_are_apart(logits, targets, ignore):
    """Whether the order of the errors survives rounding, wherever it matters."""
    flat = torch.tensor(logits).double().movedim(1, -1).reshape(-1, logits.shape[1])
    flat = flat[torch.tensor(targets).reshape(-1) != ignore]
    # Voxels of equal logits may stand in any order.
    flat, back = torch.unique(flat, dim=0, return_inverse=True)
    p = flat.softmax(1)
    target = torch.tensor(targets).reshape(-1)
    target = target[target != ignore]
    for c in range(p.shape[1]):
        errors = torch.where(target == c, 1 - p[back, c], p[back, c])
        # Of each group of equal voxels one of the class and one of another.
        keys = {(int(b), bool(t == c)): float(e) for b, t, e in zip(back, target, errors)}
        values = sorted(e for e in keys.values() if 1e-6 < e < 1 - 1e-6)
        if any(b - a < 1e-6 for a, b in zip(values, values[1:])):
            return False
    return True


def draw_scale(generator, kind, shape, empty, ignore):
    batch, classes, *grid = shape
    n = batch * int(np.prod(grid))
    targets = generator.integers(0, classes, n)
    if kind in ("ignore", "strong", "ties"):
        targets[generator.random(n) < 1 / 3] = ignore
    if kind == "absent":
        targets[targets == generator.integers(classes)] = empty
    if kind == "one class":
        targets[:] = generator.integers(classes)
    if kind == "all ignored":
        targets[:] = ignore
    if kind == "empty crop":
        targets[:] = empty
        targets[generator.random(n) < 0.2] = ignore
    if kind == "all occupied":
        targets[targets == empty] = (empty + 1) % classes
    logits = generator.normal(0.0, 10.0 if kind == "strong" else 1.5, (n, classes))
    if kind == "sure":
        logits[:] = -50.0
        logits[np.arange(n), generator.integers(0, classes, n)] = 50.0
    if kind == "ties":
        logits = logits[generator.integers(0, min(n, 3), n)]
    if kind in ("equal", "corner"):
        logits[:] = generator.normal()
    logits = np.moveaxis(logits.reshape(batch, *grid, classes), -1, 1)
    return np.ascontiguousarray(logits, dtype=np.float32), targets.reshape(batch, *grid).astype(np.uint8)


def draw_case(generator, index):
    kind = KINDS[index // 7 % len(KINDS)]
    weights = [np.eye(6)[:5][i] for i in range(5)] + [np.array([1.0, 1.0, 1.0, 1.0, 0.0, 0.0])]
    weights = (weights + [np.round(generator.uniform(0.1, 3.0, 6), 2)])[index % 7].copy()
    weights[5] = [2.0, 0.0, 0.5, 1.0, 5.0][generator.integers(5)]
    classes = 2 if kind == "corner" else int(generator.integers(3 if kind == "equal" else 2, 7))
    empty = [0, classes - 1][generator.integers(2)]
    ignore = [255, classes][generator.integers(2)]
    class_weights = np.round(generator.uniform(0.05, 1.0, classes), 3).astype(np.float32)
    levels = []
    for _ in range(1 if kind == "one voxel" else int(generator.choice([1, 1, 1, 2, 3]))):
        grid = (1, 1, 1) if kind == "one voxel" else generator.integers((1, 1, 1), (4, 5, 5))
        shape = (1 if kind == "one voxel" else int(generator.integers(1, 3)), classes, *map(int, grid))
        while True:
            logits, targets = draw_scale(generator, kind, shape, empty, ignore)
            if kind == "corner" or errors_are_apart(logits, targets, ignore):
                break
        levels.append((shape, logits, targets))
    return kind, weights, (empty, ignore), class_weights, levels


def losses():
    generator = np.random.default_rng(11)
    columns = ("weights", "levels", "shapes", "ids", "unique", "kinds", "class_weights", "logits", "targets")
    golden = {name: [] for name in (*columns, "gradient", "loss")}
    for index in range(200):
        kind, weights, ids, class_weights, levels = draw_case(generator, index)
        leaves = [torch.tensor(logits).double().requires_grad_() for _, logits, _ in levels]
        total = sum(
            loss_of_scale(leaf, torch.tensor(targets), weights, torch.tensor(class_weights).double(), *ids)
            for leaf, (_, _, targets) in zip(leaves, levels)
        )
        loss = total / len(levels)
        loss.backward()
        golden["weights"].append(weights.astype(np.float32))
        golden["levels"].append(np.array([len(levels)], np.int32))
        golden["ids"].append(np.array(ids, np.int32))
        golden["unique"].append(np.array([kind != "corner"], np.int32))
        golden["kinds"].append(np.array([KINDS.index(kind)], np.int32))
        golden["class_weights"].append(class_weights)
        golden["loss"].append(loss.detach().numpy().reshape(1).astype(np.float32))
        for leaf, (shape, logits, targets) in zip(leaves, levels):
            golden["shapes"].append(np.array(shape, np.int32))
            golden["logits"].append(logits.reshape(-1))
            golden["targets"].append(targets.reshape(-1))
            golden["gradient"].append(leaf.grad.numpy().reshape(-1).astype(np.float32))
    golden = {name: np.concatenate(values) for name, values in golden.items()}
    assert all(np.isfinite(values).all() for values in golden.values())
    save_file(golden, folder() / "losses.safetensors")


def folder():
    return pathlib.Path(__file__).parents[2] / "engine" / "tests" / "golden"


def cross_entropies():
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
    save_file(golden, folder() / "loss.safetensors")


if __name__ == "__main__":
    cross_entropies()
    losses()
