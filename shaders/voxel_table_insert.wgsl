// Enters every voxel into a hash table from its key to its row.
//
// Bindings  0 coords i32 [voxels, 4]: batch, x, y, z, no two alike   1 slot_keys u32 [slots], all ones
//           2 slot_rows u32 [slots]   3 lost u32 [1]: voxels that found no free slot are added to it
// Params    0 voxels   1 slots - 1, slots a power of two   2..10 layout of one word (voxel_key)
// Dispatch  one thread a voxel
// Exact. Which slot a key takes depends on the race, what a look-up finds does not: deterministic in its use.

@group(0) @binding(0) var<storage, read_write> coords: array<u32>;
@group(0) @binding(1) var<storage, read_write> slot_keys: array<atomic<u32>>;
@group(0) @binding(2) var<storage, read_write> slot_rows: array<u32>;
@group(0) @binding(3) var<storage, read_write> lost: array<atomic<u32>>;
//!include params
//!include voxel_key
//!include voxel_slot

@compute @workgroup_size({{ workgroup_size }})
fn main(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let row = group_index(workgroup_id) * {{ workgroup_size }}u + thread;
    if row >= param(0u) {
        return;
    }
    let voxel = vec3(coords[4u * row + 1u], coords[4u * row + 2u], coords[4u * row + 3u]);
    let key = key_word(coords[4u * row], voxel, 0u, 2u);
    let mask = param(1u);
    var slot = first_slot(key, mask);
    var probes = 0u;
    while probes <= mask {
        let seen = atomicCompareExchangeWeak(&slot_keys[slot], EMPTY, key);
        if seen.exchanged {
            slot_rows[slot] = row;
            return;
        }
        // The weak exchange may fail on a free slot: then it is tried again.
        if seen.old_value != EMPTY {
            slot = (slot + 1u) & mask;
            probes++;
        }
    }
    atomicAdd(&lost[0], 1u);
}
