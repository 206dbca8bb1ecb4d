"""One small file of each occupancy benchmark, and the grid it stands for, written with numpy alone.

    python3 -m venv /tmp/generators && /tmp/generators/bin/pip install -r tests/generators/requirements.txt
    /tmp/generators/bin/python tests/generators/grids.py

Writes engine/scene/tests/golden/grids/, which engine/scene/tests/benchmarks.rs reads. Each set starts from a random grid
in the order x, y, z; the file is written from it by the rule of the set, as its authors' loaders read it:

- Occ3D-nuScenes: labels.npz, semantics and two masks, free 17
- OpenOcc v2.1: labels.npz, semantics and flow, free 16
- OccNet v1: rows of (z * 200 + y) * 200 + x and class; flow for every row, or for those of things only; invalid indices
- SurroundOcc: rows x, y, z, label; 0 is noise
- OpenOccupancy: rows z, y, x, label, or with three velocities before the label; 0 is noise
- CarlaSC: u32 tags of the simulator and f32 counts; a voxel without counts is unknown
- SemanticKITTI voxels: u16 ids, and one bit a voxel with the most significant bit first

expected.npz of each set holds what a reader has to find: `index` (x slowest, z fastest) and `label` of all voxels that
are not free, `flow_index` and `flow` of those that move, and the indices of masks. The real grids are used where files
stay small; CarlaSC and SemanticKITTI, which have no packing, get small grids.
"""

import json
import shutil
from pathlib import Path

import numpy as np

OUT = Path(__file__).parents[2] / "engine/scene/tests/golden/grids"
IGNORE = 255


def random_grid(rng, counts, ids, free, voxels):
    """Few voxels, anywhere, corners included."""
    grid = np.full(counts, free, dtype=np.int64)
    places = np.stack([rng.integers(0, n, voxels) for n in counts], axis=1)
    grid[tuple(places.T)] = rng.choice(ids, voxels)
    grid[0, 0, 0], grid[-1, -1, -1] = ids[0], ids[-1]
    return grid


def expect(folder, grid, free, flow=None, **masks):
    index = np.flatnonzero(grid.reshape(-1) != free)
    arrays = {"counts": np.array(grid.shape), "index": index.astype(np.int32)}
    arrays["label"] = grid.reshape(-1)[index].astype(np.uint8)
    if flow is not None:
        rows = flow.reshape(-1, 2).astype(np.float32)
        moving = np.flatnonzero(rows.any(axis=1))
        arrays["flow_index"], arrays["flow"] = moving.astype(np.int32), rows[moving]
    for name, mask in masks.items():
        arrays[name] = np.flatnonzero(mask.reshape(-1)).astype(np.int32)
    np.savez_compressed(folder / "expected.npz", **arrays)


def folder(name):
    path = OUT / name
    path.mkdir(parents=True)
    return path


def velocities(rng, grid, things):
    """Quarter metres a second: exact in every float type."""
    flow = rng.integers(-40, 40, (*grid.shape, 2)).astype(np.float32) / 4
    flow[~np.isin(grid, things)] = 0
    return flow


def occ3d(rng):
    at = folder("occ3d-nuscenes")
    grid = random_grid(rng, (200, 200, 16), np.arange(17), 17, 250)
    lidar, camera = (random_grid(rng, grid.shape, np.array([1]), 0, 200).astype(np.uint8) for _ in range(2))
    np.savez_compressed(at / "labels.npz", semantics=grid.astype(np.uint8), mask_lidar=lidar, mask_camera=camera)
    expect(at, grid, 17, mask_lidar=lidar, mask_camera=camera)


def openocc(rng):
    at = folder("openocc")
    grid = random_grid(rng, (200, 200, 16), np.arange(16), 16, 250)
    flow = velocities(rng, grid, np.arange(8))
    np.savez_compressed(at / "labels.npz", semantics=grid.astype(np.uint8), flow=flow)
    expect(at, grid, 16, flow)


def occnet(rng, name, things_only):
    at = folder(name)
    grid = random_grid(rng, (200, 200, 16), np.arange(16), 16, 250)
    flow = velocities(rng, grid, np.arange(8))
    x, y, z = np.nonzero(grid != 16)
    shuffled = rng.permutation(len(x))
    x, y, z = x[shuffled], y[shuffled], z[shuffled]
    rows = np.stack([(z * 200 + y) * 200 + x, grid[x, y, z]], axis=1)
    np.save(at / "000_occ.npy", rows)
    own = flow[x, y, z]
    np.save(at / "000_flow.npy", own[grid[x, y, z] < 10] if things_only else own)
    # Free voxels and occupied ones; both end up unknown.
    out = random_grid(rng, grid.shape, np.array([1]), 0, 50).astype(bool)
    out[x[:20], y[:20], z[:20]] = True
    out[0, 0, 0] = out[-1, -1, -1] = False
    ox, oy, oz = np.nonzero(out)
    np.save(at / "000_occ_invalid.npy", (oz * 200 + oy) * 200 + ox)
    grid[out] = IGNORE
    expect(at, grid, 16, flow)


def surroundocc(rng):
    at = folder("surroundocc")
    noise = 99
    grid = random_grid(rng, (200, 200, 16), np.array([noise, *range(1, 17)]), 0, 250)
    x, y, z = np.nonzero(grid)
    labels = np.where(grid[x, y, z] == noise, 0, grid[x, y, z])
    rows = np.stack([x, y, z, labels], axis=1)[rng.permutation(len(x))]
    # A voxel stands twice: the later row counts.
    rows = np.concatenate([[[*rows[0, :3], rows[0, 3] % 16 + 1]], rows])
    np.save(at / "voxels.npy", rows)
    # The same as other programs save it: floats, first axis fastest.
    np.save(at / "voxels_f32_fortran.npy", np.asfortranarray(rows.astype(np.float32)))
    expect(at, np.where(grid == noise, IGNORE, grid), 0)


def openoccupancy(rng, name, velocity):
    at = folder(name)
    noise = 99
    grid = random_grid(rng, (512, 512, 40), np.array([noise, *range(1, 17)]), 0, 250)
    flow = velocities(rng, grid, np.arange(1, 11)) if velocity else None
    x, y, z = np.nonzero(grid)
    labels = np.where(grid[x, y, z] == noise, 0, grid[x, y, z])
    columns = [z, y, x, labels]
    if velocity:
        columns[3:3] = [flow[x, y, z, 0], flow[x, y, z, 1], np.zeros(len(x))]
    rows = np.stack(columns, axis=1)[rng.permutation(len(x))]
    (at / "occupancy").mkdir()
    np.save(at / "occupancy" / "token.npy", rows.astype(np.float64 if velocity else np.uint16))
    expect(at, np.where(grid == noise, IGNORE, grid), 0, flow)


# Tag of the simulator to class: free, building, barrier, other, pedestrian, pole, road, ground, sidewalk, vegetation,
# vehicle.
CARLA = np.array([0, 1, 2, 3, 4, 5, 6, 6, 8, 9, 10, 2, 5, 3, 7, 3, 3, 2, 5, 3, 3, 3, 7])


def carla_sc(rng):
    at = folder("carla-sc")
    evaluation = at / "evaluation"
    evaluation.mkdir()
    tags = rng.integers(0, 23, (12, 10, 8))
    counts = rng.integers(0, 4, tags.shape).astype(np.float32)
    tags.astype(np.uint32).tofile(evaluation / "000000.label")
    counts.tofile(evaluation / "000000.bin")
    params = {
        "grid_size": [12.0, 10.0, 8.0],
        "min_bound": [-3.0, -2.5, -2.0],
        "max_bound": [3.0, 2.5, 1.0],
        "num_channels": 25,
        "coordinates": "cartesian",
    }
    (evaluation / "params.json").write_text(json.dumps(params) + "\n")
    expect(at, np.where(counts == 0, IGNORE, CARLA[tags]), 0)


# Original id to class of the completion task.
KITTI = {0: 0, 1: IGNORE, 10: 1, 11: 2, 18: 4, 30: 6, 40: 9, 50: 13, 52: IGNORE, 70: 15, 80: 18, 252: 1, 259: 5}


def semantic_kitti(rng):
    at = folder("semantic-kitti")
    ids = rng.choice(list(KITTI), (9, 7, 5))
    ids.astype(np.uint16).tofile(at / "000000.label")
    grid = np.vectorize(KITTI.get)(ids)
    masks = {}
    for ending in ["bin", "invalid", "occluded"]:
        masks[ending] = rng.random(grid.shape) < 0.3
        # numpy puts the first voxel into the most significant bit.
        np.packbits(masks[ending].reshape(-1)).tofile(at / f"000000.{ending}")
    expect(at, grid, 0, **masks)


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    rng = np.random.default_rng(20)
    occ3d(rng)
    openocc(rng)
    occnet(rng, "occnet", things_only=False)
    occnet(rng, "occnet-things", things_only=True)
    surroundocc(rng)
    openoccupancy(rng, "openoccupancy", velocity=False)
    openoccupancy(rng, "openoccupancy-flow", velocity=True)
    carla_sc(rng)
    semantic_kitti(rng)


if __name__ == "__main__":
    main()
