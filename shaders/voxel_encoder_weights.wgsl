// Partial sums of the gradient of voxel_encoder by weights and biases.
//
// Bindings  0 features {{ elem }} [points, width]   1 winners u32 [voxels, channels], as voxel_encoder writes them
//           2 gradient {{ elem }} [voxels, channels]   3 partials f32 [groups, width + 1, channels], biases last
// Params    0 voxels   1 channels   2 width   3 points   4 voxels of a workgroup
// Dispatch  one workgroup for so many voxels
// A thread adds up one weight at a time over the voxels, in f32 and in order: deterministic.
{{ enable }}
@group(0) @binding(0) var<storage, read_write> features: array<{{ elem }}>;
@group(0) @binding(1) var<storage, read_write> winners: array<u32>;
@group(0) @binding(2) var<storage, read_write> gradient: array<{{ elem }}>;
@group(0) @binding(3) var<storage, read_write> partials: array<f32>;
//!include params

@compute @workgroup_size({{ workgroup_size }})
fn main(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let channels = param(1u);
    let width = param(2u);
    let group = group_index(workgroup_id);
    let values = (width + 1u) * channels;
    let begin = group * param(4u);
    let end = min(begin + param(4u), param(0u));
    for (var i = thread; i < values; i += {{ workgroup_size }}u) {
        let f = i / channels;
        let c = i % channels;
        var sum = 0.0;
        for (var voxel = begin; voxel < end; voxel++) {
            let point = winners[voxel * channels + c];
            if point < param(3u) {
                var value = 1.0;
                if f < width {
                    value = f32(features[point * width + f]);
                }
                sum += f32(gradient[voxel * channels + c]) * value;
            }
        }
        partials[group * values + i] = sum;
    }
}
