// Gradient of a normalisation by its input, and parts of those by gamma and beta.
//
// Bindings  0 x [batch, channels, length]   1 gradient, as x   2 statistics f32 [2, rows]: mean and inverse deviation of
//           each group of each sample   3 weights f32 [2, channels]: gamma, beta   4 sums f32 [2, rows]
//           (group_norm_sums)   5 out: gradient by x   6 partials vec4 (channel_{rows, columns}): by gamma, by beta
// Params    channel_{rows, columns}   5 groups   6 channels of a group   7 length of a channel   8 whether act is ReLU
// Dispatch  one workgroup for 256 / lanes parts of channels, or for a part of up to 256 columns
// Sums in f32, at most 64 values one after the other; deterministic.
{{ enable }}

@group(0) @binding(0) var<storage, read_write> x: array<{{ elem }}>;
@group(0) @binding(1) var<storage, read_write> gradient: array<{{ elem }}>;
@group(0) @binding(2) var<storage, read_write> statistics: array<f32>;
@group(0) @binding(3) var<storage, read_write> weights: array<f32>;
@group(0) @binding(4) var<storage, read_write> sums_of_rows: array<f32>;
@group(0) @binding(5) var<storage, read_write> out: array<{{ elem }}>;
@group(0) @binding(6) var<storage, read_write> partials: array<vec4<f32>>;
//!include params
//!include partial_sums
//!include relu_stops
//!include channel_{{ layout }}

var<private> gamma: f32;
var<private> beta: f32;
var<private> group_of_channel: u32;
var<private> per_value: f32;

fn enter(channel: u32) {
    gamma = weights[channel];
    beta = weights[param(1u) + channel];
    group_of_channel = channel / param(6u);
    per_value = 1.0 / f32(param(6u) * param(7u));
}

fn visit(sums: vec4<f32>, i: u32, sample: u32, along: u32) -> vec4<f32> {
    let groups = param(5u);
    let rows = param(0u) * groups;
    let row = sample * groups + group_of_channel;
    let inverse = statistics[rows + row];
    let normal = (f32(x[i]) - statistics[row]) * inverse;
    let stops = param(8u) == 1u && relu_stops(normal * gamma + beta);
    let passed = select(f32(gradient[i]), 0.0, stops);
    let mean_part = (sums_of_rows[rows + row] + normal * sums_of_rows[row]) * per_value;
    out[i] = {{ elem }}((passed * gamma - mean_part) * inverse);
    return sums + vec4(passed * normal, passed, 0.0, 0.0);
}

@compute @workgroup_size({{ workgroup_size }})
fn main(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    reduce(group_index(workgroup_id), thread);
}
