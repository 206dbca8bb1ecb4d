// Sorted points relative to the centres of their voxels: sums of these stay small, so that f32 loses little.
//
// Bindings  0 points f32 [n, 3], metres   1 order u32 [n], point of each sorted place
//           2 ranks u32 [n + 1], exclusive scan of heads   3 centres f32 [voxels, 3], metres
//           4 centred f32 [n, 3], metres; places without a voxel hold nothing of use
// Params    0 n
// Dispatch  one thread a sorted place
// One rounding; deterministic.

@group(0) @binding(0) var<storage, read_write> points: array<f32>;
@group(0) @binding(1) var<storage, read_write> order: array<u32>;
@group(0) @binding(2) var<storage, read_write> ranks: array<u32>;
@group(0) @binding(3) var<storage, read_write> centres: array<f32>;
@group(0) @binding(4) var<storage, read_write> centred: array<f32>;
//!include params

@compute @workgroup_size({{ workgroup_size }})
fn main(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let i = group_index(workgroup_id) * {{ workgroup_size }}u + thread;
    if i >= param(0u) {
        return;
    }
    let row = ranks[i + 1u] - 1u;
    for (var axis = 0u; axis < 3u; axis++) {
        centred[3u * i + axis] = points[3u * order[i] + axis] - centres[3u * row + axis];
    }
}
