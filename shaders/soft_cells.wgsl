// Cell between voxel centres of every point, and points of every cell.
//
// Bindings  0 points f32 [n, 3], metres   1 offsets u32 [members + 1]   2 keys u32 [n]
//           3 counts u32 [members, nz + 1, nx + 1, ny + 1], zeros
// Params    0 n   1 members   2 nx   3 ny   4 nz   5 key of a point without cell   6..18 grid (voxel_cell)
// Dispatch  one thread a point
// Exact; deterministic: whole numbers add up to the same in any order.

@group(0) @binding(0) var<storage, read_write> points: array<u32>;
@group(0) @binding(1) var<storage, read_write> offsets: array<u32>;
@group(0) @binding(2) var<storage, read_write> keys: array<u32>;
@group(0) @binding(3) var<storage, read_write> counts: array<atomic<u32>>;
//!include params
//!include voxel_batch
//!include soft_cell

@compute @workgroup_size({{ workgroup_size }})
fn main(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let i = group_index(workgroup_id) * {{ workgroup_size }}u + thread;
    if i >= param(0u) {
        return;
    }
    let cell = soft_cell_of(vec3(points[3u * i], points[3u * i + 1u], points[3u * i + 2u]), 6u);
    var key = param(5u);
    if cell.inside {
        let grid = vec3(param(2u), param(3u), param(4u));
        key = soft_index(batch_of(i, param(1u)), vec3<u32>(cell.low + 1), grid);
        atomicAdd(&counts[key], 1u);
    }
    keys[i] = key;
}
