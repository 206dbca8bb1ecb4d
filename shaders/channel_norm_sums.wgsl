// Parts of the sums of every channel over passed gradients, and over these times x: what the backward pass of a batch
// normalisation needs before it can begin. A gradient is passed where act(x * scale[c] + shift[c]) does.
//
// Bindings  0 x [batch, channels, length]   1 gradient, as x   2 vectors f32 [2, channels]: scale, shift
//           3 partials vec4 (channel_{rows, columns}): of gradient * x, of the gradient
// Params    channel_{rows, columns}   5 whether act is ReLU
// Dispatch  one workgroup for 256 / lanes parts of channels, or for a part of up to 256 columns
// Sums in f32, at most 64 values one after the other; deterministic.
{{ enable }}

@group(0) @binding(0) var<storage, read_write> x: array<{{ elem }}>;
@group(0) @binding(1) var<storage, read_write> gradient: array<{{ elem }}>;
@group(0) @binding(2) var<storage, read_write> vectors: array<f32>;
@group(0) @binding(3) var<storage, read_write> partials: array<vec4<f32>>;
//!include params
//!include partial_sums
//!include relu_stops
//!include channel_{{ layout }}

var<private> own_scale: f32;
var<private> own_shift: f32;
var<private> is_relu: bool;

fn enter(channel: u32) {
    own_scale = vectors[channel];
    own_shift = vectors[param(1u) + channel];
    is_relu = param(5u) == 1u;
}

fn visit(sums: vec4<f32>, i: u32, row: u32, along: u32) -> vec4<f32> {
    let value = f32(x[i]);
    let stops = is_relu && relu_stops(value * own_scale + own_shift);
    let passed = select(f32(gradient[i]), 0.0, stops);
    return sums + vec4(passed * value, passed, 0.0, 0.0);
}

@compute @workgroup_size({{ workgroup_size }})
fn main(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    reduce(group_index(workgroup_id), thread);
}
