// act((x - mean) * inverse deviation * gamma[c] + beta[c]) with the statistics of the group of each value.
//
// Bindings  0 x [batch, channels, length]   1 statistics f32 [2, rows]: mean and 1 / sqrt(variance + epsilon) of each
//           group of each sample   2 weights f32 [2, channels]: gamma, beta   3 out, as x
// Params    each_value   3 values of a row   4 rows   5 whether act is ReLU
// Dispatch  one workgroup for 4096 values
// Computed in f32, rounded once; NaN passes ReLU; deterministic.
{{ enable }}

@group(0) @binding(0) var<storage, read_write> x: array<{{ elem }}>;
@group(0) @binding(1) var<storage, read_write> statistics: array<f32>;
@group(0) @binding(2) var<storage, read_write> weights: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<{{ elem }}>;
//!include params
//!include each_value
//!include relu_stops

fn visit(i: u32, channel: u32) {
    let row = i / param(3u);
    let normal = (f32(x[i]) - statistics[row]) * statistics[param(4u) + row];
    let value = normal * weights[channel] + weights[param(1u) + channel];
    out[i] = {{ elem }}(select(value, 0.0, param(5u) == 1u && relu_stops(value)));
}

@compute @workgroup_size({{ workgroup_size }})
fn main(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    each_value(group_index(workgroup_id), thread);
}
