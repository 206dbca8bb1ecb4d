// scale[c] * passed + slope[c] * x + offset[c], where the gradient is passed if act(x * scale[c] + shift[c]) does: the
// gradient of a batch normalisation by its input.
//
// Bindings  0 x [batch, channels, length]   1 gradient, as x   2 vectors f32 [4, channels]: scale, shift, slope, offset
//           3 out, as x; may be x or the gradient
// Params    each_value   3 whether act is ReLU
// Dispatch  one workgroup for 4096 values
// Computed in f32, rounded once; deterministic.
{{ enable }}

@group(0) @binding(0) var<storage, read_write> x: array<{{ elem }}>;
@group(0) @binding(1) var<storage, read_write> gradient: array<{{ elem }}>;
@group(0) @binding(2) var<storage, read_write> vectors: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<{{ elem }}>;
//!include params
//!include each_value
//!include relu_stops

fn visit(i: u32, channel: u32) {
    let channels = param(1u);
    let value = f32(x[i]);
    let scale = vectors[channel];
    let stops = param(3u) == 1u && relu_stops(value * scale + vectors[channels + channel]);
    let passed = select(f32(gradient[i]), 0.0, stops);
    out[i] = {{ elem }}(scale * passed + (vectors[2u * channels + channel] * value + vectors[3u * channels + channel]));
}

@compute @workgroup_size({{ workgroup_size }})
fn main(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    each_value(group_index(workgroup_id), thread);
}
