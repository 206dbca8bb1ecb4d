//! Which form of the tile core a device runs, and the check that it multiplies rightly there.
//!
//! What a driver offers and what it computes are two things: matrix units gave wrong sums on drivers that had passed every
//! other test. So a form that needs an optional feature first multiplies matrices whose product the host knows.

use std::fmt;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use burn::backend::wgpu::CubeTensor;
use burn::tensor::DType;
use cubecl::dry_run::RealRun;

use super::adapter::AdapterInfo;
use super::device::adapter_of_tensor;
use super::launch::{Buffer, launch, new_tensor};
use super::shader;
use super::tile::{Tile, TileForm, tiles_of};
use crate::{Error, Result};

/// The forms of a kernel by what they ask of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Variant {
    /// WGSL without any optional feature but f16.
    Plain,
    /// Operands shared by the threads of a subgroup.
    Subgroup,
    /// Products on matrix units.
    Cooperative,
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "plain",
            Self::Subgroup => "subgroup",
            Self::Cooperative => "cooperative",
        })
    }
}

impl FromStr for Variant {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let all = [Self::Plain, Self::Subgroup, Self::Cooperative];
        all.into_iter().find(|variant| variant.to_string() == text).ok_or_else(|| {
            Error::Usage(format!("found \"{text}\" as variant of kernels, expected plain, subgroup or cooperative"))
        })
    }
}

impl TileForm {
    pub fn variant(self) -> Variant {
        match self {
            Self::Staged | Self::Direct => Variant::Plain,
            Self::Lanes => Variant::Subgroup,
            Self::Cooperative { .. } => Variant::Cooperative,
        }
    }
}

/// The forms that `adapter` offers for operands of `dtype` (f32 or f16), the best first, each with the reason. A plain one
/// is among them; what stands after it runs only when asked for.
fn offered(adapter: &AdapterInfo, dtype: DType) -> Vec<(TileForm, String)> {
    // Four subgroups. Metal names 64 as the largest, its GPUs have 32.
    let wide = adapter.backend != "Metal" && adapter.subgroup_sizes.is_some_and(|(_, largest)| largest >= 64);
    let sides = if dtype == DType::F16 { &adapter.cooperative_matrix[..] } else { &[] };
    let cooperative = sides.iter().map(|&side| {
        let threads = if side == 16 && wide { 256 } else { 128 };
        (TileForm::Cooperative { side, threads }, format!("matrix units multiply {side}x{side} of f16"))
    });
    if adapter.kind.is_hardware() {
        let why = match (dtype, adapter.cooperative_matrix.is_empty()) {
            (DType::F16, true) => "no matrix units within reach of WGSL",
            (DType::F16, false) => "the matrix units fail a small product",
            _ => "matrix units multiply f16 only",
        };
        return cooperative.chain([(TileForm::Staged, why.to_owned())]).collect();
    }
    let mut forms = Vec::new();
    if adapter.subgroup_sizes == Some((8, 8)) {
        forms.push((TileForm::Lanes, "8 threads share a load, and loads cost most in software".to_owned()));
    }
    forms.push((TileForm::Direct, "workgroup memory gains nothing in software".to_owned()));
    forms.extend(cooperative);
    forms
}

/// The first of `forms` that is `wanted` (any, if none is) and passes `check`; a plain form needs no check. Failures are
/// told with `name`, the device.
fn choose(
    name: &str,
    forms: &[(TileForm, String)],
    wanted: Option<Variant>,
    mut check: impl FnMut(TileForm) -> Result<(), String>,
) -> TileForm {
    for (form, _) in forms {
        let variant = form.variant();
        if variant == Variant::Plain && wanted.is_none_or(|wanted| wanted == variant) {
            return *form;
        }
        if wanted.is_none_or(|wanted| wanted == variant) {
            match check(*form) {
                Ok(()) => return *form,
                Err(why) => tracing::warn!(
                    "{name}: the {variant} form of matrix products is not used, because it fails a small product: {why}"
                ),
            }
        }
    }
    let plain = forms.iter().find(|(form, _)| form.variant() == Variant::Plain);
    plain.map_or(TileForm::Staged, |(form, _)| *form)
}

/// What was asked for by [`only_variant`], and what was chosen so far.
static CHOICES: Mutex<Choices> = Mutex::new(Choices { wanted: None, made: Vec::new() });

struct Choices {
    wanted: Option<Variant>,
    made: Vec<Choice>,
}

struct Choice {
    adapter: AdapterInfo,
    dtype: DType,
    wanted: Option<Variant>,
    form: TileForm,
}

/// Makes every matrix product and convolution of this process that starts from now on run as `variant`, where the device
/// has it and it passes its check, else plain; None lets the device choose again. For benchmarks and tests.
pub fn only_variant(variant: Option<Variant>) {
    CHOICES.lock().unwrap_or_else(PoisonError::into_inner).wanted = variant;
}

/// Environment variable that does what [`only_variant`] does: `plain` keeps a broken driver from crashing.
const VARIABLE: &str = "OCCAM_VARIANT";

/// Heeds [`VARIABLE`].
pub(super) fn heed_environment() -> Result<()> {
    if let Some(text) = std::env::var_os(VARIABLE).filter(|text| !text.is_empty()) {
        let variant = text.to_string_lossy().parse().map_err(|error| Error::Usage(format!("{VARIABLE}: {error}")))?;
        only_variant(Some(variant));
    }
    Ok(())
}

/// Which form of tile multiplies operands like `tensor` (f32 or f16) on its device.
///
/// The first call for a device and type checks forms that need optional features on the device, and waits for it.
pub fn tile_form(tensor: &CubeTensor) -> TileForm {
    let Some(adapter) = adapter_of_tensor(tensor) else { return TileForm::Staged };
    let dtype = tensor.dtype;
    // Held while the device is checked, so that this happens once.
    let mut choices = CHOICES.lock().unwrap_or_else(PoisonError::into_inner);
    let wanted = choices.wanted;
    let known = |choice: &&Choice| (choice.dtype, choice.wanted) == (dtype, wanted) && choice.adapter == adapter;
    if let Some(choice) = choices.made.iter().find(known) {
        return choice.form;
    }
    let name = adapter.to_string();
    let form = choose(&name, &offered(&adapter, dtype), wanted, |form| check(tensor, form));
    choices.made.push(Choice { adapter, dtype, wanted, form });
    form
}

/// Multiplies small matrices with the tiles of `form` on the device of `like` and compares with the host.
fn check(like: &CubeTensor, form: TileForm) -> Result<(), String> {
    // A dry run computes nothing.
    let _real = RealRun::new();
    // On matrix units every tile is another program for the driver; the others differ in nothing that could fail.
    let tiles = tiles_of(form).take(if form.variant() == Variant::Cooperative { usize::MAX } else { 1 });
    for tile in tiles {
        for along_k in [0, 3] {
            // Two tiles each way, and edges within a tile, a square and a step of k.
            let [m, n, k] = [tile.rows + 5, tile.cols + 3, 37];
            let found = product(like, tile, [m, n, k], along_k)?;
            let wrong = (0..m * n).find(|&place| found[place as usize] != expected(place / n, place % n, k));
            if let Some(place) = wrong {
                let (row, col) = (place / n, place % n);
                let (found, expected) = (found[place as usize], expected(row, col, k));
                let (rows, cols) = (tile.rows, tile.cols);
                return Err(format!("tile {rows}x{cols}: found {found} at [{row}, {col}], expected {expected}"));
            }
        }
    }
    Ok(())
}

/// The product of `tile_check.wgsl` on the device of `like`: `[m, n]`.
fn product(like: &CubeTensor, tile: &'static Tile, [m, n, k]: [u32; 3], along_k: u32) -> Result<Vec<f32>, String> {
    let y = new_tensor(like, [m as usize, n as usize], DType::F32);
    let numbers = if tile.form.variant() == Variant::Cooperative { shader::F16 } else { shader::F32 };
    let groups = tile.groups(m as usize, n as usize) as u32;
    launch(&shader::TILE_CHECK, &numbers.with_tile(tile), &[Buffer::Write(&y)], &[m, n, k, along_k], groups);
    let bytes = y.client.read_one(y.handle).map_err(|error| error.to_string())?;
    Ok(bytemuck::pod_collect_to_vec(&bytes))
}

/// One value of that product: whole numbers, exact in f32.
fn expected(row: u32, col: u32, k: u32) -> f32 {
    let a = |k: u32| ((row * 5 + k * 3) % 13) as i32 - 6;
    let b = |k: u32| ((k * 7 + col * 11) % 17) as i32 - 8;
    (0..k).map(|k| a(k) * b(k)).sum::<i32>() as f32
}

/// Which form of a kernel runs on an adapter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelVariant {
    /// Name of the file in `shaders/`, without its ending.
    pub kernel: &'static str,
    /// Type of the operands, where the form depends on it.
    pub dtype: Option<DType>,
    pub variant: Variant,
    /// Why this one, for kernels that have several.
    pub why: String,
}

/// The variant of every kernel that will run on `adapter`, unless it fails its check at the first use.
pub fn kernel_variants(adapter: &AdapterInfo) -> Vec<KernelVariant> {
    let choices = CHOICES.lock().unwrap_or_else(PoisonError::into_inner);
    let dtypes = if adapter.f16 { &[DType::F32, DType::F16][..] } else { &[DType::F32] };
    let mut kernels = Vec::new();
    for shader in shader::ALL.iter().filter(|shader| shader.name != shader::TILE_CHECK.name) {
        let kernel = shader.name;
        if shader.permutations.iter().all(|permutation| permutation.tile.is_none()) {
            kernels.push(KernelVariant { kernel, dtype: None, variant: Variant::Plain, why: String::new() });
            continue;
        }
        for &dtype in dtypes {
            let forms = offered(adapter, dtype);
            let choice = choices
                .made
                .iter()
                .find(|choice| choice.adapter == *adapter && (choice.dtype, choice.wanted) == (dtype, choices.wanted));
            let form = choice.map(|choice| choice.form);
            let (form, why) = forms
                .into_iter()
                .find(|(offer, _)| form.is_none_or(|form| form == *offer))
                .unwrap_or((TileForm::Staged, String::new()));
            kernels.push(KernelVariant { kernel, dtype: Some(dtype), variant: form.variant(), why });
        }
    }
    kernels
}

#[cfg(test)]
mod tests;
