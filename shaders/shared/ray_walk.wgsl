// The way from one place to another, voxel by voxel, in integers: occam_scene's rays, whose documentation gives the rules.
// Lengths are counted in 1/128 of a voxel from the origin of the grid. Include voxel_cell before.

// Positions this many voxels or more from the origin have no ray.
const REACH_VOXELS: i32 = 32768;

struct Place {
    in_reach: bool,
    at: vec3<i32>,
}

// Place of the point with these bits, for the grid whose parameters start at `grid`.
fn place_of(bits: vec3<u32>, grid: u32) -> Place {
    var place = Place(true, vec3<i32>());
    for (var axis = 0u; axis < 3u; axis++) {
        let finite = (bits[axis] & 0x7f800000u) != 0x7f800000u;
        let offset = bitcast<f32>(bits[axis]) - bitcast<f32>(param(grid + axis));
        let scaled = offset * bitcast<f32>(param(grid + 3u + axis)) * 64.0;
        if finite && abs(scaled) < 64.0 * f32(REACH_VOXELS) {
            // Devices may take a tiny difference for none.
            let below = ordered(bits[axis]) < ordered(param(grid + axis));
            place.at[axis] = 2 * min(i32(floor(scaled)), select(0x7fffffff, -1, below)) + 1;
        } else {
            place.in_reach = false;
        }
    }
    return place;
}

struct Walk {
    voxel: vec3<i32>,
    // Place of the voxel in memory, of use inside the grid.
    index: u32,
    direction: vec3<i32>,
    // Voxels still to enter when it starts.
    steps: u32,
    strides: vec3<u32>,
    // Correction by a step along each axis.
    advance: vec3<i32>,
    // Sign of (x, y), (x, z), (y, z): above zero if the second comes first.
    later: vec3<i32>,
}

fn walk_between(start: vec3<i32>, end: vec3<i32>, strides: vec3<u32>) -> Walk {
    var walk: Walk;
    let distance = end - start;
    let back = (distance < vec3<i32>());
    let inside = start & vec3<i32>(127);
    let border = select(128 - inside, inside, back);
    let length = abs(distance);
    walk.voxel = start >> vec3<u32>(7u);
    walk.direction = select(vec3<i32>(1), vec3<i32>(-1), back);
    let entered = vec3<u32>(abs((end >> vec3<u32>(7u)) - walk.voxel));
    walk.steps = entered.x + entered.y + entered.z;
    let places = vec3<u32>(walk.voxel) * strides;
    walk.index = places.x + places.y + places.z;
    walk.strides = vec3<u32>(walk.direction) * strides;
    walk.advance = length * 128;
    walk.later = border.xxy * length.yzz - border.yzz * length.xxy;
    return walk;
}

// Enters the next voxel; of borders reached at the same time x comes before y before z.
fn advance(walk: ptr<function, Walk>) {
    let later = (*walk).later;
    let step = (*walk).advance;
    if later.x <= 0 && later.y <= 0 {
        (*walk).later = later + vec3<i32>(step.y, step.z, 0);
        (*walk).voxel.x += (*walk).direction.x;
        (*walk).index += (*walk).strides.x;
    } else if later.x > 0 && later.z <= 0 {
        (*walk).later = later + vec3<i32>(-step.x, 0, step.z);
        (*walk).voxel.y += (*walk).direction.y;
        (*walk).index += (*walk).strides.y;
    } else {
        (*walk).later = later - vec3<i32>(0, step.x, step.y);
        (*walk).voxel.z += (*walk).direction.z;
        (*walk).index += (*walk).strides.z;
    }
}

fn is_inside(voxel: vec3<i32>, counts: vec3<u32>) -> bool {
    return all(vec3<u32>(voxel) < counts);
}
