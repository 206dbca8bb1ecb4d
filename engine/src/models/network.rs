//! A network by name.

use std::io;
use std::ops::Range;
use std::path::Path;

use burn::module::{Module, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor};
use occam_scene::error::Place;

use super::lmscnet::{LmscNet, LmscNetConfig};
use super::scpnet::{ScpNet, ScpNetConfig, WIDTH};
use super::sscnet::{SscNet, SscNetConfig};
use super::weights::{self, WeightsFile, WeightsInfo};
use crate::gpu::{Request, read, request};
use crate::nn::Init;
use crate::tape::{Classifier, Gathered, Head, Learn, Mode, Planes, Precision, Summit, Tape, Trace, Updates, Var};
use crate::{Error, Result};

/// Every network Occam can train.
// A program holds one or two of them.
#[allow(clippy::large_enum_variant)]
#[derive(Module, Debug)]
pub enum Network {
    LmscNet(LmscNet),
    SscNet(SscNet),
    ScpNet(ScpNet),
}

impl Network {
    /// Names that [`Network::new`] knows.
    pub const NAMES: [&str; 4] = ["lmscnet-ss", "lmscnet", "sscnet", "scpnet-dense"];

    /// # Errors
    /// [`Error::Usage`] for a name that is none of [`Network::NAMES`], with the nearest of them.
    pub fn check_name(name: &str) -> Result<()> {
        if Self::NAMES.contains(&name) { Ok(()) } else { Err(unknown(name)) }
    }

    /// A fresh network for grids of `counts` voxels along x, y, z with `channels` features a voxel. The same `seed` gives
    /// the same weights on every device.
    ///
    /// # Errors
    /// [`Error::Usage`] for an unknown name and for a grid or number of classes the network cannot take.
    pub fn new(
        name: &str,
        counts: [usize; 3],
        channels: usize,
        classes: usize,
        seed: u64,
        device: &Device,
    ) -> Result<Self> {
        let mut init = Init::new(seed, device);
        match name {
            "lmscnet-ss" | "lmscnet" => {
                let config = LmscNetConfig { counts, channels, classes, multiscale: name == "lmscnet" };
                Ok(Self::LmscNet(config.init(&mut init)?))
            }
            "sscnet" => Ok(Self::SscNet(SscNetConfig { counts, channels, classes }.init(&mut init)?)),
            "scpnet-dense" => {
                let config = ScpNetConfig { counts, channels, classes, width: WIDTH };
                Ok(Self::ScpNet(config.init(&mut init)?))
            }
            _ => Err(unknown(name)),
        }
    }

    /// The name that [`Network::new`] makes this network by.
    pub fn name(&self) -> &'static str {
        match self {
            Self::LmscNet(network) if network.scales().len() == 1 => "lmscnet-ss",
            Self::LmscNet(_) => "lmscnet",
            Self::SscNet(_) => "sscnet",
            Self::ScpNet(_) => "scpnet-dense",
        }
    }

    /// Logits `[B, classes, Z/s, X/s, Y/s]` for every scale `s` of [`Network::scales`], in that order, from features
    /// `[B, channels, Z, X, Y]`; channel 0 is occupancy (1 occupied, 0 not).
    ///
    /// # Errors
    /// [`Error::Usage`] when the features do not fit the network, [`Error::TooLarge`] when a tensor does not fit on the
    /// device.
    pub fn forward(&self, features: Tensor<5>) -> Result<Vec<Tensor<5>>> {
        fn logits<M: Module>(network: &M, heads: RunHeads<M>, features: Tensor<5>) -> Result<Vec<Tensor<5>>> {
            let mut tape = Tape::plain(network);
            let features = tape.input(features);
            let heads = heads(&mut tape, features)?;
            heads
                .into_iter()
                .map(|Head { features, classifier }| (classifier.run)(network, features.into_value(), Planes::All))
                .collect()
        }
        match self {
            Self::LmscNet(network) => logits(network, LmscNet::run, features),
            Self::SscNet(network) => logits(network, SscNet::run, features),
            Self::ScpNet(network) => logits(network, ScpNet::run, features),
        }
    }

    /// The most likely class of every voxel at full scale, `[Z, X, Y]` for each sample of `features` (as in
    /// [`Network::forward`]); of equal ones the lowest. Logits exist of [`LOGIT_PLANES`] planes at a time.
    ///
    /// # Errors
    /// Those of [`Network::forward`], and what [`read`] gives when the device fails.
    pub fn labels(&self, features: Tensor<5>) -> Result<Vec<Vec<u8>>> {
        match self {
            Self::LmscNet(network) => labels(network, LmscNet::run, features),
            Self::SscNet(network) => labels(network, SscNet::run, features),
            Self::ScpNet(network) => labels(network, ScpNet::run, features),
        }
    }

    /// Forward and backward: the loss of `features` (as in [`Network::forward`], without autodiff) and its gradients.
    ///
    /// `loss` gets the number of a scale, logits of it, and the range of their planes along z; what it gives adds up over
    /// scales and planes. The loss comes back as it is, its gradients times [`Passes::factor`].
    ///
    /// # Errors
    /// Those of [`Network::forward`] and of `loss`.
    pub fn learn(&self, features: Tensor<5>, passes: &Passes<'_>, loss: &mut LossOf<'_>) -> Result<Learned> {
        match self {
            Self::LmscNet(network) => learn(network, LmscNet::run, features, passes, loss),
            Self::SscNet(network) => learn(network, SscNet::run, features, passes, loss),
            Self::ScpNet(network) => learn(network, ScpNet::run, features, passes, loss),
        }
    }

    /// Lets an untrained network predict each class in proportion to `shares`, which need not add up to 1. Training then
    /// need not find out first that most voxels are empty (Lin et al., arXiv 1708.02002, section 3.3).
    pub fn set_class_shares(&mut self, shares: &[f64]) {
        // A class that never occurs starts at one in a million.
        let sum: f64 = shares.iter().sum::<f64>().max(f64::MIN_POSITIVE);
        let logits: Vec<f32> = shares.iter().map(|share| (share / sum).max(1e-6).ln() as f32).collect();
        match self {
            Self::LmscNet(network) => network.set_class_bias(&logits),
            Self::SscNet(network) => network.set_class_bias(&logits),
            Self::ScpNet(network) => network.set_class_bias(&logits),
        }
    }

    /// Side lengths of a prediction's voxels, in voxels of the grid; the first is 1.
    pub fn scales(&self) -> &'static [usize] {
        match self {
            Self::LmscNet(network) => network.scales(),
            Self::SscNet(_) | Self::ScpNet(_) => &[1],
        }
    }

    /// Writes the weights as safetensors, under the names of the network's PyTorch original. Equal weights give equal
    /// bytes.
    ///
    /// # Errors
    /// Those of the file.
    pub fn save_weights(&self, path: &Path) -> io::Result<()> {
        weights::save(self, path, self.original_names())
    }

    /// Replaces the weights by those of a file: safetensors, or what `torch.save` wrote of the network's PyTorch original
    /// (its state dict, or a checkpoint that holds one). Nothing in it is executed. On an error the network is as it was.
    ///
    /// # Errors
    /// [`Error::Input`] when the file cannot be read, holds more than tensors and plain values, lacks a tensor, has one too
    /// many, or one of another shape.
    pub fn load_weights(&mut self, path: &Path) -> Result<()> {
        let names = self.original_names();
        let file = WeightsFile::open(path)?;
        weights::load(self, &file, names).map_err(|error| match (error, recognise(&file)) {
            (Error::Input(error), Ok(Some(info))) if error.hint.is_empty() => {
                let other = info.network != self.name();
                let advice = format!(". Choose that network with model.network = \"{}\"", info.network);
                error.hint(format!("The file holds {info}{}", if other { &advice } else { "" })).into()
            }
            (error, _) => error,
        })
    }

    /// Which network the file of weights belongs to, by the names and shapes of its tensors.
    ///
    /// # Errors
    /// [`Error::Input`] when the file cannot be read, or holds none of the networks here.
    pub fn describe_weights(path: &Path) -> Result<WeightsInfo> {
        let file = WeightsFile::open(path)?;
        recognise(&file)?.ok_or_else(|| {
            let some: Vec<&str> = file.names().take(3).collect();
            let found =
                if some.is_empty() { "no tensor".into() } else { format!("tensors such as {}", some.join(", ")) };
            let expected = format!("those of one of the networks {}", Self::NAMES.join(", "));
            occam_scene::Error::new(path, Place::File, found, expected).into()
        })
    }

    /// Beginnings of parameter names here and in the PyTorch original, where they differ.
    fn original_names(&self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::LmscNet(_) => &LmscNet::ORIGINAL_NAMES,
            Self::SscNet(_) => &[],
            Self::ScpNet(_) => &ScpNet::ORIGINAL_NAMES,
        }
    }
}

/// Loss of a scale's logits; see [`Network::learn`].
pub type LossOf<'a> = dyn FnMut(usize, Tensor<5>, Range<usize>) -> Result<Tensor<1>> + 'a;

/// How a network goes forward and back.
#[derive(Debug, Clone, Copy)]
pub struct Passes<'a> {
    /// Of each segment in order of running; those beyond keep, in bf16 they recompute.
    pub modes: &'a [Mode],
    /// Whether the loss is a sum over voxels, so that it can be taken a few planes at a time.
    pub by_planes: bool,
    /// What gradients are multiplied by: the loss scale.
    pub factor: f64,
    /// Whether times and bytes of each segment are wanted.
    pub traced: bool,
    /// Decides all that layers draw.
    pub seed: u64,
    /// Whether batch normalization takes its running statistics, and leaves them as they are.
    pub frozen_statistics: bool,
    /// Of values between segments.
    pub precision: Precision,
}

impl Default for Passes<'_> {
    fn default() -> Self {
        Self {
            modes: &[],
            by_planes: false,
            factor: 1.0,
            traced: false,
            seed: 0,
            frozen_statistics: false,
            precision: Precision::F32,
        }
    }
}

/// What came of it. The network is as it was.
pub struct Learned {
    /// `[1]`, without autodiff.
    pub loss: Tensor<1>,
    pub gradients: GradientsParams,
    /// What the network changes in itself when the step counts.
    pub updates: Updates,
    pub trace: Option<Trace>,
    /// When most was in use.
    pub summit: Summit,
}

/// Planes of logits that exist at the same time where a loss is taken by planes, and in predictions. Fixed, so that sums do not depend on the
/// memory there is.
pub const LOGIT_PLANES: usize = 4;

/// Planes of features that make [`LOGIT_PLANES`] planes of logits.
fn feature_planes<M>(classifier: &Classifier<M>) -> usize {
    (LOGIT_PLANES / classifier.scale).max(1)
}

type RunHeads<M> = fn(&mut Tape<'_, M>, Var) -> Result<Vec<Head<M>>>;

fn learn<M: Module>(
    network: &M,
    heads: RunHeads<M>,
    features: Tensor<5>,
    passes: &Passes<'_>,
    loss: &mut LossOf<'_>,
) -> Result<Learned> {
    let Passes { modes, traced, seed, frozen_statistics, precision, .. } = *passes;
    let how = Learn { modes, seed, frozen_statistics, traced, precision };
    let mut tape = Tape::learning(network, &features.device(), &how);
    let features = tape.input(features);
    let heads = heads(&mut tape, features)?;
    let mut total: Option<Tensor<1>> = None;
    // Coarse scales first: full scale takes most memory, and its backward pass comes next.
    for (scale, head) in heads.into_iter().enumerate().rev() {
        let planes = if passes.by_planes { feature_planes(&head.classifier) } else { usize::MAX };
        let part = tape.loss(head, planes, passes.factor, &mut |logits, range| loss(scale, logits, range))?;
        total = Some(match total {
            Some(sum) => sum + part,
            None => part,
        });
    }
    let Gathered { gradients, updates, trace, summit } = tape.backward()?;
    let loss = total.expect("a network predicts at one scale at least");
    Ok(Learned { loss, gradients, updates, trace, summit })
}

fn labels<M: Module>(network: &M, heads: RunHeads<M>, features: Tensor<5>) -> Result<Vec<Vec<u8>>> {
    let [batch, _, z, x, y] = features.dims();
    let mut tape = Tape::plain(network);
    let features = tape.input(features);
    // Full scale is all that counts; the features of the others go.
    let head = heads(&mut tape, features)?.swap_remove(0);
    let planes = feature_planes(&head.classifier);
    let mut samples: Vec<Vec<u8>> = (0..batch).map(|_| Vec::with_capacity(z * x * y)).collect();
    head.by_planes(network, planes, &mut |logits| {
        request(Request::Snapshot, "the predicted classes")?;
        // Ties go to the lowest class.
        let classes = read(logits.argmax(1))?;
        let voxels = classes.num_elements() / samples.len().max(1);
        let mut classes = classes.iter::<i64>().map(|class| class as u8);
        for sample in &mut samples {
            sample.extend(classes.by_ref().take(voxels));
        }
        Ok(())
    })?;
    Ok(samples)
}

fn recognise(file: &WeightsFile) -> Result<Option<WeightsInfo>> {
    for recognise in [LmscNet::recognise, SscNet::recognise, ScpNet::recognise] {
        if let Some(info) = recognise(file)? {
            return Ok(Some(info));
        }
    }
    Ok(None)
}

/// Refuses a grid whose sides do not divide by `factor`; `why` begins the reason.
pub(super) fn check_sides(counts: [usize; 3], factor: usize, why: &str) -> Result<()> {
    for (axis, count) in ["x", "y", "z"].into_iter().zip(counts) {
        if count == 0 || count % factor != 0 {
            let below = count / factor * factor;
            let nearest = if below == 0 { factor.to_string() } else { format!("{below} or {}", below + factor) };
            return Err(Error::Usage(format!(
                "the grid has {count} voxels along {axis}, but {why}, so they must divide by {factor}: take {nearest}"
            )));
        }
    }
    Ok(())
}

pub(super) fn check_classes(channels: usize, classes: usize) -> Result<()> {
    if channels == 0 {
        return Err(Error::Usage("a network for 0 channels, expected at least 1: occupancy".into()));
    }
    if classes < 2 {
        return Err(Error::Usage(format!(
            "a network for {classes} classes, expected at least 2: free space and one more"
        )));
    }
    Ok(())
}

/// Sets the bias of a layer; it trains if it did.
pub(super) fn set_bias(bias: &mut Option<Param<Tensor<1>>>, values: &[f32]) {
    *bias = bias.take().map(|bias| {
        bias.map(|old| {
            let trains = old.is_require_grad();
            let new = Tensor::from_data(values, &old.device());
            if trains { new.require_grad() } else { new }
        })
    });
}

fn unknown(name: &str) -> Error {
    let nearest = Network::NAMES
        .iter()
        .max_by(|a, b| strsim::jaro_winkler(a, name).total_cmp(&strsim::jaro_winkler(b, name)))
        .expect("there are networks");
    Error::Usage(format!(
        "unknown network \"{name}\", did you mean \"{nearest}\"? Known are {}",
        Network::NAMES.join(", ")
    ))
}
