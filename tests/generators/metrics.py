"""Expected scores of random grids, by the published definition of semantic scene completion metrics.

    python3 -m venv /tmp/generators && /tmp/generators/bin/pip install -r tests/generators/requirements.txt
    /tmp/generators/bin/python tests/generators/metrics.py

Writes engine/scene/tests/golden/metrics.json, which engine/scene/tests/metrics.rs compares with. The definitions:
SemanticKITTI's completion task (ignored voxels masked by their truth; completion IoU, precision and recall over
occupied against free; class IoU tp / (tp + fp + fn + 1e-15); the mean over all classes but free space, absent ones as
0), and Occ3D's mean, which drops classes that occur nowhere (nanmean). NaN is written as null.
"""

import json
import math
from pathlib import Path

import numpy as np

IGNORE = 255
EPSILON = 1e-15


def scores(pred, gt, classes, empty):
    """Works on masks and sets of voxels on purpose, without any confusion matrix."""
    kept = gt != IGNORE
    pred, gt = pred[kept], gt[kept]
    pred_occupied, gt_occupied = pred != empty, gt != empty
    both = np.sum(pred_occupied & gt_occupied, dtype=np.float64)
    either = np.sum(pred_occupied | gt_occupied, dtype=np.float64)
    per_class = np.full(classes, np.nan)
    with_epsilon = np.zeros(classes)
    for c in range(classes):
        tp = np.sum((pred == c) & (gt == c), dtype=np.float64)
        fp = np.sum((pred == c) & (gt != c), dtype=np.float64)
        fn = np.sum((pred != c) & (gt == c), dtype=np.float64)
        with_epsilon[c] = tp / (tp + fp + fn + EPSILON)
        if tp + fp + fn > 0:
            per_class[c] = with_epsilon[c]
    semantic = np.arange(classes) != empty
    per_class[empty] = np.nan
    present = per_class[~np.isnan(per_class)]
    return {
        "iou": both / either if either > 0 else math.nan,
        "precision": both / (np.sum(pred_occupied) + EPSILON),
        "recall": both / (np.sum(gt_occupied) + EPSILON),
        "miou_zero": float(np.mean(with_epsilon[semantic])),
        "miou_skip": float(np.mean(present)) if present.size else math.nan,
        "per_class": per_class.tolist(),
        "absent": [int(c) for c in np.flatnonzero(semantic & np.isnan(per_class))],
        "counted": int(kept.sum()),
        "ignored": int((~kept).sum()),
    }


def case(name, pred, gt, classes, empty):
    pred, gt = (np.asarray(a, dtype=np.uint8) for a in (pred, gt))
    return {
        "name": name,
        "classes": classes,
        "empty_id": empty,
        "pred": pred.tolist(),
        "gt": gt.tolist(),
        "expected": scores(pred, gt, classes, empty),
    }


def cases():
    rng = np.random.default_rng(20)
    voxels = 480

    def noisy(gt, classes, share):
        """A prediction that is wrong in `share` of the voxels; a class, never the ignored id."""
        pred = np.where(gt == IGNORE, rng.integers(0, classes, gt.size), gt)
        return np.where(rng.random(gt.size) < share, rng.integers(0, classes, gt.size), pred)

    def with_ignored(gt, share):
        return np.where(rng.random(gt.size) < share, IGNORE, gt)

    gt = rng.integers(0, 20, voxels)
    yield case("random, 20 classes", noisy(gt, 20, 0.4), gt, 20, 0)

    gt = with_ignored(rng.integers(0, 20, voxels), 0.3)
    yield case("a third ignored", noisy(gt, 20, 0.4), gt, 20, 0)

    gt = with_ignored(rng.choice([0, 1, 4, 9, 15], voxels, p=[0.8, 0.05, 0.05, 0.05, 0.05]), 0.1)
    yield case("classes absent from truth, some predicted", noisy(gt, 20, 0.02), gt, 20, 0)

    gt = rng.choice([0, 3], voxels, p=[0.9, 0.1])
    yield case("absent from truth and prediction", np.roll(gt, 1), gt, 20, 0)

    gt = with_ignored(rng.integers(0, 18, voxels), 0.2)
    yield case("free space is 17", noisy(gt, 18, 0.3), gt, 18, 17)

    gt = rng.choice([17, 0, 11, 16], voxels, p=[0.7, 0.1, 0.1, 0.1])
    yield case("free space is 17, classes absent", noisy(gt, 18, 0.005), gt, 18, 17)

    gt = rng.integers(0, 2, voxels)
    yield case("one class and free space", noisy(gt, 2, 0.25), gt, 2, 0)

    yield case("one class everywhere, right", np.full(voxels, 5), np.full(voxels, 5), 20, 0)
    yield case("one class everywhere, wrong class", np.full(voxels, 6), np.full(voxels, 5), 20, 0)
    yield case("occupied predicted as free", np.zeros(voxels), np.full(voxels, 5), 20, 0)
    yield case("free predicted as occupied", np.full(voxels, 5), np.zeros(voxels), 20, 0)
    yield case("nothing occupied anywhere", np.zeros(voxels), np.zeros(voxels), 20, 0)
    yield case("everything ignored", rng.integers(0, 20, voxels), np.full(voxels, IGNORE), 20, 0)
    yield case("no voxel", [], [], 20, 0)
    yield case("one voxel", [2], [2], 20, 0)


def nan_to_null(value):
    if isinstance(value, dict):
        return {key: nan_to_null(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [nan_to_null(entry) for entry in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def main():
    path = Path(__file__).resolve().parents[2] / "engine/scene/tests/golden/metrics.json"
    lines = [json.dumps(nan_to_null(c), separators=(",", ":"), allow_nan=False) for c in cases()]
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n")
    print(f"{path}: {len(lines)} cases")


if __name__ == "__main__":
    main()
