//! How a product is cut into workgroups and dispatches.

use burn::tensor::{DType, Shape};

use super::{Layout, oriented};
use crate::gpu::{DispatchCost, GroupCost, Tile, TileForm, shader, tile_for};
use crate::ops::Activation;

/// What to multiply, and what to do with it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spec {
    pub a: Layout,
    pub b: Layout,
    pub bias: bool,
    pub residual: bool,
    pub activation: Activation,
    /// One product, the sum over the members of the batch.
    pub sum_batches: bool,
}

impl Spec {
    /// Only the product.
    pub fn plain(a: Layout, b: Layout, sum_batches: bool) -> Self {
        Self { a, b, bias: false, residual: false, activation: Activation::Identity, sum_batches }
    }
}

/// A matrix in memory: steps, in values, along one axis of the product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Strides {
    /// Along rows of `a`, columns of `b`.
    pub outer: usize,
    pub k: usize,
    pub batch: usize,
}

/// A product in numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Problem {
    /// Members of the result.
    pub batch: usize,
    pub m: usize,
    pub n: usize,
    /// Of one matrix; with `members` above 1 the product sums over members as well.
    pub matrix_k: usize,
    /// Members to sum over.
    pub members: usize,
    pub a: Strides,
    pub b: Strides,
}

impl Problem {
    /// For operands of three dimensions whose shapes fit.
    pub fn new(a: &Shape, b: &Shape, spec: Spec) -> Self {
        let (a, b) = ([a[0], a[1], a[2]], [b[0], b[1], b[2]]);
        let ([m, k], [_, n]) = (oriented(a, spec.a), oriented(b, spec.b));
        let batch = if a[0] == 1 { b[0] } else { a[0] };
        let strides = |[members, rows, cols]: [usize; 3], outer_first: bool| {
            let (outer, k) = if outer_first { (cols, 1) } else { (1, cols) };
            Strides { outer, k, batch: if members == 1 { 0 } else { rows * cols } }
        };
        let (batch, members) = if spec.sum_batches { (1, batch) } else { (batch, 1) };
        let a = strides(a, spec.a == Layout::Normal);
        let b = strides(b, spec.b == Layout::Transposed);
        Self { batch, m, n, matrix_k: k, members, a, b }
    }

    /// Products in one sum.
    pub fn k(&self) -> usize {
        self.matrix_k * self.members
    }

    pub fn y(&self) -> [usize; 3] {
        [self.batch, self.m, self.n]
    }
}

/// Most bytes that partial sums take.
const WORKSPACE_BYTES: usize = 32 << 20;

/// The workgroups of one product.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    pub tile: &'static Tile,
    /// Parts into which k is cut; their sums are added up in order.
    pub parts: usize,
    /// Products of a part.
    pub part_k: usize,
    pub groups: u64,
    pub group: GroupCost,
    /// Groups of [`shader::TILE_REDUCE`].
    pub reduce_groups: u64,
    pub reduce_group: GroupCost,
}

impl Plan {
    /// For a result `[batch, m, n]` that is not empty.
    pub fn new([batch, m, n]: [usize; 3], k: usize, dtype: DType, form: TileForm) -> Self {
        Self::with_tile([batch, m, n], k, dtype, tile_for(m, n, k, batch, form))
    }

    /// The same with a given tile.
    pub fn with_tile([batch, m, n]: [usize; 3], k: usize, dtype: DType, tile: &'static Tile) -> Self {
        let tiles = tile.groups(m, n) * batch as u64;
        // Enough workgroups to fill a large GPU; a processor has few threads, and each part costs it a pass.
        let (wanted, least_k) = match tile.form {
            TileForm::Staged | TileForm::Cooperative { .. } => (512, 256),
            TileForm::Direct | TileForm::Lanes => (16, 512),
        };
        let workspace = WORKSPACE_BYTES / 4 / (batch * m * n);
        let parts = (wanted / tiles.max(1)).min((k / least_k) as u64).min(workspace as u64).max(1) as usize;
        // Whole steps through workgroup memory.
        let part_k = k.div_ceil(parts).next_multiple_of(16).max(16);
        let parts = k.div_ceil(part_k).max(1);
        let (elem, rows, cols) = (dtype.size() as u64, u64::from(tile.rows), u64::from(tile.cols));
        let stored = if parts > 1 { 4 } else { 2 * elem };
        let group = GroupCost {
            flops: 2 * rows * cols * part_k as u64,
            bytes: (rows + cols) * part_k as u64 * elem + rows * cols * stored,
        };
        let (reduce_groups, reduce_group) = reduce_cost(if parts > 1 { batch * m * n } else { 0 }, parts, dtype);
        Self { tile, parts, part_k, groups: tiles * parts as u64, group, reduce_groups, reduce_group }
    }

    pub fn dispatches(&self) -> Vec<DispatchCost> {
        let mut all = self.group.dispatches(shader::GEMM.name, self.groups);
        all.extend(self.reduce_group.dispatches(shader::TILE_REDUCE.name, self.reduce_groups));
        all
    }
}

/// Workgroups that add up the partial sums of `values` values, and what one costs.
pub(in crate::ops) fn reduce_cost(values: usize, parts: usize, dtype: DType) -> (u64, GroupCost) {
    let threads = u64::from(shader::TILE_REDUCE.workgroup_size);
    let bytes = threads * (4 * parts as u64 + 3 * dtype.size() as u64);
    ((values as u64).div_ceil(threads), GroupCost { flops: threads * parts as u64, bytes })
}
