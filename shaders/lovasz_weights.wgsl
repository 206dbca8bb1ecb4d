// Gradient of the Lovász extension of one class's Jaccard loss, from the order of its errors.
//
// Bindings  0 places u32 [n]: the voxel at each place   1 before u32 [n + 1]: voxels of the class before each place
//           2 gradient f32 [batch, classes, voxels]: the rows of the class are written
// Params    0 valid: places that hold a voxel that is not ignored; these come first   1 voxels   2 classes   3 class
//           4 total: voxels of the class, at least 1   5 scale f32
// Dispatch  one thread a place below `valid`
// Accurate to some ulp, as no difference of nearly equal numbers is taken; deterministic.

@group(0) @binding(0) var<storage, read_write> places: array<u32>;
@group(0) @binding(1) var<storage, read_write> before: array<u32>;
@group(0) @binding(2) var<storage, read_write> gradient: array<f32>;
//!include params

@compute @workgroup_size({{ workgroup_size }})
fn main(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let k = group_index(workgroup_id) * {{ workgroup_size }}u + thread;
    if k >= param(0u) {
        return;
    }
    let voxels = param(1u);
    let hits = before[k];
    // Voxels in union and intersection of class and prediction, if all before this place are wrong.
    let together = f32(param(4u) + (k - hits));
    let overlap = f32(param(4u) - hits);
    var step = overlap / together / (together + 1.0);
    if before[k + 1u] > hits {
        step = -1.0 / together;
    }
    let i = places[k];
    gradient[(i / voxels * param(2u) + param(3u)) * voxels + i % voxels] = step * bitcast<f32>(param(5u));
}
