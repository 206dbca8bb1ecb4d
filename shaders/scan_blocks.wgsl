// Second half of the exclusive scan: sums of all values before each place, with the total in the last.
//
// Bindings  0 values u32 [n]   1 bases u32 [ceil(n / 1024)] or longer: sum of all values before the block
//           2 out u32 [n + 1]: out[i] = values[0] + ... + values[i - 1]
// Params    0 n, at least 1
// Dispatch  one workgroup a block of 1024 values, ceil(n / 1024)
// Exact modulo 2^32; deterministic.

@group(0) @binding(0) var<storage, read_write> values: array<u32>;
@group(0) @binding(1) var<storage, read_write> bases: array<u32>;
@group(0) @binding(2) var<storage, read_write> out: array<u32>;
//!include params
//!include scan_group

const ITEMS: u32 = 4u;

@compute @workgroup_size({{ workgroup_size }})
fn main(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let block = group_index(workgroup_id);
    let n = param(0u);
    // Each thread takes neighbouring values, so that one scan over the threads orders them all.
    let first = (block * {{ workgroup_size }}u + thread) * ITEMS;
    var own: array<u32, ITEMS>;
    var sum = 0u;
    for (var item = 0u; item < ITEMS; item++) {
        if first + item < n {
            own[item] = values[first + item];
        }
        sum += own[item];
    }
    var before = bases[block] + scan_group(thread, sum).before;
    for (var item = 0u; item < ITEMS; item++) {
        let i = first + item;
        if i < n {
            out[i] = before;
        }
        before += own[item];
        if i + 1u == n {
            out[n] = before;
        }
    }
}
