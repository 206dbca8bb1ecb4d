// Sum of the trilinear weights of the points around every voxel centre.
//
// Bindings  0 points f32 [n, 3], metres   1 order u32 [n]: points sorted by cell
//           2 starts u32 [cells + 1]: places of a cell's points in `order`   3 sums f32 [members, nz, nx, ny]
// Params    0 voxels of all members   1 nx   2 ny   3 nz   4 points of each cell to leave out, done by earlier launches
//           5 most points of a cell to take; the first launch writes every voxel, later ones add   6..18 grid (voxel_cell)
// Dispatch  one thread a voxel
// f32 in a fixed order, cell after cell, points in their own order: deterministic. A weight has 3 roundings, of a sum of
// k weights each adds one.

@group(0) @binding(0) var<storage, read_write> points: array<f32>;
@group(0) @binding(1) var<storage, read_write> order: array<u32>;
@group(0) @binding(2) var<storage, read_write> starts: array<u32>;
@group(0) @binding(3) var<storage, read_write> sums: array<f32>;
//!include params
//!include soft_cell

@compute @workgroup_size({{ workgroup_size }})
fn main(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let index = group_index(workgroup_id) * {{ workgroup_size }}u + thread;
    if index >= param(0u) {
        return;
    }
    let counts = vec3(param(1u), param(2u), param(3u));
    let plane = index / (counts.x * counts.y);
    let voxel = vec3(index / counts.y % counts.x, index % counts.y, plane % counts.z);
    let member = plane / counts.z;
    var sum = 0.0;
    for (var corner = 0u; corner < 8u; corner++) {
        // 1 where the voxel is at the lower end of the cell.
        let is_low = vec3((corner >> 1u) & 1u, corner & 1u, corner >> 2u);
        let cell = soft_index(member, voxel + is_low, counts);
        let low = vec3<i32>(voxel + is_low) - 1;
        let begin = starts[cell];
        let end = starts[cell + 1u];
        let first = begin + min(param(4u), end - begin);
        let last = first + min(param(5u), end - first);
        for (var row = first; row < last; row++) {
            let point = 3u * order[row];
            var weight = 1.0;
            for (var axis = 0u; axis < 3u; axis++) {
                let share = soft_share(soft_place(points[point + axis], axis, 6u), low[axis]);
                weight *= select(share, 1.0 - share, is_low[axis] == 1u);
            }
            sum += weight;
        }
    }
    if param(4u) > 0u {
        sum += sums[index];
    }
    sums[index] = sum;
}
