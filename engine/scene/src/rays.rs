//! Rays through a grid: what a scan saw empty, and what stood in its way.
//!
//! Every voxel on a straight way is visited (Amanatides and Woo: A fast voxel traversal algorithm for ray tracing,
//! Eurographics 1987), in integers, so that the CPU and every GPU agree to the bit:
//!
//! - Lengths are counted in 1/128 of a voxel from the grid's origin. A point or sensor stands at
//!   `2 * floor(((p - origin) * inverse) * 64) + 1`, the factor as in [`GridSpec::voxel_of`]: it is moved by at most
//!   1/128 of a voxel, never into another voxel, and never onto a border, which are multiples of 128. The centre of
//!   voxel `v` is `128 * v + 64`.
//! - On the way from `a` to `b` with `d = b - a`, let `f` be the distance from `a` to its next border along an axis. The
//!   border is reached after the share `f / |d|` of the way. Which of two axes comes first is the sign of
//!   `f_x * |d_y| - f_y * |d_x|`: three such numbers are kept and corrected by `128 * |d|` at each step.
//! - Borders reached at the same time (a way through an edge or a corner) are crossed one after the other: x before y
//!   before z. [`cast`] goes from the sensor to the point, [`occlusion`] from the voxel to the sensor.
//! - The last voxel is reached after as many steps as there are borders between.
//!
//! Positions [`REACH_VOXELS`] or more from the grid's origin along any axis, and those that are not finite, have no ray:
//! the products above would not fit in 32 bits.

use std::sync::atomic::{AtomicBool, Ordering};

use rayon::prelude::*;

use crate::GridSpec;

/// Voxels from the grid's origin, along any axis, at which rays end.
pub const REACH_VOXELS: usize = 1 << 15;
/// Units in which rays count, for each voxel.
const UNITS: i32 = 128;
const UNIT_BITS: u32 = UNITS.trailing_zeros();

/// What rays tell of a voxel; of several rays the greatest holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum RayState {
    /// No ray came there.
    #[default]
    Unknown = 0,
    /// A ray passed.
    Free = 1,
    /// A ray ended there.
    Hit = 2,
}

/// Place of a position on the lattice of rays (see the module): 1/128 of a voxel from the grid's origin, odd. `None`
/// out of reach.
pub fn lattice(spec: &GridSpec, position_m: [f32; 3]) -> Option<[i32; 3]> {
    Lattice::new(spec).place(position_m)
}

/// The rule of [`lattice`] for many positions.
struct Lattice {
    origin_m: [f32; 3],
    inverse: [f32; 3],
}

impl Lattice {
    fn new(spec: &GridSpec) -> Self {
        Self { origin_m: spec.origin_m, inverse: spec.inverse_size() }
    }

    fn place(&self, position_m: [f32; 3]) -> Option<[i32; 3]> {
        const HALF_UNITS: f32 = (UNITS / 2) as f32;
        let mut place = [0; 3];
        for axis in 0..3 {
            // Scaling by a power of two is exact.
            let scaled = (position_m[axis] - self.origin_m[axis]) * self.inverse[axis] * HALF_UNITS;
            if scaled.is_nan() || scaled.abs() >= HALF_UNITS * REACH_VOXELS as f32 {
                return None;
            }
            // Without the comparison, a difference too small for f32 would count as none on some devices.
            let below = position_m[axis] < self.origin_m[axis];
            place[axis] = 2 * (scaled.floor() as i32).min(if below { -1 } else { i32::MAX }) + 1;
        }
        Some(place)
    }
}

/// Casts rays from a sensor to the points it measured and adds what they tell to `state` (in the spec's order).
///
/// The voxel of an end becomes [`RayState::Hit`]; every other voxel on the way from the sensor to it, the sensor's own
/// included, at least [`RayState::Free`]. Of a ray that ends outside the grid the part inside counts. An end out of
/// reach (see the module) is skipped; a sensor out of reach casts nothing.
///
/// # Panics
///
/// If `state` has not `spec.len()` entries.
pub fn cast(spec: &GridSpec, sensor_m: [f32; 3], ends_m: &[[f32; 3]], state: &mut [RayState]) {
    let strides = strides(spec).map(|stride| stride as usize);
    cast_in_order(spec, strides, sensor_m, ends_m, state);
}

/// [`cast`] into another order of voxels: that of (x, y, z) is `x * strides[0] + y * strides[1] + z * strides[2]`.
///
/// # Panics
///
/// If `state` has not `spec.len()` entries, or some voxel is not one of them.
pub fn cast_in_order(
    spec: &GridSpec,
    strides: [usize; 3],
    sensor_m: [f32; 3],
    ends_m: &[[f32; 3]],
    state: &mut [RayState],
) {
    assert_eq!(state.len(), spec.len(), "one state a voxel");
    let lattice = Lattice::new(spec);
    let Some(sensor) = lattice.place(sensor_m) else { return };
    let strides = strides.map(|stride| stride as u32);
    // Plain stores of one value from any thread give the same picture in any order; hits follow when all have passed.
    let passed: Vec<AtomicBool> = state.iter().map(|_| AtomicBool::new(false)).collect();
    ends_m.par_iter().with_min_len(256).for_each(|end| {
        if let Some(end) = lattice.place(*end) {
            mark(spec, strides, sensor, end, |index| passed[index].store(true, Ordering::Relaxed));
        }
    });
    for (state, passed) in state.iter_mut().zip(passed) {
        if passed.into_inner() {
            *state = (*state).max(RayState::Free);
        }
    }
    let counts = spec.counts.map(|count| count as i32);
    for end in ends_m {
        if let Some(end) = lattice.place(*end)
            && let walk = Walk::new(end, end, strides)
            && walk.is_inside(counts)
        {
            state[walk.index as usize] = RayState::Hit;
        }
    }
}

/// Calls `visit` with every voxel of the grid on the way to an end, without that of the end.
fn mark(spec: &GridSpec, strides: [u32; 3], sensor: [i32; 3], end: [i32; 3], visit: impl Fn(usize)) {
    let counts = spec.counts.map(|count| count.min(REACH_VOXELS) as i32);
    let (first, last) = (sensor.map(|place| place >> UNIT_BITS), end.map(|place| place >> UNIT_BITS));
    if (0..3).any(|axis| first[axis].max(last[axis]) < 0 || first[axis].min(last[axis]) >= counts[axis]) {
        return;
    }
    let mut walk = Walk::new(sensor, end, strides);
    for _ in 0..walk.steps {
        if walk.is_inside(counts) {
            visit(walk.index as usize);
        } else if walk.is_past(counts) {
            return;
        }
        walk.advance();
    }
}

/// What the sensors cannot see of a grid, one entry a voxel in the spec's order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Occlusion {
    /// Empty, and hidden from the first sensor.
    pub occluded: Vec<bool>,
    /// Empty, and hidden from every sensor.
    pub invalid: Vec<bool>,
}

/// Finds the empty voxels that sensors cannot see.
///
/// A sensor sees an empty voxel if the way from the voxel's centre to the sensor meets no occupied voxel before it
/// reaches the sensor's voxel or leaves the grid; whether the sensor's own voxel is occupied does not matter. Occupied
/// voxels are never hidden. A sensor out of reach (see the module) sees nothing, and no sensor sees a voxel out of reach.
///
/// These are SemanticKITTI's `.occluded` and `.invalid` (Behley et al.: SemanticKITTI, ICCV 2019), with each voxel's own
/// way walked; the published program takes the answer of a voxel further out for all voxels on that one's way.
///
/// # Panics
///
/// If `occupied` has not `spec.len()` entries.
pub fn occlusion(spec: &GridSpec, occupied: &[bool], sensors_m: &[[f32; 3]]) -> Occlusion {
    assert_eq!(occupied.len(), spec.len(), "one entry a voxel");
    let sensors: Vec<Option<Sensor>> = sensors_m.iter().map(|position| Sensor::new(spec, *position)).collect();
    let scene = Scene { occupied, counts: spec.counts.map(|count| count as i32), strides: strides(spec) };
    let mut found = Occlusion { occluded: vec![false; spec.len()], invalid: vec![false; spec.len()] };
    let row = match spec.axis_order {
        crate::AxisOrder::Xyz => spec.counts[2],
        crate::AxisOrder::Zyx => spec.counts[0],
    };
    let rows = found.occluded.par_chunks_mut(row.max(1)).zip(found.invalid.par_chunks_mut(row.max(1)));
    // What hid the last voxel from each sensor mostly hides its neighbour too.
    let nothing = || vec![None; sensors.len()];
    rows.enumerate().for_each_init(nothing, |between, (place, (occluded, invalid))| {
        // The sensor that sees a voxel mostly sees its neighbour too.
        let mut likely = 0;
        for (index, (occluded, invalid)) in (place * row..).zip(occluded.iter_mut().zip(invalid)) {
            if occupied[index] {
                continue;
            }
            let voxel = spec.voxel_at(index);
            let mut sees = |number: &usize| match &sensors[*number] {
                Some(sensor) => scene.sees(sensor, voxel, &mut between[*number]),
                None => false,
            };
            if sensors.is_empty() || !sees(&0) {
                *occluded = true;
                let others = [likely].into_iter().chain(1..sensors.len()).filter(|sensor| *sensor != 0);
                match others.into_iter().find(&mut sees) {
                    Some(sensor) => likely = sensor,
                    None => *invalid = true,
                }
            }
        }
    });
    found
}

struct Sensor {
    place: [i32; 3],
    /// A way to it need not be watched for the grid's border.
    is_inside: bool,
}

impl Sensor {
    fn new(spec: &GridSpec, position_m: [f32; 3]) -> Option<Self> {
        let place = lattice(spec, position_m)?;
        Some(Self { place, is_inside: spec.voxel_of(position_m).is_some() })
    }
}

struct Scene<'a> {
    occupied: &'a [bool],
    counts: [i32; 3],
    strides: [u32; 3],
}

impl Scene<'_> {
    /// Whether nothing occupied stands between an empty voxel and a sensor. `between` is what stood there for another
    /// voxel: a guess that spares most walks.
    fn sees(&self, sensor: &Sensor, voxel: [usize; 3], between: &mut Option<[i32; 3]>) -> bool {
        if voxel.iter().any(|place| *place >= REACH_VOXELS) {
            return false;
        }
        if let Some([x, y, z]) = *between {
            let voxel = voxel.map(|place| place as i32);
            for other in [[x, y, z], [x, y, z + 1]] {
                let is_occupied = other[2] < self.counts[2] && self.occupied[self.index(other)];
                if is_occupied && passes(voxel, sensor.place, other) {
                    *between = Some(other);
                    return false;
                }
            }
        }
        let centre = voxel.map(|place| place as i32 * UNITS + UNITS / 2);
        let mut walk = Walk::new(centre, sensor.place, self.strides);
        // The sensor's own voxel is not asked.
        for _ in 1..walk.steps {
            walk.advance();
            if !sensor.is_inside && !walk.is_inside(self.counts) {
                return true;
            }
            if self.occupied[walk.index as usize] {
                *between = Some(walk.voxel);
                return false;
            }
        }
        true
    }

    fn index(&self, voxel: [i32; 3]) -> usize {
        (0..3).map(|axis| voxel[axis] as usize * self.strides[axis] as usize).sum()
    }
}

/// Whether the way from the centre of a voxel to a sensor passes another voxel before that of the sensor: whether it
/// enters it along every axis before it leaves it along any.
fn passes(voxel: [i32; 3], sensor: [i32; 3], other: [i32; 3]) -> bool {
    let units = i64::from(UNITS);
    // Distances from the centre to the borders of the other voxel, and of the whole way, along each axis.
    let (mut enter, mut leave, mut length) = ([None; 3], [None; 3], [0; 3]);
    for axis in 0..3 {
        let distance = sensor[axis] - (voxel[axis] * UNITS + UNITS / 2);
        let steps = i64::from((sensor[axis] >> UNIT_BITS).abs_diff(voxel[axis]));
        let taken = i64::from((other[axis] - voxel[axis]) * distance.signum());
        if taken < 0 || taken > steps {
            return false;
        }
        length[axis] = i64::from(distance.abs());
        enter[axis] = (taken > 0).then_some(units * taken - units / 2);
        leave[axis] = (taken < steps).then_some(units * taken + units / 2);
    }
    let in_time = |a: usize, b: usize| match (enter[a], leave[b]) {
        (Some(enter), Some(leave)) if a != b => {
            let (enter, leave) = (enter * length[b], leave * length[a]);
            enter < leave || enter == leave && a < b
        }
        _ => true,
    };
    // In the sensor's voxel no axis is left.
    leave != [None; 3] && (0..3).all(|a| (0..3).all(|b| in_time(a, b)))
}

/// Steps in memory from a voxel to the next along x, y and z.
pub fn strides(spec: &GridSpec) -> [u32; 3] {
    let [nx, ny, nz] = spec.counts.map(|count| count as u32);
    match spec.axis_order {
        crate::AxisOrder::Xyz => [ny.wrapping_mul(nz), nz, 1],
        crate::AxisOrder::Zyx => [1, nx, nx.wrapping_mul(ny)],
    }
}

/// A way from one place on the lattice to another, voxel by voxel.
struct Walk {
    voxel: [i32; 3],
    /// Place of the voxel in memory, modulo 2^32: of use inside the grid.
    index: u32,
    /// Voxels still to enter when it starts.
    steps: u32,
    direction: [i32; 3],
    strides: [u32; 3],
    /// Correction by a step along each axis.
    advance: [i32; 3],
    /// Sign of (x, y), (x, z), (y, z): above zero if the second comes first.
    later: [i32; 3],
}

impl Walk {
    #[inline]
    fn new(from: [i32; 3], to: [i32; 3], strides: [u32; 3]) -> Self {
        let voxel = from.map(|place| place >> UNIT_BITS);
        let mut walk = Self { voxel, index: 0, steps: 0, direction: [1; 3], strides, advance: [0; 3], later: [0; 3] };
        let mut border = [0; 3];
        for axis in 0..3 {
            let distance = to[axis] - from[axis];
            let inside = from[axis] & (UNITS - 1);
            border[axis] = if distance < 0 { inside } else { UNITS - inside };
            walk.advance[axis] = distance.abs();
            walk.steps += (to[axis] >> UNIT_BITS).abs_diff(voxel[axis]);
            walk.index = walk.index.wrapping_add((voxel[axis] as u32).wrapping_mul(strides[axis]));
            if distance < 0 {
                walk.direction[axis] = -1;
                walk.strides[axis] = strides[axis].wrapping_neg();
            }
        }
        let [x, y, z] = walk.advance;
        walk.later = [border[0] * y - border[1] * x, border[0] * z - border[2] * x, border[1] * z - border[2] * y];
        walk.advance = [x * UNITS, y * UNITS, z * UNITS];
        walk
    }

    /// Enters the next voxel. Without branches: they would be guessed wrong at every other step.
    #[inline]
    fn advance(&mut self) {
        let [xy, xz, yz] = self.later;
        let x = -(i32::from(xy <= 0) & i32::from(xz <= 0));
        let y = -i32::from(yz <= 0) & !x;
        let z = !(x | y);
        let [dx, dy, dz] = self.advance;
        self.later = [xy + (dy & x) - (dx & y), xz + (dz & x) - (dx & z), yz + (dz & y) - (dy & z)];
        for (axis, taken) in [x, y, z].into_iter().enumerate() {
            self.voxel[axis] += self.direction[axis] & taken;
            self.index = self.index.wrapping_add(self.strides[axis] & taken as u32);
        }
    }

    #[inline]
    fn is_inside(&self, counts: [i32; 3]) -> bool {
        (0..3).all(|axis| (self.voxel[axis] as u32) < counts[axis] as u32)
    }

    /// Whether the grid lies behind.
    #[inline]
    fn is_past(&self, counts: [i32; 3]) -> bool {
        (0..3).any(|axis| match self.direction[axis] {
            1 => self.voxel[axis] >= counts[axis],
            _ => self.voxel[axis] < 0,
        })
    }
}

#[cfg(test)]
mod tests;
