// Word of a voxel key: the bits of x, y, z interleaved as the masks say, the batch number above.
//
// A layout is eight parameters: word (0 low, 1 high), bits of a voxel, masks of x y z in the low word, then in the high one.

// The low bits of `value` where `mask` has ones.
fn deposit(value: u32, mask: u32) -> u32 {
    var rest = value;
    var left = mask;
    var out = 0u;
    while left != 0u {
        let lowest = left & (~left + 1u);
        out |= select(0u, lowest, (rest & 1u) == 1u);
        rest >>= 1u;
        left ^= lowest;
    }
    return out;
}

// Word `word` of the key of a voxel, for the layout whose parameters start at `first`.
fn key_word(batch: u32, voxel: vec3<u32>, word: u32, first: u32) -> u32 {
    let bits = param(first + 1u);
    var key = 0u;
    for (var axis = 0u; axis < 3u; axis++) {
        let low = param(first + 2u + axis);
        if word == 0u {
            key |= deposit(voxel[axis], low);
        } else {
            key |= deposit(voxel[axis] >> countOneBits(low), param(first + 5u + axis));
        }
    }
    if word == 0u {
        return key | select(batch << (bits & 31u), 0u, bits > 31u);
    }
    if bits > 31u {
        return key | (batch << (bits - 32u));
    }
    return key | select(batch >> ((32u - bits) & 31u), 0u, bits == 0u);
}
