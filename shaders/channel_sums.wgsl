// Parts of the sum of every channel of [batch, channels, length].
//
// Bindings  0 x [batch, channels, length]   1 partials vec4 (channel_{rows, columns}): the sum is the first
// Params    channel_{rows, columns}
// Dispatch  one workgroup for 256 / lanes parts of channels, or for a part of up to 256 columns
// Sums in f32, at most 64 values one after the other; deterministic.
{{ enable }}

@group(0) @binding(0) var<storage, read_write> x: array<{{ elem }}>;
@group(0) @binding(1) var<storage, read_write> partials: array<vec4<f32>>;
//!include params
//!include partial_sums
//!include channel_{{ layout }}

fn enter(channel: u32) {
}

fn visit(sums: vec4<f32>, i: u32, row: u32, along: u32) -> vec4<f32> {
    return sums + vec4(f32(x[i]), 0.0, 0.0, 0.0);
}

@compute @workgroup_size({{ workgroup_size }})
fn main(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    reduce(group_index(workgroup_id), thread);
}
