//! What GPUs this machine has, through Vulkan, Metal or Direct3D 12; never through OpenGL.

use std::fmt;

use burn::tensor::wgpu::wgpu;

use super::shader;

/// The graphics APIs that are asked, best first. OpenGL is left out on purpose: it lacks f16 and most bindings.
#[cfg(target_os = "macos")]
pub(super) const BACKENDS: &[wgpu::Backend] = &[wgpu::Backend::Metal];
#[cfg(windows)]
pub(super) const BACKENDS: &[wgpu::Backend] = &[wgpu::Backend::Vulkan, wgpu::Backend::Dx12];
#[cfg(not(any(target_os = "macos", windows)))]
pub(super) const BACKENDS: &[wgpu::Backend] = &[wgpu::Backend::Vulkan];

/// How an adapter computes, strongest first: `auto` takes the smallest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AdapterKind {
    Discrete,
    Integrated,
    /// A GPU of the host, passed to a virtual machine.
    Virtual,
    /// Hardware whose driver does not say what it is.
    Other,
    /// Graphics emulated on the CPU, such as llvmpipe; runs only when named.
    Software,
}

impl AdapterKind {
    pub fn is_hardware(self) -> bool {
        self != Self::Software
    }
}

impl From<wgpu::DeviceType> for AdapterKind {
    fn from(kind: wgpu::DeviceType) -> Self {
        match kind {
            wgpu::DeviceType::DiscreteGpu => Self::Discrete,
            wgpu::DeviceType::IntegratedGpu => Self::Integrated,
            wgpu::DeviceType::VirtualGpu => Self::Virtual,
            wgpu::DeviceType::Cpu => Self::Software,
            wgpu::DeviceType::Other => Self::Other,
        }
    }
}

impl fmt::Display for AdapterKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Discrete => "discrete GPU",
            Self::Integrated => "integrated GPU",
            Self::Virtual => "virtual GPU",
            Self::Other => "GPU",
            Self::Software => "software",
        })
    }
}

/// One adapter of this machine: who it is, its limits and what it can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdapterInfo {
    /// Place in the list of [`adapters`]; what `--device INDEX` means.
    pub index: usize,
    pub name: String,
    /// Graphics API: `Vulkan`, `Metal` or `Dx12`.
    pub backend: String,
    pub kind: AdapterKind,
    pub driver: String,
    pub driver_info: String,
    /// Largest part of a buffer, and so the largest tensor, that one kernel can see.
    pub max_binding_bytes: u64,
    /// Largest buffer the driver makes.
    pub max_buffer_bytes: u64,
    pub max_storage_buffers: u32,
    pub max_workgroup_memory_bytes: u32,
    pub max_workgroup_invocations: u32,
    /// Half precision in shaders.
    pub f16: bool,
    /// Smallest and largest subgroup; none without subgroup operations.
    pub subgroup_sizes: Option<(u32, u32)>,
    /// Matrix units (tensor cores) within reach of WGSL: sides of the square matrices of f16 that they multiply and add
    /// up in f32, largest first. Empty without them, and without f16 or subgroups in shaders.
    pub cooperative_matrix: Vec<u32>,
    /// Kernel times measured on the device's own clock.
    pub timestamps: bool,
    /// Memory of its own; of one without, the host's that it may take. None where the driver does not say.
    pub memory_bytes: Option<u64>,
}

impl AdapterInfo {
    fn new(index: usize, adapter: &wgpu::Adapter) -> Self {
        let (info, limits, features) = (adapter.get_info(), adapter.limits(), adapter.features());
        Self {
            index,
            name: info.name,
            backend: format!("{:?}", info.backend),
            kind: info.device_type.into(),
            driver: info.driver,
            driver_info: info.driver_info,
            max_binding_bytes: limits.max_storage_buffer_binding_size,
            max_buffer_bytes: limits.max_buffer_size,
            max_storage_buffers: limits.max_storage_buffers_per_shader_stage,
            max_workgroup_memory_bytes: limits.max_compute_workgroup_storage_size,
            max_workgroup_invocations: limits.max_compute_invocations_per_workgroup,
            f16: features.contains(wgpu::Features::SHADER_F16),
            subgroup_sizes: features
                .contains(wgpu::Features::SUBGROUP)
                .then_some((info.subgroup_min_size, info.subgroup_max_size)),
            cooperative_matrix: if features.contains(COOPERATIVE_FEATURES) {
                cooperative_sides(&adapter.cooperative_matrix_properties())
            } else {
                Vec::new()
            },
            timestamps: features.contains(wgpu::Features::TIMESTAMP_QUERY),
            memory_bytes: memory_bytes(adapter),
        }
    }
}

/// Sizes of the heaps that Vulkan calls local to the device.
#[cfg(not(target_os = "macos"))]
#[allow(unsafe_code)]
fn memory_bytes(adapter: &wgpu::Adapter) -> Option<u64> {
    const DEVICE_LOCAL: u32 = 1;
    // SAFETY: the handle is only read from, and lives as long as the adapter that it belongs to.
    let properties = unsafe {
        let adapter = adapter.as_hal::<wgpu::hal::api::Vulkan>()?;
        let instance = adapter.shared_instance().raw_instance();
        instance.get_physical_device_memory_properties(adapter.raw_physical_device())
    };
    let heaps = properties.memory_heaps.iter().take(properties.memory_heap_count as usize);
    // The largest: some cards show a part of it a second time, as the window that the host can write through.
    heaps.filter(|heap| heap.flags.as_raw() & DEVICE_LOCAL != 0).map(|heap| heap.size).max()
}

#[cfg(target_os = "macos")]
fn memory_bytes(_: &wgpu::Adapter) -> Option<u64> {
    None
}

/// What kernels on matrix units ask of a device.
pub(super) const COOPERATIVE_FEATURES: wgpu::Features =
    wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX.union(wgpu::Features::SHADER_F16).union(wgpu::Features::SUBGROUP);

/// Sides of the square matrices with f16 operands and f32 sums, largest first. WGSL names no others.
fn cooperative_sides(offered: &[wgpu::CooperativeMatrixProperties]) -> Vec<u32> {
    use wgpu::CooperativeScalarType::{F16, F32};
    let fits = |side: &u32| {
        offered.iter().any(|shape| {
            [shape.m_size, shape.n_size, shape.k_size] == [*side; 3] && (shape.ab_type, shape.cr_type) == (F16, F32)
        })
    };
    [16, 8].into_iter().filter(fits).collect()
}

impl AdapterInfo {
    /// Why this adapter cannot run the shaders: which limit is too low. None when it can.
    pub fn shortfall(&self) -> Option<String> {
        [
            ("storage buffers of a shader", self.max_storage_buffers, shader::MAX_STORAGE_BUFFERS),
            ("threads of a workgroup", self.max_workgroup_invocations, shader::MAX_WORKGROUP_SIZE),
            ("bytes of workgroup memory", self.max_workgroup_memory_bytes, shader::MAX_WORKGROUP_BYTES),
        ]
        .into_iter()
        .find(|(_, found, needed)| found < needed)
        .map(|(what, found, needed)| format!("found {found} {what}, needed {needed}"))
    }
}

impl fmt::Display for AdapterInfo {
    /// `NVIDIA GeForce RTX 3060 (Vulkan, discrete GPU, NVIDIA 550.90)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}, {}", self.name, self.backend, self.kind)?;
        for word in [&self.driver, &self.driver_info] {
            if !word.is_empty() {
                write!(f, ", {word}")?;
            }
        }
        write!(f, ")")
    }
}

/// The adapters of this machine. Empty without any driver; never fails and prints nothing.
pub fn adapters() -> Vec<AdapterInfo> {
    enumerate().into_iter().map(|found| found.info).collect()
}

/// An adapter with the wgpu handles to open it.
pub(super) struct Found {
    pub info: AdapterInfo,
    pub backend: wgpu::Backend,
    pub instance: wgpu::Instance,
    pub adapter: wgpu::Adapter,
}

/// Asks every API of [`BACKENDS`], in order; the place in the result is the adapter's index.
pub(super) fn enumerate() -> Vec<Found> {
    let mut found = Vec::new();
    for &backend in BACKENDS {
        let instance = wgpu::Instance::new(wgpu::InstanceDescriptor {
            backends: backend.into(),
            ..wgpu::InstanceDescriptor::new_without_display_handle()
        });
        for adapter in pollster::block_on(instance.enumerate_adapters(backend.into())) {
            let info = AdapterInfo::new(found.len(), &adapter);
            found.push(Found { info, backend, instance: instance.clone(), adapter });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use wgpu::CooperativeScalarType::{F16, F32, I32};

    fn shape(
        sides: [u32; 3],
        ab_type: wgpu::CooperativeScalarType,
        cr_type: wgpu::CooperativeScalarType,
    ) -> wgpu::CooperativeMatrixProperties {
        let [m_size, n_size, k_size] = sides;
        wgpu::CooperativeMatrixProperties { m_size, n_size, k_size, ab_type, cr_type, saturating_accumulation: false }
    }

    #[test]
    fn only_square_matrices_of_f16_with_f32_sums_count() {
        let others = [
            shape([16, 8, 16], F16, F32),
            shape([16, 16, 16], F16, F16),
            shape([8, 8, 8], F32, F32),
            shape([16, 16, 16], I32, I32),
        ];
        assert_eq!(cooperative_sides(&others), [0; 0]);
        let square = [shape([8, 8, 8], F16, F32), shape([16, 16, 16], F16, F32)];
        assert_eq!(cooperative_sides(&[&others[..], &square[..1]].concat()), [8]);
        assert_eq!(cooperative_sides(&[&square[..], &others[..]].concat()), [16, 8]);
    }
}
