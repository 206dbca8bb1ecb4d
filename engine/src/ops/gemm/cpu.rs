//! Products on the processor: the CPU twin of the kernels. The `gemm` crate multiplies matrices of f32, in blocks that
//! follow from the shapes alone: the number of threads changes no bit. Its own f16 is not used, because it rounds sums to
//! f16 between blocks; blocks of f16 become f32 in bounded scratch instead, and are rounded once.

use std::ops::Range;

use half::f16;
use half::slice::HalfFloatSliceExt;
use rayon::prelude::*;

use super::plan::{Problem, Strides};
use crate::ops::element::{BLOCK, Element};

/// What is added to a sum before it is stored.
pub(super) struct Finish<'a, T> {
    /// `[N]`.
    bias: Option<&'a [f32]>,
    /// As the result.
    residual: Option<&'a [T]>,
    relu: bool,
}

impl<'a, T: Element> Finish<'a, T> {
    pub fn new(bias: Option<&'a [f32]>, residual: Option<&'a [T]>, relu: bool) -> Self {
        Self { bias, residual, relu }
    }

    fn is_needed(&self) -> bool {
        self.bias.is_some() || self.residual.is_some() || self.relu
    }

    /// Finishes sums that stand beside each other in one row of the result: from column `col` on, at `place`.
    fn apply(&self, sums: &mut [f32], place: usize, col: usize) {
        if let Some(bias) = self.bias {
            for (sum, bias) in sums.iter_mut().zip(&bias[col..]) {
                *sum += bias;
            }
        }
        if let Some(residual) = self.residual {
            let mut buffer = [0.0; BLOCK];
            for (sums, residual) in sums.chunks_mut(BLOCK).zip(residual[place..].chunks(BLOCK)) {
                for (sum, residual) in sums.iter_mut().zip(T::widen(residual, &mut buffer)) {
                    *sum += residual;
                }
            }
        }
        if self.relu {
            for sum in sums {
                // NaN stays NaN.
                *sum = if *sum < 0.0 { 0.0 } else { *sum };
            }
        }
    }
}

/// A type that matrices are stored in.
pub(super) trait Value: Element {
    /// One member of a product, into `y`, which is zero and starts at `first` of the result.
    fn multiply(
        a: &[Self],
        b: &[Self],
        problem: &Problem,
        finish: &Finish<Self>,
        first: usize,
        y: &mut [Self],
        threads: bool,
    );
}

/// `[batch, m, n]` of contiguous operands.
pub(super) fn product<T: Value>(a: &[T], b: &[T], problem: &Problem, finish: &Finish<T>) -> Vec<T> {
    let Problem { batch, m, n, .. } = *problem;
    let mut y = vec![<T as bytemuck::Zeroable>::zeroed(); batch * m * n];
    if y.is_empty() {
        return y;
    }
    let member = |index: usize, y: &mut [T], threads: bool| {
        let (a, b) = (&a[index * problem.a.batch..], &b[index * problem.b.batch..]);
        T::multiply(a, b, problem, finish, index * m * n, y, threads);
    };
    if batch > 1 && m * n * problem.k() < SMALL {
        y.par_chunks_mut(m * n).enumerate().for_each(|(index, y)| member(index, y, false));
    } else {
        let threads = m * n * problem.k() >= SMALL_ALONE;
        y.chunks_mut(m * n).enumerate().for_each(|(index, y)| member(index, y, threads));
    }
    y
}

/// Multiply-adds of a matrix below which the members of a batch are the tasks, and below which one thread does all.
const SMALL: usize = 256 * 256 * 256;
const SMALL_ALONE: usize = 32 * 32 * 32;

impl Value for f32 {
    fn multiply(
        a: &[Self],
        b: &[Self],
        problem: &Problem,
        finish: &Finish<Self>,
        first: usize,
        y: &mut [Self],
        threads: bool,
    ) {
        let n = problem.n;
        for member in 0..problem.members {
            let (a, b) = (&a[member * problem.a.batch..], &b[member * problem.b.batch..]);
            let (a, b) = (Matrix::new(a, problem.a), Matrix::new(b, problem.b));
            // New memory is written, not read: that it is zero costs nothing then.
            multiply_into([problem.m, n, problem.matrix_k], a, b, y, member > 0, threads);
        }
        if finish.is_needed() {
            let rows = y.par_chunks_mut(n).with_min_len(FINISH_VALUES.div_ceil(n)).enumerate();
            rows.for_each(|(row, y)| finish.apply(y, first + row * n, 0));
        }
    }
}

/// Values of the result that are worth a task.
const FINISH_VALUES: usize = 16 * 1024;

/// Sides of the blocks in which f16 becomes f32: at least so many columns and at most so much of k, unless the matrix has
/// less; and most values of a block of `a` and of the sums. Together they stay in the second cache.
const BLOCK_COLS: usize = 256;
const BLOCK_K: usize = 512;
const BLOCK_VALUES: usize = 1 << 17;
/// Blocks beside each other whose sums wait to be stored together.
const STORED_BLOCKS: usize = 16;
/// Steps of k that are one task where the result is small, and most bytes of their sums.
const PART_STEPS: usize = 16;
const WORKSPACE_BYTES: usize = 32 << 20;

impl Value for f16 {
    fn multiply(
        a: &[Self],
        b: &[Self],
        problem: &Problem,
        finish: &Finish<Self>,
        first: usize,
        y: &mut [Self],
        _: bool,
    ) {
        let Problem { m, n, matrix_k, .. } = *problem;
        let depth = matrix_k.clamp(1, BLOCK_K);
        let cols = n.min((BLOCK_VALUES / 2 / depth.max(m)).max(BLOCK_COLS));
        let rows = m.min(BLOCK_VALUES / cols.max(depth));
        y.par_chunks_mut(rows * n).enumerate().for_each(|(index, y)| {
            let (row, rows) = (index * rows, y.len() / n);
            for start in (0..n).step_by(STORED_BLOCKS * cols) {
                let end = n.min(start + STORED_BLOCKS * cols);
                let blocks = (start..end).into_par_iter().step_by(cols);
                let blocks = blocks.map(|col| Block { row, rows, col, cols: cols.min(end - col), depth });
                let mut blocks: Vec<_> = blocks.map(|block| (block, block.sums(a, b, problem))).collect();
                for (block, sums) in &mut blocks {
                    let Block { col, cols, .. } = *block;
                    let lines = y.par_chunks_mut(n).zip(sums.par_chunks_mut(cols));
                    let lines = lines.with_min_len(FINISH_VALUES.div_ceil(cols)).enumerate();
                    lines.for_each(|(line, (y, sums))| {
                        finish.apply(sums, first + (row + line) * n + col, col);
                        y[col..][..cols].convert_from_f32_slice(sums);
                    });
                }
            }
        });
    }
}

/// A block of the result, made from blocks of f16 that are `depth` along k.
#[derive(Clone, Copy)]
struct Block {
    row: usize,
    rows: usize,
    col: usize,
    cols: usize,
    depth: usize,
}

impl Block {
    /// The whole sums, f32.
    fn sums(&self, a: &[f16], b: &[f16], problem: &Problem) -> Vec<f32> {
        let values = self.rows * self.cols;
        let steps = problem.matrix_k.div_ceil(self.depth) * problem.members;
        let part = PART_STEPS.max((steps * values).div_ceil(WORKSPACE_BYTES / 4));
        if problem.m * problem.n > BLOCK_VALUES || steps <= part {
            return self.part(a, b, problem, 0..steps);
        }
        let parts: Vec<_> = (0..steps.div_ceil(part))
            .into_par_iter()
            .map(|index| self.part(a, b, problem, index * part..steps.min((index + 1) * part)))
            .collect();
        let mut sums = vec![0.0; values];
        for part in parts {
            for (sum, part) in sums.iter_mut().zip(part) {
                *sum += part;
            }
        }
        sums
    }

    /// The sums of some steps, counted through all members.
    fn part(&self, a: &[f16], b: &[f16], problem: &Problem, steps: Range<usize>) -> Vec<f32> {
        let (mut a_block, mut b_block, mut sums) = (Vec::new(), Vec::new(), vec![0.0; self.rows * self.cols]);
        let member_steps = problem.matrix_k.div_ceil(self.depth);
        for step in steps {
            let (member, k) = (step / member_steps, step % member_steps * self.depth);
            let k = [k, self.depth.min(problem.matrix_k - k)];
            let (a, b) = (&a[member * problem.a.batch..], &b[member * problem.b.batch..]);
            let a = widen(a, problem.a, [self.row, self.rows], k, &mut a_block);
            let b = widen(b, problem.b, [self.col, self.cols], k, &mut b_block);
            multiply_into([self.rows, self.cols, k[1]], a, b, &mut sums, true, false);
        }
        sums
    }
}

/// A part of a matrix of f16 as f32: `outer` and `k` are first and count. Laid out as the matrix itself.
fn widen<'a>(
    values: &[f16],
    strides: Strides,
    outer: [usize; 2],
    k: [usize; 2],
    block: &'a mut Vec<f32>,
) -> Matrix<'a> {
    // Rows in memory run along the axis of stride 1.
    let by_k = strides.k == 1;
    let ([first, rows], [start, width]) = if by_k { (outer, k) } else { (k, outer) };
    let step = if by_k { strides.outer } else { strides.k };
    block.resize(rows * width, 0.0);
    for (row, out) in block.chunks_mut(width).enumerate() {
        values[(first + row) * step + start..][..width].convert_to_f32_slice(out);
    }
    let (outer, k) = if by_k { (width, 1) } else { (1, width) };
    Matrix { values: block, outer, k }
}

/// A matrix of f32 in memory: steps along rows of `a` or columns of `b`, and along k.
#[derive(Clone, Copy)]
pub(in crate::ops) struct Matrix<'a> {
    values: &'a [f32],
    outer: usize,
    k: usize,
}

impl<'a> Matrix<'a> {
    fn new(values: &'a [f32], strides: Strides) -> Self {
        Self::strided(values, strides.outer, strides.k)
    }

    pub fn strided(values: &'a [f32], outer: usize, k: usize) -> Self {
        Self { values, outer, k }
    }

    /// Whether `outer` by `k` of it lie in its memory.
    fn holds(&self, outer: usize, k: usize) -> bool {
        (outer - 1) * self.outer + (k - 1) * self.k < self.values.len()
    }
}

/// Puts the product of `a` and `b`, `[m, n, k]` large, into the contiguous `y` `[m, n]`, or adds it to what is there. With
/// K = 0 `y` stays.
#[allow(unsafe_code)]
pub(in crate::ops) fn multiply_into(
    [m, n, k]: [usize; 3],
    a: Matrix,
    b: Matrix,
    y: &mut [f32],
    add: bool,
    threads: bool,
) {
    if k == 0 {
        return;
    }
    assert!(y.len() == m * n && m * n > 0 && a.holds(m, k) && b.holds(n, k), "a product of {m}x{k} and {k}x{n}");
    let parallelism = if threads { gemm::Parallelism::Rayon(0) } else { gemm::Parallelism::None };
    let steps = [n, a.k, a.outer, b.outer, b.k].map(|step| step as isize);
    // SAFETY: the function reads `a` at (row, k) for row < m and k < `k`, `b` at (k, col) for col < n, and reads and writes
    // `y` at (row, col), each by the steps given; the assertion above has the last of each lie inside its slice, so all do,
    // for no step is negative. `y` is borrowed mutably, so it overlaps neither.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            y.as_mut_ptr(),
            1,
            steps[0],
            add,
            a.values.as_ptr(),
            steps[1],
            steps[2],
            b.values.as_ptr(),
            steps[3],
            steps[4],
            1.0,
            1.0,
            false,
            false,
            false,
            parallelism,
        );
    }
}
