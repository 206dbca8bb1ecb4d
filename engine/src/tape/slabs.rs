//! Planes of a grid with those on either side, and the way back to a whole grid.

use burn::tensor::Tensor;

use super::Value;

/// Planes `start - halo..end + halo` along z of `features`, zeros beyond the grid.
pub(super) fn slab(features: &Value, start: usize, end: usize, halo: usize) -> Value {
    let [batch, channels, count, x, y] = features.dims();
    let (first, last) = (start.saturating_sub(halo), (end + halo).min(count));
    let inside = features.clone().slice_dim(2, first..last);
    let device = features.device();
    let zeros = |planes: usize| Tensor::<5>::zeros([batch, channels, planes, x, y], (&device, features.dtype()));
    let (before, after) = ((halo + first) - start, end + halo - last);
    if before + after == 0 {
        return inside;
    }
    let parts = [(before > 0).then(|| zeros(before)), Some(inside), (after > 0).then(|| zeros(after))];
    Tensor::cat(parts.into_iter().flatten().collect(), 2)
}

/// Gradients of slabs one after another: where two of them lie over each other they add up.
pub(super) struct Slabs {
    halo: usize,
    /// Planes that no slab to come reaches, from `-halo` on.
    done: Vec<Value>,
    /// The last `2 halo` planes so far.
    open: Option<Value>,
}

impl Slabs {
    pub fn new(halo: usize) -> Self {
        Self { halo, done: Vec::new(), open: None }
    }

    /// The gradient of the next slab.
    pub fn add(&mut self, found: Value) {
        let (total, shared) = (found.dims()[2], 2 * self.halo);
        if shared == 0 {
            self.done.push(found);
            return;
        }
        let planes = |from: usize, to: usize| found.clone().slice_dim(2, from..to);
        let own = total - shared;
        let Some(open) = self.open.take() else {
            self.done.push(planes(0, own));
            self.open = Some(planes(own, total));
            return;
        };
        let both = open + planes(0, shared);
        if own > shared {
            // A tensor of its own: a view would hold all of the slab.
            self.done.push(Tensor::cat(vec![both, planes(shared, own)], 2));
            self.open = Some(planes(own, total));
        } else {
            let all = Tensor::cat(vec![both, planes(shared, total)], 2);
            self.done.push(all.clone().slice_dim(2, 0..own));
            self.open = Some(all.slice_dim(2, own..total));
        }
    }

    /// The gradient of the grid, when all slabs were added; `None` without any.
    pub fn joined(mut self) -> Option<Value> {
        if let Some(open) = self.open.take() {
            // What lies beyond the end goes.
            self.done.push(open.slice_dim(2, 0..self.halo));
        }
        let mut beyond = self.halo;
        let mut parts = Vec::with_capacity(self.done.len());
        for part in self.done {
            let planes = part.dims()[2];
            let cut = beyond.min(planes);
            beyond -= cut;
            if cut == 0 {
                parts.push(part);
            } else if cut < planes {
                parts.push(part.slice_dim(2, cut..planes));
            }
        }
        match parts.len() {
            0 | 1 => parts.pop(),
            _ => Some(Tensor::cat(parts, 2)),
        }
    }
}
