// Coordinates, number of points and centre of every voxel.
//
// Bindings  0 points f32 [n, 3], metres   1 offsets u32 [members + 1]   2 order u32 [n], point of each sorted place
//           3 starts u32 [voxels + 1]   4 coords i32 [voxels, 4]: batch, x, y, z   5 counts i32 [voxels]
//           6 centres f32 [voxels, 3], metres
// Params    0 voxels   1 members   2..14 grid (voxel_cell)
// Dispatch  one thread a voxel
// Coordinates and counts are exact, centres within 2 ulp; deterministic.

@group(0) @binding(0) var<storage, read_write> points: array<u32>;
@group(0) @binding(1) var<storage, read_write> offsets: array<u32>;
@group(0) @binding(2) var<storage, read_write> order: array<u32>;
@group(0) @binding(3) var<storage, read_write> starts: array<u32>;
@group(0) @binding(4) var<storage, read_write> coords: array<i32>;
@group(0) @binding(5) var<storage, read_write> counts: array<i32>;
@group(0) @binding(6) var<storage, read_write> centres: array<f32>;
//!include params
//!include voxel_batch
//!include voxel_cell

@compute @workgroup_size({{ workgroup_size }})
fn main(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let row = group_index(workgroup_id) * {{ workgroup_size }}u + thread;
    if row >= param(0u) {
        return;
    }
    let i = order[starts[row]];
    let voxel = cell_of(vec3(points[3u * i], points[3u * i + 1u], points[3u * i + 2u]), 2u).voxel;
    counts[row] = i32(starts[row + 1u] - starts[row]);
    coords[4u * row] = i32(batch_of(i, param(1u)));
    for (var axis = 0u; axis < 3u; axis++) {
        coords[4u * row + 1u + axis] = i32(voxel[axis]);
        let origin = bitcast<f32>(param(2u + axis));
        let size = bitcast<f32>(param(11u + axis));
        centres[3u * row + axis] = origin + (f32(voxel[axis]) + 0.5) * size;
    }
}
