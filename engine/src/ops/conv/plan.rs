//! How `shaders/conv_*.wgsl` run over a geometry: tiles, parameters, and what each dispatch costs. Needs no device.

use super::ConvGeometry;
use crate::gpu::{DispatchCost, GroupCost, Tile, TileForm, shader, tile_for};

/// Places of the flags among the parameters of the kernels.
const GATHER_FLAGS: usize = 19;
const WEIGHT_FLAGS: usize = 22;

/// Most bytes of the parts of a weight gradient, as long as one part is no larger.
const WORKSPACE_BYTES: usize = 32 << 20;
/// Workgroups that keep a large GPU busy; and the processor behind Vulkan in software.
const ENOUGH_GROUPS: usize = 1024;
const ENOUGH_SOFTWARE_GROUPS: usize = 64;
/// Positions of a chunk at least: fewer, and storing the parts takes longer than the products.
const LEAST_POSITIONS: usize = 64;
/// Positions of a chunk at most, while the workspace allows: long f32 sums lose digits.
const MOST_POSITIONS: usize = 1 << 14;

/// Which of the three convolutions runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    Forward,
    /// Also the forward pass of a transposed convolution.
    InputGradient,
    WeightGradient,
}

/// Most of a side, a padding, a stride or the reach of a kernel: kernels take their differences in i32.
const MOST_STEPS: usize = 1 << 29;
/// Most taps of a kernel, and phases of an input gradient: both are handed over as tables.
const MOST_TAPS: usize = 1 << 16;
const MOST_PHASES: usize = 1 << 12;

/// What of a geometry the kernels cannot count, if anything.
pub fn beyond(geometry: &ConvGeometry) -> Option<String> {
    let reach = |axis: usize| (geometry.kernel[axis] - 1) * geometry.dilation[axis];
    let steps = [
        ("a side of", geometry.sides_in),
        ("a side of", geometry.sides_out),
        ("a padding of", geometry.padding),
        ("a stride of", geometry.stride),
        ("a kernel that reaches", [0, 1, 2].map(reach)),
    ];
    for (what, steps) in steps {
        if let Some(step) = steps.into_iter().find(|step| *step > MOST_STEPS) {
            return Some(format!("{what} {step}, and kernels count to {MOST_STEPS}"));
        }
    }
    let phases: usize = (0..3).map(|axis| geometry.stride[axis].min(geometry.sides_in[axis])).product();
    [("taps", geometry.taps(), MOST_TAPS), ("products of strides", phases, MOST_PHASES)]
        .into_iter()
        .find(|(_, count, most)| count > most)
        .map(|(what, count, most)| format!("{count} {what}, and kernels take {most}"))
}

/// What a call of a pass launches on a GPU in its plain form, in order; counted in f32, which f16 stays below there.
pub fn dispatches(geometry: &ConvGeometry, pass: Pass) -> Vec<DispatchCost> {
    match pass {
        Pass::Forward => Gather::forward(geometry).launch(TileForm::Staged).dispatches(shader::CONV_GATHER.name),
        Pass::InputGradient => {
            Gather::input_gradient(geometry).launch(TileForm::Staged).dispatches(shader::CONV_GATHER.name)
        }
        Pass::WeightGradient => {
            let parts = WeightLaunch::new(geometry, TileForm::Staged);
            let mut all = parts.launch.dispatches(shader::CONV_WEIGHT.name);
            all.extend(parts.sum.dispatches(shader::TILE_REDUCE.name));
            all
        }
    }
}

/// One launch of a kernel.
#[derive(Debug)]
pub struct Launch {
    /// None where the kernel computes no tiles.
    pub tile: Option<&'static Tile>,
    pub params: Vec<u32>,
    pub groups: u64,
    pub cost: GroupCost,
}

impl Launch {
    fn dispatches(&self, name: &'static str) -> Vec<DispatchCost> {
        self.cost.dispatches(name, self.groups)
    }

    /// The parameters of `conv_gather` or, else, `conv_weight` with flags.
    pub fn params(&self, gathers: bool, flags: u32) -> Vec<u32> {
        let mut params = self.params.clone();
        params[if gathers { GATHER_FLAGS } else { WEIGHT_FLAGS }] = flags;
        params
    }
}

/// What a tile of products over `k` costs, with what else is read and written for each of its values.
fn tile_cost(tile: &Tile, k: usize, values: u64) -> GroupCost {
    let (rows, cols, k) = (u64::from(tile.rows), u64::from(tile.cols), k as u64);
    GroupCost { flops: 2 * rows * cols * k, bytes: 4 * ((rows + cols) * k + values * rows * cols) }
}

/// Input and output channels of a group.
fn group(geometry: &ConvGeometry) -> [usize; 2] {
    [geometry.channels_in / geometry.groups, geometry.channels_out / geometry.groups]
}

fn words(numbers: Vec<usize>) -> Vec<u32> {
    numbers.into_iter().map(|number| number as u32).collect()
}

/// Output positions that meet the same taps.
struct Phase {
    first: [usize; 3],
    /// Of each axis, the taps and their offsets in the source.
    taps: [Vec<(usize, i64)>; 3],
}

impl Phase {
    fn taps(&self) -> usize {
        self.taps.iter().map(Vec::len).product()
    }
}

/// A run of `conv_gather`.
pub struct Gather {
    geometry: ConvGeometry,
    channels: usize,
    rows: usize,
    source_sides: [usize; 3],
    sides: [usize; 3],
    source_step: [usize; 3],
    step: [usize; 3],
    weight_strides: [usize; 3],
    phases: Vec<Phase>,
}

impl Gather {
    pub fn forward(geometry: &ConvGeometry) -> Self {
        let [channels, rows] = group(geometry);
        let taps = geometry.taps();
        let axis_taps = [0, 1, 2].map(|axis| {
            let offset = |tap| (tap * geometry.dilation[axis]) as i64 - geometry.padding[axis] as i64;
            (0..geometry.kernel[axis]).map(|tap| (tap, offset(tap))).collect()
        });
        Self {
            geometry: *geometry,
            channels,
            rows,
            source_sides: geometry.sides_in,
            sides: geometry.sides_out,
            source_step: geometry.stride,
            step: [1; 3],
            weight_strides: [rows * channels * taps, channels * taps, taps],
            phases: vec![Phase { first: [0; 3], taps: axis_taps }],
        }
    }

    pub fn input_gradient(geometry: &ConvGeometry) -> Self {
        let [rows, channels] = group(geometry);
        let taps = geometry.taps();
        // The positions r, r + stride, ... of x along an axis meet the taps for which r + padding - tap * dilation is a
        // multiple of the stride; the quotient is how far before or after the output stands that reads them.
        let axis_taps = |axis: usize, first: usize| -> Vec<(usize, i64)> {
            let offset = |tap| (first + geometry.padding[axis]) as i64 - (tap * geometry.dilation[axis]) as i64;
            let stride = geometry.stride[axis] as i64;
            let met = (0..geometry.kernel[axis]).filter(|tap| offset(*tap) % stride == 0);
            met.map(|tap| (tap, offset(tap) / stride)).collect()
        };
        let [depth, height, width] = [0, 1, 2].map(|axis| geometry.stride[axis].min(geometry.sides_in[axis]));
        let mut phases = Vec::new();
        for d in 0..depth {
            for h in 0..height {
                for w in 0..width {
                    phases.push(Phase { first: [d, h, w], taps: [axis_taps(0, d), axis_taps(1, h), axis_taps(2, w)] });
                }
            }
        }
        Self {
            geometry: *geometry,
            channels,
            rows,
            source_sides: geometry.sides_out,
            sides: geometry.sides_in,
            source_step: [1; 3],
            step: geometry.stride,
            weight_strides: [rows * channels * taps, taps, rows * taps],
            phases,
        }
    }

    fn counts(&self, phase: &Phase) -> [usize; 3] {
        [0, 1, 2].map(|axis| (self.sides[axis] - phase.first[axis]).div_ceil(self.step[axis]))
    }

    pub fn launch(&self, form: TileForm) -> Launch {
        let geometry = &self.geometry;
        let columns = |phase: &Phase| geometry.batch * self.counts(phase).iter().product::<usize>();
        let most_columns = self.phases.iter().map(columns).max().unwrap_or(0);
        let most_taps = self.phases.iter().map(Phase::taps).max().unwrap_or(0);
        let (members, k) = (geometry.groups * self.phases.len(), self.channels * most_taps);
        let tile = tile_for(self.rows, most_columns, k, members, form);
        let row_tiles = self.rows.div_ceil(tile.rows as usize);
        let column_tiles = most_columns.div_ceil(tile.cols as usize);

        let mut numbers = vec![geometry.groups, self.channels, self.rows, geometry.batch];
        for three in [self.source_sides, self.sides, self.source_step, self.step, self.weight_strides] {
            numbers.extend(three);
        }
        numbers.extend([0, row_tiles, column_tiles, self.phases.len()]);
        let mut first_tap = 0;
        for phase in &self.phases {
            numbers.extend(phase.first);
            numbers.extend(self.counts(phase));
            numbers.extend([first_tap, phase.taps()]);
            first_tap += phase.taps();
        }
        let mut params = words(numbers);
        let [_, height, width] = geometry.kernel;
        for phase in &self.phases {
            let [depths, heights, widths] = &phase.taps;
            for (d, z) in depths {
                for (h, y) in heights {
                    for (w, x) in widths {
                        params.extend([z, y, x].map(|offset| *offset as i32 as u32));
                        params.push(((d * height + h) * width + w) as u32);
                    }
                }
            }
        }
        // Out and the residual.
        let cost = tile_cost(tile, k, 2);
        Launch { tile: Some(tile), params, groups: (members * row_tiles * column_tiles) as u64, cost }
    }
}

/// A weight gradient: the parts of it for chunks of the positions, and their sum.
#[derive(Debug)]
pub struct WeightLaunch {
    pub launch: Launch,
    pub chunks: usize,
    pub sum: Launch,
}

impl WeightLaunch {
    pub fn new(geometry: &ConvGeometry, form: TileForm) -> Self {
        let [channels, rows] = group(geometry);
        let columns = channels * geometry.taps();
        let values = geometry.channels_out * columns;
        let positions = geometry.batch * geometry.volume_out();
        let tile = tile_for(rows, columns, positions.min(MOST_POSITIONS), geometry.groups, form);
        let (row_tiles, column_tiles) = (rows.div_ceil(tile.rows as usize), columns.div_ceil(tile.cols as usize));
        let tiles = row_tiles * column_tiles * geometry.groups;

        let most_chunks = (WORKSPACE_BYTES / (4 * values)).max(1);
        let enough = match form {
            TileForm::Direct | TileForm::Lanes => ENOUGH_SOFTWARE_GROUPS,
            TileForm::Staged | TileForm::Cooperative { .. } => ENOUGH_GROUPS,
        };
        let busy = positions.div_ceil(LEAST_POSITIONS).min(enough / tiles);
        let chunks = busy.max(positions / MOST_POSITIONS).clamp(1, most_chunks);
        let chunk_positions = positions.div_ceil(chunks).max(1);
        let chunks = positions.div_ceil(chunk_positions);

        let mut numbers = vec![geometry.groups, channels, rows, geometry.batch];
        let ConvGeometry { sides_in, sides_out, stride, padding, kernel, dilation, .. } = *geometry;
        for three in [sides_in, sides_out, stride, padding, kernel, dilation] {
            numbers.extend(three);
        }
        numbers.extend([0, row_tiles, column_tiles, chunk_positions]);
        let launch = Launch {
            tile: Some(tile),
            params: words(numbers),
            groups: (tiles * chunks) as u64,
            cost: tile_cost(tile, chunk_positions, 1),
        };
        let threads = u64::from(shader::TILE_REDUCE.workgroup_size);
        let sum = Launch {
            tile: None,
            params: words(vec![values, values, chunks, 1, 0]),
            groups: (values as u64).div_ceil(threads),
            cost: GroupCost { flops: threads * chunks as u64, bytes: 4 * threads * (chunks as u64 + 1) },
        };
        Self { launch, chunks, sum }
    }
}
