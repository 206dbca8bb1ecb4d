// Sum of the partial sums that the parts of k left, with what follows a product: act(sum + bias + residual).
//
// Bindings  0 sums f32 [batch, parts, m, n]   1 bias f32 [n]   2 residual [batch, m, n]   3 y [batch, m, n]
//           An absent bias or residual binds any tensor.
// Params    0 values of y   1 m n   2 parts   3 n   4 flags: 1 bias, 2 residual, 4 ReLU
// Dispatch  one thread a value
// Parts are added in ascending order, in f32: deterministic. One rounding to f16.
{{ enable }}
@group(0) @binding(0) var<storage, read_write> sums: array<f32>;
@group(0) @binding(1) var<storage, read_write> bias: array<f32>;
@group(0) @binding(2) var<storage, read_write> residual: array<{{ elem }}>;
@group(0) @binding(3) var<storage, read_write> y: array<{{ elem }}>;
//!include params
//!include relu_stops

@compute @workgroup_size({{ workgroup_size }})
fn main(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let index = group_index(workgroup_id) * {{ workgroup_size }}u + thread;
    if index >= param(0u) {
        return;
    }
    let side = param(1u);
    let parts = param(2u);
    let flags = param(4u);
    var place = index / side * parts * side + index % side;
    var value = 0.0;
    for (var part = 0u; part < parts; part++) {
        value += sums[place];
        place += side;
    }
    if (flags & 1u) != 0u {
        value += bias[index % param(3u)];
    }
    if (flags & 2u) != 0u {
        value += f32(residual[index]);
    }
    if (flags & 4u) != 0u && relu_stops(value) {
        value = 0.0;
    }
    y[index] = {{ elem }}(value);
}
