// Class-weighted cross-entropy of every voxel, w (1 - p)^gamma (-log p) with p the softmax of its label.
//
// Bindings  0 logits {{ elem }} [batch, classes, voxels]   1 labels u32 [n]: `classes` or more counts for nothing
//           2 class weights f32 [classes]   3 loss f32 [n]
// Params    0 n = batch * voxels   1 voxels   2 classes   3 gamma, f32
// Dispatch  one thread a voxel
// f32 arithmetic, classes in ascending order: deterministic.
{{ enable }}
@group(0) @binding(0) var<storage, read_write> logits: array<{{ elem }}>;
@group(0) @binding(1) var<storage, read_write> labels: array<u32>;
@group(0) @binding(2) var<storage, read_write> class_weights: array<f32>;
@group(0) @binding(3) var<storage, read_write> loss: array<f32>;
//!include params
//!include label_softmax
//!include label_loss

@compute @workgroup_size({{ workgroup_size }})
fn main(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let i = group_index(workgroup_id) * {{ workgroup_size }}u + thread;
    if i >= param(0u) {
        return;
    }
    var value = 0.0;
    if labels[i] < param(2u) && class_weights[labels[i]] != 0.0 {
        let found = label_softmax(i);
        let gamma = bitcast<f32>(param(3u));
        value = class_weights[found.label] * surprise_of(found);
        if gamma != 0.0 {
            value *= pow(missing_of(found), gamma);
        }
    }
    loss[i] = value;
}
