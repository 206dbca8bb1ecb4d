// Voxel of every point, from the sorted points.
//
// Bindings  0 keys u32 [n], highest word of the sorted keys   1 order u32 [n], point of each sorted place
//           2 ranks u32 [n + 1], exclusive scan of heads   3 rows i32 [n]: voxel of each point, -1 for none
// Params    0 n   1 highest word of the key of a point without voxel
// Dispatch  one thread a point
// Exact; deterministic.

@group(0) @binding(0) var<storage, read_write> keys: array<u32>;
@group(0) @binding(1) var<storage, read_write> order: array<u32>;
@group(0) @binding(2) var<storage, read_write> ranks: array<u32>;
@group(0) @binding(3) var<storage, read_write> rows: array<i32>;
//!include params

@compute @workgroup_size({{ workgroup_size }})
fn main(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let i = group_index(workgroup_id) * {{ workgroup_size }}u + thread;
    if i >= param(0u) {
        return;
    }
    rows[order[i]] = select(i32(ranks[i + 1u]) - 1i, -1i, keys[i] == param(1u));
}
