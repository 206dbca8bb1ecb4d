// act(x * scale[c] + shift[c] + residual).
//
// Bindings  0 x [batch, channels, length]   1 scale f32 [channels]   2 shift f32 [channels]   3 residual, as x
//           4 out, as x
// Params    each_value   3 whether act is ReLU   4 whether there is a residual
// Dispatch  one workgroup for 4096 values
// Computed in f32, rounded once; NaN passes ReLU; deterministic.
{{ enable }}

@group(0) @binding(0) var<storage, read_write> x: array<{{ elem }}>;
@group(0) @binding(1) var<storage, read_write> scale: array<f32>;
@group(0) @binding(2) var<storage, read_write> shift: array<f32>;
@group(0) @binding(3) var<storage, read_write> residual: array<{{ elem }}>;
@group(0) @binding(4) var<storage, read_write> out: array<{{ elem }}>;
//!include params
//!include each_value
//!include relu_stops

fn visit(i: u32, channel: u32) {
    var value = f32(x[i]) * scale[channel] + shift[channel];
    if param(4u) == 1u {
        value += f32(residual[i]);
    }
    out[i] = {{ elem }}(select(value, 0.0, param(3u) == 1u && relu_stops(value)));
}

@compute @workgroup_size({{ workgroup_size }})
fn main(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    each_value(group_index(workgroup_id), thread);
}
