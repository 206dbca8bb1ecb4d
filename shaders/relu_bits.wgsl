// One bit a value: 1 where ReLU passes it.
//
// Bindings  0 y [n]   1 bits u32 [ceil(n / 32)]: bit i % 32 of word i / 32 is that of y[i]
// Params    0 n
// Dispatch  one workgroup for 8192 values
// Exact; NaN passes; deterministic.
{{ enable }}

@group(0) @binding(0) var<storage, read_write> y: array<{{ elem }}>;
@group(0) @binding(1) var<storage, read_write> bits: array<u32>;
//!include params
//!include bit_words
//!include relu_stops

@compute @workgroup_size({{ workgroup_size }})
fn main(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let n = param(0u);
    let group = group_index(workgroup_id);
    var own = 0u;
    for (var k = 0u; k < 32u; k++) {
        let i = (group * 32u + k) * {{ workgroup_size }}u + thread;
        if i < n {
            own |= select(1u, 0u, relu_stops(f32(y[i]))) << k;
        }
    }
    let word = group * {{ workgroup_size }}u + thread;
    let packed = bit_word(thread, own);
    if word * 32u < n {
        bits[word] = packed;
    }
}
