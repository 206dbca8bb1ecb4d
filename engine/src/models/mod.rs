//! Networks, one file each, behind one type: the trainer does not know which one it trains.

mod lmscnet;
mod network;
mod scpnet;
mod sscnet;
pub(crate) mod weights;

pub(crate) use lmscnet::SegmentationHead;
pub use lmscnet::{LmscNet, LmscNetConfig};
pub use network::{LOGIT_PLANES, Learned, LossOf, Network, Passes};
pub use scpnet::{ScpNet, ScpNetConfig, WIDTH as SCPNET_WIDTH};
pub use sscnet::{SscNet, SscNetConfig};
pub use weights::WeightsInfo;
