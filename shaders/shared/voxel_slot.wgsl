// Slots of the voxel hash table: open addressing with linear probing, a power of two of them.

// No voxel has this key.
const EMPTY: u32 = 0xffffffffu;

// First slot to look at, of `mask` + 1: every bit of the key moves it.
fn first_slot(key: u32, mask: u32) -> u32 {
    var x = key;
    x = (x ^ (x >> 16u)) * 0x7feb352du;
    x = (x ^ (x >> 15u)) * 0x846ca68bu;
    return (x ^ (x >> 16u)) & mask;
}
