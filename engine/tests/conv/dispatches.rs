//! How long a dispatch may take, from counts: drivers kill long ones.

use occam_engine::ops::conv::{ConvGeometry, Pass, dispatches};

/// A convolution layer of a network: channels in and out, sides of its input, kernel, stride, padding, dilation.
type Layer = ([usize; 2], [usize; 3], [usize; 3], [usize; 3], [usize; 3], [usize; 3]);

fn square(channels_in: usize, channels_out: usize, side: usize) -> Layer {
    ([channels_in, channels_out], [1, side, side], [1, 3, 3], [1; 3], [0, 1, 1], [1; 3])
}

/// A transposed layer as the convolution whose input gradient it is: `channels_in` are those of its result, as is `side`.
fn upward(channels_in: usize, channels_out: usize, side: usize, kernel: usize, stride: usize, padding: usize) -> Layer {
    (
        [channels_out, channels_in],
        [1, side, side],
        [1, kernel, kernel],
        [1, stride, stride],
        [0, padding, padding],
        [1; 3],
    )
}

fn cubic(channels_in: usize, channels_out: usize, sides: [usize; 3], dilation: usize) -> Layer {
    ([channels_in, channels_out], sides, [3; 3], [1; 3], [dilation; 3], [dilation; 3])
}

fn pointwise(channels_in: usize, channels_out: usize, sides: [usize; 3]) -> Layer {
    ([channels_in, channels_out], sides, [1; 3], [1; 3], [0; 3], [1; 3])
}

/// LMSCNet (arXiv 2008.10559) on 256 x 256 x 32 voxels with 20 classes, in the order of the authors' code.
fn lmscnet() -> Vec<Layer> {
    let mut layers = vec![
        square(32, 32, 256),
        square(32, 32, 256),
        square(32, 48, 128),
        square(48, 48, 128),
        square(48, 64, 64),
        square(64, 64, 64),
        square(64, 80, 32),
        square(80, 80, 32),
        square(80, 4, 32),
        upward(4, 4, 128, 4, 4, 0),
        upward(4, 4, 256, 8, 8, 0),
        upward(4, 4, 64, 6, 2, 2),
        square(64 + 4, 64, 64),
        square(64, 8, 64),
        upward(8, 8, 256, 4, 4, 0),
        upward(8, 8, 128, 6, 2, 2),
        square(48 + 8 + 4, 48, 128),
        square(48, 16, 128),
        upward(16, 16, 256, 6, 2, 2),
        square(32 + 16 + 8 + 4, 32, 256),
    ];
    for scale in [1, 2, 4, 8] {
        let sides = [32 / scale, 256 / scale, 256 / scale];
        layers.push(cubic(1, 8, sides, 1));
        layers.extend([1, 1, 2, 2, 3, 3].map(|dilation| cubic(8, 8, sides, dilation)));
        layers.push(cubic(8, 20, sides, 1));
    }
    layers
}

/// SSCNet (arXiv 1611.08974) with a full-size output, on as many.
fn sscnet() -> Vec<Layer> {
    let (half, quarter) = ([16, 128, 128], [8, 64, 64]);
    let mut layers = vec![
        ([1, 16], [32, 256, 256], [7; 3], [2; 3], [3; 3], [1; 3]),
        pointwise(16, 32, half),
        cubic(16, 32, half, 1),
        cubic(32, 32, half, 1),
        cubic(32, 64, quarter, 1),
        pointwise(64, 64, quarter),
        cubic(64, 64, quarter, 1),
    ];
    layers.extend([1, 1, 2, 2, 2, 2].map(|dilation| cubic(64, 64, quarter, dilation)));
    layers.extend([pointwise(192, 128, quarter), pointwise(128, 128, quarter)]);
    // Back to all voxels.
    layers.push(([20, 128], [32, 256, 256], [4; 3], [4; 3], [0; 3], [1; 3]));
    layers
}

/// SCPNet's completion block (arXiv 2303.06884) on as many, as sums of parts of 32 channels.
fn scpnet() -> Vec<Layer> {
    let sides = [32, 256, 256];
    let part = |kernel: usize| -> Layer { ([32, 32], sides, [kernel; 3], [1; 3], [kernel / 2; 3], [1; 3]) };
    vec![pointwise(1, 32, sides), part(3), part(5), part(7), part(1), pointwise(32, 20, sides)]
}

fn geometry(batch: usize, (channels, sides_in, kernel, stride, padding, dilation): Layer) -> ConvGeometry {
    let sides_out = std::array::from_fn(|axis| {
        (sides_in[axis] + 2 * padding[axis] - dilation[axis] * (kernel[axis] - 1) - 1) / stride[axis] + 1
    });
    let [channels_in, channels_out] = channels;
    ConvGeometry { batch, channels_in, channels_out, groups: 1, sides_in, sides_out, kernel, stride, padding, dilation }
}

/// Products that do not meet the border: along each axis the pairs of an output and a tap whose input lies on the grid.
fn products(geometry: &ConvGeometry) -> u64 {
    let pairs = |axis: usize| -> u64 {
        let (side, stride) = (geometry.sides_in[axis] as isize, geometry.stride[axis]);
        let taps = 0..geometry.kernel[axis];
        let on_grid = |tap: usize| {
            let offset = (tap * geometry.dilation[axis]) as isize - geometry.padding[axis] as isize;
            (0..geometry.sides_out[axis]).filter(|out| (0..side).contains(&((out * stride) as isize + offset))).count()
        };
        taps.map(|tap| on_grid(tap) as u64).sum()
    };
    let channels = geometry.channels_in / geometry.groups * geometry.channels_out;
    (geometry.batch * channels) as u64 * pairs(0) * pairs(1) * pairs(2)
}

#[test]
fn no_dispatch_takes_100_ms_at_1_tflops_and_25_gbps() {
    let layers = [lmscnet(), sscnet(), scpnet()].concat();
    assert_eq!(layers.len(), 20 + 4 * 8 + 16 + 6);
    // The 393,128 parameters of the published LMSCNet, less 664 biases of the U-Net and 124 biases and norms a head.
    let weights = |(channels, _, kernel, ..): &Layer| channels.iter().chain(kernel).product::<usize>();
    assert_eq!(lmscnet().iter().map(weights).sum::<usize>(), 393_128 - 664 - 4 * 124);
    for layer in layers {
        for batch in [1, 4] {
            let geometry = geometry(batch, layer);
            let elements = [
                geometry.batch * geometry.channels_in * geometry.sides_in.iter().product::<usize>(),
                geometry.channels_out * geometry.channels_in * geometry.kernel.iter().product::<usize>(),
                geometry.batch * geometry.channels_out * geometry.sides_out.iter().product::<usize>(),
            ];
            for pass in [Pass::Forward, Pass::InputGradient, Pass::WeightGradient] {
                let all = dispatches(&geometry, pass);
                let what = format!("{pass:?} of {geometry:?}");
                for one in &all {
                    let seconds = (one.flops as f64 / 1e12).max(one.bytes as f64 / 25e9);
                    assert!(seconds < 0.1, "{what}: {} of {} groups takes {seconds} s", one.name, one.groups);
                    assert!(one.groups >= 1, "{what}: {one:?}");
                }
                let (flops, bytes) = all.iter().fold((0, 0), |sum, one| (sum.0 + one.flops, sum.1 + one.bytes));
                assert!(flops >= 2 * products(&geometry), "{what}: {flops} flops");
                // Each tensor once, in f32.
                let least = elements.iter().sum::<usize>() * 4;
                assert!(bytes >= least as u64, "{what}: {bytes} bytes, expected at least {least}");
            }
        }
    }
}
