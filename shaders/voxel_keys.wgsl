// One word of the voxel key of every point.
//
// Bindings  0 points f32 [n, 3], metres   1 offsets u32 [members + 1]   2 keys u32 [n]
// Params    0 n   1 members   2 key of a point without voxel   3..11 layout (voxel_key)   11..23 grid (voxel_cell)
// Dispatch  one thread a point
// Exact, the bits of the CPU twin; deterministic.

@group(0) @binding(0) var<storage, read_write> points: array<u32>;
@group(0) @binding(1) var<storage, read_write> offsets: array<u32>;
@group(0) @binding(2) var<storage, read_write> keys: array<u32>;
//!include params
//!include voxel_batch
//!include voxel_cell
//!include voxel_key

@compute @workgroup_size({{ workgroup_size }})
fn main(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let i = group_index(workgroup_id) * {{ workgroup_size }}u + thread;
    if i >= param(0u) {
        return;
    }
    let cell = cell_of(vec3(points[3u * i], points[3u * i + 1u], points[3u * i + 2u]), 11u);
    var key = param(2u);
    if cell.inside {
        key = key_word(batch_of(i, param(1u)), cell.voxel, param(3u), 3u);
    }
    keys[i] = key;
}
