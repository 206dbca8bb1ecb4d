// Which empty voxels sensors cannot see: 0 occupied or seen by the first sensor, 1 seen by another, 2 by none.
//
// Bindings  0 occupied i32 [voxels], not 0 where something is
//           1 sensors i32 [sensors, 4]: place (ray_walk), 0 if it is out of reach, 1 if outside the grid, 2 if inside
//           2 hidden u32 [voxels]
// Params    0 voxels   1 first sensor of this launch   2 end of its sensors   3..6 counts x y z   6..9 steps in memory
//           along x y z; the launch of sensor 0 writes every voxel, later ones change what is still 2
// Dispatch  one thread a voxel
// Exact, the bits of the CPU twin; deterministic.

@group(0) @binding(0) var<storage, read_write> occupied: array<i32>;
@group(0) @binding(1) var<storage, read_write> sensors: array<i32>;
@group(0) @binding(2) var<storage, read_write> hidden: array<u32>;
//!include params
//!include voxel_cell
//!include ray_walk

// Whether nothing occupied stands between the centre of a voxel and a sensor; the voxel of the sensor is not asked.
fn sees(sensor: u32, centre: vec3<i32>, counts: vec3<u32>, strides: vec3<u32>) -> bool {
    let kind = sensors[4u * sensor + 3u];
    if kind == 0 {
        return false;
    }
    let place = vec3(sensors[4u * sensor], sensors[4u * sensor + 1u], sensors[4u * sensor + 2u]);
    var walk = walk_between(centre, place, strides);
    for (var step = 1u; step < walk.steps; step++) {
        advance(&walk);
        if kind == 1 && !is_inside(walk.voxel, counts) {
            return true;
        }
        if occupied[walk.index] != 0 {
            return false;
        }
    }
    return true;
}

@compute @workgroup_size({{ workgroup_size }})
fn main(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let index = group_index(workgroup_id) * {{ workgroup_size }}u + thread;
    if index >= param(0u) {
        return;
    }
    var result = 0u;
    if param(1u) > 0u {
        result = hidden[index];
    } else if occupied[index] == 0 {
        result = 2u;
    }
    let counts = vec3(param(3u), param(4u), param(5u));
    let strides = vec3(param(6u), param(7u), param(8u));
    let voxel = (vec3<u32>(index) / strides) % counts;
    if result == 2u && all(voxel < vec3<u32>(u32(REACH_VOXELS))) {
        let centre = vec3<i32>(voxel) * 128 + 64;
        for (var sensor = param(1u); sensor < param(2u); sensor++) {
            if sees(sensor, centre, counts, strides) {
                result = min(sensor, 1u);
                break;
            }
        }
    }
    hidden[index] = result;
}
