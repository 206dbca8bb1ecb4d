//! Voxel keys: one integer a voxel, in (batch, Morton) order.

use occam_scene::GridSpec;

use crate::{Error, Result};

/// Key of a point that lies in no voxel. No layout gives it to a voxel.
pub const NO_VOXEL: u64 = u64::MAX;

/// How the voxel indices of a grid and the number of the batch member become one integer.
///
/// The bits of x, y, z interleave from the lowest up (x first), and an axis that has run out of bits leaves its place to
/// the others: the order is Morton's, the keys fill the box whose sides are the next powers of two, and a grid of
/// 256 x 256 x 32 needs 21 bits, not 24. The batch number stands above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyLayout {
    /// Bits of the key that belong to x, y, z.
    masks: [u64; 3],
    /// Bits of a voxel below the batch number.
    voxel_bits: u32,
    batch: u32,
    words: u32,
}

/// Bits of the largest key we sort: 2^31 cells pad to at most 2^34, which leaves 2^14 batch members.
const MAX_KEY_BITS: u32 = 48;

impl KeyLayout {
    /// Layout for `batch` members on one grid. Keys fit in one u32 word while there are fewer than 2^32 of them.
    ///
    /// # Errors
    /// [`Error::Usage`] for a senseless grid, [`Error::TooLarge`] beyond 2^48 keys.
    pub fn new(spec: &GridSpec, batch: usize) -> Result<Self> {
        spec.check().map_err(Error::Usage)?;
        let bits = spec.counts.map(|count| usize::BITS - (count - 1).leading_zeros());
        let mut masks = [0u64; 3];
        let mut voxel_bits = 0;
        for level in 0..usize::BITS {
            for axis in 0..3 {
                if level < bits[axis] {
                    masks[axis] |= 1 << voxel_bits;
                    voxel_bits += 1;
                }
            }
        }
        let keys = (batch as u128) << voxel_bits;
        if keys > 1 << MAX_KEY_BITS {
            return Err(Error::TooLarge(format!(
                "voxel keys: {batch} grids of {:?} voxels need {keys} keys, the limit is 2^{MAX_KEY_BITS}. Use a smaller \
                 batch or grid",
                spec.counts
            )));
        }
        let words = if keys < 1 << 32 { 1 } else { 2 };
        Ok(Self { masks, voxel_bits, batch: batch as u32, words })
    }

    /// The same keys on two words although one would do. The results are the same, only slower.
    #[must_use]
    pub fn in_two_words(self) -> Self {
        Self { words: 2, ..self }
    }

    /// u32 words a key takes on a device: 1 or 2.
    pub fn words(&self) -> u32 {
        self.words
    }

    pub fn batch(&self) -> usize {
        self.batch as usize
    }

    /// One more than the largest key.
    pub fn end(&self) -> u64 {
        u64::from(self.batch) << self.voxel_bits
    }

    /// Bits that the keys and one more value need in their highest word, and that value: the mark of a point without
    /// voxel, above every key.
    pub(super) fn highest_word(&self) -> (u32, u32) {
        let none = match self.words {
            1 => self.end() as u32,
            _ => (self.end().saturating_sub(1) >> 32) as u32 + 1,
        };
        (u32::BITS - none.leading_zeros(), none)
    }

    /// The layout as `voxel_key.wgsl` takes it, for word 0 (low) or 1 (high).
    pub(super) fn params(&self, word: u32) -> [u32; 8] {
        let [x, y, z] = self.masks;
        let high = |mask: u64| (mask >> 32) as u32;
        [word, self.voxel_bits, x as u32, y as u32, z as u32, high(x), high(y), high(z)]
    }

    /// Key of a voxel.
    pub fn key(&self, batch: usize, voxel: [usize; 3]) -> u64 {
        let spread = |axis: usize| deposit(voxel[axis] as u64, self.masks[axis]);
        (batch as u64) << self.voxel_bits | spread(0) | spread(1) | spread(2)
    }

    /// Batch member and voxel of a key.
    pub fn voxel(&self, key: u64) -> (usize, [usize; 3]) {
        ((key >> self.voxel_bits) as usize, self.masks.map(|mask| extract(key, mask) as usize))
    }
}

/// Puts the low bits of `value` where `mask` has ones.
fn deposit(mut value: u64, mut mask: u64) -> u64 {
    let mut out = 0;
    while mask != 0 {
        let lowest = mask & mask.wrapping_neg();
        if value & 1 == 1 {
            out |= lowest;
        }
        value >>= 1;
        mask ^= lowest;
    }
    out
}

/// The bits of `value` where `mask` has ones, moved together.
fn extract(value: u64, mut mask: u64) -> u64 {
    let mut out = 0;
    let mut place = 0;
    while mask != 0 {
        let lowest = mask & mask.wrapping_neg();
        if value & lowest != 0 {
            out |= 1 << place;
        }
        place += 1;
        mask ^= lowest;
    }
    out
}

/// A grid as `voxel_cell.wgsl` takes it.
pub(in crate::ops) fn grid_params(spec: &GridSpec) -> [u32; 12] {
    let rows = [spec.origin_m, spec.inverse_size(), spec.counts.map(|count| count as f32), spec.voxel_size_m];
    std::array::from_fn(|i| rows[i / 3][i % 3].to_bits())
}

/// The index rule of [`GridSpec::voxel_of`] with its constants at hand.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cells {
    pub origin: [f32; 3],
    pub inverse: [f32; 3],
    pub counts: [f32; 3],
}

impl Cells {
    pub fn new(spec: &GridSpec) -> Self {
        Self { origin: spec.origin_m, inverse: spec.inverse_size(), counts: spec.counts.map(|count| count as f32) }
    }

    #[inline]
    pub fn voxel_of(&self, point: [f32; 3]) -> Option<[usize; 3]> {
        let mut voxel = [0; 3];
        for axis in 0..3 {
            // Between 0 and a whole number, truncation is the floor; NaN fails the comparison.
            let cell = (point[axis] - self.origin[axis]) * self.inverse[axis];
            if !(cell >= 0.0 && cell < self.counts[axis]) {
                return None;
            }
            // By way of u32, which the processor converts to directly; counts fit in it.
            voxel[axis] = cell as u32 as usize;
        }
        Some(voxel)
    }
}

/// Keys of many points: the spread bits of each axis come from two small tables.
pub(super) struct KeyTables {
    cells: Cells,
    voxel_bits: u32,
    /// For every axis: spread bits of the low 16 bits of an index, then of the high ones.
    spread: [[Vec<u64>; 2]; 3],
}

impl KeyTables {
    pub fn new(spec: &GridSpec, layout: &KeyLayout) -> Self {
        let spread = std::array::from_fn(|axis| {
            let (count, mask) = (spec.counts[axis], layout.masks[axis]);
            [
                (0..count.min(1 << 16)).map(|low| deposit(low as u64, mask)).collect(),
                (0..=(count - 1) >> 16).map(|high| deposit((high << 16) as u64, mask)).collect(),
            ]
        });
        Self { cells: Cells::new(spec), voxel_bits: layout.voxel_bits, spread }
    }

    #[inline]
    pub fn key(&self, batch: usize, point: [f32; 3]) -> u64 {
        let Some(voxel) = self.cells.voxel_of(point) else { return NO_VOXEL };
        let mut key = (batch as u64) << self.voxel_bits;
        for ([low, high], index) in self.spread.iter().zip(voxel) {
            key |= low[index & 0xffff] | high[index >> 16];
        }
        key
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_sides_interleave_x_y_z_from_the_lowest_bit() {
        let layout = KeyLayout::new(&GridSpec::new([0.0; 3], [1.0; 3], [4, 4, 4]), 2).unwrap();
        assert_eq!(layout.key(0, [1, 0, 0]), 1);
        assert_eq!(layout.key(0, [0, 1, 0]), 2);
        assert_eq!(layout.key(0, [0, 0, 1]), 4);
        // x = 0b11, y = 0b01, z = 0b10: bits z1 y1 x1 z0 y0 x0 = 1 0 1 0 1 1.
        assert_eq!(layout.key(0, [3, 1, 2]), 0b101011);
        assert_eq!(layout.key(1, [0, 0, 0]), 64);
        assert_eq!(layout.end(), 128);
    }

    #[test]
    fn a_flat_grid_wastes_no_bits_and_keys_are_reversible() {
        let layout = KeyLayout::new(&GridSpec::new([0.0; 3], [1.0; 3], [256, 256, 32]), 1).unwrap();
        assert_eq!(layout.end(), 1 << 21);
        let layout = KeyLayout::new(&GridSpec::new([0.0; 3], [1.0; 3], [5, 9, 1]), 3).unwrap();
        for batch in 0..3 {
            for x in 0..5 {
                for y in 0..9 {
                    assert_eq!(layout.voxel(layout.key(batch, [x, y, 0])), (batch, [x, y, 0]));
                }
            }
        }
    }

    #[test]
    fn words_follow_the_number_of_keys_of_the_padded_box() {
        // 1024 x 1024 x 1024 = 2^30 keys a member: three members fit in 32 bits, four do not.
        let spec = GridSpec::new([0.0; 3], [1.0; 3], [1024, 1000, 1024]);
        assert_eq!(KeyLayout::new(&spec, 3).unwrap().words(), 1);
        assert_eq!(KeyLayout::new(&spec, 4).unwrap().words(), 2);
        assert!(matches!(KeyLayout::new(&spec, 1 << 19), Err(Error::TooLarge(_))));
    }

    #[test]
    fn points_follow_the_rule_of_the_spec_on_borders_and_beyond() {
        let spec = GridSpec::new([-3.3, 1000.1, -2.0], [0.2, 0.3, 0.7], [100, 70_000, 7]);
        let layout = KeyLayout::new(&spec, 1).unwrap();
        let tables = KeyTables::new(&spec, &layout);
        let coordinate = |axis: usize, step: i32| spec.origin_m[axis] + spec.voxel_size_m[axis] * step as f32;
        let mut inside = 0;
        for step in [-1, 0, 1, 2, 3, 6, 7, 8, 99, 100, 101, 65_535, 65_536, 69_999, 70_000] {
            for nudge in [-1i32, 0, 1] {
                let near = |axis| f32::from_bits((coordinate(axis, step).to_bits() as i32 + nudge) as u32);
                for point in [
                    [near(0), 1000.5, -1.0],
                    [0.0, near(1), -1.0],
                    [0.0, 1000.5, near(2)],
                    [near(0), f32::NAN, 0.0],
                    [f32::INFINITY, near(1), 0.0],
                    [0.0, 1000.5, -f32::INFINITY],
                ] {
                    let expected = spec.voxel_of(point).map_or(NO_VOXEL, |voxel| layout.key(0, voxel));
                    assert_eq!(tables.key(0, point), expected, "{point:?}");
                    inside += usize::from(expected != NO_VOXEL);
                }
            }
        }
        assert!(inside > 30, "{inside}");
    }
}
