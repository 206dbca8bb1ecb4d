// Marks the first of every run of equal sorted keys, one word of the keys at a time, the highest last.
//
// Bindings  0 keys u32 [n], one word of sorted keys   1 heads u32 [n]: 1 at the first of a run, else 0
// Params    0 n   1 whether this is the first word: heads starts anew   2 whether it is the highest
//           3 highest word of a key that has no run
// Dispatch  one thread a key
// Exact; deterministic.

@group(0) @binding(0) var<storage, read_write> keys: array<u32>;
@group(0) @binding(1) var<storage, read_write> heads: array<u32>;
//!include params

@compute @workgroup_size({{ workgroup_size }})
fn main(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let i = group_index(workgroup_id) * {{ workgroup_size }}u + thread;
    if i >= param(0u) {
        return;
    }
    var head = 1u;
    if i > 0u {
        head = select(0u, 1u, keys[i] != keys[i - 1u]);
    }
    if param(1u) == 0u {
        head |= heads[i];
    }
    if param(2u) == 1u && keys[i] == param(3u) {
        head = 0u;
    }
    heads[i] = head;
}
