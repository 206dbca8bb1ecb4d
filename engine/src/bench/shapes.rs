//! The table of what is measured: layers of the networks that Occam trains or will train, and of point networks.
//!
//! Layers of equal shape in one network stand here once, under the name of the first.

use super::case::{Case, Operation, Pass};
use crate::Result;
use crate::ops::conv::{ConvGeometry, ConvOptions};
use crate::ops::gemm::Layout;

const CONVOLUTION: [Pass; 3] = [Pass::Forward, Pass::InputGradient, Pass::WeightGradient];
const FUSED: [Pass; 2] = [Pass::Forward, Pass::Step];

/// Every case, in the order of the printed table.
///
/// # Errors
/// None that a user can cause: geometries are checked as those of networks are.
pub fn cases() -> Result<Vec<Case>> {
    let mut table = Table::default();
    lmscnet(&mut table, [64, 64, 16], 12, false)?;
    lmscnet(&mut table, [128, 128, 16], 20, false)?;
    lmscnet(&mut table, [256, 256, 32], 20, true)?;
    sscnet(&mut table, [64, 64, 16], 12, false)?;
    sscnet(&mut table, [128, 128, 16], 20, true)?;
    sscnet(&mut table, [256, 256, 32], 20, true)?;
    scpnet(&mut table, [32, 32, 16], true)?;
    unet(&mut table)?;
    for rows in [30_000, 130_000] {
        points(&mut table, rows);
    }
    heads(&mut table);
    square(&mut table);
    Ok(table.cases)
}

#[derive(Default)]
struct Table {
    cases: Vec<Case>,
    network: String,
    extended: bool,
}

impl Table {
    fn begin(&mut self, network: String, extended: bool) {
        self.network = network;
        self.extended = extended;
    }

    fn add(&mut self, layer: &str, operation: Operation, passes: &[Pass]) {
        self.cases.extend(passes.iter().map(|&pass| Case {
            network: self.network.clone(),
            layer: layer.into(),
            operation,
            pass,
            extended: self.extended,
        }));
    }

    /// A square kernel over `[1, channels, sides]`; padding keeps the sides, apart from the stride.
    fn conv2d(
        &mut self,
        layer: &str,
        channels: [usize; 2],
        sides: [usize; 2],
        kernel: usize,
        stride: usize,
    ) -> Result<()> {
        let [height, width] = sides;
        let options =
            ConvOptions { stride: [1, stride, stride], padding: [0, kernel / 2, kernel / 2], ..<_>::default() };
        let [from, to] = channels;
        let geometry = ConvGeometry::new([1, from, 1, height, width], [to, from, 1, kernel, kernel], &options)?;
        self.add(layer, Operation::Conv { geometry, planes: true }, &CONVOLUTION);
        Ok(())
    }

    /// A cubic kernel over `[1, channels, sides]`; padding keeps the sides, apart from the stride.
    fn conv3d(
        &mut self,
        layer: &str,
        channels: [usize; 2],
        sides: [usize; 3],
        kernel: usize,
        stride: usize,
        dilation: usize,
    ) -> Result<()> {
        let options = ConvOptions {
            stride: [stride; 3],
            padding: [kernel / 2 * dilation; 3],
            dilation: [dilation; 3],
            ..<_>::default()
        };
        let ([from, to], [d, h, w]) = (channels, sides);
        let geometry = ConvGeometry::new([1, from, d, h, w], [to, from, kernel, kernel, kernel], &options)?;
        self.add(layer, Operation::Conv { geometry, planes: false }, &CONVOLUTION);
        Ok(())
    }

    /// A transposed convolution of `[1, from, sides]` with a square kernel.
    fn deconv2d(
        &mut self,
        layer: &str,
        channels: [usize; 2],
        sides: [usize; 2],
        kernel: usize,
        stride: usize,
        padding: usize,
    ) -> Result<()> {
        let options = ConvOptions { stride: [1, stride, stride], padding: [0, padding, padding], ..<_>::default() };
        let ([from, to], [height, width]) = (channels, sides);
        let weight = [from, to, 1, kernel, kernel];
        let geometry = ConvGeometry::transposed([1, from, 1, height, width], weight, &options, [0; 3])?;
        self.add(layer, Operation::ConvTransposed { geometry, planes: true }, &CONVOLUTION);
        Ok(())
    }

    /// A linear layer over rows: as a product of matrices it is `x W^T`, its gradients `g W` and `g^T x`.
    fn linear(&mut self, rows: usize, [from, to]: [usize; 2]) {
        use Layout::{Normal, Transposed};
        let layer = format!("linear {from}->{to}");
        for (pass, [m, n, k], [a, b]) in [
            (Pass::Forward, [rows, to, from], [Normal, Transposed]),
            (Pass::InputGradient, [rows, from, to], [Normal, Normal]),
            (Pass::WeightGradient, [to, from, rows], [Transposed, Normal]),
        ] {
            self.add(&layer, Operation::Gemm { batch: 1, m, n, k, a, b }, &[pass]);
        }
    }
}

/// LMSCNet-SS (`models/lmscnet.rs`): planes with the height as channels, then a 3D head.
fn lmscnet(table: &mut Table, [x, y, z]: [usize; 3], classes: usize, extended: bool) -> Result<()> {
    table.begin(format!("lmscnet {x}x{y}x{z}"), extended);
    let [one, two, four, eight] = [z, z * 3 / 2, z * 2, z * 5 / 2];
    let scale = |s: usize| [x / s, y / s];
    table.conv2d("encoder_block1", [one, one], scale(1), 3, 1)?;
    table.conv2d("encoder_block2.0", [one, two], scale(2), 3, 1)?;
    table.conv2d("encoder_block3.1", [four, four], scale(4), 3, 1)?;
    table.conv2d("encoder_block4.1", [eight, eight], scale(8), 3, 1)?;
    table.conv2d("conv1_1", [one + z / 2 + z / 4 + z / 8, one], scale(1), 3, 1)?;
    table.deconv2d("deconv1_2", [z / 2, z / 2], scale(2), 6, 2, 2)?;
    table.deconv2d("deconv_1_8_to_1_1", [z / 8, z / 8], scale(8), 8, 8, 0)?;
    table.conv3d("head.conv0", [1, 8], [z, x, y], 3, 1, 1)?;
    table.conv3d("head.conv1.0", [8, 8], [z, x, y], 3, 1, 1)?;
    table.conv3d("head.conv1.2", [8, 8], [z, x, y], 3, 1, 3)?;
    table.conv3d("head.conv_classes", [8, classes], [z, x, y], 3, 1, 1)?;
    let volume = [1, 8, x * y * z];
    table.add("head.bn1", Operation::ChannelMoments { shape: volume }, &[Pass::Forward]);
    table.add("head.bn1", Operation::AffineRelu { shape: volume }, &FUSED);
    table.add("head.bn1", Operation::BatchNormRelu { shape: volume }, &FUSED);
    table.add("head.relu", Operation::Relu { shape: volume }, &FUSED);
    table.add("pool", Operation::MaxPool { shape: [1, z, 1, x, y], window: [1, 2, 2] }, &FUSED);
    Ok(())
}

/// SSCNet-full (`models/sscnet.rs`).
fn sscnet(table: &mut Table, [x, y, z]: [usize; 3], classes: usize, extended: bool) -> Result<()> {
    table.begin(format!("sscnet {x}x{y}x{z}"), extended);
    let scale = |s: usize| [z / s, x / s, y / s];
    table.conv3d("conv1_1", [1, 16], scale(1), 7, 2, 1)?;
    table.conv3d("reduction2_1", [16, 32], scale(2), 1, 1, 1)?;
    table.conv3d("conv2_2", [32, 32], scale(2), 3, 1, 1)?;
    table.conv3d("conv3_2", [64, 64], scale(4), 3, 1, 1)?;
    table.conv3d("conv3_5", [64, 64], scale(4), 3, 1, 2)?;
    table.conv3d("conv4_1", [192, 128], scale(4), 1, 1, 1)?;
    let [d, h, w] = scale(4);
    let options = ConvOptions { stride: [4; 3], ..<_>::default() };
    let geometry = ConvGeometry::transposed([1, 128, d, h, w], [128, classes, 4, 4, 4], &options, [0; 3])?;
    table.add("deconv_classes", Operation::ConvTransposed { geometry, planes: false }, &CONVOLUTION);
    let [d, h, w] = scale(2);
    table.add("pool", Operation::MaxPool { shape: [1, 32, d, h, w], window: [2; 3] }, &FUSED);
    Ok(())
}

/// SCPNet's completion block (`models/scpnet/`): what a kernel costs a product should not grow with it. Layers over
/// concatenated tensors run as sums of parts, which have the shapes of the others.
fn scpnet(table: &mut Table, [x, y, z]: [usize; 3], extended: bool) -> Result<()> {
    table.begin(format!("scpnet-dense {x}x{y}x{z}"), extended);
    table.conv3d("embed", [1, 32], [z, x, y], 1, 1, 1)?;
    table.conv3d("a_conv2", [32, 32], [z, x, y], 3, 1, 1)?;
    table.conv3d("a_conv3", [32, 32], [z, x, y], 5, 1, 1)?;
    table.conv3d("a_conv4", [32, 32], [z, x, y], 7, 1, 1)?;
    table.conv3d("ch_conv1", [32, 32], [z, x, y], 1, 1, 1)?;
    Ok(())
}

/// A U-Net over pillars in the bird's eye view, as occupancy networks use them: 64 channels at 256x256 down to 512 at
/// 32x32 and up again; 18 classes at 16 heights come out.
fn unet(table: &mut Table) -> Result<()> {
    let scale = |s: usize| [256 / s, 256 / s];
    table.begin("unet 256x256".into(), false);
    table.conv2d("down1.conv", [64, 64], scale(1), 3, 1)?;
    table.conv2d("down2.reduce", [64, 128], scale(1), 3, 2)?;
    table.conv2d("down4.conv", [512, 512], scale(8), 3, 1)?;
    table.deconv2d("up3.deconv", [512, 256], scale(8), 2, 2, 0)?;
    table.conv2d("head", [64, 18 * 16], scale(1), 1, 1)?;
    let plane = [1, 64, 256 * 256];
    table.add("down1.norm", Operation::GroupNormRelu { shape: plane, groups: 8 }, &FUSED);
    table.extended = true;
    table.conv2d("down2.conv", [128, 128], scale(2), 3, 1)?;
    table.conv2d("down3.reduce", [128, 256], scale(2), 3, 2)?;
    table.conv2d("down3.conv", [256, 256], scale(4), 3, 1)?;
    table.conv2d("down4.reduce", [256, 512], scale(4), 3, 2)?;
    table.conv2d("up3.conv", [512, 256], scale(4), 3, 1)?;
    table.deconv2d("up2.deconv", [256, 128], scale(4), 2, 2, 0)?;
    table.conv2d("up2.conv", [256, 128], scale(2), 3, 1)?;
    table.deconv2d("up1.deconv", [128, 64], scale(2), 2, 2, 0)?;
    table.conv2d("up1.conv", [128, 64], scale(1), 3, 1)?;
    table.add("down1.norm", Operation::BatchNormRelu { shape: plane }, &FUSED);
    Ok(())
}

/// Layers over the points of one scan, as PointNet and PointPillars have them: nine features a point.
fn points(table: &mut Table, rows: usize) {
    table.begin(format!("points {rows}"), false);
    table.linear(rows, [9, 64]);
    table.linear(rows, [64, 128]);
    table.add("norm 64", Operation::LayerNormRelu { rows, channels: 64 }, &FUSED);
    table.add("pillars", Operation::VoxelEncoder { points: rows, width: 9, channels: 64, per_voxel: 8 }, &FUSED);
}

/// The end of a network: features of every voxel to the cross-entropy of 20 classes.
fn heads(table: &mut Table) {
    for ([x, y, z], extended) in [([64, 64, 16], false), ([128, 128, 16], false), ([256, 256, 32], true)] {
        table.begin(format!("head {x}x{y}x{z}"), extended);
        for channels in [8, 32] {
            let operation = Operation::OccupancyHead { channels, voxels: x * y * z, classes: 20 };
            table.add(&format!("{channels}->20"), operation, &FUSED);
        }
    }
}

/// Products that fill any device, and many small ones: what the others can be held against.
fn square(table: &mut Table) {
    use Layout::{Normal, Transposed};
    table.begin("square".into(), false);
    for (a, b) in [(Normal, Normal), (Normal, Transposed), (Transposed, Normal), (Transposed, Transposed)] {
        let operation = Operation::Gemm { batch: 1, m: 512, n: 512, k: 512, a, b };
        table.add("512", operation, &[Pass::Forward]);
    }
    let small = Operation::Gemm { batch: 64, m: 64, n: 64, k: 64, a: Normal, b: Normal };
    table.add("64 x 64", small, &[Pass::Forward]);
    table.extended = true;
    let large = Operation::Gemm { batch: 1, m: 2048, n: 2048, k: 2048, a: Normal, b: Normal };
    table.add("2048", large, &[Pass::Forward]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(name: &str) -> Case {
        let mut found: Vec<Case> = cases().unwrap().into_iter().filter(|case| case.name() == name).collect();
        assert_eq!(found.len(), 1, "{name}");
        found.remove(0)
    }

    #[test]
    fn work_is_what_a_count_by_hand_gives() {
        for (name, flops, values) in [
            // 16 x 16 channels, 9 taps, 64 x 64 places.
            ("lmscnet 64x64x16 encoder_block1 conv2d forward", 2 * 16 * 16 * 9 * 4096, 2 * 16 * 4096 + 16 * 16 * 9),
            // 16 + 8 + 4 + 2 channels to 16.
            ("lmscnet 64x64x16 conv1_1 conv2d weight gradient", 2 * 30 * 16 * 9 * 4096, 46 * 4096 + 30 * 16 * 9),
            ("lmscnet 64x64x16 head.conv1.2 conv3d input gradient", 2 * 8 * 8 * 27 * 65536, 16 * 65536 + 64 * 27),
            // Each of 8 x 8 places of 2 channels spreads to 8 x 8 places of 2 channels.
            (
                "lmscnet 64x64x16 deconv_1_8_to_1_1 conv2d transposed forward",
                2 * 64 * 2 * 2 * 64,
                2 * 64 + 2 * 4096 + 2 * 2 * 64,
            ),
            // 343 taps at 32 x 32 x 8 places.
            ("sscnet 64x64x16 conv1_1 conv3d forward", 2 * 16 * 343 * 8192, 65536 + 16 * 8192 + 16 * 343),
            (
                "sscnet 64x64x16 deconv_classes conv3d transposed forward",
                2 * 1024 * 128 * 12 * 64,
                128 * 1024 + 12 * 65536 + 128 * 12 * 64,
            ),
            (
                "unet 256x256 down2.reduce conv2d forward",
                2 * 64 * 128 * 9 * 128 * 128,
                64 * 65536 + 128 * 16384 + 64 * 128 * 9,
            ),
            // Forward reads the features only.
            ("head 64x64x16 8->20 occupancy head forward", 2 * 8 * 20 * 65536, 8 * 65536),
            (
                "points 30000 pillars voxel encoder forward + backward",
                2 * 30000 * 9 * 64,
                3 * 30000 * 9 + 2 * 3750 * 64,
            ),
            ("points 30000 linear 9->64 gemm nt forward", 2 * 30000 * 9 * 64, 30000 * 73 + 9 * 64),
            ("points 30000 linear 9->64 gemm tn weight gradient", 2 * 30000 * 9 * 64, 30000 * 73 + 9 * 64),
        ] {
            let case = find(name);
            assert_eq!(case.operation.flops(), Some(flops), "{name}");
            assert_eq!(case.operation.bytes(case.pass, 4), 4 * values, "{name}");
            assert_eq!(case.operation.bytes(case.pass, 2), 2 * values, "{name}");
        }
    }

    #[test]
    fn what_memory_limits_is_counted_in_tensors() {
        for (name, values) in [
            ("lmscnet 64x64x16 head.relu relu forward + backward", 4 * 8 * 65536),
            ("lmscnet 64x64x16 head.bn1 channel moments forward", 8 * 65536),
            ("lmscnet 64x64x16 head.bn1 batch norm + relu forward", 2 * 8 * 65536),
            ("lmscnet 64x64x16 pool max pool forward + backward", 2 * 16 * (4096 + 1024)),
            ("sscnet 64x64x16 pool max pool forward", 32 * (8192 + 1024)),
            ("points 130000 norm 64 layer norm + relu forward + backward", 5 * 130_000 * 64),
        ] {
            let case = find(name);
            assert_eq!(case.operation.flops(), None, "{name}");
            assert_eq!(case.operation.bytes(case.pass, 4), 4 * values, "{name}");
        }
    }

    #[test]
    fn names_are_unique_and_the_default_part_covers_every_operation() {
        let cases = cases().unwrap();
        let mut names: Vec<String> = cases.iter().map(Case::name).collect();
        names.sort();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
        let operations = |all: bool| {
            let chosen = cases.iter().filter(|case| all || !case.extended);
            let mut names: Vec<String> = chosen.map(|case| case.operation.name()).collect();
            names.sort();
            names.dedup();
            names
        };
        assert_eq!(operations(true), operations(false));
        assert_eq!(operations(false).len(), 17);
    }
}
