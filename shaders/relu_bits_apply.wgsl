// A gradient where its bit is set, else 0.
//
// Bindings  0 gradient [n]   1 bits u32 [ceil(n / 32)]   2 out [n]
// Params    0 n
// Dispatch  one workgroup for 4096 values
// Exact; deterministic.
{{ enable }}

@group(0) @binding(0) var<storage, read_write> gradient: array<{{ elem }}>;
@group(0) @binding(1) var<storage, read_write> bits: array<u32>;
@group(0) @binding(2) var<storage, read_write> out: array<{{ elem }}>;
//!include params

@compute @workgroup_size({{ workgroup_size }})
fn main(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let n = param(0u);
    for (var k = 0u; k < 16u; k++) {
        let i = (group_index(workgroup_id) * 16u + k) * {{ workgroup_size }}u + thread;
        if i < n {
            out[i] = select(0.0, gradient[i], (bits[i / 32u] >> (i % 32u) & 1u) == 1u);
        }
    }
}
