//! The convolutions that are checked, and their definition as a list of products.

use burn::tensor::Tensor;
use occam_engine::Result;
use occam_engine::ops::Activation;
use occam_engine::ops::conv::{ConvOptions, Epilogue, Prologue, conv, conv_transposed};

/// One convolution and what is fused into it.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    pub name: &'static str,
    pub batch: usize,
    /// In and out.
    pub channels: [usize; 2],
    pub groups: usize,
    pub sides: [usize; 3],
    pub kernel: [usize; 3],
    pub stride: [usize; 3],
    pub padding: [usize; 3],
    pub dilation: [usize; 3],
    /// Transposed, with this output padding.
    pub transposed: Option<[usize; 3]>,
    /// Scale and shift of the input, with or without ReLU.
    pub prologue: Option<Activation>,
    pub bias: bool,
    pub residual: bool,
    pub relu: bool,
}

pub const fn case(name: &'static str, channels: [usize; 2], sides: [usize; 3], kernel: [usize; 3]) -> Case {
    Case {
        name,
        batch: 1,
        channels,
        groups: 1,
        sides,
        kernel,
        stride: [1; 3],
        padding: [0; 3],
        dilation: [1; 3],
        transposed: None,
        prologue: None,
        bias: false,
        residual: false,
        relu: false,
    }
}

impl Case {
    pub const fn batch(self, batch: usize) -> Self {
        Self { batch, ..self }
    }

    pub const fn groups(self, groups: usize) -> Self {
        Self { groups, ..self }
    }

    pub const fn stride(self, d: usize, h: usize, w: usize) -> Self {
        Self { stride: [d, h, w], ..self }
    }

    pub const fn padding(self, d: usize, h: usize, w: usize) -> Self {
        Self { padding: [d, h, w], ..self }
    }

    pub const fn dilation(self, d: usize, h: usize, w: usize) -> Self {
        Self { dilation: [d, h, w], ..self }
    }

    pub const fn transposed(self, output_padding: [usize; 3]) -> Self {
        Self { transposed: Some(output_padding), ..self }
    }

    pub const fn prologue(self, activation: Activation) -> Self {
        Self { prologue: Some(activation), ..self }
    }

    pub const fn bias(self) -> Self {
        Self { bias: true, ..self }
    }

    pub const fn residual(self) -> Self {
        Self { residual: true, ..self }
    }

    pub const fn relu(self) -> Self {
        Self { relu: true, ..self }
    }

    /// As PyTorch's documentation of Conv3d and ConvTranspose3d has them.
    pub fn sides_out(&self) -> [usize; 3] {
        std::array::from_fn(|axis| {
            let (side, stride, padding) = (self.sides[axis], self.stride[axis], self.padding[axis]);
            let reach = self.dilation[axis] * (self.kernel[axis] - 1);
            match self.transposed {
                Some(output_padding) => (side - 1) * stride + reach + output_padding[axis] + 1 - 2 * padding,
                None => (side + 2 * padding - reach - 1) / stride + 1,
            }
        })
    }

    pub fn shape_x(&self) -> [usize; 5] {
        let [d, h, w] = self.sides;
        [self.batch, self.channels[0], d, h, w]
    }

    pub fn shape_y(&self) -> [usize; 5] {
        let [d, h, w] = self.sides_out();
        [self.batch, self.channels[1], d, h, w]
    }

    pub fn shape_weight(&self) -> [usize; 5] {
        let ([channels_in, channels_out], [d, h, w]) = (self.channels, self.kernel);
        match self.transposed {
            Some(_) => [channels_in, channels_out / self.groups, d, h, w],
            None => [channels_out, channels_in / self.groups, d, h, w],
        }
    }

    /// Places in the input, in the kernel and in the output that belong together along an axis.
    fn axis(&self, axis: usize) -> Vec<[usize; 3]> {
        let (sides_out, mut all) = (self.sides_out()[axis], Vec::new());
        for tap in 0..self.kernel[axis] {
            let offset = (tap * self.dilation[axis]) as isize - self.padding[axis] as isize;
            let (from, to) =
                if self.transposed.is_some() { (self.sides[axis], sides_out) } else { (sides_out, self.sides[axis]) };
            for coarse in 0..from {
                let fine = (coarse * self.stride[axis]) as isize + offset;
                if (0..to as isize).contains(&fine) {
                    let fine = fine as usize;
                    all.push(if self.transposed.is_some() { [coarse, tap, fine] } else { [fine, tap, coarse] });
                }
            }
        }
        all
    }

    /// Calls `term` with the places in x, weight and y of every product.
    pub fn terms(&self, mut term: impl FnMut(usize, usize, usize)) {
        let [channels_in, channels_out] = self.channels;
        let [in_group, out_group] = [channels_in / self.groups, channels_out / self.groups];
        let (sides, kernel, sides_out) = (self.sides, self.kernel, self.sides_out());
        let [along_d, along_h, along_w] = [0, 1, 2].map(|axis| self.axis(axis));
        for batch in 0..self.batch {
            for from in 0..channels_in {
                for out in 0..out_group {
                    let to = from / in_group * out_group + out;
                    let filter = match self.transposed {
                        Some(_) => from * out_group + out,
                        None => to * in_group + from % in_group,
                    };
                    let planes = [batch * channels_in + from, filter, batch * channels_out + to];
                    for d in &along_d {
                        for h in &along_h {
                            for w in &along_w {
                                let [x, k, y]: [usize; 3] = std::array::from_fn(|i| {
                                    let [_, high, wide] = [sides, kernel, sides_out][i];
                                    let deep = [sides, kernel, sides_out][i][0];
                                    ((planes[i] * deep + d[i]) * high + h[i]) * wide + w[i]
                                });
                                term(x, k, y);
                            }
                        }
                    }
                }
            }
        }
    }

    fn options(&self) -> ConvOptions {
        ConvOptions { stride: self.stride, padding: self.padding, dilation: self.dilation, groups: self.groups }
    }

    pub fn run(
        &self,
        x: Tensor<5>,
        weight: Tensor<5>,
        prologue: Option<Prologue>,
        epilogue: Epilogue,
    ) -> Result<Tensor<5>> {
        match self.transposed {
            Some(output_padding) => conv_transposed(x, weight, &self.options(), output_padding, epilogue),
            None => conv(x, weight, &self.options(), prologue, epilogue),
        }
    }
}

pub const RELU: Activation = Activation::Relu;

#[rustfmt::skip]
pub const CASES: [Case; 70] = [
    case("1x1x1 on one voxel", [3, 5], [1, 1, 1], [1, 1, 1]),
    case("1x1x1", [3, 5], [2, 3, 5], [1, 1, 1]),
    case("1x1x1, stride 2, odd grid", [3, 5], [5, 7, 3], [1, 1, 1]).stride(2, 2, 2),
    case("1x1x1, padding 1", [3, 2], [2, 3, 4], [1, 1, 1]).padding(1, 1, 1).bias(),
    case("1x1x1, groups 2", [4, 6], [2, 3, 5], [1, 1, 1]).groups(2),
    case("1x1x1, everything", [6, 5], [3, 3, 5], [1, 1, 1]).batch(2).prologue(RELU).bias().residual().relu(),
    case("1x1x1, many channels", [67, 33], [3, 5, 5], [1, 1, 1]),
    case("3x3x3", [2, 3], [4, 5, 6], [3, 3, 3]).padding(1, 1, 1),
    case("3x3x3, no padding", [2, 3], [4, 5, 6], [3, 3, 3]),
    case("3x3x3 on one voxel", [2, 3], [1, 1, 1], [3, 3, 3]).padding(1, 1, 1),
    case("3x3x3 to one voxel", [2, 3], [3, 3, 3], [3, 3, 3]),
    case("3x3x3, padding 2", [2, 3], [3, 4, 2], [3, 3, 3]).padding(2, 2, 2),
    case("3x3x3, stride 2, odd grid", [2, 3], [5, 7, 9], [3, 3, 3]).padding(1, 1, 1).stride(2, 2, 2),
    case("3x3x3, stride 2, even grid", [2, 3], [4, 6, 8], [3, 3, 3]).padding(1, 1, 1).stride(2, 2, 2),
    case("3x3x3, stride 1, 2, 3", [2, 3], [4, 7, 9], [3, 3, 3]).padding(1, 1, 1).stride(1, 2, 3),
    case("3x3x3, stride 3, voxels left over", [2, 3], [8, 10, 7], [3, 3, 3]).stride(3, 3, 3),
    case("2x2x2, stride 3, voxels passed over", [2, 3], [5, 8, 9], [2, 2, 2]).stride(3, 3, 3),
    case("3x3x3, dilation 2", [2, 3], [5, 6, 7], [3, 3, 3]).padding(2, 2, 2).dilation(2, 2, 2),
    case("3x3x3, dilation 3", [2, 3], [5, 7, 8], [3, 3, 3]).padding(3, 3, 3).dilation(3, 3, 3),
    case("3x3x3, dilation 1, 2, 3", [2, 3], [4, 6, 7], [3, 3, 3]).padding(1, 2, 3).dilation(1, 2, 3),
    case("3x3x3, dilation 2, stride 2", [2, 3], [5, 6, 9], [3, 3, 3]).padding(2, 2, 2).dilation(2, 2, 2).stride(2, 2, 2),
    case("3x3x3, dilation 3, wider than the grid", [2, 3], [2, 3, 4], [3, 3, 3]).padding(3, 3, 3).dilation(3, 3, 3),
    case("3x3x3, padding 0, 1, 2", [2, 3], [4, 3, 4], [3, 3, 3]).padding(0, 1, 2),
    case("3x3x3, padding 2, 0, 1, stride 2, 1, 1", [2, 3], [4, 5, 4], [3, 3, 3]).padding(2, 0, 1).stride(2, 1, 1),
    case("3x3x3, groups 2", [4, 6], [3, 4, 5], [3, 3, 3]).padding(1, 1, 1).groups(2),
    case("3x3x3, groups 3, stride 2", [6, 9], [3, 5, 5], [3, 3, 3]).padding(1, 1, 1).groups(3).stride(2, 2, 2),
    case("depthwise", [5, 5], [3, 4, 5], [3, 3, 3]).padding(1, 1, 1).groups(5),
    case("depthwise, two filters a channel", [3, 6], [3, 4, 5], [3, 3, 3]).padding(1, 1, 1).groups(3),
    case("depthwise, stride 2, dilation 2", [3, 3], [5, 6, 7], [3, 3, 3]).padding(2, 2, 2).groups(3).stride(2, 2, 2).dilation(2, 2, 2),
    case("7x7x7", [1, 4], [7, 6, 5], [7, 7, 7]).padding(3, 3, 3),
    case("7x7x7, stride 2", [1, 4], [8, 8, 9], [7, 7, 7]).padding(3, 3, 3).stride(2, 2, 2),
    case("1x3x3", [3, 4], [3, 5, 4], [1, 3, 3]).padding(0, 1, 1),
    case("5x1x1", [3, 4], [6, 3, 4], [5, 1, 1]).padding(2, 0, 0),
    case("1x1x7", [3, 4], [3, 2, 9], [1, 1, 7]).padding(0, 0, 3),
    case("2x2x2, stride 2", [3, 4], [4, 6, 5], [2, 2, 2]).stride(2, 2, 2),
    case("4x4x4, padding 1", [2, 3], [5, 4, 6], [4, 4, 4]).padding(1, 1, 1),
    case("3x3", [2, 3], [1, 6, 7], [1, 3, 3]).padding(0, 1, 1),
    case("3x3, 17 to 19 channels", [17, 19], [1, 9, 9], [1, 3, 3]).padding(0, 1, 1),
    case("3x3, 33 to 65 channels", [33, 65], [1, 5, 5], [1, 3, 3]).padding(0, 1, 1),
    case("3x3, full tiles", [16, 64], [1, 8, 8], [1, 3, 3]).padding(0, 1, 1),
    case("3x3, a long row", [3, 8], [1, 2, 131], [1, 3, 3]).padding(0, 1, 1),
    case("3x3, one row", [2, 3], [1, 1, 9], [1, 3, 3]).padding(0, 1, 1),
    case("5x5, stride 2", [2, 3], [1, 9, 8], [1, 5, 5]).padding(0, 2, 2).stride(1, 2, 2),
    case("3x3, dilation 3", [2, 3], [1, 8, 9], [1, 3, 3]).padding(0, 3, 3).dilation(1, 3, 3),
    case("3x3, depthwise", [7, 7], [1, 5, 6], [1, 3, 3]).padding(0, 1, 1).groups(7),
    case("3x3, stride 2, batch 3", [2, 3], [1, 7, 6], [1, 3, 3]).batch(3).padding(0, 1, 1).stride(1, 2, 2),
    case("3x3x3, batch 2", [3, 4], [3, 4, 5], [3, 3, 3]).batch(2).padding(1, 1, 1),
    case("3x3x3, batch 2, groups 2", [4, 4], [3, 4, 3], [3, 3, 3]).batch(2).padding(1, 1, 1).groups(2),
    case("3x3x3, 70 to 3 channels", [70, 3], [2, 3, 3], [3, 3, 3]).padding(1, 1, 1),
    case("3x3x3, 3 to 70 channels", [3, 70], [2, 3, 3], [3, 3, 3]).padding(1, 1, 1),
    case("bias", [2, 3], [3, 4, 5], [3, 3, 3]).batch(2).padding(1, 1, 1).bias(),
    case("ReLU", [2, 3], [3, 4, 5], [3, 3, 3]).padding(1, 1, 1).relu(),
    case("bias and ReLU", [2, 5], [3, 5, 7], [3, 3, 3]).batch(2).padding(1, 1, 1).bias().relu(),
    case("bias, residual and ReLU", [2, 3], [3, 4, 5], [3, 3, 3]).batch(2).padding(1, 1, 1).bias().residual().relu(),
    case("scale and shift", [3, 4], [3, 4, 5], [3, 3, 3]).padding(1, 1, 1).prologue(Activation::Identity),
    case("scale, shift and ReLU", [3, 4], [3, 4, 5], [3, 3, 3]).batch(2).padding(1, 1, 1).prologue(RELU),
    case("everything, stride 2", [3, 4], [5, 4, 7], [3, 3, 3]).batch(2).padding(1, 1, 1).stride(2, 2, 2).prologue(RELU).bias().residual().relu(),
    case("everything, groups 2, dilation 2", [4, 6], [5, 4, 6], [3, 3, 3]).padding(2, 2, 2).dilation(2, 2, 2).groups(2).prologue(RELU).bias().residual().relu(),
    case("transposed 4x4, stride 4", [3, 2], [1, 3, 4], [1, 4, 4]).stride(1, 4, 4).transposed([0; 3]),
    case("transposed 6x6, stride 2, padding 2", [3, 2], [1, 5, 4], [1, 6, 6]).stride(1, 2, 2).padding(0, 2, 2).transposed([0; 3]),
    case("transposed 8x8, stride 8", [2, 3], [1, 2, 3], [1, 8, 8]).stride(1, 8, 8).transposed([0; 3]),
    case("transposed 3x3x3, stride 2, output padding 1", [3, 2], [2, 3, 4], [3, 3, 3]).stride(2, 2, 2).padding(1, 1, 1).transposed([1; 3]),
    case("transposed 4x4x4, stride 4", [5, 3], [2, 3, 2], [4, 4, 4]).stride(4, 4, 4).transposed([0; 3]),
    case("transposed, groups 2, batch 2", [4, 6], [2, 3, 3], [3, 3, 3]).batch(2).groups(2).stride(2, 2, 2).padding(1, 1, 1).transposed([0; 3]),
    case("transposed, dilation 2, output padding 1", [2, 3], [3, 2, 3], [3, 3, 3]).dilation(2, 2, 2).stride(2, 2, 2).padding(1, 1, 1).transposed([1; 3]),
    case("transposed, stride 1", [2, 3], [3, 4, 3], [3, 3, 3]).padding(1, 1, 1).transposed([0; 3]),
    case("transposed, one voxel", [3, 2], [1, 1, 1], [2, 3, 4]).stride(2, 2, 2).transposed([0; 3]),
    case("transposed, stride 1, 2, 3, everything", [3, 4], [3, 3, 2], [3, 3, 3]).batch(2).stride(1, 2, 3).padding(1, 0, 1).transposed([0, 1, 2]).bias().residual().relu(),
    case("transposed, depthwise", [4, 4], [1, 3, 4], [1, 4, 4]).groups(4).stride(1, 2, 2).padding(0, 1, 1).transposed([0; 3]),
    case("transposed, stride greater than the kernel", [2, 3], [2, 3, 2], [2, 2, 2]).stride(3, 3, 3).bias().transposed([0; 3]),
];
