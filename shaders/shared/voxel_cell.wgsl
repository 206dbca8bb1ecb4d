// The voxel of a point: floor((p - origin) * (1 / size)) in f32 along each axis, the upper bound exclusive. The bits of
// occam_scene's GridSpec::voxel_of: the reciprocal comes rounded from the host, because division here need not be.
//
// A grid is twelve parameters, all f32: origin x y z, 1 / size x y z, counts x y z, size x y z.

struct Cell {
    inside: bool,
    voxel: vec3<u32>,
}

// Position of a float on the number line, as an integer: comparisons that neither NaN nor flushed subnormals disturb.
fn ordered(bits: u32) -> u32 {
    let sign = bits & 0x80000000u;
    return select(bits | 0x80000000u, 0x80000000u - (bits ^ sign), sign != 0u);
}

// Voxel of the point with these bits in the grid whose parameters start at `grid`.
fn cell_of(bits: vec3<u32>, grid: u32) -> Cell {
    var cell = Cell(true, vec3<u32>());
    for (var axis = 0u; axis < 3u; axis++) {
        let finite = (bits[axis] & 0x7f800000u) != 0x7f800000u;
        let offset = bitcast<f32>(bits[axis]) - bitcast<f32>(param(grid + axis));
        let place = offset * bitcast<f32>(param(grid + 3u + axis));
        let above = ordered(bits[axis]) >= ordered(param(grid + axis));
        if finite && above && place < bitcast<f32>(param(grid + 6u + axis)) {
            // Between 0 and a whole number, truncation is the floor.
            cell.voxel[axis] = u32(place);
        } else {
            cell.inside = false;
        }
    }
    return cell;
}
