// Where every run of equal sorted keys starts, and where the last one ends.
//
// Bindings  0 keys u32 [n], highest word of the sorted keys   1 ranks u32 [n + 1], exclusive scan of heads
//           2 starts u32 [runs + 1] or longer
// Params    0 n   1 highest word of a key that has no run
// Dispatch  one thread a key
// Exact; deterministic.

@group(0) @binding(0) var<storage, read_write> keys: array<u32>;
@group(0) @binding(1) var<storage, read_write> ranks: array<u32>;
@group(0) @binding(2) var<storage, read_write> starts: array<u32>;
//!include params

@compute @workgroup_size({{ workgroup_size }})
fn main(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let i = group_index(workgroup_id) * {{ workgroup_size }}u + thread;
    let n = param(0u);
    // Keys without a run stand last.
    if i >= n || keys[i] == param(1u) {
        return;
    }
    if ranks[i + 1u] != ranks[i] {
        starts[ranks[i]] = i;
    }
    var last = i + 1u == n;
    if !last {
        last = keys[i + 1u] == param(1u);
    }
    if last {
        starts[ranks[n]] = i + 1u;
    }
}
