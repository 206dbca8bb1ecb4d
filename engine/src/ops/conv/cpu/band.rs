//! A part of the source as f32, with the zeros around the grid, laid out so that every tap reads whole rows.
//!
//! It holds some rows of a few planes of some channels. Values that neighbouring positions do not share, because the walk
//! steps over them, lie in separate rows, one for each residue of the step: then a tap of neighbouring positions always
//! is a run of neighbouring values, and rows of positions follow one another with the same pitch in source and target.

use super::axis::{Axis, Tap};
use super::kernels::Shift;
use super::{Element, LoadAs};

/// Values beyond the last channel that a vector may read.
const SLACK: usize = 64;

pub struct Band<'a> {
    axes: &'a [Axis; 3],
    /// Positions along height and width.
    rows: usize,
    /// From one row of positions to the next.
    pub pitch: usize,
    height: Reach,
    width: Reach,
    /// Offsets along the depth, and where each of their planes lies now.
    depths: Vec<isize>,
    slots: Vec<usize>,
    /// The plane of the source that a slot holds.
    held: Vec<Option<isize>>,
    plane_len: usize,
    channel_len: usize,
    values: Vec<f32>,
    /// A row of the source before its values are dealt out.
    row: Vec<f32>,
}

/// What the band holds of the source along one axis.
struct Reach {
    /// The lowest offset.
    first: isize,
    /// What offsets leave over when divided by the step.
    residues: Vec<usize>,
    /// Steps from the first offset to the last.
    steps: usize,
}

impl Reach {
    fn new(axis: &Axis) -> Self {
        let offsets = axis.offsets();
        let first = offsets.first().copied().unwrap_or(0);
        let last = offsets.last().copied().unwrap_or(0);
        let mut residues: Vec<usize> =
            offsets.iter().map(|offset| (offset - first) as usize % axis.source_step).collect();
        residues.sort_unstable();
        residues.dedup();
        Self { first, residues, steps: (last - first) as usize / axis.source_step }
    }

    /// Index of the residue of an offset, and its steps.
    fn place(&self, offset: isize, step: usize) -> [usize; 2] {
        let distance = (offset - self.first) as usize;
        let residue = self.residues.iter().position(|&residue| residue == distance % step);
        [residue.unwrap_or(0), distance / step]
    }
}

/// The source of one group of one sample.
#[derive(Clone, Copy)]
pub struct Source<'a, T> {
    /// `[channels, D, H, W]`.
    pub values: &'a [T],
    pub load: Option<LoadAs<'a>>,
}

/// Which part of it.
#[derive(Clone, Copy)]
pub struct Part {
    /// First channel and number of channels.
    pub channels: [usize; 2],
    /// First position and number of positions along height and width.
    pub rows: [usize; 2],
    pub columns: [usize; 2],
}

impl Part {
    /// From the first position to behind the last one, in rows of `pitch`.
    pub fn positions(&self, pitch: usize) -> usize {
        (self.rows[1] - 1) * pitch + self.columns[1]
    }
}

impl<'a> Band<'a> {
    /// Room for `channels` channels of `rows` times `columns` positions.
    pub fn new(axes: &'a [Axis; 3], channels: usize, rows: usize, columns: usize) -> Self {
        let [height, width] = [Reach::new(&axes[1]), Reach::new(&axes[2])];
        let depths = axes[0].offsets();
        let pitch = columns + width.steps;
        let plane_len = height.residues.len() * width.residues.len() * (rows + height.steps) * pitch;
        let channel_len = apart(depths.len() * plane_len);
        Self {
            axes,
            rows,
            pitch,
            slots: vec![0; depths.len()],
            held: vec![None; depths.len()],
            depths,
            plane_len,
            channel_len,
            values: vec![0.0; channels * channel_len + SLACK],
            row: Vec::new(),
            height,
            width,
        }
    }

    /// Values one channel takes for `rows` times `columns` positions.
    pub fn values_per_channel(axes: &[Axis; 3], rows: usize, columns: usize) -> usize {
        let [height, width] = [Reach::new(&axes[1]), Reach::new(&axes[2])];
        let pitch = columns + width.steps;
        axes[0].offsets().len() * height.residues.len() * width.residues.len() * (rows + height.steps) * pitch
    }

    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// Forgets what it holds.
    pub fn clear(&mut self) {
        self.held.fill(None);
    }

    /// Reads the planes that positions at `depth` need and that it does not hold yet.
    ///
    /// [`Self::clear`] it first when another part than before is asked for.
    pub fn load<T: Element>(&mut self, source: Source<T>, part: Part, depth: usize) {
        let wanted: Vec<isize> = self.depths.iter().map(|&offset| self.axes[0].read(depth, offset)).collect();
        for (i, &plane) in wanted.iter().enumerate() {
            if let Some(slot) = self.held.iter().position(|&held| held == Some(plane)) {
                self.slots[i] = slot;
                continue;
            }
            let free = |held: &Option<isize>| held.is_none_or(|held| !wanted.contains(&held));
            let slot = self.held.iter().position(free).unwrap_or(i);
            self.held[slot] = Some(plane);
            self.slots[i] = slot;
            // Taps outside the grid are left out instead of read.
            if let Ok(plane) = usize::try_from(plane)
                && plane < self.axes[0].source
            {
                self.load_plane(source, part, plane, slot);
            }
        }
    }

    fn load_plane<T: Element>(&mut self, source: Source<T>, part: Part, plane: usize, slot: usize) {
        let [depth, height, width] = [self.axes[0].source, self.axes[1].source, self.axes[2].source];
        let rows = self.rows + self.height.steps;
        let lane = rows * self.pitch;
        let residues = self.height.residues.clone();
        for channel in 0..part.channels[1] {
            let from = part.channels[0] + channel;
            let to = channel * self.channel_len + slot * self.plane_len;
            let load = source.load.map(|load| (load.scale[from], load.shift[from], load.relu));
            for (i, &residue) in residues.iter().enumerate() {
                for row in 0..part.rows[1] + self.height.steps {
                    let at = self.axes[1].read(part.rows[0] + row, self.height.first + residue as isize);
                    let inside = usize::try_from(at).ok().filter(|&at| at < height);
                    let start = to + i * self.width.residues.len() * lane + row * self.pitch;
                    let Some(at) = inside else {
                        for residue in 0..self.width.residues.len() {
                            self.values[start + residue * lane..][..self.pitch].fill(0.0);
                        }
                        continue;
                    };
                    let from = &source.values[((from * depth + plane) * height + at) * width..][..width];
                    self.load_row(from, load, part.columns[0], start, lane);
                }
            }
        }
    }

    /// One row of the source to the rows of its residues, the first of them at `start`.
    fn load_row<T: Element>(
        &mut self,
        from: &[T],
        load: Option<(f32, f32, bool)>,
        column: usize,
        start: usize,
        lane: usize,
    ) {
        let step = self.axes[2].source_step;
        let begin = self.axes[2].read(column, self.width.first);
        if step == 1 {
            let to = &mut self.values[start..][..self.pitch];
            let zeros = (-begin).clamp(0, to.len() as isize) as usize;
            let from = from.get(begin.max(0) as usize..).unwrap_or_default();
            let count = from.len().min(to.len() - zeros);
            to[..zeros].fill(0.0);
            load_values(&from[..count], load, &mut to[zeros..zeros + count]);
            to[zeros + count..].fill(0.0);
            return;
        }
        // The part of the row that is read, then each residue's share of it.
        let first = begin.max(0) as usize;
        let end = begin + (self.pitch * step) as isize;
        let from = from.get(first..from.len().min(end.max(0) as usize)).unwrap_or_default();
        self.row.resize(from.len(), 0.0);
        load_values(from, load, &mut self.row);
        for (i, &residue) in self.width.residues.iter().enumerate() {
            let to = &mut self.values[start + i * lane..][..self.pitch];
            // Where the first value of this residue stands in the row.
            let at = begin + residue as isize - first as isize;
            let zeros = if at < 0 { at.unsigned_abs().div_ceil(step) } else { 0 }.min(to.len());
            let skipped = (at + (zeros * step) as isize).max(0) as usize;
            let (before, inside) = to.split_at_mut(zeros);
            before.fill(0.0);
            let values = self.row.get(skipped..).unwrap_or_default().chunks(step);
            let count = values.len().min(inside.len());
            inside.iter_mut().zip(values).for_each(|(to, from)| *to = from[0]);
            inside[count..].fill(0.0);
        }
    }

    /// Every tap of the given phases in each of the channels it holds, without taps outside the grid at `depth`.
    ///
    /// Weights are numbered `[channel][depth][height][width]`; `channels` are the first channel's number and their count.
    pub fn shifts(&self, depth: usize, phases: [usize; 3], channels: [usize; 2], shifts: &mut Vec<Shift>) {
        let [d, h, w] = [0, 1, 2].map(|axis| &self.axes[axis].phases[phases[axis]]);
        let rows = self.rows + self.height.steps;
        let step = |axis: usize| self.axes[axis].source_step;
        shifts.clear();
        let mut weight = 0;
        for tap in d {
            let plane = self.plane(depth, tap);
            for tap in h {
                let [row_residue, row] = self.height.place(tap.offset, step(1));
                for tap in w {
                    let [residue, column] = self.width.place(tap.offset, step(2));
                    if let Some(plane) = plane {
                        let lane = row_residue * self.width.residues.len() + residue;
                        shifts.push(Shift { start: plane + (lane * rows + row) * self.pitch + column, weight });
                    }
                    weight += 1;
                }
            }
        }
        let [first, count] = channels;
        let of_one = shifts.len();
        for channel in 1..count {
            for i in 0..of_one {
                let Shift { start, weight: of_tap } = shifts[i];
                shifts.push(Shift {
                    start: start + channel * self.channel_len,
                    weight: of_tap + (first + channel) * weight,
                });
            }
        }
        for shift in &mut shifts[..of_one] {
            shift.weight += first * weight;
        }
    }

    /// Where the plane of a tap begins, if it is inside the grid.
    fn plane(&self, depth: usize, tap: &Tap) -> Option<usize> {
        let at = usize::try_from(self.axes[0].read(depth, tap.offset)).ok()?;
        let slot = self.depths.iter().position(|&offset| offset == tap.offset)?;
        (at < self.axes[0].source).then(|| self.slots[slot] * self.plane_len)
    }
}

/// Lengths of rows that lie one behind the other: whole cache lines, an odd number of them, so that the same places of
/// many rows do not share a few cache sets.
pub fn apart(len: usize) -> usize {
    (len.div_ceil(16) | 1) * 16
}

pub fn load_values<T: Element>(from: &[T], load: Option<(f32, f32, bool)>, to: &mut [f32]) {
    T::load(from, to);
    let Some((scale, shift, relu)) = load else { return };
    if relu {
        // Not `max`: what is not a number stays so.
        for value in to {
            let affine = *value * scale + shift;
            *value = if affine < 0.0 { 0.0 } else { affine };
        }
    } else {
        for value in to {
            *value = *value * scale + shift;
        }
    }
}
