// Parts of the two sums of each group that the gradient of a normalisation takes: with `slope` the gradient past
// activation and gamma, and `normal` the normalised value, the sums of slope * normal and of slope.
//
// Bindings  0 x [rows, group channels, length]   1 gradient, as x   2 statistics f32 [2, rows]: mean and inverse deviation
//           3 weights f32 [2, channels]: gamma, beta   4 partials vec4 (channel_{rows, columns})
// Params    channel_{rows, columns} of [1, rows, values of a row]   5 groups   6 channels of a group   7 length of a
//           channel   8 whether act is ReLU
// Dispatch  one workgroup for 256 / lanes parts of rows
// Sums in f32, at most 64 values one after the other; deterministic.
{{ enable }}

@group(0) @binding(0) var<storage, read_write> x: array<{{ elem }}>;
@group(0) @binding(1) var<storage, read_write> gradient: array<{{ elem }}>;
@group(0) @binding(2) var<storage, read_write> statistics: array<f32>;
@group(0) @binding(3) var<storage, read_write> weights: array<f32>;
@group(0) @binding(4) var<storage, read_write> partials: array<vec4<f32>>;
//!include params
//!include partial_sums
//!include relu_stops
//!include channel_{{ layout }}

var<private> mean: f32;
var<private> inverse: f32;
var<private> first_channel: u32;

fn enter(row: u32) {
    mean = statistics[row];
    inverse = statistics[param(1u) + row];
    first_channel = row % param(5u) * param(6u);
}

fn visit(sums: vec4<f32>, i: u32, row: u32, along: u32) -> vec4<f32> {
    let channel = first_channel + along / param(7u);
    let normal = (f32(x[i]) - mean) * inverse;
    let gamma = weights[channel];
    let stops = param(8u) == 1u && relu_stops(normal * gamma + weights[param(5u) * param(6u) + channel]);
    let slope = select(f32(gradient[i]) * gamma, 0.0, stops);
    return sums + vec4(slope * normal, slope, 0.0, 0.0);
}

@compute @workgroup_size({{ workgroup_size }})
fn main(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    reduce(group_index(workgroup_id), thread);
}
