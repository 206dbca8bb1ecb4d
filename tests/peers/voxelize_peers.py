"""A million LiDAR-like points to voxels of 0.2 m, 256x256x32, on the CPU: Occam beside Open3D and spconv, in one go.

    apt-get install libusb-1.0-0
    pip install -r tests/peers/voxelize_requirements.txt
    python tests/peers/voxelize_peers.py

The points are those of engine/benches/voxelize.rs, which writes them to a file. Every peer runs in its own process: one
run that warms up, then the median of ten. Memory is what the process's resident set grows by at most in the first run
(Linux); Occam counts the bytes of its heap, of the kernels those of the device's pool.

What each gives differs, so only times of like work compare:
- Occam: count, mean of all points, points grouped by voxel, voxels in a fixed order.
- Open3D voxel_down_sample: mean of all points of a voxel; the grid starts half a voxel below the lowest point, so that
  the number of voxels differs. No grid bounds: it gets the points inside the grid only.
- spconv PointToVoxel: the first 5 points of each voxel, the others are dropped; voxels in order of their first point.
"""

import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).parents[2]
SIZE, LOW, HIGH = 0.2, [0.0, -25.6, -2.0], [51.2, 25.6, 4.4]


def inside(points):
    import numpy as np

    return points[np.all((points >= np.float32(LOW)) & (points < np.float32(HIGH)), axis=1)]


def open3d_legacy(points):
    import numpy as np
    import open3d

    cloud = open3d.geometry.PointCloud(open3d.utility.Vector3dVector(inside(points).astype(np.float64)))
    return lambda: len(cloud.voxel_down_sample(SIZE).points)


def open3d_tensor(points):
    import open3d

    cloud = open3d.t.geometry.PointCloud(open3d.core.Tensor(inside(points)))
    return lambda: cloud.voxel_down_sample(SIZE).point.positions.shape[0]


def spconv_first_5(points):
    from cumm import tensorview
    from spconv.utils import Point2VoxelCPU3d

    voxelizer = Point2VoxelCPU3d([SIZE] * 3, LOW + HIGH, 3, 200_000, 5)
    tensor = tensorview.from_numpy(points)
    return lambda: voxelizer.point_to_voxel(tensor)[0].shape[0]


PEERS = {"Open3D voxel_down_sample": open3d_legacy, "Open3D t.voxel_down_sample": open3d_tensor,
         "spconv PointToVoxel, 5 points": spconv_first_5}


def memory(field):
    status = pathlib.Path("/proc/self/status").read_text()
    return int(re.search(rf"^{field}:\s+(\d+) kB", status, re.M)[1]) * 1024


def peer(name, path):
    import numpy as np

    points = np.fromfile(path, dtype=np.float32).reshape(-1, 3)
    run = PEERS[name](points)
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # starts a new peak
    before = memory("VmRSS")
    run()
    peak = memory("VmHWM") - before
    times = []
    for _ in range(10):
        start = time.perf_counter()
        voxels = run()
        times.append(time.perf_counter() - start)
    print(f"{statistics.median(times)} {voxels} {peak}")


def row(name, seconds, voxels, bytes_):
    print(f"{name:52} {seconds * 1e3:8.1f} ms {1.0 / seconds:7.1f} M points/s {voxels:>8} voxels {bytes_:>12,} bytes")


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "points.bin")
        command = ["cargo", "bench", "--profile", "release", "-p", "occam-engine", "--bench", "voxelize"]
        environment = {**os.environ, "OCCAM_BENCH_POINTS": path, "RAYON_NUM_THREADS": "2", "OMP_NUM_THREADS": "2"}
        text = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True).stdout
        print(re.search(r"^.* points, .* inside, .* voxels$", text, re.M)[0])
        voxels = int(re.search(r"(\d+) voxels$", text, re.M)[1])
        unit = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "us": 1e-6}
        label = {"cpu": "Occam, CPU", "hash map, one thread": "std HashMap, one thread"}
        for name, value, scale in re.findall(r"^voxelize/(.*?)\s+time:\s+\[\S+ \S+ (\S+) (\S+) ", text, re.M | re.S):
            found = re.search(rf"^{name.split(',')[0]}: .*?(\d+) bytes", text, re.M)
            row(label.get(name, f"Occam, {name}"), float(value) * unit[scale], voxels, int(found[1]))
        print(re.search(r"^kernels: .*$", text, re.M)[0])
        for name in PEERS:
            out = subprocess.run([sys.executable, __file__, name, path], env=environment, capture_output=True, text=True)
            if out.returncode != 0:
                print(f"{name}: failed\n{out.stderr}")
                continue
            seconds, count, peak = out.stdout.split()[-3:]
            row(name, float(seconds), int(count), int(peak))


if __name__ == "__main__":
    peer(*sys.argv[1:]) if len(sys.argv) == 3 else main()
