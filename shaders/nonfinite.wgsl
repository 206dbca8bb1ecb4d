// Counts the values that are not finite and those that are zero.
//
// Bindings  0 x f32 [n], as bits   1 counts u32 [places, 2]: not finite, zero; added to
// Params    0 n   1 place
// Dispatch  one workgroup for 4096 values
// By bits: a comparison such as x != x a compiler may take for false. Exact; whole numbers are added in any order:
// deterministic.

@group(0) @binding(0) var<storage, read_write> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> counts: array<atomic<u32>>;
//!include params

var<workgroup> sums: array<vec2<u32>, {{ workgroup_size }}>;

@compute @workgroup_size({{ workgroup_size }})
fn main(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let n = param(0u);
    let first = group_index(workgroup_id) * 16u * {{ workgroup_size }}u + thread;
    var own = vec2<u32>();
    for (var k = 0u; k < 16u; k++) {
        let i = first + k * {{ workgroup_size }}u;
        if i < n {
            let bits = x[i] & 0x7fffffffu;
            own += vec2(select(0u, 1u, bits >= 0x7f800000u), select(0u, 1u, bits == 0u));
        }
    }
    sums[thread] = own;
    for (var reach = {{ workgroup_size }}u / 2u; reach > 0u; reach >>= 1u) {
        workgroupBarrier();
        if thread < reach {
            own += sums[thread + reach];
            sums[thread] = own;
        }
    }
    if thread == 0u {
        let place = 2u * param(1u);
        if own.x > 0u {
            atomicAdd(&counts[place], own.x);
        }
        if own.y > 0u {
            atomicAdd(&counts[place + 1u], own.y);
        }
    }
}
