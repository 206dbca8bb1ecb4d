//! Running a shader on tensors.

use burn::backend::TensorMetadata;
use burn::backend::wgpu::{CubeTensor, KernelSource, SourceKernel, SourceTemplate};
use burn::tensor::{DType, Shape};
use cubecl::ir::attributes::BufferIOAttr;
use cubecl::prelude::KernelId;
use cubecl::server::{KernelArguments, MetadataBindingInfo};
use cubecl::{CubeCount, CubeDim};

use super::gate::request_kernel;
use super::shader::{Permutation, Shader};

/// A tensor of a launch and what the shader does with it. When a launch fails, only what it writes is lost.
///
/// Tensors must be contiguous (`into_contiguous`) and not empty; what is written is bound once, unless
/// [`in_place_of`] gave it.
#[derive(Debug, Clone, Copy)]
pub enum Buffer<'a> {
    Read(&'a CubeTensor),
    Write(&'a CubeTensor),
    /// Reads what is there and changes it in place.
    Update(&'a CubeTensor),
}

impl<'a> Buffer<'a> {
    pub fn tensor(self) -> &'a CubeTensor {
        let (Self::Read(tensor) | Self::Write(tensor) | Self::Update(tensor)) = self;
        tensor
    }

    fn access(self) -> BufferIOAttr {
        match self {
            Self::Read(_) => BufferIOAttr::ReadOnly,
            Self::Write(_) => BufferIOAttr::WriteOnly,
            Self::Update(_) => BufferIOAttr::ReadWrite,
        }
    }
}

/// Runs `groups` workgroups of a shader, in as many dispatches as its `max_groups` asks for.
///
/// `buffers` are bound in order. `params` follow the first group of the dispatch in `params.wgsl`: what the shader reads
/// as `param(0u)` is `params[0]`. Nothing waits for the device; a shader that fails shows up as an error of the first
/// read of what it writes. A launch that the gate refuses ([`super::request_kernel`]) runs all the same; the next request gives
/// the error.
///
/// # Panics
///
/// If `buffers` are not as many as the table says, or `permutation` is not one of the shader's.
pub fn launch(shader: &'static Shader, permutation: &Permutation, buffers: &[Buffer], params: &[u32], groups: u32) {
    launch_split(shader, permutation, buffers, params, groups, shader.max_groups);
}

/// As [`launch`], with at most `max_groups` workgroups a dispatch: for shaders whose groups take longer or shorter by the
/// shape of the work ([`super::GroupCost::max_groups`]).
///
/// # Panics
///
/// As [`launch`].
pub fn launch_split(
    shader: &'static Shader,
    permutation: &Permutation,
    buffers: &[Buffer],
    params: &[u32],
    groups: u32,
    max_groups: u32,
) {
    assert_eq!(buffers.len(), shader.buffers, "buffers of {}", shader.name);
    let place = shader.permutations.iter().position(|known| known == permutation);
    let threads = shader.threads(permutation);
    let permutation = place.unwrap_or_else(|| panic!("{} has no permutation {permutation:?}", shader.name));
    request_kernel(shader.name);
    let client = &buffers[0].tensor().client;
    super::memory::sample(buffers[0].tensor());
    #[cfg(test)]
    let max_groups = MOST_GROUPS.get().min(max_groups);
    let mut first_group = 0;
    while first_group < groups {
        let count = max_groups.clamp(1, shader.max_groups).min(groups - first_group);
        let mut arguments = KernelArguments::new();
        for buffer in buffers {
            arguments = arguments.with_buffer_io(buffer.tensor().handle.clone().binding(), buffer.access());
        }
        let arguments = arguments.with_info(MetadataBindingInfo::custom(words(first_group, params)));
        let kernel = SourceKernel::new(Kernel { shader, permutation }, CubeDim::new_1d(threads));
        client.launch(Box::new(kernel), CubeCount::Static(count, 1, 1), arguments);
        first_group += count;
    }
}

#[cfg(test)]
thread_local! {
    /// Most workgroups of a dispatch that a test wants.
    pub static MOST_GROUPS: std::cell::Cell<u32> = const { std::cell::Cell::new(u32::MAX) };
}

/// The words of `params: array<u32>`, in pairs as the runtime takes them.
fn words(first_group: u32, params: &[u32]) -> Vec<u64> {
    let words: Vec<u32> = std::iter::once(first_group).chain(params.iter().copied()).collect();
    words.chunks(2).map(|pair| u64::from(pair[0]) | u64::from(*pair.get(1).unwrap_or(&0)) << 32).collect()
}

/// A tensor of unspecified content on the device of `like`.
pub fn new_tensor<const D: usize>(like: &CubeTensor, shape: [usize; D], dtype: DType) -> CubeTensor {
    let shape = Shape::from(shape);
    let handle = like.client.empty(shape.num_elements() * dtype.size());
    CubeTensor::new_contiguous(like.client.clone(), like.device.clone(), shape, handle, dtype)
}

/// A tensor of unspecified content with the shape of `like`, on its device.
pub fn new_like(like: &CubeTensor, dtype: DType) -> CubeTensor {
    let handle = like.client.empty(like.shape().num_elements() * dtype.size());
    CubeTensor::new_contiguous(like.client.clone(), like.device.clone(), like.shape(), handle, dtype)
}

/// Where a kernel writes that takes each value of `tensor`, whole and contiguous, to its own place: over it where nobody else
/// holds it, else a new tensor like it. A kernel may then bind the tensor twice, as no thread reads what another writes.
pub fn in_place_of(tensor: &CubeTensor) -> CubeTensor {
    if tensor.can_mut() { tensor.clone() } else { new_like(tensor, tensor.dtype) }
}

/// A [`DType::U32`] tensor of one dimension with these values, on the device of `like`.
pub fn upload_u32(like: &CubeTensor, values: &[u32]) -> CubeTensor {
    let handle = like.client.create_from_slice(bytemuck::cast_slice(values));
    CubeTensor::new_contiguous(like.client.clone(), like.device.clone(), [values.len()].into(), handle, DType::U32)
}

/// One permutation of a shader, as the runtime compiles and caches it.
struct Kernel {
    shader: &'static Shader,
    /// Place among the shader's permutations.
    permutation: usize,
}

impl KernelSource for Kernel {
    fn source(&self) -> SourceTemplate {
        SourceTemplate::new(self.shader.source(&self.shader.permutations[self.permutation]))
    }

    /// Everything that changes the text: the runtime compiles once for each identity.
    fn id(&self) -> KernelId {
        KernelId::new::<Self>().info((self.shader.name, self.permutation))
    }

    fn lang(&self) -> &'static str {
        "wgsl"
    }
}
