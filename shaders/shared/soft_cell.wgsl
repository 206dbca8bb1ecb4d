// The eight voxel centres around a point. Cells between centres are numbered from -1 to the count less 1 along each axis
// by the voxel at their lower end; a point further out has no cell.
//
// A grid is twelve parameters as in voxel_cell.

struct SoftCell {
    inside: bool,
    // Voxel of the lowest of the eight centres.
    low: vec3<i32>,
}

// Position along one axis, in voxels from the origin.
fn soft_place(coordinate: f32, axis: u32, grid: u32) -> f32 {
    return (coordinate - bitcast<f32>(param(grid + axis))) * bitcast<f32>(param(grid + 3u + axis));
}

// How far a place lies from the centre of voxel `low` towards the next, from 0 to 1.
fn soft_share(place: f32, low: i32) -> f32 {
    return clamp(place - (f32(low) + 0.5), 0.0, 1.0);
}

// Cell of the point with these bits in the grid whose parameters start at `grid`.
fn soft_cell_of(bits: vec3<u32>, grid: u32) -> SoftCell {
    var cell = SoftCell(true, vec3<i32>());
    for (var axis = 0u; axis < 3u; axis++) {
        let finite = (bits[axis] & 0x7f800000u) != 0x7f800000u;
        let place = soft_place(bitcast<f32>(bits[axis]), axis, grid);
        if finite && place >= -0.5 && place < bitcast<f32>(param(grid + 6u + axis)) + 0.5 {
            // By doubling, which is exact, and not by taking a half off, which may melt into the product before it.
            cell.low[axis] = (i32(floor(place * 2.0)) - 1) >> 1u;
        } else {
            cell.inside = false;
        }
    }
    return cell;
}

// Place of a cell in memory: [members, nz + 1, nx + 1, ny + 1], the cell -1 first.
fn soft_index(member: u32, cell: vec3<u32>, counts: vec3<u32>) -> u32 {
    return ((member * (counts.z + 1u) + cell.z) * (counts.x + 1u) + cell.x) * (counts.y + 1u) + cell.y;
}
