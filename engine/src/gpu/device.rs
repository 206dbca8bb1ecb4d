//! From what the user asked for to an opened Burn device.

use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use burn::backend::DispatchDevice;
use burn::backend::wgpu::CubeTensor;
use burn::tensor::Device;
use burn::tensor::wgpu::{WgpuSetup, wgpu};
use cubecl::config::{CubeClRuntimeConfig, RuntimeConfig};

use super::adapter::{self, AdapterInfo, Found};
use super::variant;
use crate::{Error, Result};

/// What `--device` says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum DeviceChoice {
    /// The strongest hardware GPU, else the CPU.
    #[default]
    Auto,
    /// Plain Rust on the CPU (Burn's Flex backend).
    Cpu,
    /// The one adapter whose name contains this, whatever the case.
    Name(String),
    /// Place in the list of [`super::adapters`].
    Index(usize),
}

impl FromStr for DeviceChoice {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let text = text.trim();
        match text.to_ascii_lowercase().as_str() {
            "" => Err(Error::Usage("found an empty device, expected auto, cpu, a name or an index".into())),
            "auto" => Ok(Self::Auto),
            "cpu" => Ok(Self::Cpu),
            _ => Ok(text.parse().map_or_else(|_| Self::Name(text.into()), Self::Index)),
        }
    }
}

/// A device that is ready for tensors.
#[derive(Debug, Clone)]
pub struct Opened {
    /// Without autodiff; call `device.autodiff()` for training.
    pub device: Device,
    /// One line for the user: name, API, kind and driver.
    pub label: String,
    /// One line the user must see, because the device is not what they may expect.
    pub notice: Option<String>,
    /// None on the CPU.
    pub adapter: Option<AdapterInfo>,
}

/// Opens the chosen device. A device that was opened before in this process is handed out again.
///
/// A named device is opened or refused, never replaced. Only `auto` falls back to the CPU, with a notice. OpenGL and
/// software Vulkan are never taken unasked.
///
/// # Errors
///
/// [`Error::Usage`] for a name or index that fits no adapter or several, with the list of adapters, and for an
/// environment variable `OCCAM_VARIANT` that is no [`Variant`](super::Variant); [`Error::Failed`] when the driver refuses the
/// device.
pub fn open(choice: &DeviceChoice) -> Result<Opened> {
    one_stream()?;
    variant::heed_environment()?;
    match choice {
        DeviceChoice::Cpu => Ok(cpu(None)),
        DeviceChoice::Auto => Ok(auto(adapter::enumerate())),
        DeviceChoice::Name(name) => {
            let found = adapter::enumerate();
            let index = by_name(name, found.iter().map(|found| &found.info))?;
            open_at(found, index)
        }
        DeviceChoice::Index(index) => {
            let found = adapter::enumerate();
            if *index >= found.len() {
                return Err(no_such("index", &index.to_string(), found.iter().map(|found| &found.info)));
            }
            open_at(found, *index)
        }
    }
}

/// Several streams would each keep a memory pool of their own, and memory would grow with every loader thread.
fn one_stream() -> Result<()> {
    let mut config = CubeClRuntimeConfig::default();
    config.streaming.max_streams = 1;
    if CubeClRuntimeConfig::try_set(config) || CubeClRuntimeConfig::get().streaming.max_streams == 1 {
        return Ok(());
    }
    Err(Error::Failed("a device was used before it was opened, so its streams cannot be limited to one".into()))
}

fn cpu(notice: Option<String>) -> Opened {
    let threads = rayon::current_num_threads();
    let plural = if threads == 1 { "" } else { "s" };
    Opened { device: Device::flex(), label: format!("CPU ({threads} thread{plural})"), notice, adapter: None }
}

/// The strongest hardware adapter that opens, else the CPU with a notice.
fn auto(mut found: Vec<Found>) -> Opened {
    let software = found.iter().find(|found| !found.info.kind.is_hardware()).map(|found| found.info.name.clone());
    found.retain(|found| found.info.kind.is_hardware());
    // Stable: of equals, the one the driver lists first.
    found.sort_by_key(|found| found.info.kind);
    let mut refused = String::new();
    for candidate in found {
        let label = candidate.info.to_string();
        match open_found(candidate) {
            Ok(opened) => return opened,
            Err(error) => refused = format!(" ({label} did not open: {error})"),
        }
    }
    let software = software.map_or(String::new(), |name| format!("; software Vulkan ({name}) runs only when named"));
    cpu(Some(format!("No GPU: running on the CPU, which is slow{refused}. {INSTALL}{software}.")))
}

#[cfg(target_os = "macos")]
const INSTALL: &str = "For a GPU, this Mac must support Metal";
#[cfg(windows)]
const INSTALL: &str = "For a GPU, install the driver of its maker (NVIDIA, AMD or Intel)";
#[cfg(not(any(target_os = "macos", windows)))]
const INSTALL: &str = "For a GPU, install its Vulkan driver (Debian, Ubuntu: mesa-vulkan-drivers for AMD and Intel, \
                       nvidia-driver for NVIDIA)";

/// Index of the one adapter whose name contains `name`. The same card seen through two APIs counts once, by the better.
fn by_name<'a>(name: &str, adapters: impl Iterator<Item = &'a AdapterInfo> + Clone) -> Result<usize> {
    let wanted = name.to_lowercase();
    let matches: Vec<_> = adapters.clone().filter(|adapter| adapter.name.to_lowercase().contains(&wanted)).collect();
    let best: Vec<_> = matches.iter().filter(|adapter| adapter.backend == matches[0].backend).collect();
    match best[..] {
        [one] => Ok(one.index),
        [] => Err(no_such("name", name, adapters)),
        _ => {
            let list = list(matches.into_iter());
            Err(Error::Usage(format!("device name \"{name}\" fits several adapters:\n{list}\nGive the index instead.")))
        }
    }
}

fn no_such<'a>(what: &str, given: &str, adapters: impl Iterator<Item = &'a AdapterInfo>) -> Error {
    let list = list(adapters);
    if list.is_empty() {
        return Error::Usage(format!(
            "no adapter has the {what} \"{given}\": this machine shows no GPU at all. {INSTALL}, or use the device cpu."
        ));
    }
    Error::Usage(format!("no adapter has the {what} \"{given}\". This machine has:\n{list}\nand the device cpu."))
}

fn list<'a>(adapters: impl Iterator<Item = &'a AdapterInfo>) -> String {
    adapters.map(|adapter| format!("  {}  {adapter}", adapter.index)).collect::<Vec<_>>().join("\n")
}

fn open_at(mut found: Vec<Found>, index: usize) -> Result<Opened> {
    open_found(found.swap_remove(index))
}

/// A device that was opened in this process.
struct Registered {
    adapter: AdapterInfo,
    device: Device,
    wgpu: wgpu::Device,
    /// Another one has taken its place.
    replaced: bool,
}

/// What was opened in this process: registering an adapter twice would give it two memory pools.
static OPENED: Mutex<Vec<Registered>> = Mutex::new(Vec::new());

/// The adapter that holds `tensor`; none when its device was not opened here.
pub(super) fn adapter_of_tensor(tensor: &CubeTensor) -> Option<AdapterInfo> {
    let registry = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    let holds = |device: &Device| matches!(device.as_dispatch(), DispatchDevice::Cube(cube) if *cube == tensor.device);
    registry.iter().find(|known| holds(&known.device)).map(|known| known.adapter.clone())
}

fn open_found(found: Found) -> Result<Opened> {
    let mut registry = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    let known = registry.iter().find(|known| known.adapter == found.info && !known.replaced);
    let known = known.map(|known| known.device.clone());
    let info = found.info.clone();
    let device = if let Some(device) = known {
        device
    } else {
        let (device, wgpu) = register(found)?;
        registry.push(Registered { adapter: info.clone(), device: device.clone(), wgpu, replaced: false });
        device
    };
    Ok(Opened { device, label: info.to_string(), notice: None, adapter: Some(info) })
}

/// The adapter that `device` runs on. None on the CPU, and for a device that [`open`] did not open.
pub fn adapter_of(device: &Device) -> Option<AdapterInfo> {
    let device = device.clone().without_autodiff();
    let registry = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    registry.iter().find(|known| known.device == device).map(|known| known.adapter.clone())
}

/// Opens the adapter of `device`, which failed or is lost, once more. Burn registers every device under a number of its own,
/// so the fresh one has its own thread and memory pool; the failed one is never handed out again, and what lives on it is
/// lost. The driver's connection is new as well: where the driver itself was reset, an old one may stay broken.
///
/// # Errors
///
/// [`Error::Failed`] when the adapter is gone or refuses; [`Error::Usage`] for a device that [`open`] did not open.
pub fn replace(device: &Device) -> Result<Opened> {
    let failed = device.clone().without_autodiff();
    let adapter = {
        let mut registry = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(known) = registry.iter_mut().find(|known| known.device == failed) else {
            return Err(Error::Usage("the device cpu cannot be replaced by a fresh one".into()));
        };
        known.replaced = true;
        known.adapter.clone()
    };
    let same = |found: &Found| AdapterInfo { index: adapter.index, ..found.info.clone() } == adapter;
    match adapter::enumerate().into_iter().find(same) {
        Some(found) => open_found(found),
        None => Err(Error::Failed(format!("{adapter} is not there any more"))),
    }
}

/// A switch for tests: the driver takes `device` away, as after a reset. Everything on it is lost, and every read fails.
/// Nothing happens on the CPU.
pub fn lose(device: &Device) {
    let device = device.clone().without_autodiff();
    let registry = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = registry.iter().find(|known| known.device == device) {
        known.wgpu.destroy();
    }
}

fn register(found: Found) -> Result<(Device, wgpu::Device)> {
    let Found { info, backend, instance, adapter } = found;
    if let Some(shortfall) = info.shortfall() {
        return Err(Error::Failed(format!("{info} cannot run Occam's shaders: {shortfall}")));
    }
    // Burn reads what it may use from the adapter, so everything it offers is enabled, except buffers that the CPU
    // maps while the GPU uses them, and what wgpu calls experimental, which it does not promise to be sound. Of that,
    // only matrix units are taken, where our kernels can use them.
    let mut required_features =
        adapter.features() - wgpu::Features::MAPPABLE_PRIMARY_BUFFERS - wgpu::Features::all_experimental_mask();
    let mut experimental_features = wgpu::ExperimentalFeatures::disabled();
    if !info.cooperative_matrix.is_empty() {
        required_features |= wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX;
        experimental_features = cooperative_matrices();
    }
    let (device, queue) = pollster::block_on(adapter.request_device(&wgpu::DeviceDescriptor {
        required_features,
        required_limits: adapter.limits(),
        experimental_features,
        // Burn's own pool already takes large blocks.
        memory_hints: wgpu::MemoryHints::MemoryUsage,
        ..Default::default()
    }))
    .map_err(|error| Error::Failed(format!("{info} does not open: {error}")))?;
    let handle = device.clone();
    let setup = WgpuSetup { instance, adapter, device, queue, backend };
    let device = Device::wgpu_options()
        .setup(setup)
        .init()
        .map_err(|error| Error::Failed(format!("{info} does not open: {error}")))?;
    // With another compiler in the build, every WGSL kernel would fail at its first read.
    match device.as_dispatch() {
        DispatchDevice::Cube(cube) if cube.client().name().contains("wgsl") => Ok((device, handle)),
        _ => Err(Error::Failed(format!("{info} does not run WGSL in this build: the feature `vulkan` of burn is on"))),
    }
}

/// The consent to what wgpu calls experimental, for the one such feature that a device is opened with.
#[allow(unsafe_code)]
fn cooperative_matrices() -> wgpu::ExperimentalFeatures {
    // SAFETY: `enabled` asks to acknowledge that what it opens may hold bugs with undefined behaviour. Only
    // EXPERIMENTAL_COOPERATIVE_MATRIX is opened, and only our own shaders use it, those of
    // `shared/tile_cooperative.wgsl`: naga validates them in the tests, and they load and store matrices inside arrays
    // of workgroup memory, in bounds and in uniform control flow. Before they work for a user they must have multiplied
    // matrices rightly on that device.
    unsafe { wgpu::ExperimentalFeatures::enabled() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::AdapterKind;

    fn adapter(index: usize, name: &str, backend: &str) -> AdapterInfo {
        AdapterInfo {
            index,
            name: name.into(),
            backend: backend.into(),
            kind: AdapterKind::Discrete,
            driver: String::new(),
            driver_info: String::new(),
            max_binding_bytes: 1 << 27,
            max_buffer_bytes: 1 << 28,
            max_storage_buffers: 8,
            max_workgroup_memory_bytes: 16384,
            max_workgroup_invocations: 256,
            f16: false,
            subgroup_sizes: None,
            cooperative_matrix: Vec::new(),
            timestamps: false,
            memory_bytes: None,
        }
    }

    #[test]
    fn choices_are_read_from_text() {
        assert_eq!("Auto".parse::<DeviceChoice>().unwrap(), DeviceChoice::Auto);
        assert_eq!(" cpu".parse::<DeviceChoice>().unwrap(), DeviceChoice::Cpu);
        assert_eq!("2".parse::<DeviceChoice>().unwrap(), DeviceChoice::Index(2));
        assert_eq!("RTX 3060".parse::<DeviceChoice>().unwrap(), DeviceChoice::Name("RTX 3060".into()));
        assert!(matches!("".parse::<DeviceChoice>(), Err(Error::Usage(_))));
    }

    #[test]
    fn an_adapter_below_the_shaders_needs_is_told() {
        let enough = adapter(0, "enough", "Vulkan");
        assert_eq!(enough.shortfall(), None);
        let small = AdapterInfo { max_workgroup_invocations: 128, ..enough };
        assert_eq!(small.shortfall().unwrap(), "found 128 threads of a workgroup, needed 256");
    }

    #[test]
    fn a_name_finds_its_one_adapter() {
        let list = [
            adapter(0, "GeForce RTX 3060", "Vulkan"),
            adapter(1, "GeForce RTX 4090", "Vulkan"),
            adapter(2, "llvmpipe", "Vulkan"),
            adapter(3, "GeForce RTX 3060", "Dx12"),
        ];
        assert_eq!(by_name("LLVM", list.iter()).unwrap(), 2);
        assert_eq!(by_name("3060", list.iter()).unwrap(), 0, "the same card through a second API counts once");
        let Err(Error::Usage(ambiguous)) = by_name("rtx", list.iter()) else { panic!("two cards have this name") };
        assert!(ambiguous.contains("3060") && ambiguous.contains("4090") && !ambiguous.contains("llvmpipe"));
        let Err(Error::Usage(unknown)) = by_name("Radeon", list.iter()) else { panic!("no card has this name") };
        assert!(unknown.contains("Radeon") && unknown.contains("llvmpipe"), "{unknown}");
    }
}
