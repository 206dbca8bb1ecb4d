//! Convolutions on the CPU: direct, a band of rows at a time, for any kernel, stride, padding, dilation and groups.
//!
//! A task copies a band of its input as f32 with the zeros around the grid (`band.rs`), so that every tap reads whole rows
//! wherever the grid ends and whatever the stride, and no copy of all channels is ever made. The input gradient of a
//! strided convolution is several convolutions of stride 1, one for each residue of the position (`axis.rs`). Then a block
//! of output channels and positions is summed in registers over all taps and channels (`kernels.rs`). Sums are f32 in a
//! fixed order, in blocks of some hundred products; the weight gradient adds planes in f64.

mod axis;
mod band;
mod kernels;
mod simd;
#[cfg(test)]
mod tests;
mod walk;
mod weight_gradient;
#[cfg(target_arch = "x86_64")]
mod x86;

use bytemuck::Pod;
use half::f16;
use half::slice::HalfFloatSliceExt;

use super::ConvGeometry;
use simd::Processor;
use walk::Walk;

/// A stored value. Slices have equal lengths.
pub trait Element: Pod + Send + Sync {
    fn load(from: &[Self], to: &mut [f32]);
    /// Rounds to nearest, ties to even.
    fn store(from: &[f32], to: &mut [Self]);
    fn add(from: &[Self], to: &mut [f32]);
}

impl Element for f32 {
    fn load(from: &[Self], to: &mut [f32]) {
        to.copy_from_slice(from);
    }

    fn store(from: &[f32], to: &mut [Self]) {
        to.copy_from_slice(from);
    }

    fn add(from: &[Self], to: &mut [f32]) {
        to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
    }
}

impl Element for f16 {
    fn load(from: &[Self], to: &mut [f32]) {
        from.convert_to_f32_slice(to);
    }

    fn store(from: &[f32], to: &mut [Self]) {
        to.convert_from_f32_slice(from);
    }

    fn add(from: &[Self], to: &mut [f32]) {
        to.iter_mut().zip(from).for_each(|(to, from)| *to += from.to_f32());
    }
}

/// What is done to the input on loading: `x * scale[c] + shift[c]`, then maybe ReLU. Outside the grid stays 0.
#[derive(Clone, Copy)]
pub struct LoadAs<'a> {
    pub scale: &'a [f32],
    pub shift: &'a [f32],
    pub relu: bool,
}

impl LoadAs<'_> {
    fn of_group(self, group: usize, channels: usize) -> Self {
        let range = group * channels..(group + 1) * channels;
        Self { scale: &self.scale[range.clone()], shift: &self.shift[range], relu: self.relu }
    }
}

/// What is done to a sum before storing: `+ bias[c] + residual`, then maybe ReLU.
#[derive(Clone, Copy)]
pub struct StoreAs<'a, T> {
    pub bias: Option<&'a [f32]>,
    pub residual: Option<&'a [T]>,
    pub relu: bool,
}

/// `y` from `x` and `weight`.
pub fn forward<T: Element>(
    x: &[T],
    weight: &[T],
    geometry: &ConvGeometry,
    load: Option<LoadAs>,
    store: StoreAs<T>,
) -> Vec<T> {
    Walk::forward(&simplified(geometry)).run(x, weight, load, store, Processor::best())
}

/// Gradient of `x`; also a transposed convolution of `gradient`.
pub fn input_gradient<T: Element>(weight: &[T], gradient: &[T], geometry: &ConvGeometry, store: StoreAs<T>) -> Vec<T> {
    // A stride may be beyond every memory where nothing is stepped through.
    if geometry.input().contains(&0) {
        return Vec::new();
    }
    Walk::input_gradient(&simplified(geometry)).run(gradient, weight, None, store, Processor::best())
}

/// Gradient of `weight`.
pub fn weight_gradient<T: Element>(x: &[T], load: Option<LoadAs>, gradient: &[T], geometry: &ConvGeometry) -> Vec<T> {
    weight_gradient::run(x, load, gradient, &simplified(geometry), Processor::best())
}

/// The same convolution, in memory and sums, with its longest rows.
fn simplified(geometry: &ConvGeometry) -> ConvGeometry {
    let mut simple = *geometry;
    if (geometry.kernel, geometry.stride, geometry.padding) == ([1; 3], [1; 3], [0; 3]) {
        simple.sides_in = [1, 1, geometry.volume_in()];
        simple.sides_out = simple.sides_in;
        simple.dilation = [1; 3];
        return simple;
    }
    // Axes of one voxel and one tap first.
    let is_one = |axis: &usize| {
        let axis = *axis;
        let ConvGeometry { sides_in, sides_out, kernel, padding, .. } = geometry;
        [sides_in[axis], sides_out[axis], kernel[axis], padding[axis] + 1] == [1; 4]
    };
    let mut order = [0, 1, 2];
    order.sort_by_key(|axis| !is_one(axis));
    let sides = |sides: [usize; 3]| order.map(|axis| sides[axis]);
    ConvGeometry {
        sides_in: sides(geometry.sides_in),
        sides_out: sides(geometry.sides_out),
        kernel: sides(geometry.kernel),
        stride: sides(geometry.stride),
        padding: sides(geometry.padding),
        dilation: sides(geometry.dilation),
        ..simple
    }
}
