// First half of the exclusive scan: the sum of every block of 1024 values.
//
// Bindings  0 values u32 [n]   1 sums u32 [ceil(n / 1024)]
// Params    0 n
// Dispatch  one workgroup a block
// Exact modulo 2^32; deterministic.

@group(0) @binding(0) var<storage, read_write> values: array<u32>;
@group(0) @binding(1) var<storage, read_write> sums: array<u32>;
//!include params
//!include scan_group

const ITEMS: u32 = 4u;

@compute @workgroup_size({{ workgroup_size }})
fn main(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let block = group_index(workgroup_id);
    let n = param(0u);
    var sum = 0u;
    for (var item = 0u; item < ITEMS; item++) {
        let i = (block * ITEMS + item) * {{ workgroup_size }}u + thread;
        if i < n {
            sum += values[i];
        }
    }
    let total = scan_group(thread, sum).total;
    if thread == 0u {
        sums[block] = total;
    }
}
