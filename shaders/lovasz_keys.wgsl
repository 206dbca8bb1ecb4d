// Sort keys of the voxels by their error for one class, the largest error first.
//
// Bindings  0 probabilities f32 [batch, classes, voxels]   1 labels u32 [n]: a class, or `classes` where ignored
//           2 keys u32 [n], 24 bits   3 places u32 [n]: 0, 1, ...
// Params    0 n = batch * voxels   1 voxels   2 classes   3 class
// Dispatch  one thread a voxel
// Errors are told apart to 2^-24; deterministic.

@group(0) @binding(0) var<storage, read_write> probabilities: array<f32>;
@group(0) @binding(1) var<storage, read_write> labels: array<u32>;
@group(0) @binding(2) var<storage, read_write> keys: array<u32>;
@group(0) @binding(3) var<storage, read_write> places: array<u32>;
//!include params

// Ignored voxels come last.
const IGNORED: u32 = 0xffffffu;

@compute @workgroup_size({{ workgroup_size }})
fn main(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let i = group_index(workgroup_id) * {{ workgroup_size }}u + thread;
    if i >= param(0u) {
        return;
    }
    let voxels = param(1u);
    let classes = param(2u);
    let this_class = param(3u);
    let p = probabilities[(i / voxels * classes + this_class) * voxels + i % voxels];
    // One minus the error.
    let right = clamp(select(1.0 - p, p, labels[i] == this_class), 0.0, 1.0);
    let key = min(u32(right * f32(IGNORED - 1u)), IGNORED - 1u);
    keys[i] = select(key, IGNORED, labels[i] >= classes);
    places[i] = i;
}
