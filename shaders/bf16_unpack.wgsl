// bf16, two in a word, to f32.
//
// Bindings  0 words u32 [ceil(n / 2)]: the lower half of word i is value 2 i   1 x f32 [n], as bits
// Params    0 n
// Dispatch  one workgroup for 2048 words
// On bits: exact; deterministic.

@group(0) @binding(0) var<storage, read_write> words: array<u32>;
@group(0) @binding(1) var<storage, read_write> x: array<u32>;
//!include params

@compute @workgroup_size({{ workgroup_size }})
fn main(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let n = param(0u);
    let first = group_index(workgroup_id) * 8u * {{ workgroup_size }}u + thread;
    for (var k = 0u; k < 8u; k++) {
        let i = 2u * (first + k * {{ workgroup_size }}u);
        if i < n {
            let word = words[i / 2u];
            x[i] = word << 16u;
            if i + 1u < n {
                x[i + 1u] = word & 0xffff0000u;
            }
        }
    }
}
