// Row of the voxel that each point lies in, by binary search among voxels sorted by keys of two words.
//
// Bindings  0 points f32 [n, 3], metres   1 offsets u32 [members + 1]   2 coords i32 [voxels, 4], rising by key
//           3 rows i32 [n]: -1 where the voxel is not among them or the point has none
// Params    0 n   1 members   2 voxels   3..11 layout (voxel_key)   11..23 grid (voxel_cell)
// Dispatch  one thread a point
// Exact; deterministic.

@group(0) @binding(0) var<storage, read_write> points: array<u32>;
@group(0) @binding(1) var<storage, read_write> offsets: array<u32>;
@group(0) @binding(2) var<storage, read_write> coords: array<u32>;
@group(0) @binding(3) var<storage, read_write> rows: array<i32>;
//!include params
//!include voxel_batch
//!include voxel_cell
//!include voxel_key

// Low and high word.
fn key_of(batch: u32, voxel: vec3<u32>) -> vec2<u32> {
    return vec2(key_word(batch, voxel, 0u, 3u), key_word(batch, voxel, 1u, 3u));
}

@compute @workgroup_size({{ workgroup_size }})
fn main(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let i = group_index(workgroup_id) * {{ workgroup_size }}u + thread;
    if i >= param(0u) {
        return;
    }
    let cell = cell_of(vec3(points[3u * i], points[3u * i + 1u], points[3u * i + 2u]), 11u);
    let key = key_of(batch_of(i, param(1u)), cell.voxel);
    var row = -1i;
    var low = 0u;
    var high = select(0u, param(2u), cell.inside);
    while low < high {
        let middle = (low + high) / 2u;
        let voxel = vec3(coords[4u * middle + 1u], coords[4u * middle + 2u], coords[4u * middle + 3u]);
        let other = key_of(coords[4u * middle], voxel);
        if all(other == key) {
            row = i32(middle);
            break;
        }
        if other.y < key.y || (other.y == key.y && other.x < key.x) {
            low = middle + 1u;
        } else {
            high = middle;
        }
    }
    rows[i] = row;
}
