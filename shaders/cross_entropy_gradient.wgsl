// Gradient of cross_entropy by the logits, written over them.
//
// Bindings  0 logits {{ elem }} [batch, classes, voxels], becomes their gradient   1 labels u32 [n]: `classes` or more
//           counts for nothing   2 class weights f32 [classes]   3 gradient of the loss f32 [n]
// Params    0 n = batch * voxels   1 voxels   2 classes   3 gamma, f32
// Dispatch  one thread a voxel
// f32 arithmetic, classes in ascending order: deterministic.
{{ enable }}
@group(0) @binding(0) var<storage, read_write> logits: array<{{ elem }}>;
@group(0) @binding(1) var<storage, read_write> labels: array<u32>;
@group(0) @binding(2) var<storage, read_write> class_weights: array<f32>;
@group(0) @binding(3) var<storage, read_write> gradient: array<f32>;
//!include params
//!include label_softmax
//!include label_loss

@compute @workgroup_size({{ workgroup_size }})
fn main(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let i = group_index(workgroup_id) * {{ workgroup_size }}u + thread;
    if i >= param(0u) {
        return;
    }
    let voxels = param(1u);
    let classes = param(2u);
    if labels[i] >= classes || class_weights[labels[i]] == 0.0 {
        let first = i / voxels * classes * voxels + i % voxels;
        for (var c = 0u; c < classes; c++) {
            logits[first + c * voxels] = {{ elem }}(0.0);
        }
        return;
    }
    let found = label_softmax(i);
    let gamma = bitcast<f32>(param(3u));
    var slope = class_weights[found.label] * gradient[i] / found.sum;
    if gamma != 0.0 {
        let missing = missing_of(found);
        slope *= pow(missing, gamma) * (1.0 + gamma / missing * (1.0 - missing) * surprise_of(found));
    }
    for (var c = 0u; c < classes; c++) {
        let place = found.first + c * voxels;
        let term = exp(f32(logits[place]) - found.largest);
        // The probabilities of the others stand for 1 - p: nothing cancels where p is nearly 1.
        logits[place] = {{ elem }}(slope * select(term, -found.others, c == found.label));
    }
}
