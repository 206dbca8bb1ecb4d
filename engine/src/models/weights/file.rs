//! Files of weights: the tensors of a safetensors file or of one that `torch.save` wrote, by name.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use burn::store::burn_pack::Tensor as Stored;
use burn::store::pytorch_reader::PytorchReader;
use burn::store::{ModuleStore, SafetensorsStore, bridge};
use burn::tensor::DType;
use occam_scene::error::Place;

use super::pickle::Refusal;
use super::torch;
use crate::{Error, Result};

/// Bytes of a safetensors header at most, as the format has it.
const MAX_HEADER: u64 = 100_000_000;

/// Bytes of a tensor's name at most.
const MAX_NAME: usize = 200;

/// Where a checkpoint keeps its weights beside others, such as averaged ones.
const USUAL_PREFIXES: [&str; 5] = ["", "model.", "state_dict.", "model_state_dict.", "net."];

/// A file of weights, its tensors not read yet.
pub struct WeightsFile {
    path: PathBuf,
    tensors: BTreeMap<String, Stored>,
}

impl WeightsFile {
    /// Reads names, types and shapes.
    ///
    /// # Errors
    /// [`Error::Input`] for what is neither safetensors nor a file of `torch.save` with tensors and plain values only.
    pub fn open(path: &Path) -> Result<Self> {
        let io_error = |error: io::Error| Error::Input(occam_scene::Error::io(path, &error));
        let bad = |found: &str, expected: &str| occam_scene::Error::new(path, Place::File, found, expected);
        let found = std::fs::metadata(path).map_err(io_error)?;
        if !found.is_file() {
            let what = if found.is_dir() { "a folder" } else { "a pipe or a device" };
            return Err(bad(what, "a file of weights (.safetensors, .pt or .pth)").into());
        }
        let mut file = File::open(path).map_err(io_error)?;
        let mut head = Vec::new();
        (&mut file).take(512).read_to_end(&mut head).map_err(io_error)?;
        let header = head.first_chunk::<8>().map(|length| u64::from_le_bytes(*length));
        let checked = if head.starts_with(torch::ZIP) {
            torch::check_zip(&mut file)
        } else if torch::is_legacy(&head) {
            torch::check_legacy(&mut file)
        } else if header.is_some_and(|length| length <= MAX_HEADER) && head.get(8) == Some(&b'{') {
            let mut store = SafetensorsStore::from_file(path);
            let tensors = store.get_all_tensors().map_err(|error| bad(&plain(&error), "a whole safetensors file"))?;
            return Self::new(path, tensors.clone());
        } else {
            let mut error = bad(what_else(&head), "weights as safetensors or as torch.save writes them");
            if head.starts_with(LFS_POINTER) {
                error = error.hint("Fetch the file itself with `git lfs pull`");
            }
            return Err(error.into());
        };
        if let Err(Refusal { at, found, expected, hint }) = checked.map_err(io_error)? {
            return Err(occam_scene::Error::new(path, Place::Byte(at), found, expected).hint(hint).into());
        }
        let reader = PytorchReader::new(path).map_err(|error| bad(&plain(&error), "a file that torch.save wrote"))?;
        let tensors = reader.into_tensors().into_iter().map(|(name, tensor)| (name, bridge::from_pytorch(tensor)));
        Self::new(path, tensors.collect())
    }

    /// Names go into messages, and so onto terminals.
    fn new(path: &Path, tensors: BTreeMap<String, Stored>) -> Result<Self> {
        let odd = |name: &&String| name.len() > MAX_NAME || name.chars().any(char::is_control);
        if let Some(name) = tensors.keys().find(odd) {
            let found = format!("a tensor called {}", plain(name));
            let expected = format!("a name of at most {MAX_NAME} printable characters");
            return Err(occam_scene::Error::new(path, Place::File, found, expected).into());
        }
        Ok(Self { path: path.to_path_buf(), tensors })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Names of the tensors, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tensors.keys().map(String::as_str)
    }

    /// The tensors of one network, by their names in it: those below the names where most of `wanted` stand, such as
    /// `model.` in a checkpoint or `module.` of a network that was trained on several GPUs. `None` when none of `wanted`
    /// is there.
    ///
    /// # Errors
    /// [`Error::Input`] when the file holds several such networks.
    pub fn network<'a>(&'a self, wanted: &[&str]) -> Result<Option<BTreeMap<&'a str, &'a Stored>>> {
        let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
        for name in self.names() {
            for wanted in wanted {
                let prefix = name.strip_suffix(wanted).filter(|before| before.is_empty() || before.ends_with('.'));
                if let Some(prefix) = prefix {
                    *votes.entry(prefix).or_default() += 1;
                }
            }
        }
        let Some(most) = votes.values().copied().max() else { return Ok(None) };
        let best: Vec<&str> = votes.into_iter().filter(|(_, count)| *count == most).map(|(prefix, _)| prefix).collect();
        let usual = |prefix: &&&str| USUAL_PREFIXES.contains(&prefix.strip_suffix("module.").unwrap_or(prefix));
        let mut usual = best.iter().filter(usual);
        let prefix = match (best.as_slice(), usual.next(), usual.next()) {
            ([prefix], _, _) | (_, Some(prefix), None) => *prefix,
            _ => {
                let names: Vec<&str> = best.iter().map(|prefix| prefix.trim_end_matches('.')).take(6).collect();
                return Err(occam_scene::Error::new(
                    &self.path,
                    Place::File,
                    format!("the same network under {}", names.join(", ")),
                    "one network",
                )
                .hint("In Python, save one of them alone with torch.save")
                .into());
            }
        };
        let inside = |(name, tensor): (&'a String, &'a Stored)| Some((name.strip_prefix(prefix)?, tensor));
        Ok(Some(self.tensors.iter().filter_map(inside).collect()))
    }

    /// Reads a tensor's values into f32.
    ///
    /// # Errors
    /// [`Error::Input`] for whole numbers, for values that are not finite in f32, and for a damaged file.
    pub fn values(&self, name: &str, tensor: &Stored) -> Result<Vec<f32>> {
        let bad = |found: String, expected: &str| {
            Error::Input(occam_scene::Error::new(&self.path, Place::File, found, expected))
        };
        if !matches!(tensor.dtype, DType::F64 | DType::F32 | DType::F16 | DType::BF16) {
            return Err(bad(format!("{name} of type {:?}", tensor.dtype), "weights of type F32, F16, BF16 or F64"));
        }
        let data =
            bridge::to_data(tensor).map_err(|error| bad(format!("{name}: {}", plain(&error)), "a whole file"))?;
        let values = data.convert::<f32>().try_into_vec::<f32>();
        let values = values.map_err(|error| bad(format!("{name}: {error:?}"), "32-bit floats"))?;
        match values.iter().position(|value| !value.is_finite()) {
            Some(index) => Err(bad(format!("{} as value {index} of {name}", values[index]), "finite weights")),
            None => Ok(values),
        }
    }
}

/// Text that may hold bytes of the file, fit for one line of a terminal.
pub fn plain(text: &impl ToString) -> String {
    let printable = |c: char| if c.is_control() { '?' } else { c };
    text.to_string().chars().take(300).map(printable).collect()
}

const LFS_POINTER: &[u8] = b"version https://git-lfs";

/// What a file is that holds no weights.
fn what_else(head: &[u8]) -> &'static str {
    let text = head.trim_ascii_start();
    match head {
        [] => "an empty file",
        _ if head.starts_with(LFS_POINTER) => "a Git LFS pointer",
        _ if text.first() == Some(&b'<') => "a web page",
        _ if head.get(257..262) == Some(b"ustar") => "a tar archive",
        [0x80, 2..=5, ..] => "a pickle without tensors",
        _ => "something else",
    }
}
