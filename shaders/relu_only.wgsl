// ReLU.
//
// Bindings  0 x [n]   1 y [n]
// Params    0 n
// Dispatch  one workgroup for 4096 values
// Exact; NaN passes; deterministic.
{{ enable }}

@group(0) @binding(0) var<storage, read_write> x: array<{{ elem }}>;
@group(0) @binding(1) var<storage, read_write> y: array<{{ elem }}>;
//!include params
//!include relu_stops

@compute @workgroup_size({{ workgroup_size }})
fn main(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let n = param(0u);
    let first = group_index(workgroup_id) * 16u * {{ workgroup_size }}u + thread;
    for (var k = 0u; k < 16u; k++) {
        let i = first + k * {{ workgroup_size }}u;
        if i < n {
            let value = x[i];
            y[i] = select(value, 0.0, relu_stops(f32(value)));
        }
    }
}
