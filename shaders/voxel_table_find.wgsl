// Row of the voxel that each point lies in, by a hash table from keys to rows.
//
// Bindings  0 points f32 [n, 3], metres   1 offsets u32 [members + 1]   2 slot_keys u32 [slots]
//           3 slot_rows u32 [slots]   4 rows i32 [n]: -1 where the table lacks the voxel or the point has none
// Params    0 n   1 members   2 slots - 1, slots a power of two   3..11 layout of one word (voxel_key)
//           11..23 grid (voxel_cell)
// Dispatch  one thread a point
// Exact; deterministic.

@group(0) @binding(0) var<storage, read_write> points: array<u32>;
@group(0) @binding(1) var<storage, read_write> offsets: array<u32>;
@group(0) @binding(2) var<storage, read_write> slot_keys: array<u32>;
@group(0) @binding(3) var<storage, read_write> slot_rows: array<u32>;
@group(0) @binding(4) var<storage, read_write> rows: array<i32>;
//!include params
//!include voxel_batch
//!include voxel_cell
//!include voxel_key
//!include voxel_slot

fn find(key: u32, mask: u32) -> i32 {
    var slot = first_slot(key, mask);
    for (var probes = 0u; probes <= mask; probes++) {
        if slot_keys[slot] == key {
            return i32(slot_rows[slot]);
        }
        if slot_keys[slot] == EMPTY {
            break;
        }
        slot = (slot + 1u) & mask;
    }
    return -1i;
}

@compute @workgroup_size({{ workgroup_size }})
fn main(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let i = group_index(workgroup_id) * {{ workgroup_size }}u + thread;
    if i >= param(0u) {
        return;
    }
    let cell = cell_of(vec3(points[3u * i], points[3u * i + 1u], points[3u * i + 2u]), 11u);
    var row = -1i;
    if cell.inside {
        row = find(key_word(batch_of(i, param(1u)), cell.voxel, 0u, 3u), param(2u));
    }
    rows[i] = row;
}
