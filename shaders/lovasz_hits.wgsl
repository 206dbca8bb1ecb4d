// Whether the voxel at each sorted place is of one class.
//
// Bindings  0 places u32 [n]: the voxel at each place   1 labels u32 [n]   2 hits u32 [n]: 0 or 1
// Params    0 n   1 class
// Dispatch  one thread a place
// Exact; deterministic.

@group(0) @binding(0) var<storage, read_write> places: array<u32>;
@group(0) @binding(1) var<storage, read_write> labels: array<u32>;
@group(0) @binding(2) var<storage, read_write> hits: array<u32>;
//!include params

@compute @workgroup_size({{ workgroup_size }})
fn main(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let i = group_index(workgroup_id) * {{ workgroup_size }}u + thread;
    if i < param(0u) {
        hits[i] = select(0u, 1u, labels[places[i]] == param(1u));
    }
}
