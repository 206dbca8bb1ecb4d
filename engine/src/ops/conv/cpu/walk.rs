//! Forward and input gradient: sums of weighted rows of the source, a band of it at a time.

use rayon::prelude::*;

use super::axis::Axis;
use super::band::{Band, Part, Source, apart};
use super::kernels::{Product, Shift};
use super::simd::Processor;
use super::{ConvGeometry, Element, LoadAs, StoreAs};

/// Values of a band and of its sums at most, unless one row of four channels is more: half of a usual second cache.
const SCRATCH_VALUES: usize = 128 << 10;
/// Positions of a band: enough that loading its borders is little work, few enough that small grids make many tasks.
const BAND_POSITIONS: usize = 2048;
/// A row is cut only when it has more positions.
const ROW_POSITIONS: usize = 128;
/// Tasks wanted, so that any number of threads has work.
const TASKS: usize = 16;
/// Output channels, times phases along the width, that one task sums.
const TASK_ROWS: usize = 128;
/// Products summed in registers before they are added to the tile: their rows of the band stay in the first cache.
const SUMMED: usize = 512;

/// Products that are not worth waking other threads for: some ten microseconds.
pub const FEW_PRODUCTS: usize = 1 << 20;

/// One pass from a source to a target grid.
pub struct Walk {
    batch: usize,
    groups: usize,
    /// Channels of a group.
    sources: usize,
    targets: usize,
    axes: [Axis; 3],
    kernel: [usize; 3],
    /// From a target channel's weights to the next one's, and from a source channel's.
    target_stride: usize,
    source_stride: usize,
}

impl Walk {
    pub fn forward(geometry: &ConvGeometry) -> Self {
        let [sources, targets] = [geometry.channels_in, geometry.channels_out].map(|n| n / geometry.groups);
        Self {
            batch: geometry.batch,
            groups: geometry.groups,
            sources,
            targets,
            axes: [0, 1, 2].map(|axis| Axis::forward(geometry, axis)),
            kernel: geometry.kernel,
            target_stride: sources * geometry.taps(),
            source_stride: geometry.taps(),
        }
    }

    pub fn input_gradient(geometry: &ConvGeometry) -> Self {
        let forward = Self::forward(geometry);
        Self {
            sources: forward.targets,
            targets: forward.sources,
            axes: [0, 1, 2].map(|axis| Axis::input_gradient(geometry, axis)),
            target_stride: forward.source_stride,
            source_stride: forward.target_stride,
            ..forward
        }
    }

    /// The target `[B, groups * targets, D, H, W]`.
    pub fn run<T: Element>(
        &self,
        source: &[T],
        weight: &[T],
        load: Option<LoadAs>,
        store: StoreAs<T>,
        processor: Processor,
    ) -> Vec<T> {
        let [source_volume, volume] = [|axis: &Axis| axis.source, |axis: &Axis| axis.target]
            .map(|side| self.axes.iter().map(side).product::<usize>());
        let mut target = vec![T::zeroed(); self.batch * self.groups * self.targets * volume];
        if target.is_empty() {
            return target;
        }
        let tiling = Tiling::new(self, processor);
        let panels = Panels::new(self, weight, &tiling);
        let taps = self.kernel.iter().product::<usize>() / self.phases().iter().product::<usize>();
        let few = target.len() * self.sources * taps < FEW_PRODUCTS;
        let tasks = tiling.tasks(self, &mut target);
        let at_once = if few { tasks.len() } else { 1 };
        tasks.into_par_iter().enumerate().with_min_len(at_once).for_each_init(
            || Scratch::new(self, &tiling),
            |scratch, (index, rows)| {
                let task = Task::new(self, &tiling, index);
                let group = task.sample * self.groups + task.group;
                let source = Source {
                    values: &source[group * self.sources * source_volume..][..self.sources * source_volume],
                    load: load.map(|load| load.of_group(task.group, self.sources)),
                };
                Pass { walk: self, tiling: &tiling, panels: &panels, task, processor }
                    .run(source, store, rows, scratch);
            },
        );
        target
    }

    fn phases(&self) -> [usize; 3] {
        [0, 1, 2].map(|axis| self.axes[axis].phases.len())
    }
}

/// How the positions, and the output channels, are cut into tasks.
struct Tiling {
    /// Output channels whose sums are in registers together.
    block: usize,
    /// Output channels of a task, whole blocks of them.
    channels: usize,
    /// Source channels loaded together.
    source_channels: usize,
    /// Positions of a task.
    depth: usize,
    rows: usize,
    columns: usize,
    /// Number of tasks along channels, depth, height and width.
    counts: [usize; 4],
}

impl Tiling {
    fn new(walk: &Walk, processor: Processor) -> Self {
        let [depths, heights, widths] = [0, 1, 2].map(|axis| walk.axes[axis].positions());
        let phases = walk.phases()[2];
        let block = even_part(walk.targets, processor.registers().rows);
        let channels = even_part(walk.targets.div_ceil(block), (TASK_ROWS / phases / block).max(1)) * block;
        let parts = walk.targets.div_ceil(channels);
        let values = walk.sources * Band::values_per_channel(&walk.axes, 1, 1) + channels * phases;
        let positions = (SCRATCH_VALUES / values).clamp(ROW_POSITIONS, BAND_POSITIONS);
        let columns = even_part(widths, positions);
        let tiles = widths.div_ceil(columns);

        let band = |rows: usize| Band::values_per_channel(&walk.axes, rows, columns);
        let sums = |rows: usize| channels * phases * (rows * columns);
        let mut rows = (BAND_POSITIONS / columns).clamp(1, heights);
        while rows > 4 && walk.sources * band(rows) + sums(rows) > SCRATCH_VALUES {
            rows -= 1;
        }
        let room = SCRATCH_VALUES.saturating_sub(sums(rows)) / band(rows).max(1);
        let source_channels = even_part(walk.sources, room.max(4));

        let tasks = |rows: usize| walk.batch * walk.groups * parts * heights.div_ceil(rows) * tiles;
        let segments = TASKS.div_ceil(tasks(rows)).min(depths.div_ceil(4));
        while rows >= 8 && tasks(rows) * segments < TASKS {
            rows = rows.div_ceil(2);
        }
        let depth = depths.div_ceil(segments);
        let rows = even_part(heights, rows);
        let counts = [parts, depths.div_ceil(depth), heights.div_ceil(rows), tiles];
        Self { block, channels, source_channels, depth, rows, columns, counts }
    }

    /// The rows of the target that each task writes, those of a task in the order channel, depth, height.
    fn tasks<'t, T>(&self, walk: &Walk, target: &'t mut [T]) -> Vec<Vec<&'t mut [T]>> {
        let [depth, height, width] = [0, 1, 2].map(|axis| walk.axes[axis].target);
        let phases = walk.phases();
        let [parts, segments, bands, tiles] = self.counts;
        let count = walk.batch * walk.groups * parts * segments * bands * tiles;
        let mut tasks: Vec<Vec<&mut [T]>> = Vec::new();
        tasks.resize_with(count, Vec::new);
        for (i, row) in target.chunks_exact_mut(width).enumerate() {
            let [channel, d, h] = [i / (depth * height), i / height % depth, i % height];
            let [group, channel] = [channel / walk.targets, channel % walk.targets];
            let task = (group * parts + channel / self.channels) * segments + d / (self.depth * phases[0]);
            let task = (task * bands + h / (self.rows * phases[1])) * tiles;
            for (tile, row) in row.chunks_mut(self.columns * phases[2]).enumerate() {
                tasks[task + tile].push(row);
            }
        }
        tasks
    }
}

/// The size of parts of `count`, none larger than `most`, as even as can be.
pub fn even_part(count: usize, most: usize) -> usize {
    count.div_ceil(count.div_ceil(most).max(1)).max(1)
}

/// Weights in the order in which they are read: `[group][phase][block of output channels][source channel][tap][channel]`.
struct Panels {
    values: Vec<f32>,
    /// Where a phase begins in a group, and how many values one block of it takes.
    phases: Vec<[usize; 2]>,
    group_len: usize,
}

impl Panels {
    fn new<T: Element>(walk: &Walk, weight: &[T], tiling: &Tiling) -> Self {
        let blocks = walk.targets.div_ceil(tiling.block);
        let counts = walk.phases();
        let mut taps = Vec::new();
        let mut phases = Vec::new();
        let mut group_len = 0;
        for phase in 0..counts.iter().product() {
            let [d, h, w] = [phase / (counts[1] * counts[2]), phase / counts[2] % counts[1], phase % counts[2]];
            let indices = |axis: usize, phase: usize| walk.axes[axis].phases[phase].iter().map(|tap| tap.index);
            let of_phase: Vec<usize> = indices(0, d)
                .flat_map(|d| indices(1, h).map(move |h| d * walk.kernel[1] + h))
                .flat_map(|row| indices(2, w).map(move |w| row * walk.kernel[2] + w))
                .collect();
            let block_len = walk.sources * of_phase.len() * tiling.block;
            phases.push([group_len, block_len]);
            group_len += blocks * block_len;
            taps.push(of_phase);
        }
        let mut values = vec![0.0; walk.groups * group_len];
        let mut kernel = vec![0.0; walk.kernel.iter().product()];
        for (group, values) in values.chunks_exact_mut(group_len.max(1)).enumerate() {
            let weight = &weight[group * walk.sources * walk.targets * kernel.len()..];
            for target in 0..walk.targets {
                for source in 0..walk.sources {
                    let start = target * walk.target_stride + source * walk.source_stride;
                    T::load(&weight[start..start + kernel.len()], &mut kernel);
                    // A phase without taps has no weights.
                    for (&[start, block_len], taps) in phases.iter().zip(&taps).filter(|(_, taps)| !taps.is_empty()) {
                        let block = &mut values[start + target / tiling.block * block_len..];
                        let block = &mut block[source * taps.len() * tiling.block + target % tiling.block..];
                        for (to, &tap) in block.iter_mut().step_by(tiling.block).zip(taps) {
                            *to = kernel[tap];
                        }
                    }
                }
            }
        }
        Self { values, phases, group_len }
    }
}

struct Scratch<'a> {
    band: Band<'a>,
    /// `[phase along the width][channel][position]`.
    tile: Vec<f32>,
    tile_len: usize,
    shifts: Vec<Shift>,
    line: Vec<f32>,
}

impl<'a> Scratch<'a> {
    fn new(walk: &'a Walk, tiling: &Tiling) -> Self {
        let band = Band::new(&walk.axes, tiling.source_channels, tiling.rows, tiling.columns);
        let tile_len = apart(tiling.rows * band.pitch);
        let tile = vec![0.0; walk.phases()[2] * tiling.channels * tile_len];
        Self { band, tile, tile_len, shifts: Vec::new(), line: Vec::new() }
    }
}

/// Which positions and channels one task makes.
struct Task {
    sample: usize,
    group: usize,
    /// First output channel of the group and their number.
    channels: [usize; 2],
    /// First position and number of positions along each axis.
    depth: [usize; 2],
    rows: [usize; 2],
    columns: [usize; 2],
}

impl Task {
    fn new(walk: &Walk, tiling: &Tiling, index: usize) -> Self {
        let [parts, segments, bands, tiles] = tiling.counts;
        let span = |index: usize, size: usize, count: usize| [index * size, size.min(count - index * size)];
        let positions = |axis: usize| walk.axes[axis].positions();
        let group = index / (parts * segments * bands * tiles);
        Self {
            sample: group / walk.groups,
            group: group % walk.groups,
            channels: span(index / (segments * bands * tiles) % parts, tiling.channels, walk.targets),
            depth: span(index / (bands * tiles) % segments, tiling.depth, positions(0)),
            rows: span(index / tiles % bands, tiling.rows, positions(1)),
            columns: span(index % tiles, tiling.columns, positions(2)),
        }
    }
}

struct Pass<'a> {
    walk: &'a Walk,
    tiling: &'a Tiling,
    panels: &'a Panels,
    task: Task,
    processor: Processor,
}

impl Pass<'_> {
    fn run<T: Element>(&self, source: Source<T>, store: StoreAs<T>, mut rows: Vec<&mut [T]>, scratch: &mut Scratch) {
        let counts = self.walk.phases();
        let period = self.walk.axes[0].period;
        let [first, count] = self.task.depth;
        scratch.band.clear();
        // Neighbours that read the same planes follow one another.
        for depth in (0..period.min(count)).flat_map(|start| (start..count).step_by(period)) {
            for phase in 0..counts[0] {
                if (first + depth) * counts[0] + phase >= self.walk.axes[0].target {
                    break;
                }
                for row_phase in 0..counts[1] {
                    self.sum(source, first + depth, [phase, row_phase], scratch);
                    self.store(store, depth * counts[0] + phase, row_phase, &mut rows, scratch);
                }
            }
        }
    }

    /// The sums of all phases along the width into the tile.
    fn sum<T: Element>(&self, source: Source<T>, depth: usize, [d, h]: [usize; 2], scratch: &mut Scratch) {
        let Scratch { band, tile, tile_len, shifts, .. } = scratch;
        let [_, heights, widths] = self.walk.phases();
        let (task, tiling) = (&self.task, self.tiling);
        let tile_size = tiling.channels * *tile_len;
        tile.fill(0.0);
        for first in (0..self.walk.sources).step_by(tiling.source_channels) {
            let channels = tiling.source_channels.min(self.walk.sources - first);
            if channels < self.walk.sources {
                band.clear();
            }
            let part = Part { channels: [first, channels], rows: task.rows, columns: task.columns };
            band.load(source, part, depth);
            for (w, tile) in tile.chunks_exact_mut(tile_size).enumerate() {
                band.shifts(depth, [d, h, w], [first, channels], shifts);
                let [start, block_len] = self.panels.phases[(d * heights + h) * widths + w];
                if block_len == 0 {
                    continue;
                }
                let start = start + task.group * self.panels.group_len + task.channels[0] / tiling.block * block_len;
                let blocks = task.channels[1].div_ceil(tiling.block);
                for shifts in shifts.chunks(SUMMED) {
                    self.processor.run(Product {
                        band: band.values(),
                        shifts,
                        weights: &self.panels.values[start..start + blocks * block_len],
                        rows: tiling.block,
                        block_len,
                        tile,
                        tile_len: *tile_len,
                        positions: part.positions(band.pitch),
                    });
                }
            }
        }
    }

    /// The tile to the target's rows at `depth`, counted from the task's first.
    fn store<T: Element>(
        &self,
        store: StoreAs<T>,
        depth: usize,
        row_phase: usize,
        target: &mut [&mut [T]],
        scratch: &mut Scratch,
    ) {
        let counts = self.walk.phases();
        let [depths, heights, width] = [0, 1, 2].map(|axis| self.walk.axes[axis].target);
        // Of the task: targets along an axis and the first of them.
        let extent = |[first, count]: [usize; 2], axis: usize| {
            let first = first * counts[axis];
            [first, (count * counts[axis]).min(self.walk.axes[axis].target - first)]
        };
        let [d, h] = [extent(self.task.depth, 0), extent(self.task.rows, 1)];
        let first_column = self.task.columns[0] * counts[2];
        let Scratch { band, tile, tile_len, line, .. } = scratch;
        for channel in 0..self.task.channels[1] {
            let of_all = (self.task.sample * self.walk.groups + self.task.group) * self.walk.targets
                + self.task.channels[0]
                + channel;
            let bias = store.bias.map(|bias| bias[of_all % (self.walk.groups * self.walk.targets)]);
            for row in 0..self.task.rows[1] {
                let at = row * counts[1] + row_phase;
                if at >= h[1] {
                    break;
                }
                let to = &mut *target[(channel * d[1] + depth) * h[1] + at];
                let start = channel * *tile_len + row * band.pitch;
                let sums = if counts[2] == 1 {
                    &mut tile[start..start + to.len()]
                } else {
                    line.resize(to.len(), 0.0);
                    interleave(&tile[start..], self.tiling.channels * *tile_len, counts[2], line);
                    line.as_mut_slice()
                };
                if let Some(bias) = bias {
                    for sum in &mut *sums {
                        *sum += bias;
                    }
                }
                if let Some(residual) = store.residual {
                    let start = ((of_all * depths + d[0] + depth) * heights + h[0] + at) * width + first_column;
                    T::add(&residual[start..start + to.len()], sums);
                }
                if store.relu {
                    // Not `max`: what is not a number stays so.
                    for sum in &mut *sums {
                        *sum = if *sum < 0.0 { 0.0 } else { *sum };
                    }
                }
                T::store(sums, to);
            }
        }
    }
}

/// Value `i` of phase `p`, which begins at `p * phase_len`, to place `i * phases + p`.
fn interleave(from: &[f32], phase_len: usize, phases: usize, to: &mut [f32]) {
    fn blocks<const N: usize>(from: &[f32], phase_len: usize, to: &mut [f32]) -> usize {
        let (blocks, _) = to.as_chunks_mut::<N>();
        let mut rows = [from; N];
        for (phase, row) in rows.iter_mut().enumerate() {
            *row = &from[phase * phase_len..][..blocks.len()];
        }
        for (i, block) in blocks.iter_mut().enumerate() {
            for (to, row) in block.iter_mut().zip(&rows) {
                *to = row[i];
            }
        }
        blocks.len()
    }
    // The strides in use, compiled on their own.
    let done = match phases {
        2 => blocks::<2>(from, phase_len, to),
        4 => blocks::<4>(from, phase_len, to),
        8 => blocks::<8>(from, phase_len, to),
        _ => 0,
    };
    for (i, block) in to.chunks_mut(phases).enumerate().skip(done) {
        for (phase, to) in block.iter_mut().enumerate() {
            *to = from[phase * phase_len + i];
        }
    }
}
