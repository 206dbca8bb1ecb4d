// f32 to bf16, two in a word.
//
// Bindings  0 x f32 [n], as bits   1 words u32 [ceil(n / 2)]: the lower half of word i is value 2 i
// Params    0 n
// Dispatch  one workgroup for 2048 words
// Rounds to nearest, ties to even; NaN stays NaN. On bits, so that nothing is flushed to 0: exact; deterministic.

@group(0) @binding(0) var<storage, read_write> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> words: array<u32>;
//!include params

fn rounded(bits: u32) -> u32 {
    let is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
    return select((bits + 0x7fffu + (bits >> 16u & 1u)) >> 16u, bits >> 16u | 0x40u, is_nan);
}

@compute @workgroup_size({{ workgroup_size }})
fn main(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let n = param(0u);
    let first = group_index(workgroup_id) * 8u * {{ workgroup_size }}u + thread;
    for (var k = 0u; k < 8u; k++) {
        let i = 2u * (first + k * {{ workgroup_size }}u);
        if i < n {
            var upper = 0u;
            if i + 1u < n {
                upper = rounded(x[i + 1u]);
            }
            words[i / 2u] = rounded(x[i]) | upper << 16u;
        }
    }
}
