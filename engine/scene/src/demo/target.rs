//! Exact dense labels of a world on a grid.
//!
//! A voxel takes a class when a surface of that class passes through it, as if scans from everywhere had been
//! accumulated: ground is one layer, buildings are shells of one voxel (walls and roof, free inside), everything else
//! is small and filled. Where several meet in one voxel, the thing that is rarer and smaller wins.

use glam::DVec2;

use super::class;
use super::shape::Solid;
use super::world::Moment;
use crate::{GridSpec, VoxelGrid};

/// From what gives way to what wins.
const ORDER: [u8; 8] = [
    class::BUILDING,
    class::VEGETATION,
    class::PARKED_CAR,
    class::MOVING_CAR,
    class::TRUNK,
    class::POLE,
    class::SIGN,
    class::PERSON,
];

/// Labels and flow of a world on a grid; visibility depends on a scan and is left out.
pub fn rasterize(moment: &Moment, spec: &GridSpec) -> VoxelGrid {
    let mut raster = Raster::new(moment, spec);
    raster.ground();
    for class in ORDER {
        for solid in moment.solids.iter().filter(|solid| solid.class == class) {
            raster.solid(solid, Part::Surface);
        }
        if class == class::BUILDING {
            // After all walls, so that walls inside a neighbour go too.
            for solid in moment.solids.iter().filter(|solid| solid.class == class) {
                raster.solid(solid, Part::Inside);
            }
        }
    }
    VoxelGrid { spec: *spec, labels: raster.labels, visibility: None, flow: Some(raster.flow) }
}

#[derive(Clone, Copy, PartialEq)]
enum Part {
    Surface,
    Inside,
}

struct Raster<'a> {
    moment: &'a Moment,
    spec: &'a GridSpec,
    origin: [f64; 3],
    size: [f64; 3],
    labels: Vec<u8>,
    flow: Vec<[f32; 2]>,
    /// Lowest ground layer of each column, which may lie outside the grid; nothing is drawn below it.
    floor: Vec<i64>,
}

impl<'a> Raster<'a> {
    fn new(moment: &'a Moment, spec: &'a GridSpec) -> Self {
        Self {
            moment,
            spec,
            origin: spec.origin_m.map(f64::from),
            size: spec.voxel_size_m.map(f64::from),
            labels: vec![spec.empty_id; spec.len()],
            flow: vec![[0.0; 2]; spec.len()],
            floor: vec![i64::MIN; spec.counts[0] * spec.counts[1]],
        }
    }

    fn column_centre(&self, x: usize, y: usize) -> DVec2 {
        let at = |axis: usize, cell: usize| self.origin[axis] + (cell as f64 + 0.5) * self.size[axis];
        DVec2::new(at(0, x), at(1, y))
    }

    fn half(&self) -> DVec2 {
        DVec2::new(self.size[0] / 2.0, self.size[1] / 2.0)
    }

    /// Layer of a height of the sensor's frame; may lie outside the grid.
    fn layer(&self, z: f64) -> i64 {
        ((z - self.origin[2]) / self.size[2]).floor() as i64
    }

    /// Layers that the ground passes through in each column, seen at 3 x 3 places of it; the class that most of the
    /// places in a layer have, and for layers that a step only passes the class above.
    fn ground(&mut self) {
        let (ground, spec) = (&self.moment.ground, self.spec);
        for x in 0..spec.counts[0] {
            for y in 0..spec.counts[1] {
                let centre = self.column_centre(x, y);
                let mut seen = [(0_i64, 0_u8); 9];
                for (place, seen) in seen.iter_mut().enumerate() {
                    let share = DVec2::new((place / 3) as f64 - 1.0, (place % 3) as f64 - 1.0) * 0.9;
                    let at = centre + self.half() * share;
                    let (class, z) = ground.at(at);
                    *seen = (self.layer(z + ground.tilt.dot(at)), class);
                }
                let low = seen.iter().fold(i64::MAX, |low, (layer, _)| low.min(*layer));
                let high = seen.iter().fold(i64::MIN, |high, (layer, _)| high.max(*layer));
                self.floor[x * spec.counts[1] + y] = low;
                let mut above = seen[0].1;
                for layer in (low.max(0)..=high.min(spec.counts[2] as i64 - 1)).rev() {
                    above =
                        majority(seen.iter().filter(|(l, _)| *l == layer).map(|(_, class)| *class)).unwrap_or(above);
                    self.labels[spec.index([x, y, layer as usize])] = above;
                }
            }
        }
    }

    fn solid(&mut self, solid: &Solid, part: Part) {
        let (spec, half) = (self.spec, self.half());
        let reach = solid.reach();
        let [xs, ys] = [0, 1].map(|axis| {
            let cell = |edge: f64| ((edge - self.origin[axis]) / self.size[axis]).floor();
            let end = (cell(solid.centre[axis] + reach) + 1.0).clamp(0.0, spec.counts[axis] as f64);
            cell(solid.centre[axis] - reach).max(0.0) as usize..end as usize
        });
        let tilt = self.moment.ground.tilt;
        let within = tilt.abs().dot(half);
        for x in xs {
            for y in ys.clone() {
                let centre = self.column_centre(x, y);
                if !solid.meets_column(centre, half) {
                    continue;
                }
                let lift = tilt.dot(centre);
                let [low, high] = solid.span_in_column(centre, half);
                let (bottom, roof) = (self.layer(low + lift - within), self.layer(high + lift + within));
                let inside = solid.class == class::BUILDING && solid.holds_column(centre, half);
                // A building's inside ends below the layer that its roof begins in.
                let under_roof = self.layer(high + lift - within);
                let layers = match (part, inside) {
                    (Part::Surface, false) => bottom..=roof,
                    (Part::Surface, true) => under_roof..=roof,
                    (Part::Inside, true) => i64::MIN..=under_roof - 1,
                    (Part::Inside, false) => continue,
                };
                let floor = if part == Part::Inside { 0 } else { self.floor[x * spec.counts[1] + y] };
                for layer in (*layers.start()).max(floor).max(0)..=(*layers.end()).min(spec.counts[2] as i64 - 1) {
                    let index = spec.index([x, y, layer as usize]);
                    self.labels[index] = if part == Part::Inside { spec.empty_id } else { solid.class };
                    self.flow[index] = solid.velocity.as_vec2().to_array();
                }
            }
        }
    }
}

/// The most frequent class, the lowest of equals.
fn majority(classes: impl Iterator<Item = u8>) -> Option<u8> {
    let mut votes = [0; class::COUNT];
    for class in classes {
        votes[usize::from(class)] += 1;
    }
    let most = votes.iter().copied().max().filter(|most| *most > 0)?;
    votes.iter().position(|v| *v == most).map(|class| class as u8)
}
