// One pass of the radix sort, second half: moves every pair to its place by one digit of 4 bits. Stable.
//
// Bindings  0 keys u32 [n]   1 values u32 [n]
//           2 starts u32 [16 * blocks] or longer: exclusive scan of the counts of sort_counts.wgsl
//           3 keys_out u32 [n]   4 values_out u32 [n]
// Params    0 n   1 blocks   2 lowest bit of the digit   3 digit mask, at most 15
// Dispatch  one workgroup a block of 2048 pairs
// Exact; deterministic.

@group(0) @binding(0) var<storage, read_write> keys: array<u32>;
@group(0) @binding(1) var<storage, read_write> values: array<u32>;
@group(0) @binding(2) var<storage, read_write> starts: array<u32>;
@group(0) @binding(3) var<storage, read_write> keys_out: array<u32>;
@group(0) @binding(4) var<storage, read_write> values_out: array<u32>;
//!include params

const ITEMS: u32 = 8u;
// Two counters of 16 bits in each word: a block has 2048 pairs.
const WORDS: u32 = 8u;

// Word w of a thread, at w * workgroup size + thread, counts the digits 2w (low half) and 2w + 1 (high half).
var<workgroup> counters: array<u32, WORDS * {{ workgroup_size }}u>;

@compute @workgroup_size({{ workgroup_size }})
fn main(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let block = group_index(workgroup_id);
    let n = param(0u);
    // Each thread takes neighbouring pairs, so that the order of the threads is the order of the pairs.
    let first = (block * {{ workgroup_size }}u + thread) * ITEMS;

    for (var word = 0u; word < WORDS; word++) {
        counters[word * {{ workgroup_size }}u + thread] = 0u;
    }
    for (var i = first; i < min(first + ITEMS, n); i++) {
        let digit = (keys[i] >> param(2u)) & param(3u);
        counters[(digit >> 1u) * {{ workgroup_size }}u + thread] += 1u << ((digit & 1u) * 16u);
    }

    // Exclusive scan of each word over the threads; the halves cannot run into each other.
    var own: array<u32, WORDS>;
    var sum: array<u32, WORDS>;
    for (var word = 0u; word < WORDS; word++) {
        own[word] = counters[word * {{ workgroup_size }}u + thread];
        sum[word] = own[word];
    }
    for (var reach = 1u; reach < {{ workgroup_size }}u; reach <<= 1u) {
        workgroupBarrier();
        if thread >= reach {
            for (var word = 0u; word < WORDS; word++) {
                sum[word] += counters[word * {{ workgroup_size }}u + thread - reach];
            }
        }
        workgroupBarrier();
        for (var word = 0u; word < WORDS; word++) {
            counters[word * {{ workgroup_size }}u + thread] = sum[word];
        }
    }
    // From here on a thread touches only its own counters: the next rank of each digit.
    for (var word = 0u; word < WORDS; word++) {
        counters[word * {{ workgroup_size }}u + thread] = sum[word] - own[word];
    }

    for (var i = first; i < min(first + ITEMS, n); i++) {
        let key = keys[i];
        let digit = (key >> param(2u)) & param(3u);
        let counter = (digit >> 1u) * {{ workgroup_size }}u + thread;
        let half = (digit & 1u) * 16u;
        let rank = (counters[counter] >> half) & 0xffffu;
        counters[counter] += 1u << half;
        let place = starts[digit * param(1u) + block] + rank;
        keys_out[place] = key;
        values_out[place] = values[i];
    }
}
