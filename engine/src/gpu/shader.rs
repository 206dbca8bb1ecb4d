//! The table of every compute shader in `shaders/`, and the text that a device gets.
//!
//! A file is WGSL with two additions. A line `//!include NAME` is replaced by `shaders/shared/NAME.wgsl`; shared pieces
//! include nothing themselves. `{{ key }}` is replaced by the value of the permutation or of its tile, and
//! `{{ workgroup_size }}` and `{{ params_binding }}` by those of the table, also inside shared pieces and in include lines.
//! The lines between `//!for i in COUNT` and `//!end` are repeated with `{{ i }}` counting from 0: registers that have names
//! stay registers, which an array does not in every compiler.
//!
//! Every file has one entry point `main`, a one-dimensional workgroup, its tensors as `var<storage, read_write>` at the
//! bindings 0, 1, ... (Burn keeps several tensors in one buffer, and wgpu refuses a buffer that is read-only and writable
//! at once), and after them the parameters of the launch, from `shared/params.wgsl`.
//!
//! To add a kernel: the file, a constant here, its place in [`ALL`].

mod channels;
mod fused;

use super::tile::{self, Tile, TileForm};

pub use channels::*;
pub use fused::*;

/// Storage buffers that a shader may bind, the parameters among them. Adapters with less are not opened.
pub const MAX_STORAGE_BUFFERS: u32 = 8;
/// Threads that a workgroup may have. Adapters with less are not opened.
pub const MAX_WORKGROUP_SIZE: u32 = 256;
/// Memory that a workgroup may share. Adapters with less are not opened.
pub const MAX_WORKGROUP_BYTES: u32 = 16 * 1024;

/// One set of values for the placeholders of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permutation {
    pub name: &'static str,
    /// Placeholder and what stands for it.
    pub values: &'static [(&'static str, &'static str)],
    /// For the shaders that compute tiles of a matrix product.
    pub tile: Option<&'static Tile>,
}

impl Permutation {
    pub const fn new(name: &'static str, values: &'static [(&'static str, &'static str)]) -> Self {
        Self { name, values, tile: None }
    }

    /// The same with a tile.
    #[must_use]
    pub const fn with_tile(self, tile: &'static Tile) -> Self {
        Self { tile: Some(tile), ..self }
    }
}

/// The only permutation of a file without placeholders.
pub const PLAIN: Permutation = Permutation::new("plain", &[]);

/// What stands for the element type of a shader that takes f32 and f16. Sums are f32 in both.
pub const F32: Permutation = Permutation::new("f32", &[("elem", "f32"), ("enable", "")]);
pub const F16: Permutation = Permutation::new("f16", &[("elem", "f16"), ("enable", "enable f16;")]);

/// One file in `shaders/` and what the host knows about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shader {
    /// File name without its ending.
    pub name: &'static str,
    pub text: &'static str,
    pub permutations: &'static [Permutation],
    /// Threads of a workgroup; where a permutation has a tile, the tile says. See [`Self::threads`].
    pub workgroup_size: u32,
    /// Tensors that it binds; the parameters come after them.
    pub buffers: usize,
    /// Most workgroups of one dispatch, so that none runs above 100 ms at 1 TFLOP/s and 25 GB/s: drivers kill long
    /// ones. At most 65,535. Larger launches are split.
    pub max_groups: u32,
}

impl Shader {
    /// The WGSL of one permutation.
    pub fn source(&self, permutation: &Permutation) -> String {
        let fill = |text: &str| {
            let mut text = text.to_owned();
            for (key, value) in permutation.values {
                text = text.replace(&format!("{{{{ {key} }}}}"), value);
            }
            for (key, value) in permutation.tile.map_or_else(Vec::new, Tile::values) {
                text = text.replace(&format!("{{{{ {key} }}}}"), &value);
            }
            text = text.replace("{{ workgroup_size }}", &self.threads(permutation).to_string());
            text.replace("{{ params_binding }}", &self.buffers.to_string())
        };
        let mut source = String::new();
        for line in fill(self.text).lines() {
            match line.strip_prefix("//!include ").and_then(|name| shared(name.trim())) {
                Some(piece) => source.push_str(&fill(piece)),
                None => source.push_str(line),
            }
            source.push('\n');
        }
        let source = repeat(&source);
        match permutation.tile {
            Some(Tile { form: TileForm::Cooperative { .. }, .. }) => {
                format!("enable wgpu_cooperative_matrix;\n{source}")
            }
            _ => source,
        }
    }

    /// Threads of a workgroup of one permutation.
    pub fn threads(&self, permutation: &Permutation) -> u32 {
        permutation.tile.map_or(self.workgroup_size, |tile| tile.threads)
    }
}

/// Writes out the lines between `//!for NAME in COUNT` and its `//!end` COUNT times, inner ones too.
fn repeat(text: &str) -> String {
    let mut out = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let head = line.trim().strip_prefix("//!for ").and_then(|head| head.split_once(" in "));
        let Some((name, count)) = head.and_then(|(name, count)| Some((name, count.parse::<u32>().ok()?))) else {
            out.push_str(line);
            out.push('\n');
            continue;
        };
        let (mut body, mut depth) = (String::new(), 1);
        for line in lines.by_ref() {
            depth += i32::from(line.trim().starts_with("//!for ")) - i32::from(line.trim() == "//!end");
            if depth == 0 {
                break;
            }
            body.push_str(line);
            body.push('\n');
        }
        for index in 0..count {
            out.push_str(&repeat(&body.replace(&format!("{{{{ {name} }}}}"), &index.to_string())));
        }
    }
    out
}

/// Pieces of `shaders/shared/` by name.
pub const SHARED: &[(&str, &str)] = &[
    ("bit_words", include_str!("../../../shaders/shared/bit_words.wgsl")),
    ("channel_columns", include_str!("../../../shaders/shared/channel_columns.wgsl")),
    ("channel_rows", include_str!("../../../shaders/shared/channel_rows.wgsl")),
    ("each_value", include_str!("../../../shaders/shared/each_value.wgsl")),
    ("encoder_values", include_str!("../../../shaders/shared/encoder_values.wgsl")),
    ("encoder_winners", include_str!("../../../shaders/shared/encoder_winners.wgsl")),
    ("finish_inverse", include_str!("../../../shaders/shared/finish_inverse.wgsl")),
    ("finish_moments", include_str!("../../../shaders/shared/finish_moments.wgsl")),
    ("finish_sums", include_str!("../../../shaders/shared/finish_sums.wgsl")),
    ("head_logits", include_str!("../../../shaders/shared/head_logits.wgsl")),
    ("label_loss", include_str!("../../../shaders/shared/label_loss.wgsl")),
    ("label_softmax", include_str!("../../../shaders/shared/label_softmax.wgsl")),
    ("params", include_str!("../../../shaders/shared/params.wgsl")),
    ("partial_moments", include_str!("../../../shaders/shared/partial_moments.wgsl")),
    ("partial_sums", include_str!("../../../shaders/shared/partial_sums.wgsl")),
    ("pool", include_str!("../../../shaders/shared/pool.wgsl")),
    ("ray_walk", include_str!("../../../shaders/shared/ray_walk.wgsl")),
    ("reduce_max", include_str!("../../../shaders/shared/reduce_max.wgsl")),
    ("reduce_sum", include_str!("../../../shaders/shared/reduce_sum.wgsl")),
    ("relu_stops", include_str!("../../../shaders/shared/relu_stops.wgsl")),
    ("scan_group", include_str!("../../../shaders/shared/scan_group.wgsl")),
    ("soft_cell", include_str!("../../../shaders/shared/soft_cell.wgsl")),
    ("tile_cooperative", include_str!("../../../shaders/shared/tile_cooperative.wgsl")),
    ("tile_direct", include_str!("../../../shaders/shared/tile_direct.wgsl")),
    ("tile_staged", include_str!("../../../shaders/shared/tile_staged.wgsl")),
    ("voxel_batch", include_str!("../../../shaders/shared/voxel_batch.wgsl")),
    ("voxel_cell", include_str!("../../../shaders/shared/voxel_cell.wgsl")),
    ("voxel_key", include_str!("../../../shaders/shared/voxel_key.wgsl")),
    ("voxel_slot", include_str!("../../../shaders/shared/voxel_slot.wgsl")),
];

fn shared(name: &str) -> Option<&'static str> {
    SHARED.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// Every compute shader.
pub const ALL: &[&Shader] = &[
    &CROSS_ENTROPY,
    &CROSS_ENTROPY_GRADIENT,
    &OCCUPANCY_HEAD,
    &OCCUPANCY_HEAD_GRADIENT,
    &VOXEL_ENCODER,
    &VOXEL_ENCODER_FEATURES,
    &VOXEL_ENCODER_WEIGHTS,
    &SCAN_SUMS,
    &SCAN_BLOCKS,
    &SORT_COUNTS,
    &SORT_SCATTER,
    &RELU,
    &RELU_ONLY,
    &RELU_BITS,
    &RELU_BITS_APPLY,
    &BF16_PACK,
    &BF16_UNPACK,
    &NONFINITE,
    &AFFINE,
    &CHANNEL_SUMS,
    &CHANNEL_MOMENTS,
    &CHANNEL_MOMENTS_BACKWARD,
    &CHANNEL_AFFINE_BACKWARD,
    &CHANNEL_NORM_SUMS,
    &NORM_BLEND,
    &CHANNEL_FINISH,
    &GROUP_NORM,
    &GROUP_NORM_SUMS,
    &GROUP_NORM_BACKWARD,
    &MAX_POOL,
    &MAX_POOL_BACKWARD,
    &SEGMENT_REDUCE,
    &LOVASZ_KEYS,
    &LOVASZ_HITS,
    &LOVASZ_WEIGHTS,
    &VOXEL_KEYS,
    &VOXEL_HEADS,
    &VOXEL_STARTS,
    &VOXEL_ROWS,
    &VOXEL_COORDS,
    &VOXEL_CENTRED,
    &VOXEL_MAJORITY,
    &VOXEL_OCCUPANCY,
    &VOXEL_TABLE_INSERT,
    &VOXEL_TABLE_FIND,
    &VOXEL_SEARCH,
    &RAY_CAST,
    &RAY_OCCLUSION,
    &SOFT_CELLS,
    &SOFT_SUM,
    &SOFT_GRADIENT,
    &GEMM,
    &TILE_REDUCE,
    &TILE_CHECK,
    &CONV_GATHER,
    &CONV_WEIGHT,
];

pub const SCAN_SUMS: Shader = Shader {
    name: "scan_sums",
    text: include_str!("../../../shaders/scan_sums.wgsl"),
    permutations: &[PLAIN],
    workgroup_size: 256,
    buffers: 2,
    max_groups: 16_384,
};

pub const SCAN_BLOCKS: Shader = Shader {
    name: "scan_blocks",
    text: include_str!("../../../shaders/scan_blocks.wgsl"),
    permutations: &[PLAIN],
    workgroup_size: 256,
    buffers: 3,
    max_groups: 16_384,
};

pub const SORT_COUNTS: Shader = Shader {
    name: "sort_counts",
    text: include_str!("../../../shaders/sort_counts.wgsl"),
    permutations: &[PLAIN],
    workgroup_size: 256,
    buffers: 2,
    max_groups: 16_384,
};

pub const SORT_SCATTER: Shader = Shader {
    name: "sort_scatter",
    text: include_str!("../../../shaders/sort_scatter.wgsl"),
    permutations: &[PLAIN],
    workgroup_size: 256,
    buffers: 5,
    max_groups: 16_384,
};

pub const SEGMENT_SUM: Permutation = Permutation::new("sum", &[("reduction", "sum")]);
pub const SEGMENT_MAX: Permutation = Permutation::new("max", &[("reduction", "max")]);

pub const SEGMENT_REDUCE: Shader = Shader {
    name: "segment_reduce",
    text: include_str!("../../../shaders/segment_reduce.wgsl"),
    permutations: &[SEGMENT_SUM, SEGMENT_MAX],
    workgroup_size: 256,
    buffers: 3,
    max_groups: 16_384,
};

/// A shader with one thread a point or voxel, some hundred bytes each.
const fn voxel(name: &'static str, text: &'static str, buffers: usize) -> Shader {
    Shader { name, text, permutations: &[PLAIN], workgroup_size: 256, buffers, max_groups: 16_384 }
}

pub const LOVASZ_KEYS: Shader = voxel("lovasz_keys", include_str!("../../../shaders/lovasz_keys.wgsl"), 4);
pub const LOVASZ_HITS: Shader = voxel("lovasz_hits", include_str!("../../../shaders/lovasz_hits.wgsl"), 3);
pub const LOVASZ_WEIGHTS: Shader = voxel("lovasz_weights", include_str!("../../../shaders/lovasz_weights.wgsl"), 3);

pub const VOXEL_KEYS: Shader = voxel("voxel_keys", include_str!("../../../shaders/voxel_keys.wgsl"), 3);
pub const VOXEL_HEADS: Shader = voxel("voxel_heads", include_str!("../../../shaders/voxel_heads.wgsl"), 2);
pub const VOXEL_STARTS: Shader = voxel("voxel_starts", include_str!("../../../shaders/voxel_starts.wgsl"), 3);
pub const VOXEL_ROWS: Shader = voxel("voxel_rows", include_str!("../../../shaders/voxel_rows.wgsl"), 4);
pub const VOXEL_COORDS: Shader = voxel("voxel_coords", include_str!("../../../shaders/voxel_coords.wgsl"), 7);
pub const VOXEL_CENTRED: Shader = voxel("voxel_centred", include_str!("../../../shaders/voxel_centred.wgsl"), 5);
pub const VOXEL_MAJORITY: Shader = voxel("voxel_majority", include_str!("../../../shaders/voxel_majority.wgsl"), 5);
pub const VOXEL_OCCUPANCY: Shader = voxel("voxel_occupancy", include_str!("../../../shaders/voxel_occupancy.wgsl"), 3);
pub const VOXEL_TABLE_INSERT: Shader =
    voxel("voxel_table_insert", include_str!("../../../shaders/voxel_table_insert.wgsl"), 4);
pub const VOXEL_TABLE_FIND: Shader =
    voxel("voxel_table_find", include_str!("../../../shaders/voxel_table_find.wgsl"), 5);
pub const VOXEL_SEARCH: Shader = voxel("voxel_search", include_str!("../../../shaders/voxel_search.wgsl"), 4);

/// Shaders of [`crate::ops::rays`]; the operation itself splits what takes long, because it knows how far rays go.
pub const RAY_CAST: Shader = voxel("ray_cast", include_str!("../../../shaders/ray_cast.wgsl"), 4);
pub const RAY_OCCLUSION: Shader = voxel("ray_occlusion", include_str!("../../../shaders/ray_occlusion.wgsl"), 3);

/// Shaders of [`crate::ops::soft_occupancy`].
pub const SOFT_CELLS: Shader = voxel("soft_cells", include_str!("../../../shaders/soft_cells.wgsl"), 4);
pub const SOFT_SUM: Shader = voxel("soft_sum", include_str!("../../../shaders/soft_sum.wgsl"), 4);
pub const SOFT_GRADIENT: Shader = voxel("soft_gradient", include_str!("../../../shaders/soft_gradient.wgsl"), 4);

/// Shaders of [`crate::ops::gemm`]. Their launches say how many groups one dispatch may have.
pub const GEMM: Shader = Shader {
    name: "gemm",
    text: include_str!("../../../shaders/gemm.wgsl"),
    permutations: &tile::every::<{ tile::count(3, 2) }>(
        &[GEMM_F32, GEMM_F16, GEMM_F16_SUMS],
        &[GEMM_F16, GEMM_F16_SUMS],
    ),
    workgroup_size: 256,
    buffers: 5,
    max_groups: 65_535,
};

/// Element types of the operands and of what is written.
pub const GEMM_F32: Permutation = Permutation::new("f32", &[("elem", "f32"), ("out", "f32"), ("enable", "")]);
pub const GEMM_F16: Permutation =
    Permutation::new("f16", &[("elem", "f16"), ("out", "f16"), ("enable", "enable f16;")]);
pub const GEMM_F16_SUMS: Permutation =
    Permutation::new("f16 partial", &[("elem", "f16"), ("out", "f32"), ("enable", "enable f16;")]);

/// Ordered sum of the partial products that split-K leaves.
pub const TILE_REDUCE: Shader = Shader {
    name: "tile_reduce",
    text: include_str!("../../../shaders/tile_reduce.wgsl"),
    permutations: &[F32, F16],
    workgroup_size: 256,
    buffers: 4,
    max_groups: 65_535,
};

/// One small product on a form of the tiles, before that form is used.
pub const TILE_CHECK: Shader = Shader {
    name: "tile_check",
    text: include_str!("../../../shaders/tile_check.wgsl"),
    permutations: &tile::every::<{ tile::count(1, 1) }>(&[F32], &[F16]),
    workgroup_size: 256,
    buffers: 1,
    max_groups: 65_535,
};

/// A shader that looks at every value of one tensor: 4096 a workgroup.
const fn values(name: &'static str, text: &'static str) -> Shader {
    Shader { name, text, permutations: &[PLAIN], workgroup_size: 256, buffers: 2, max_groups: 16_384 }
}

pub const BF16_PACK: Shader = values("bf16_pack", include_str!("../../../shaders/bf16_pack.wgsl"));
pub const BF16_UNPACK: Shader = values("bf16_unpack", include_str!("../../../shaders/bf16_unpack.wgsl"));
pub const NONFINITE: Shader = values("nonfinite", include_str!("../../../shaders/nonfinite.wgsl"));

/// A shader of [`crate::ops::cross_entropy`]: one thread a voxel, up to 256 logits each.
const fn cross_entropy(name: &'static str, text: &'static str) -> Shader {
    Shader { name, text, permutations: &[F32, F16], workgroup_size: 256, buffers: 4, max_groups: 4096 }
}

pub const CROSS_ENTROPY: Shader = cross_entropy("cross_entropy", include_str!("../../../shaders/cross_entropy.wgsl"));
pub const CROSS_ENTROPY_GRADIENT: Shader =
    cross_entropy("cross_entropy_gradient", include_str!("../../../shaders/cross_entropy_gradient.wgsl"));

/// Shaders of [`crate::ops::conv`]. Their launches say how many groups one dispatch may have.
pub const CONV_GATHER: Shader = Shader {
    name: "conv_gather",
    text: include_str!("../../../shaders/conv_gather.wgsl"),
    permutations: &tile::every::<{ tile::count(2, 1) }>(&[F32, F16], &[F16]),
    workgroup_size: 256,
    buffers: 7,
    max_groups: 65_535,
};

pub const CONV_WEIGHT: Shader = Shader {
    name: "conv_weight",
    text: include_str!("../../../shaders/conv_weight.wgsl"),
    permutations: &tile::every::<{ tile::count(2, 1) }>(&[F32, F16], &[F16]),
    workgroup_size: 256,
    buffers: 5,
    max_groups: 65_535,
};
