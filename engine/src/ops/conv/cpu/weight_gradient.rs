//! Weight gradient: dot products of gradient rows with the input's rows at every tap, a band of both at a time.

use rayon::prelude::*;

use super::axis::Axis;
use super::band::{Band, Part, Source, apart};
use super::kernels::{Dots, Shift};
use super::simd::Processor;
use super::walk::{FEW_PRODUCTS, even_part};
use super::{ConvGeometry, Element, LoadAs};

/// Positions of a band: a block of gradient rows and what they meet lie in the first cache.
const BAND_POSITIONS: usize = 2048;
/// Output channels of a task.
const TASK_ROWS: usize = 64;
/// Weights of a task, unless one kernel has more.
const TASK_WEIGHTS: usize = 16 << 10;
/// Values of the input that a task holds at most, unless one channel is more.
const BAND_VALUES: usize = 128 << 10;
/// Tasks wanted at once, so that any number of threads has work; each makes [`TASK_WEIGHTS`] sums.
const TASKS: usize = 32;
/// Positions summed in f32 before they are added to the f64 totals.
const SUMMED_POSITIONS: usize = 64 << 10;
/// Zeros behind the last gradient of a band: as many as the widest vector holds.
const SLACK: usize = 16;

/// `[out, in / groups, kernel]`.
pub fn run<T: Element>(
    x: &[T],
    load: Option<LoadAs>,
    gradient: &[T],
    geometry: &ConvGeometry,
    processor: Processor,
) -> Vec<T> {
    let mut out = vec![T::zeroed(); geometry.weight().iter().product()];
    if out.is_empty() || geometry.batch * geometry.volume_out() == 0 {
        return out;
    }
    let plan = Plan::new(geometry, processor);
    let blocks = plan.blocks();
    let segments = TASKS.div_ceil(blocks.len()).min(plan.pieces());
    let few = out.len() * geometry.batch * geometry.volume_out() < FEW_PRODUCTS;
    let at_once = if few { TASKS * segments } else { 1 };
    let mut rounded = Vec::new();
    for blocks in blocks.chunks(TASKS) {
        let mut totals: Vec<Vec<f64>> = (0..blocks.len() * segments)
            .into_par_iter()
            .with_min_len(at_once)
            .map_init(
                || Scratch::new(&plan),
                |scratch, task| {
                    let [block, segment] = [task / segments, task % segments];
                    let pieces = [segment, segment + 1].map(|segment| segment * plan.pieces() / segments);
                    Job { plan: &plan, block: blocks[block], x, load, gradient }.run(pieces, scratch)
                },
            )
            .collect();
        // In the order of the segments, whoever was ready first.
        for (block, totals) in blocks.iter().zip(totals.chunks_exact_mut(segments)) {
            let (sum, others) = totals.split_at_mut(1);
            for other in others {
                sum[0].iter_mut().zip(&*other).for_each(|(sum, other)| *sum += other);
            }
            let len = block.sources[1] * plan.taps;
            for (row, totals) in sum[0].chunks_exact(len).enumerate() {
                rounded.clear();
                rounded.extend(totals.iter().map(|&total| total as f32));
                let channel = block.group * plan.targets + block.targets[0] + row;
                let start = (channel * plan.sources + block.sources[0]) * plan.taps;
                T::store(&rounded, &mut out[start..start + len]);
            }
        }
    }
    out
}

struct Plan {
    geometry: ConvGeometry,
    axes: [Axis; 3],
    processor: Processor,
    taps: usize,
    /// Channels of a group.
    sources: usize,
    targets: usize,
    /// Output channels whose dot products are in registers together.
    rows_block: usize,
    /// Channels of a task.
    task_targets: usize,
    task_sources: usize,
    /// Positions of a band.
    depth: usize,
    rows: usize,
    columns: usize,
    /// Number of bands along each axis.
    counts: [usize; 3],
}

/// The weights between some output and some input channels of a group: first channel and number of channels.
#[derive(Clone, Copy)]
struct Block {
    group: usize,
    targets: [usize; 2],
    sources: [usize; 2],
}

impl Plan {
    fn new(geometry: &ConvGeometry, processor: Processor) -> Self {
        let axes = [0, 1, 2].map(|axis| Axis::forward(geometry, axis));
        let taps = geometry.taps();
        let [sources, targets] = [geometry.channels_in, geometry.channels_out].map(|n| n / geometry.groups);
        let [depths, heights, widths] = geometry.sides_out;
        let columns = even_part(widths, BAND_POSITIONS);
        let rows = even_part(heights, (BAND_POSITIONS / columns).max(1));

        let task_targets = even_part(targets, TASK_ROWS.min((TASK_WEIGHTS / taps).max(1)));
        let band = Band::values_per_channel(&axes, rows, columns).max(1);
        let most = (TASK_WEIGHTS / (taps * task_targets)).min(BAND_VALUES / band);
        let task_sources = even_part(sources, most.max(1));
        let rows_block = even_part(task_targets, processor.registers().dots[0]);

        let bands = heights.div_ceil(rows) * widths.div_ceil(columns);
        let blocks = geometry.groups * targets.div_ceil(task_targets) * sources.div_ceil(task_sources);
        // Few bands and few blocks: planes are shared out too.
        let segments = TASKS.div_ceil(geometry.batch * bands * blocks).min(depths.div_ceil(4));
        let depth = depths.div_ceil(segments);
        let counts = [depths.div_ceil(depth), heights.div_ceil(rows), widths.div_ceil(columns)];
        Self {
            geometry: *geometry,
            axes,
            processor,
            taps,
            sources,
            targets,
            rows_block,
            task_targets,
            task_sources,
            depth,
            rows,
            columns,
            counts,
        }
    }

    fn blocks(&self) -> Vec<Block> {
        let mut blocks = Vec::new();
        for group in 0..self.geometry.groups {
            for target in (0..self.targets).step_by(self.task_targets) {
                for source in (0..self.sources).step_by(self.task_sources) {
                    let targets = [target, self.task_targets.min(self.targets - target)];
                    blocks.push(Block {
                        group,
                        targets,
                        sources: [source, self.task_sources.min(self.sources - source)],
                    });
                }
            }
        }
        blocks
    }

    /// Number of bands.
    fn pieces(&self) -> usize {
        self.geometry.batch * self.counts.iter().product::<usize>()
    }

    /// Values of a row of gradients times [`Self::rows_block`] in the sums, one more than weights: what registers that are
    /// left over sum is put there.
    fn sums_len(&self) -> usize {
        (self.task_sources * self.taps + 1) * self.rows_block * self.processor.registers().lanes
    }
}

struct Scratch<'a> {
    band: Band<'a>,
    gradient: Vec<f32>,
    gradient_len: usize,
    sums: Vec<f32>,
    shifts: Vec<Shift>,
}

impl<'a> Scratch<'a> {
    fn new(plan: &'a Plan) -> Self {
        let band = Band::new(&plan.axes, plan.task_sources, plan.rows, plan.columns);
        let gradient_len = apart(plan.rows * band.pitch + SLACK);
        let blocks = plan.task_targets.div_ceil(plan.rows_block);
        Self {
            band,
            gradient: vec![0.0; blocks * plan.rows_block * gradient_len],
            gradient_len,
            sums: vec![0.0; blocks * plan.sums_len()],
            shifts: Vec::new(),
        }
    }
}

struct Job<'a, T> {
    plan: &'a Plan,
    block: Block,
    x: &'a [T],
    load: Option<LoadAs<'a>>,
    gradient: &'a [T],
}

impl<T: Element> Job<'_, T> {
    /// The totals of a range of bands: `[target][source][tap]`.
    fn run(&self, pieces: [usize; 2], scratch: &mut Scratch) -> Vec<f64> {
        let plan = self.plan;
        let period = plan.axes[0].period;
        let [depths, heights, widths] = plan.geometry.sides_out;
        let mut totals = vec![0.0; self.block.targets[1] * self.block.sources[1] * plan.taps];
        let mut summed = 0;
        scratch.sums.fill(0.0);
        for piece in pieces[0]..pieces[1] {
            let [segments, bands, tiles] = plan.counts;
            let sample = piece / (segments * bands * tiles);
            let first = piece / (bands * tiles) % segments * plan.depth;
            let row = piece / tiles % bands * plan.rows;
            let column = piece % tiles * plan.columns;
            let rows = [row, plan.rows.min(heights - row)];
            let part =
                Part { channels: self.block.sources, rows, columns: [column, plan.columns.min(widths - column)] };
            let count = plan.depth.min(depths - first);
            scratch.band.clear();
            for depth in (0..period.min(count)).flat_map(|start| (start..count).step_by(period)) {
                self.add(sample, first + depth, part, scratch);
                summed += part.rows[1] * part.columns[1];
                if summed >= SUMMED_POSITIONS {
                    self.total(&mut totals, scratch);
                    summed = 0;
                }
            }
        }
        self.total(&mut totals, scratch);
        totals
    }

    /// Adds one band at one depth to the sums.
    fn add(&self, sample: usize, depth: usize, part: Part, scratch: &mut Scratch) {
        let plan = self.plan;
        let geometry = &plan.geometry;
        let Scratch { band, gradient, gradient_len, sums, shifts } = scratch;
        let volume = geometry.volume_in() * plan.sources;
        let group = sample * geometry.groups + self.block.group;
        let load = self.load.map(|load| load.of_group(self.block.group, plan.sources));
        band.load(Source { values: &self.x[group * volume..][..volume], load }, part, depth);
        self.load_gradient(sample, depth, part, band.pitch, gradient, *gradient_len);

        band.shifts(depth, [0; 3], [0, part.channels[1]], shifts);
        let spare = Shift { start: 0, weight: plan.task_sources * plan.taps };
        shifts.resize(shifts.len().next_multiple_of(plan.processor.registers().dots[1]), spare);
        plan.processor.run(Dots {
            band: band.values(),
            shifts,
            gradient,
            gradient_len: *gradient_len,
            rows: plan.rows_block,
            sums,
            sums_len: plan.sums_len(),
            positions: part.positions(band.pitch),
        });
    }

    /// The gradient's rows with zeros between them, where the band has what two rows do not share.
    fn load_gradient(&self, sample: usize, depth: usize, part: Part, pitch: usize, to: &mut [f32], len: usize) {
        let geometry = &self.plan.geometry;
        let [depths, heights, widths] = geometry.sides_out;
        let first = sample * geometry.channels_out + self.block.group * self.plan.targets + self.block.targets[0];
        for (channel, to) in to.chunks_exact_mut(len).take(self.block.targets[1]).enumerate() {
            for row in 0..part.rows[1] {
                let from = ((first + channel) * depths + depth) * heights + part.rows[0] + row;
                let (values, zeros) = to[row * pitch..][..pitch].split_at_mut(part.columns[1]);
                T::load(&self.gradient[from * widths + part.columns[0]..][..part.columns[1]], values);
                zeros.fill(0.0);
            }
            to[part.rows[1] * pitch..][..SLACK].fill(0.0);
        }
    }

    /// Adds the sums to the totals and begins anew.
    fn total(&self, totals: &mut [f64], scratch: &mut Scratch) {
        let plan = self.plan;
        let lanes = plan.processor.registers().lanes;
        let weights = self.block.sources[1] * plan.taps;
        for (row, totals) in totals.chunks_exact_mut(weights).enumerate() {
            let sums = &scratch.sums[row / plan.rows_block * plan.sums_len() + row % plan.rows_block * lanes..];
            for (total, sums) in totals.iter_mut().zip(sums.chunks(plan.rows_block * lanes)) {
                // Four chains, so that an addition need not wait for the one before.
                let mut quarters = [0.0; 4];
                for sums in sums[..lanes].as_chunks::<4>().0 {
                    quarters.iter_mut().zip(sums).for_each(|(quarter, &sum)| *quarter += f64::from(sum));
                }
                *total += (quarters[0] + quarters[1]) + (quarters[2] + quarters[3]);
            }
        }
        scratch.sums.fill(0.0);
    }
}
