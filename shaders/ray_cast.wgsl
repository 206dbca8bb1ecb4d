// Rays from sensors to the points they measured, through volumes that hold 0: 1 where a ray passed, 2 where one ended.
//
// Bindings  0 points f32 [n, 3], metres   1 offsets u32 [members + 1]
//           2 sensors i32 [members, 4]: place (ray_walk), 0 if it is out of reach, else 1
//           3 states u32 [members, nz, nx, ny]
// Params    0 n   1 members   2 first point of this launch   3 nx   4 ny   5 nz   6..18 grid (voxel_cell)
// Dispatch  one thread a point
// Exact, the bits of the CPU twin; deterministic: the greatest value of a voxel stays, in any order.

@group(0) @binding(0) var<storage, read_write> points: array<u32>;
@group(0) @binding(1) var<storage, read_write> offsets: array<u32>;
@group(0) @binding(2) var<storage, read_write> sensors: array<i32>;
@group(0) @binding(3) var<storage, read_write> states: array<atomic<u32>>;
//!include params
//!include voxel_batch
//!include voxel_cell
//!include ray_walk

@compute @workgroup_size({{ workgroup_size }})
fn main(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let i = param(2u) + group_index(workgroup_id) * {{ workgroup_size }}u + thread;
    if i >= param(0u) {
        return;
    }
    let member = batch_of(i, param(1u));
    let end = place_of(vec3(points[3u * i], points[3u * i + 1u], points[3u * i + 2u]), 6u);
    if !end.in_reach || sensors[4u * member + 3u] == 0 {
        return;
    }
    let sensor = vec3(sensors[4u * member], sensors[4u * member + 1u], sensors[4u * member + 2u]);
    let counts = vec3(param(3u), param(4u), param(5u));
    // No voxel beyond it has a ray.
    let limits = vec3<i32>(min(counts, vec3<u32>(u32(REACH_VOXELS))));
    let first = sensor >> vec3<u32>(7u);
    let last = end.at >> vec3<u32>(7u);
    let before = (max(first, last) < vec3<i32>());
    let beyond = (min(first, last) >= limits);
    if any(before) || any(beyond) {
        return;
    }
    let volume = member * counts.x * counts.y * counts.z;
    var walk = walk_between(sensor, end.at, vec3(counts.y, 1u, counts.x * counts.y));
    for (var step = 0u; step < walk.steps; step++) {
        if is_inside(walk.voxel, counts) {
            let place = volume + walk.index;
            // Most voxels near the sensor are marked already: reading is cheaper than writing.
            if atomicLoad(&states[place]) == 0u {
                atomicMax(&states[place], 1u);
            }
        } else {
            let before = (walk.voxel < vec3<i32>());
            let beyond = (walk.voxel >= limits);
            // The grid lies behind.
            if any(select(before, beyond, walk.direction == vec3<i32>(1))) {
                return;
            }
        }
        advance(&walk);
    }
    if is_inside(walk.voxel, counts) {
        atomicMax(&states[volume + walk.index], 2u);
    }
}
