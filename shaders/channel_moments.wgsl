// Parts of mean and variance of every channel of [batch, channels, length].
//
// Bindings  0 x [batch, channels, length]   1 partials vec4 (channel_{rows, columns}): count, mean, sum of squared
//           distances from the mean
// Params    channel_{rows, columns}
// Dispatch  one workgroup for 256 / lanes parts of channels, or for a part of up to 256 columns
// f32, at most 64 values one after the other, as distances from the first of them; deterministic.
{{ enable }}

@group(0) @binding(0) var<storage, read_write> x: array<{{ elem }}>;
@group(0) @binding(1) var<storage, read_write> partials: array<vec4<f32>>;
//!include params
//!include partial_moments
//!include channel_{{ layout }}

fn enter(channel: u32) {
}

fn visit(sums: vec4<f32>, i: u32, row: u32, along: u32) -> vec4<f32> {
    let value = f32(x[i]);
    let first = select(sums.w, value, sums.x == 0.0);
    let distance = value - first;
    return vec4(sums.x + 1.0, sums.y + distance, sums.z + distance * distance, first);
}

@compute @workgroup_size({{ workgroup_size }})
fn main(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    reduce(group_index(workgroup_id), thread);
}
