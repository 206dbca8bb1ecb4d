// One pass of the radix sort, first half: how often each digit of 4 bits stands in every block of 2048 keys.
//
// Bindings  0 keys u32 [n]   1 counts u32 [16, blocks], blocks = ceil(n / 2048)
// Params    0 n   1 blocks   2 lowest bit of the digit   3 digit mask, at most 15
// Dispatch  one workgroup a block
// Exact; deterministic: integer additions in any order give the same counts.

@group(0) @binding(0) var<storage, read_write> keys: array<u32>;
@group(0) @binding(1) var<storage, read_write> counts: array<u32>;
//!include params

const DIGITS: u32 = 16u;
const ITEMS: u32 = 8u;

var<workgroup> tally: array<atomic<u32>, DIGITS>;

@compute @workgroup_size({{ workgroup_size }})
fn main(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let block = group_index(workgroup_id);
    let n = param(0u);
    if thread < DIGITS {
        atomicStore(&tally[thread], 0u);
    }
    workgroupBarrier();
    for (var item = 0u; item < ITEMS; item++) {
        let i = (block * ITEMS + item) * {{ workgroup_size }}u + thread;
        if i < n {
            atomicAdd(&tally[(keys[i] >> param(2u)) & param(3u)], 1u);
        }
    }
    workgroupBarrier();
    if thread < DIGITS {
        counts[thread * param(1u) + block] = atomicLoad(&tally[thread]);
    }
}
