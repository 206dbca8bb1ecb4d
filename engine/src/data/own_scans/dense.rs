//! One dense cloud, cut into small cells that rays can be cast through.

use std::collections::HashMap;
use std::path::Path;

use glam::{DVec3, I64Vec3};
use occam_scene::PointCloud;
use occam_scene::error::Place;
use rayon::prelude::*;

use crate::Result;

/// Cells along the edge of a chunk.
const CHUNK: i64 = 16;
/// Bits of a cell's place in its chunk, along one axis.
const CHUNK_BITS: u32 = CHUNK.trailing_zeros();
/// Bits of a chunk's place along one axis.
const PLACE_BITS: u32 = 16;
/// Cells along one axis at most.
const MOST_CELLS: f64 = ((1 << PLACE_BITS) * CHUNK) as f64;

/// Points by cell, with what is needed to look along a ray. Positions are relative to the lowest corner of the cloud.
#[derive(Debug)]
pub struct DenseCloud {
    pub cell_m: f64,
    /// Chunk by chunk, cell by cell.
    positions: Vec<[f32; 3]>,
    labels: Option<Vec<u16>>,
    intensity: Option<Vec<f32>>,
    /// Keys of the cells that hold points, ascending.
    cells: Vec<u64>,
    /// First point of each cell, and the number of points.
    starts: Vec<u32>,
    chunks: HashMap<u64, Chunk>,
    /// Cells along each axis.
    counts: I64Vec3,
}

/// The cells of one chunk.
#[derive(Debug)]
struct Chunk {
    /// One bit a cell.
    bits: [u64; (CHUNK * CHUNK * CHUNK / 64) as usize],
    /// Its points.
    first: u32,
    end: u32,
}

/// Key of a cell: its chunk (high), its place in the chunk (low).
fn key(cell: I64Vec3) -> u64 {
    let chunk = chunk_key(cell >> CHUNK_BITS);
    let inside = (cell & I64Vec3::splat(CHUNK - 1)).as_u64vec3();
    chunk << (3 * CHUNK_BITS) | inside.x << (2 * CHUNK_BITS) | inside.y << CHUNK_BITS | inside.z
}

fn chunk_key(chunk: I64Vec3) -> u64 {
    let chunk = chunk.as_u64vec3();
    chunk.x << (2 * PLACE_BITS) | chunk.y << PLACE_BITS | chunk.z
}

impl DenseCloud {
    /// Cuts a cloud into cells of `cell_m`.
    ///
    /// # Errors
    /// [`crate::Error::Input`] for a cloud without points, one that reaches too far for its cells, and more than 2^32
    /// points.
    pub fn new(path: &Path, cloud: PointCloud, cell_m: f64) -> Result<Self> {
        let wrong = |found: String, expected: &str| occam_scene::Error::new(path, Place::File, found, expected);
        let Some((low, high)) = cloud.bounds() else {
            return Err(wrong("no points".into(), "a dense cloud").into());
        };
        let [low, high] = [low, high].map(|corner| DVec3::from_array(corner.map(f64::from)));
        let extent = high - low;
        if extent.max_element() / cell_m >= MOST_CELLS {
            let found = format!("a cloud of {:.0} x {:.0} x {:.0} m", extent.x, extent.y, extent.z);
            let hint = "Are the coordinates millimetres? Otherwise remove points that lie far from the others";
            return Err(wrong(found, "metres, and less than 200 km").hint(hint).into());
        }
        let Ok(points) = u32::try_from(cloud.len()) else {
            return Err(wrong(format!("{} points", cloud.len()), "less than 2^32; thin it out or cut it").into());
        };
        let local = |p: &[f32; 3]| DVec3::from_array(p.map(f64::from)) - low;
        let mut order: Vec<(u64, u32)> = (0..points)
            .into_par_iter()
            .map(|point| (key((local(&cloud.positions[point as usize]) / cell_m).floor().as_i64vec3()), point))
            .collect();
        order.par_sort_unstable();
        let (mut cells, mut starts, mut chunks) = (Vec::new(), Vec::new(), HashMap::<u64, Chunk>::new());
        for (place, (key, _)) in order.iter().enumerate() {
            if cells.last() != Some(key) {
                cells.push(*key);
                starts.push(place as u32);
            }
            let chunk = chunks.entry(key >> (3 * CHUNK_BITS)).or_insert_with(|| Chunk {
                bits: [0; 64],
                first: place as u32,
                end: 0,
            });
            let inside = (key & 0xfff) as usize;
            chunk.bits[inside / 64] |= 1 << (inside % 64);
            chunk.end = place as u32 + 1;
        }
        starts.push(points);
        let of = |(_, point): &(u64, u32)| *point as usize;
        Ok(Self {
            cell_m,
            positions: order.iter().map(|o| local(&cloud.positions[of(o)]).as_vec3().to_array()).collect(),
            labels: cloud.label.map(|labels| order.iter().map(|o| labels[of(o)]).collect()),
            intensity: cloud.intensity.map(|column| order.iter().map(|o| column[of(o)]).collect()),
            cells,
            starts,
            chunks,
            counts: (extent / cell_m).floor().as_i64vec3() + 1,
        })
    }

    pub fn labels(&self) -> Option<&[u16]> {
        self.labels.as_deref()
    }

    pub fn intensity(&self) -> Option<&[f32]> {
        self.intensity.as_deref()
    }

    /// Highest corner.
    pub fn end_m(&self) -> DVec3 {
        self.counts.as_dvec3() * self.cell_m
    }

    /// Lowest point of each cell that holds points.
    pub fn lowest_points(&self) -> impl Iterator<Item = [f32; 3]> {
        self.starts.windows(2).filter_map(|range| {
            let points = self.positions.get(range[0] as usize..range[1] as usize)?;
            points.iter().copied().min_by(|a, b| a[2].total_cmp(&b[2]))
        })
    }

    /// Whether a cell that reaches into the box holds points.
    pub fn any_within(&self, low: DVec3, high: DVec3) -> bool {
        let first = (low / self.cell_m).floor().as_i64vec3().max(I64Vec3::ZERO);
        let last = (high / self.cell_m).floor().as_i64vec3().min(self.counts - 1);
        (first.x..=last.x)
            .any(|x| (first.y..=last.y).any(|y| (first.z..=last.z).any(|z| self.holds(I64Vec3::new(x, y, z)))))
    }

    fn holds(&self, cell: I64Vec3) -> bool {
        let key = key(cell);
        self.chunks.get(&(key >> (3 * CHUNK_BITS))).is_some_and(|chunk| chunk.has(key))
    }

    /// Points of the chunks that reach into the box, each with its place in the columns.
    pub fn points_near(&self, low: DVec3, high: DVec3) -> impl Iterator<Item = (usize, [f32; 3])> {
        let chunk_m = self.cell_m * CHUNK as f64;
        let most = (self.counts - 1) >> CHUNK_BITS;
        let first = (low / chunk_m).floor().as_i64vec3().max(I64Vec3::ZERO);
        let last = (high / chunk_m).floor().as_i64vec3().min(most);
        let near = (first.x..=last.x).flat_map(move |x| {
            (first.y..=last.y).flat_map(move |y| (first.z..=last.z).map(move |z| I64Vec3::new(x, y, z)))
        });
        near.filter_map(|chunk| self.chunks.get(&chunk_key(chunk))).flat_map(|chunk| {
            let points = chunk.first as usize..chunk.end as usize;
            points.clone().zip(self.positions[points].iter().copied())
        })
    }

    /// The point that a ray of `direction` (length 1) meets: in the first cell with points on its way, the one nearest to
    /// the ray. Its place in the columns, and itself.
    pub fn cast(&self, from: DVec3, direction: DVec3, farthest_m: f64) -> Option<(usize, [f32; 3])> {
        let mut cell = (from / self.cell_m).floor().as_i64vec3();
        let step = direction.signum().as_i64vec3();
        let stride = (self.cell_m / direction).abs();
        let border = (cell.as_dvec3() + direction.signum().max(DVec3::ZERO)) * self.cell_m;
        let mut next = (border - from) / direction;
        // A ray along an axis never meets the borders of the others.
        for axis in 0..3 {
            if direction[axis] == 0.0 {
                next[axis] = f64::INFINITY;
            }
        }
        let mut here: (u64, Option<&Chunk>) = (u64::MAX, None);
        loop {
            let inside = cell.cmpge(I64Vec3::ZERO).all() && cell.cmplt(self.counts).all();
            if inside {
                let key = key(cell);
                let chunk = key >> (3 * CHUNK_BITS);
                if here.0 != chunk {
                    here = (chunk, self.chunks.get(&chunk));
                }
                if here.1.is_some_and(|chunk| chunk.has(key)) {
                    return self.nearest_in(key, from, direction);
                }
            } else {
                let leaves = (0..3).any(|axis| {
                    (cell[axis] < 0 && step[axis] <= 0) || (cell[axis] >= self.counts[axis] && step[axis] >= 0)
                });
                if leaves {
                    return None;
                }
            }
            let axis = if next.x < next.y {
                if next.x < next.z { 0 } else { 2 }
            } else if next.y < next.z {
                1
            } else {
                2
            };
            if next[axis] > farthest_m {
                return None;
            }
            cell[axis] += step[axis];
            next[axis] += stride[axis];
        }
    }

    fn nearest_in(&self, key: u64, from: DVec3, direction: DVec3) -> Option<(usize, [f32; 3])> {
        let place = self.cells.binary_search(&key).ok()?;
        let range = *self.starts.get(place)? as usize..*self.starts.get(place + 1)? as usize;
        let beside = |p: &[f32; 3]| {
            let way = DVec3::from_array(p.map(f64::from)) - from;
            (way - direction * way.dot(direction)).length_squared()
        };
        let points = range.clone().zip(self.positions.get(range)?.iter().copied());
        points.min_by(|a, b| beside(&a.1).total_cmp(&beside(&b.1)))
    }
}

impl Chunk {
    fn has(&self, key: u64) -> bool {
        let inside = (key & 0xfff) as usize;
        self.bits[inside / 64] >> (inside % 64) & 1 == 1
    }
}
