// Class-weighted cross-entropy of every voxel from its features: w (1 - p)^gamma (-log p) with p the softmax of its label and
// the logits a product of weights and features that is never stored.
//
// Bindings  0 x {{ elem }} [batch, channels, voxels]   1 labels u32 [n]: `classes` or more counts for nothing
//           2 head f32 [classes, channels + 2]   3 loss f32 [n]
// Params    head_logits
// Dispatch  one thread a voxel
// f32 arithmetic, channels and classes in ascending order, {{ quads }} times four classes at a time: deterministic.
{{ enable }}
@group(0) @binding(0) var<storage, read_write> x: array<{{ elem }}>;
@group(0) @binding(1) var<storage, read_write> labels: array<u32>;
@group(0) @binding(2) var<storage, read_write> head: array<f32>;
@group(0) @binding(3) var<storage, read_write> loss: array<f32>;
//!include params
//!include head_logits
//!include label_loss

@compute @workgroup_size({{ workgroup_size }})
fn main(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let voxel = group_index(workgroup_id) * {{ workgroup_size }}u + thread;
    let n = param(0u);
    let i = min(voxel, n - 1u);
    let classes = param(2u);
    let channels = param(3u);
    let label = labels[i];
    let class_weight = head[min(label, classes - 1u) * (channels + 2u) + channels + 1u];
    let is_counted = voxel < n && label < classes && class_weight != 0.0;
    let place = i / param(1u) * channels * param(1u) + i % param(1u);
    begin_softmax();
    for (var first = 0u; first < classes; first += PASS_CLASSES) {
        take_logits(first, place, is_counted, thread);
        add_logits(first, label);
    }
    if voxel >= n {
        return;
    }
    var value = 0.0;
    if is_counted {
        let found = finish_softmax();
        let gamma = bitcast<f32>(param(4u));
        value = class_weight * surprise_of(found);
        if gamma != 0.0 {
            value *= pow(missing_of(found), gamma);
        }
    }
    loss[i] = value;
}
