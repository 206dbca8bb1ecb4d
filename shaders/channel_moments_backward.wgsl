// Gradient by x of mean and variance of every channel: (by mean + 2 by variance (x - mean)) / values of a channel.
//
// Bindings  0 x [batch, channels, length]   1 moments f32 [2, channels]   2 gradient f32 [2, channels]   3 out, as x
// Params    each_value   3 one over the values of a channel, f32
// Dispatch  one workgroup for 4096 values
// Computed in f32, rounded once; deterministic.
{{ enable }}

@group(0) @binding(0) var<storage, read_write> x: array<{{ elem }}>;
@group(0) @binding(1) var<storage, read_write> moments: array<f32>;
@group(0) @binding(2) var<storage, read_write> gradient: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<{{ elem }}>;
//!include params
//!include each_value

fn visit(i: u32, channel: u32) {
    let distance = f32(x[i]) - moments[channel];
    let by_variance = gradient[param(1u) + channel];
    out[i] = {{ elem }}((gradient[channel] + 2.0 * by_variance * distance) * bitcast<f32>(param(3u)));
}

@compute @workgroup_size({{ workgroup_size }})
fn main(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    each_value(group_index(workgroup_id), thread);
}
