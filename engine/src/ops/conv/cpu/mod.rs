//! Convolutions on the CPU: plain loops over output values, sums in f64.

use bytemuck::Pod;
use half::f16;
use rayon::prelude::*;

use super::ConvGeometry;

/// A stored value.
pub trait Element: Pod + Send + Sync {
    fn to_f32(self) -> f32;
    fn from_f32(value: f32) -> Self;
}

impl Element for f32 {
    fn to_f32(self) -> f32 {
        self
    }

    fn from_f32(value: f32) -> Self {
        value
    }
}

impl Element for f16 {
    fn to_f32(self) -> f32 {
        self.to_f32()
    }

    fn from_f32(value: f32) -> Self {
        Self::from_f32(value)
    }
}

/// What is done to the input on loading: `x * scale[c] + shift[c]`, then maybe ReLU.
#[derive(Clone, Copy)]
pub struct LoadAs<'a> {
    pub scale: &'a [f32],
    pub shift: &'a [f32],
    pub relu: bool,
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
    let [group_in, group_out] = group(geometry);
    let (volume_in, taps) = (geometry.volume_in(), geometry.taps());
    values(geometry.output(), store, |sample, channel, place| {
        let mut sum = 0.0;
        for tap in 0..taps {
            let Some(source) = source(geometry, place, tap) else { continue };
            for i in 0..group_in {
                let from = channel / group_out * group_in + i;
                let value = loaded(x[(sample * geometry.channels_in + from) * volume_in + source], from, load);
                sum += f64::from(value) * f64::from(weight[(channel * group_in + i) * taps + tap].to_f32());
            }
        }
        sum
    })
}

/// Gradient of `x`; also a transposed convolution of `gradient`.
pub fn input_gradient<T: Element>(weight: &[T], gradient: &[T], geometry: &ConvGeometry, store: StoreAs<T>) -> Vec<T> {
    let [group_in, group_out] = group(geometry);
    let (volume_out, taps) = (geometry.volume_out(), geometry.taps());
    values(geometry.input(), store, |sample, channel, place| {
        let mut sum = 0.0;
        for tap in 0..taps {
            let Some(target) = target(geometry, place, tap) else { continue };
            for o in 0..group_out {
                let to = channel / group_in * group_out + o;
                let value = gradient[(sample * geometry.channels_out + to) * volume_out + target].to_f32();
                let weight = weight[(to * group_in + channel % group_in) * taps + tap].to_f32();
                sum += f64::from(value) * f64::from(weight);
            }
        }
        sum
    })
}

/// Gradient of `weight`.
pub fn weight_gradient<T: Element>(x: &[T], load: Option<LoadAs>, gradient: &[T], geometry: &ConvGeometry) -> Vec<T> {
    let [group_in, group_out] = group(geometry);
    let (volume_in, volume_out, taps) = (geometry.volume_in(), geometry.volume_out(), geometry.taps());
    let count = geometry.weight().iter().product();
    (0..count)
        .into_par_iter()
        .map(|i: usize| {
            let (to, from, tap) = (i / (taps * group_in), i / taps % group_in, i % taps);
            let from = to / group_out * group_in + from;
            let mut sum = 0.0;
            for sample in 0..geometry.batch {
                for (place, &gradient) in
                    gradient[(sample * geometry.channels_out + to) * volume_out..][..volume_out].iter().enumerate()
                {
                    let Some(source) = source(geometry, place, tap) else { continue };
                    let value = loaded(x[(sample * geometry.channels_in + from) * volume_in + source], from, load);
                    sum += f64::from(value) * f64::from(gradient.to_f32());
                }
            }
            T::from_f32(sum as f32)
        })
        .collect()
}

/// Input and output channels of a group.
fn group(geometry: &ConvGeometry) -> [usize; 2] {
    [geometry.channels_in / geometry.groups, geometry.channels_out / geometry.groups]
}

fn loaded<T: Element>(value: T, channel: usize, load: Option<LoadAs>) -> f32 {
    let Some(load) = load else { return value.to_f32() };
    let value = value.to_f32() * load.scale[channel] + load.shift[channel];
    if load.relu && value < 0.0 { 0.0 } else { value }
}

/// Every value of a tensor of `shape` from `sum(sample, channel, place in the grid)`.
fn values<T: Element>(shape: [usize; 5], store: StoreAs<T>, sum: impl Fn(usize, usize, usize) -> f64 + Sync) -> Vec<T> {
    let [batch, channels, d, h, w] = shape;
    let volume = d * h * w;
    (0..batch * channels * volume)
        .into_par_iter()
        .map(|i| {
            let channel = i / volume % channels;
            let mut value = sum(i / volume / channels, channel, i % volume) as f32;
            value += store.bias.map_or(0.0, |bias| bias[channel]);
            value += store.residual.map_or(0.0, |residual| residual[i].to_f32());
            T::from_f32(if store.relu && value < 0.0 { 0.0 } else { value })
        })
        .collect()
}

fn coordinates(place: usize, [_, h, w]: [usize; 3]) -> [usize; 3] {
    [place / (h * w), place / w % h, place % w]
}

/// Where the output at `place` reads the input for `tap`; none outside the grid.
fn source(geometry: &ConvGeometry, place: usize, tap: usize) -> Option<usize> {
    let (place, tap) = (coordinates(place, geometry.sides_out), coordinates(tap, geometry.kernel));
    let mut source = 0;
    for axis in 0..3 {
        let padded = place[axis] * geometry.stride[axis] + tap[axis] * geometry.dilation[axis];
        let at = padded.checked_sub(geometry.padding[axis]).filter(|at| *at < geometry.sides_in[axis])?;
        source = source * geometry.sides_in[axis] + at;
    }
    Some(source)
}

/// Which output reads the input at `place` for `tap`.
fn target(geometry: &ConvGeometry, place: usize, tap: usize) -> Option<usize> {
    let (place, tap) = (coordinates(place, geometry.sides_in), coordinates(tap, geometry.kernel));
    let mut target = 0;
    for axis in 0..3 {
        let strides = (place[axis] + geometry.padding[axis]).checked_sub(tap[axis] * geometry.dilation[axis])?;
        let at = strides / geometry.stride[axis];
        if strides % geometry.stride[axis] != 0 || at >= geometry.sides_out[axis] {
            return None;
        }
        target = target * geometry.sides_out[axis] + at;
    }
    Some(target)
}
