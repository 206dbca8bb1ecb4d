//! First weights of layers, drawn on the host: the same seed gives the same network on every device.

use burn::module::Param;
use burn::nn::conv::{
    Conv2d, Conv2dConfig, Conv3d, Conv3dConfig, ConvTranspose2d, ConvTranspose2dConfig, ConvTranspose3d,
    ConvTranspose3dConfig,
};
use burn::nn::{BatchNorm, BatchNormConfig, Initializer, PaddingConfig2d, PaddingConfig3d};
use burn::tensor::{Device, Tensor, TensorData};

/// Makes layers and draws their first weights in order from one seed.
pub struct Init {
    device: Device,
    state: u64,
}

impl Init {
    pub fn new(seed: u64, device: &Device) -> Self {
        Self { device: device.clone(), state: seed }
    }

    /// SplitMix64 (Steele, Lea, Flood 2014).
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Values uniform in `[-bound, bound)`.
    fn draw(&mut self, count: usize, bound: f64) -> Vec<f32> {
        let unit = 1.0 / (1u64 << 53) as f64;
        (0..count).map(|_| ((2.0 * unit * (self.next() >> 11) as f64 - 1.0) * bound) as f32).collect()
    }

    fn uniform<const D: usize>(&mut self, shape: [usize; D], bound: f64) -> Param<Tensor<D>> {
        let values = self.draw(shape.iter().product(), bound);
        Param::from_data(TensorData::new(values, shape), &self.device)
    }

    /// 3x3 convolution over `[B, in, H, W]`, same size out. He et al.'s uniform weights (arXiv 1502.01852, gain of
    /// ReLU), zero bias.
    pub fn conv2d(&mut self, channels_in: usize, channels_out: usize) -> Conv2d {
        self.conv2d_widened(channels_in, 0, channels_out)
    }

    /// [`Init::conv2d`] with `further` channels after the `channels_in`, whose weights begin at zero: until it is trained
    /// it is the convolution without them.
    pub fn conv2d_widened(&mut self, channels_in: usize, further: usize, channels_out: usize) -> Conv2d {
        let mut conv = Conv2dConfig::new([channels_in + further, channels_out], [3, 3])
            .with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1))
            .with_initializer(Initializer::Zeros)
            .init(&self.device);
        let bound = (6.0 / (channels_in * 9) as f64).sqrt();
        let mut weights = Vec::with_capacity(channels_out * (channels_in + further) * 9);
        for _ in 0..channels_out {
            weights.extend(self.draw(channels_in * 9, bound));
            weights.extend(vec![0.0f32; further * 9]);
        }
        let shape = [channels_out, channels_in + further, 3, 3];
        conv.weight = Param::from_data(TensorData::new(weights, shape), &self.device);
        conv
    }

    /// Transposed convolution over `[B, channels, H, W]` with a square kernel; weights and bias uniform within
    /// `1/sqrt(channels * kernel^2)`, as PyTorch draws them.
    pub fn conv_transpose2d(
        &mut self,
        channels: usize,
        kernel: usize,
        stride: usize,
        padding: usize,
    ) -> ConvTranspose2d {
        let mut conv = ConvTranspose2dConfig::new([channels, channels], [kernel, kernel])
            .with_stride([stride, stride])
            .with_padding([padding, padding])
            .with_initializer(Initializer::Zeros)
            .init(&self.device);
        let bound = 1.0 / ((channels * kernel * kernel) as f64).sqrt();
        conv.weight = self.uniform([channels, channels, kernel, kernel], bound);
        conv.bias = Some(self.uniform([channels], bound));
        conv
    }

    /// 3x3x3 convolution over `[B, in, D, H, W]`, same size out; weights and bias as in [`Init::conv3d_strided`].
    pub fn conv3d(&mut self, channels_in: usize, channels_out: usize, dilation: usize, bias: bool) -> Conv3d {
        let config = Conv3dConfig::new([channels_in, channels_out], [3; 3])
            .with_padding(PaddingConfig3d::Explicit(dilation, dilation, dilation))
            .with_dilation([dilation; 3])
            .with_bias(bias);
        self.draw_conv3d(&config)
    }

    /// Convolution with a cubic kernel of odd side `kernel` over `[B, in, D, H, W]`; the sides come out divided by
    /// `stride`. Weights and bias are uniform within `1/sqrt(in * kernel^3)`, as PyTorch draws them.
    pub fn conv3d_strided(&mut self, channels_in: usize, channels_out: usize, kernel: usize, stride: usize) -> Conv3d {
        let padding = kernel / 2;
        let config = Conv3dConfig::new([channels_in, channels_out], [kernel; 3])
            .with_stride([stride; 3])
            .with_padding(PaddingConfig3d::Explicit(padding, padding, padding));
        self.draw_conv3d(&config)
    }

    /// [`Init::conv3d_strided`] with stride 1 and without bias.
    pub fn conv3d_bare(&mut self, channels_in: usize, channels_out: usize, kernel: usize) -> Conv3d {
        let padding = kernel / 2;
        let config = Conv3dConfig::new([channels_in, channels_out], [kernel; 3])
            .with_padding(PaddingConfig3d::Explicit(padding, padding, padding))
            .with_bias(false);
        self.draw_conv3d(&config)
    }

    fn draw_conv3d(&mut self, config: &Conv3dConfig) -> Conv3d {
        let mut conv = config.clone().with_initializer(Initializer::Zeros).init(&self.device);
        let [channels_in, channels_out] = config.channels;
        let [d, h, w] = config.kernel_size;
        let bound = 1.0 / ((channels_in * d * h * w) as f64).sqrt();
        conv.weight = self.uniform([channels_out, channels_in, d, h, w], bound);
        if config.bias {
            conv.bias = Some(self.uniform([channels_out], bound));
        }
        conv
    }

    /// Transposed convolution over `[B, in, D, H, W]` whose cubic kernels do not overlap: the sides come out times
    /// `kernel`. Weights and bias are uniform within `1/sqrt(out * kernel^3)`, as PyTorch draws them.
    pub fn conv_transpose3d(&mut self, channels_in: usize, channels_out: usize, kernel: usize) -> ConvTranspose3d {
        let mut conv = ConvTranspose3dConfig::new([channels_in, channels_out], [kernel; 3])
            .with_stride([kernel; 3])
            .with_initializer(Initializer::Zeros)
            .init(&self.device);
        let bound = 1.0 / ((channels_out * kernel.pow(3)) as f64).sqrt();
        conv.weight = self.uniform([channels_in, channels_out, kernel, kernel, kernel], bound);
        conv.bias = Some(self.uniform([channels_out], bound));
        conv
    }

    /// Batch normalization of any rank over axis 1; scale 1, shift 0, epsilon 1e-5, momentum 0.1.
    pub fn batch_norm(&self, channels: usize) -> BatchNorm {
        BatchNormConfig::new(channels).init(&self.device)
    }
}
