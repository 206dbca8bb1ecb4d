//! Against loops over every value in f64.

use half::f16;

use super::simd::Processor;
use super::walk::Walk;
use super::weight_gradient as weights;
use super::{ConvGeometry, Element, LoadAs, StoreAs};
use super::{forward, input_gradient, simplified, weight_gradient};
use crate::ops::conv::ConvOptions;

const ONE: [usize; 3] = [1; 3];

/// `[batch, in, D, H, W]`, `[out, in / groups, kernel]`, stride, padding, dilation, groups.
type Case = ([usize; 5], [usize; 5], [usize; 3], [usize; 3], [usize; 3], usize);

fn cases() -> Vec<Case> {
    let mut cases = vec![
        ([1, 1, 1, 1, 1], [1, 1, 1, 1, 1], ONE, [0; 3], ONE, 1),
        // Heads and U-Net of LMSCNet, its transposed convolutions.
        ([1, 8, 5, 9, 19], [20, 8, 3, 3, 3], ONE, [3; 3], [3; 3], 1),
        ([2, 3, 1, 17, 70], [9, 3, 1, 3, 3], ONE, [0, 1, 1], ONE, 1),
        ([1, 3, 1, 12, 16], [5, 3, 1, 6, 6], [1, 2, 2], [0, 2, 2], ONE, 1),
        ([1, 2, 1, 16, 24], [3, 2, 1, 8, 8], [1, 8, 8], [0; 3], ONE, 1),
        // SSCNet.
        ([1, 1, 8, 13, 21], [16, 1, 7, 7, 7], [2; 3], [3; 3], ONE, 1),
        ([1, 19, 2, 5, 7], [33, 19, 1, 1, 1], ONE, [0; 3], ONE, 1),
        ([1, 5, 8, 8, 12], [3, 5, 4, 4, 4], [4; 3], [0; 3], ONE, 1),
        // Depthwise; groups of several channels; a step over more than the kernel; wide padding.
        ([2, 6, 4, 5, 6], [6, 1, 3, 3, 3], ONE, ONE, ONE, 6),
        ([1, 6, 4, 5, 6], [10, 3, 2, 1, 3], [1, 2, 1], [1, 0, 2], [2, 1, 3], 2),
        ([1, 2, 7, 7, 7], [2, 2, 1, 1, 2], [3, 4, 5], [0; 3], ONE, 1),
        ([1, 2, 3, 2, 1], [2, 2, 2, 3, 2], [2, 1, 3], [5, 4, 6], [3, 2, 4], 1),
        // One long axis, whichever; more columns and channels than a band takes.
        ([1, 2, 50, 1, 1], [3, 2, 3, 1, 1], ONE, [1, 0, 0], ONE, 1),
        ([1, 3, 1, 1, 5000], [2, 3, 1, 1, 5], [1, 1, 2], [0, 0, 2], ONE, 1),
        ([1, 260, 1, 3, 300], [4, 260, 1, 3, 3], ONE, [0, 1, 1], ONE, 1),
        ([1, 2, 1, 3, 40], [150, 2, 1, 2, 3], [1, 1, 2], [0, 1, 1], ONE, 1),
        ([1, 70, 3, 4, 5], [80, 70, 3, 3, 3], ONE, ONE, ONE, 1),
        // Nothing at all.
        ([0, 2, 3, 3, 3], [2, 2, 3, 3, 3], ONE, ONE, ONE, 1),
    ];
    // Stride, dilation and padding along each axis on grids of odd and even sides.
    for stride in [1, 2, 3] {
        for dilation in [1, 2] {
            for padding in [0, 1, 2] {
                let side = 6 + stride + padding;
                let geometry = ([stride, 1, 3 - stride.min(2)], [padding, 1, 2 - padding], [dilation, 2, 1]);
                cases.push(([1, 2, side, 7, 9], [3, 2, 3, 2, 4], geometry.0, geometry.1, geometry.2, 1));
            }
        }
    }
    cases
}

fn geometry((x, weight, stride, padding, dilation, groups): Case) -> ConvGeometry {
    ConvGeometry::new(x, weight, &ConvOptions { stride, padding, dilation, groups }).unwrap()
}

fn volume(sides: [usize; 3]) -> usize {
    sides.iter().product()
}

/// Calls `visit` with the places in x, weight and y of every product.
fn products(g: &ConvGeometry, mut visit: impl FnMut(usize, usize, usize)) {
    let [group_in, group_out] = [g.channels_in / g.groups, g.channels_out / g.groups];
    let place = |i: usize, [_, h, w]: [usize; 3]| [i / (h * w), i / w % h, i % w];
    for y in 0..g.batch * g.channels_out * volume(g.sides_out) {
        let at = place(y % volume(g.sides_out), g.sides_out);
        let out = y / volume(g.sides_out) % g.channels_out;
        let sample = y / volume(g.sides_out) / g.channels_out;
        for tap in 0..volume(g.kernel) {
            let k = place(tap, g.kernel);
            let read = [0, 1, 2].map(|i| (at[i] * g.stride[i] + k[i] * g.dilation[i]).wrapping_sub(g.padding[i]));
            if (0..3).any(|i| read[i] >= g.sides_in[i]) {
                continue;
            }
            let read = (read[0] * g.sides_in[1] + read[1]) * g.sides_in[2] + read[2];
            for i in 0..group_in {
                let channel = sample * g.channels_in + out / group_out * group_in + i;
                visit(channel * volume(g.sides_in) + read, (out * group_in + i) * volume(g.kernel) + tap, y);
            }
        }
    }
}

/// Values in [-1, 1] that f16 holds.
fn draw(count: usize, seed: u32) -> Vec<f64> {
    let hash =
        |i: u32| (i ^ seed.wrapping_mul(0x9E37_79B9)).wrapping_mul(0x85EB_CA6B) ^ (i >> 3).wrapping_mul(0xC2B2_AE35);
    let value = |i: usize| f64::from(hash(i as u32).wrapping_mul(0x27D4_EB2F) >> 21) / 1024.0 - 1.0;
    (0..count).map(|i| f16::from_f64(value(i)).to_f64()).collect()
}

trait Number: Element {
    /// Of the rounding of a result.
    const UNIT: f64;
    fn of(value: f64) -> Self;
    fn value(self) -> f64;
}

impl Number for f32 {
    const UNIT: f64 = 1.0 / (1u64 << 24) as f64;
    fn of(value: f64) -> Self {
        value as f32
    }
    fn value(self) -> f64 {
        f64::from(self)
    }
}

impl Number for f16 {
    const UNIT: f64 = 1.0 / (1u64 << 11) as f64;
    fn of(value: f64) -> Self {
        Self::from_f64(value)
    }
    fn value(self) -> f64 {
        self.to_f64()
    }
}

fn of<T: Number>(values: &[f64]) -> Vec<T> {
    values.iter().map(|&value| T::of(value)).collect()
}

/// `sums` are the right values and `sizes` the sums of the products' sizes: f32 sums of at most some thousand products in
/// blocks of 512, then one rounding.
#[track_caller]
fn check<T: Number>(found: &[T], sums: &[f64], sizes: &[f64], what: &str) {
    assert_eq!(found.len(), sums.len(), "{what}");
    for (i, ((found, sum), size)) in found.iter().zip(sums).zip(sizes).enumerate() {
        let bound = 540.0 * f32::UNIT * size + T::UNIT * sum.abs() * 1.01 + 1e-7;
        let found = found.value();
        assert!((found - sum).abs() <= bound, "{what}: [{i}] {found}, expected {sum} within {bound}");
    }
}

fn compare<T: Number>(case: Case, processor: Processor) {
    let g = geometry(case);
    let what = format!("{g} {processor:?} {}", std::any::type_name::<T>());
    let [x_count, y_count] = [g.input(), g.output()].map(|shape| shape.iter().product());
    let weight_count = g.weight().iter().product();
    let (x, weight, gradient) = (draw(x_count, 1), draw(weight_count, 2), draw(y_count, 3));
    let [mut y, mut y_size] = [vec![0.0; y_count], vec![0.0; y_count]];
    let [mut gx, mut gx_size] = [vec![0.0; x_count], vec![0.0; x_count]];
    let [mut gw, mut gw_size] = [vec![0.0; weight_count], vec![0.0; weight_count]];
    products(&g, |i, j, k| {
        y[k] += x[i] * weight[j];
        y_size[k] += (x[i] * weight[j]).abs();
        gx[i] += gradient[k] * weight[j];
        gx_size[i] += (gradient[k] * weight[j]).abs();
        gw[j] += gradient[k] * x[i];
        gw_size[j] += (gradient[k] * x[i]).abs();
    });
    let simple = simplified(&g);
    let (x, weight, gradient) = (of::<T>(&x), of::<T>(&weight), of::<T>(&gradient));
    let plain = StoreAs { bias: None, residual: None, relu: false };
    let found = Walk::forward(&simple).run(&x, &weight, None, plain, processor);
    check(&found, &y, &y_size, &format!("forward of {what}"));
    let found = Walk::input_gradient(&simple).run(&gradient, &weight, None, plain, processor);
    check(&found, &gx, &gx_size, &format!("input gradient of {what}"));
    let found = weights::run(&x, None, &gradient, &simple, processor);
    check(&found, &gw, &gw_size, &format!("weight gradient of {what}"));
}

#[test]
fn every_geometry_on_every_kind_of_processor() {
    for case in cases() {
        for processor in Processor::all() {
            compare::<f32>(case, processor);
        }
        compare::<f16>(case, Processor::best());
    }
}

/// On loading `act(x * scale + shift)` inside the grid, on storing `act(y + bias + residual)`.
fn fused<T: Number>(case: Case) {
    let g = geometry(case);
    let [x_count, y_count] = [g.input(), g.output()].map(|shape| shape.iter().product());
    let (x, weight) = (draw(x_count, 1), draw(g.weight().iter().product(), 2));
    let (scale, shift) = (of::<f32>(&draw(g.channels_in, 4)), of::<f32>(&draw(g.channels_in, 5)));
    let (bias, residual) = (draw(g.channels_out.max(g.channels_in), 6), draw(y_count.max(x_count), 7));
    for relu in [false, true] {
        let act = |value: f64| if relu { value.max(0.0) } else { value };
        let channel = |i: usize, sides, channels| i / volume(sides) % channels;
        let loaded = |i: usize| {
            let channel = channel(i, g.sides_in, g.channels_in);
            act(x[i] * f64::from(scale[channel]) + f64::from(shift[channel]))
        };
        let [mut y, mut y_size] = [vec![0.0; y_count], vec![2.0; y_count]];
        let [mut gx, mut gx_size] = [vec![0.0; x_count], vec![2.0; x_count]];
        let [mut gw, mut gw_size] = [vec![0.0; weight.len()], vec![0.0; weight.len()]];
        products(&g, |i, j, k| {
            y[k] += loaded(i) * weight[j];
            y_size[k] += (loaded(i) * weight[j]).abs() + 1.0;
            gx[i] += residual[k] * weight[j];
            gx_size[i] += (residual[k] * weight[j]).abs();
            gw[j] += residual[k] * loaded(i);
            gw_size[j] += (residual[k] * loaded(i)).abs() + 1.0;
        });
        for (i, y) in y.iter_mut().enumerate() {
            *y = act(*y + bias[channel(i, g.sides_out, g.channels_out)] + residual[i]);
        }
        for (i, gx) in gx.iter_mut().enumerate() {
            *gx = act(*gx + bias[channel(i, g.sides_in, g.channels_in)] + residual[i]);
        }
        let load = Some(LoadAs { scale: &scale, shift: &shift, relu });
        let (x, weight, residual, bias) = (of::<T>(&x), of::<T>(&weight), of::<T>(&residual), of::<f32>(&bias));
        let store = |count: usize| StoreAs { bias: Some(&bias), residual: Some(&residual[..count]), relu };
        check(&forward(&x, &weight, &g, load, store(y_count)), &y, &y_size, &format!("forward of {g}"));
        let found = input_gradient(&weight, &residual[..y_count], &g, store(x_count));
        check(&found, &gx, &gx_size, &format!("input gradient of {g}"));
        let found = weight_gradient(&x, load, &residual[..y_count], &g);
        check(&found, &gw, &gw_size, &format!("weight gradient of {g}"));
    }
}

#[test]
fn input_and_output_are_changed_on_the_way() {
    for case in cases() {
        fused::<f32>(case);
        fused::<f16>(case);
    }
}

#[test]
fn f16_sums_in_f32() {
    // Sums of 0.3 and of 1.0 that f16 could not go on adding to.
    let addend = f16::from_f64(0.3);
    let plain = StoreAs { bias: None, residual: None, relu: false };
    for (channels, kernel) in [(512, [1, 3, 3]), (171, [3, 3, 3])] {
        let case = ([1, channels, 3, 3, 3], [1, channels, kernel[0], 3, 3], ONE, [kernel[0] / 2, 1, 1], ONE, 1);
        let g = geometry(case);
        let count = (channels * volume(kernel)) as f64;
        let x = vec![addend; channels * 27];
        let weight = vec![f16::ONE; channels * volume(kernel)];
        // The middle voxel sees all taps.
        let y = forward(&x, &weight, &g, None, plain)[13].to_f64();
        assert!((y / (count * addend.to_f64()) - 1.0).abs() < 1e-3, "{y} of {count}");
        let turned = ConvGeometry::new(
            [1, 1, 3, 3, 3],
            [channels, 1, kernel[0], 3, 3],
            &ConvOptions { padding: g.padding, ..Default::default() },
        );
        let gradient = input_gradient(&weight, &x, &turned.unwrap(), plain)[13].to_f64();
        assert!((gradient / (count * addend.to_f64()) - 1.0).abs() < 1e-3, "{gradient} of {count}");
    }
    let g = geometry(([1, 1, 1, 80, 80], [1, 1, 1, 1, 1], ONE, [0; 3], ONE, 1));
    let sum = weight_gradient(&vec![addend; 6400], None, &vec![f16::ONE; 6400], &g)[0].to_f64();
    assert!((sum / 1920.0 - 1.0).abs() < 1e-3, "{sum}");
}

#[test]
fn threads_do_not_change_a_bit() {
    let g = geometry(([2, 5, 9, 33, 40], [7, 5, 3, 3, 3], [1, 2, 1], [1; 3], ONE, 1));
    let [x, weight, gradient] =
        [g.input(), g.weight(), g.output()].map(|shape| of::<f32>(&draw(shape.iter().product(), 8)));
    let plain = StoreAs { bias: None, residual: None, relu: false };
    let with = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let y = forward(&x, &weight, &g, None, plain);
            (y, input_gradient(&weight, &gradient, &g, plain), weight_gradient(&x, None, &gradient, &g))
        })
    };
    assert_eq!(with(1), with(5));
}

#[test]
fn what_is_not_a_number_stays_so() {
    let g = geometry(([1, 1, 1, 1, 3], [1, 1, 1, 1, 1], ONE, [0; 3], ONE, 1));
    let load = Some(LoadAs { scale: &[1.0], shift: &[0.0], relu: true });
    let store = StoreAs { bias: None, residual: None, relu: true };
    let y = forward(&[f32::NAN, -1.0, 2.0], &[1.0], &g, load, store);
    assert!(y[0].is_nan() && y[1..] == [0.0, 2.0], "{y:?}");
}
