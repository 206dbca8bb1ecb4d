//! The two inner loops: a product of weights with shifted rows of a band, and dot products of gradient rows with them.

use super::simd::{Simd, Work};

/// A tap of a channel: where its values begin in the band, and which weight it multiplies.
#[derive(Debug, Clone, Copy)]
pub struct Shift {
    pub start: usize,
    pub weight: usize,
}

/// `tile[row][p] += sum over shifts of weights[shift.weight][row] * band[shift.start + p]`.
pub struct Product<'a> {
    pub band: &'a [f32],
    pub shifts: &'a [Shift],
    /// Blocks of `rows` rows, each `[weight][row]` and `block_len` long.
    pub weights: &'a [f32],
    pub rows: usize,
    pub block_len: usize,
    /// Rows, `tile_len` apart.
    pub tile: &'a mut [f32],
    pub tile_len: usize,
    pub positions: usize,
}

#[allow(clippy::inline_always)]
impl Work for Product<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        // As many columns as the registers hold beside one column's values and a weight.
        match (S::ROWS, self.rows) {
            (8, 8) => self.columns::<S, 8, 3>(simd),
            (8, 7) => self.columns::<S, 7, 3>(simd),
            (8, 6) => self.columns::<S, 6, 4>(simd),
            (8, 5) => self.columns::<S, 5, 5>(simd),
            (8, 4) => self.columns::<S, 4, 6>(simd),
            (8, 3) => self.columns::<S, 3, 7>(simd),
            (8, 2) => self.columns::<S, 2, 8>(simd),
            (8, _) => self.columns::<S, 1, 8>(simd),
            (_, 4) => self.columns::<S, 4, 3>(simd),
            (_, 3) => self.columns::<S, 3, 3>(simd),
            (_, 2) => self.columns::<S, 2, 4>(simd),
            (_, _) => self.columns::<S, 1, 6>(simd),
        }
    }
}

#[allow(clippy::inline_always)]
impl Product<'_> {
    #[inline(always)]
    fn columns<S: Simd, const ROWS: usize, const COLUMNS: usize>(mut self, simd: S) {
        let mut position = 0;
        // Band and tile reach to the end of the last vector.
        while position + COLUMNS * S::LANES <= self.positions.next_multiple_of(S::LANES) {
            self.blocks::<S, ROWS, COLUMNS>(simd, position);
            position += COLUMNS * S::LANES;
        }
        while position < self.positions {
            self.blocks::<S, ROWS, 1>(simd, position);
            position += S::LANES;
        }
    }

    #[inline(always)]
    fn blocks<S: Simd, const ROWS: usize, const COLUMNS: usize>(&mut self, simd: S, position: usize) {
        let band = &self.band[position..];
        let tiles = self.tile.chunks_exact_mut(self.tile_len * ROWS);
        for (weights, tile) in self.weights.chunks_exact(self.block_len).zip(tiles) {
            let weights = weights.as_chunks::<ROWS>().0;
            let mut sums = [[simd.splat(0.0); COLUMNS]; ROWS];
            for shift in self.shifts {
                let row = &band[shift.start..][..COLUMNS * S::LANES];
                let weights = &weights[shift.weight];
                let mut values = [simd.splat(0.0); COLUMNS];
                for (column, value) in values.iter_mut().enumerate() {
                    *value = simd.load(&row[column * S::LANES..]);
                }
                for (sums, &weight) in sums.iter_mut().zip(weights) {
                    let weight = simd.splat(weight);
                    for (sum, &value) in sums.iter_mut().zip(&values) {
                        *sum = simd.mul_add(weight, value, *sum);
                    }
                }
            }
            for (sums, tile) in sums.iter().zip(tile.chunks_exact_mut(self.tile_len)) {
                let tile = &mut tile[position..][..COLUMNS * S::LANES];
                for (column, &sum) in sums.iter().enumerate() {
                    let tile = &mut tile[column * S::LANES..];
                    simd.store(simd.add(simd.load(tile), sum), tile);
                }
            }
        }
    }
}

/// `sums[shift.weight][row][lane] += sum of gradient[row][p] * band[shift.start + p]` over every `LANES`th `p`.
pub struct Dots<'a> {
    pub band: &'a [f32],
    /// As many as a multiple of the registers' columns.
    pub shifts: &'a [Shift],
    /// Rows, `gradient_len` apart, in blocks of `rows`; zero from the last position to the next multiple of the lanes.
    pub gradient: &'a [f32],
    pub gradient_len: usize,
    pub rows: usize,
    /// `[block of rows][shift][row][lane]`, each block `sums_len` long.
    pub sums: &'a mut [f32],
    pub sums_len: usize,
    pub positions: usize,
}

#[allow(clippy::inline_always)]
impl Work for Dots<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        match (S::DOTS, self.rows) {
            ([_, 6], 4) => self.blocks::<S, 4, 6>(simd),
            ([_, 6], 3) => self.blocks::<S, 3, 6>(simd),
            ([_, 6], 2) => self.blocks::<S, 2, 6>(simd),
            ([_, 6], _) => self.blocks::<S, 1, 6>(simd),
            ([..], 4) => self.blocks::<S, 4, 4>(simd),
            ([..], 3) => self.blocks::<S, 3, 4>(simd),
            ([..], 2) => self.blocks::<S, 2, 4>(simd),
            ([..], _) => self.blocks::<S, 1, 4>(simd),
        }
    }
}

#[allow(clippy::inline_always)]
impl Dots<'_> {
    #[inline(always)]
    fn blocks<S: Simd, const ROWS: usize, const TAPS: usize>(self, simd: S) {
        let len = self.positions.next_multiple_of(S::LANES);
        let blocks = self.gradient.chunks_exact(self.gradient_len * ROWS);
        for (gradient, sums) in blocks.zip(self.sums.chunks_exact_mut(self.sums_len)) {
            let mut rows = [&gradient[..len]; ROWS];
            for (row, gradient) in rows.iter_mut().zip(gradient.chunks_exact(self.gradient_len)) {
                *row = &gradient[..len];
            }
            for shifts in self.shifts.as_chunks::<TAPS>().0 {
                let mut values = [&self.band[..len]; TAPS];
                for (values, shift) in values.iter_mut().zip(shifts) {
                    *values = &self.band[shift.start..][..len];
                }
                let mut dots = [[simd.splat(0.0); TAPS]; ROWS];
                let mut position = 0;
                while position + S::LANES <= len {
                    let mut gradients = [simd.splat(0.0); ROWS];
                    for (gradient, row) in gradients.iter_mut().zip(&rows) {
                        *gradient = simd.load(&row[position..]);
                    }
                    for (tap, values) in values.iter().enumerate() {
                        let value = simd.load(&values[position..]);
                        for (dots, &gradient) in dots.iter_mut().zip(&gradients) {
                            dots[tap] = simd.mul_add(gradient, value, dots[tap]);
                        }
                    }
                    position += S::LANES;
                }
                for (tap, shift) in shifts.iter().enumerate() {
                    let sums = &mut sums[shift.weight * ROWS * S::LANES..][..ROWS * S::LANES];
                    for (row, dots) in dots.iter().enumerate() {
                        let sum = &mut sums[row * S::LANES..];
                        simd.store(simd.add(simd.load(sum), dots[tap]), sum);
                    }
                }
            }
        }
    }
}
