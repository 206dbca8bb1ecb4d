// Sets a voxel to 1 where a point lies, in volumes that hold 0.
//
// Bindings  0 points f32 [n, 3], metres   1 offsets u32 [members + 1]
//           2 volumes f32 [members, nz, nx, ny], as bits: several points may set the same voxel
// Params    0 n   1 members   2 nx   3 ny   4 nz   5..17 grid (voxel_cell)
// Dispatch  one thread a point
// Exact; deterministic: every write of a voxel is the same.

@group(0) @binding(0) var<storage, read_write> points: array<u32>;
@group(0) @binding(1) var<storage, read_write> offsets: array<u32>;
@group(0) @binding(2) var<storage, read_write> volumes: array<atomic<u32>>;
//!include params
//!include voxel_batch
//!include voxel_cell

@compute @workgroup_size({{ workgroup_size }})
fn main(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let i = group_index(workgroup_id) * {{ workgroup_size }}u + thread;
    if i >= param(0u) {
        return;
    }
    let cell = cell_of(vec3(points[3u * i], points[3u * i + 1u], points[3u * i + 2u]), 5u);
    if cell.inside {
        let plane = batch_of(i, param(1u)) * param(4u) + cell.voxel.z;
        atomicStore(&volumes[(plane * param(2u) + cell.voxel.x) * param(3u) + cell.voxel.y], 0x3f800000u);
    }
}
