//! The tiles in which a workgroup computes a matrix product, and which one a shape gets.

use super::shader::Permutation;

/// How a workgroup gets at its operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TileForm {
    /// Through workgroup memory (`tile_staged.wgsl`): GPUs.
    Staged,
    /// Straight from the tensors into registers (`tile_direct.wgsl`): Vulkan in software.
    Direct,
    /// The same with a load shared by the 8 lanes of a subgroup: Vulkan in software whose subgroups are 8 wide.
    Lanes,
    /// On matrix units (`tile_cooperative.wgsl`), operands rounded to f16, in squares of `side`: GPUs that have them. Made
    /// for 4 subgroups among `threads`, right with any number.
    Cooperative { side: u32, threads: u32 },
}

/// `rows` x `cols` values of C = A B, computed by one workgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tile {
    pub form: TileForm,
    pub rows: u32,
    pub cols: u32,
    /// Values of k between two barriers; 1 without barriers.
    pub depth: u32,
    pub threads: u32,
    /// Rows and columns of a thread; on matrix units, of a subgroup.
    pub thread_rows: u32,
    pub thread_cols: u32,
}

impl Tile {
    const fn staged(rows: u32, cols: u32, depth: u32, thread_rows: u32, thread_cols: u32) -> Self {
        let threads = rows / thread_rows * (cols / thread_cols);
        // Every thread loads as many operands as any other.
        assert!((rows * depth).is_multiple_of(threads) && (cols * depth).is_multiple_of(threads));
        assert!(threads.is_multiple_of(depth));
        assert!(threads.is_multiple_of(rows) || rows > threads, "a pass of the threads covers whole columns of A");
        Self { form: TileForm::Staged, rows, cols, depth, threads, thread_rows, thread_cols }
    }

    const fn cooperative(side: u32, threads: u32, [rows, cols]: [u32; 2], [block_rows, block_cols]: [u32; 2]) -> Self {
        let depth = 16;
        assert!(rows / block_rows * (cols / block_cols) == 4, "a block for each of 4 subgroups");
        assert!(block_rows % side == 0 && block_cols % side == 0 && depth % side == 0);
        assert!((rows * depth).is_multiple_of(threads) && (cols * depth).is_multiple_of(threads));
        assert!(threads.is_multiple_of(depth));
        assert!(
            threads.is_multiple_of(rows) && threads.is_multiple_of(cols),
            "a pass of the threads covers whole steps of k"
        );
        let form = TileForm::Cooperative { side, threads };
        Self { form, rows, cols, depth, threads, thread_rows: block_rows, thread_cols: block_cols }
    }

    /// One subgroup of 8 threads, side by side.
    const fn one_subgroup(form: TileForm, rows: u32, thread_cols: u32) -> Self {
        Self { form, rows, cols: 8 * thread_cols, depth: 1, threads: 8, thread_rows: rows, thread_cols }
    }

    /// Threads that share a load of A.
    const fn lanes(&self) -> u32 {
        if matches!(self.form, TileForm::Lanes) { 8 } else { 1 }
    }

    /// Values that a thread loads: of A and of B, for `depth` values of k.
    const fn slots(&self) -> (u32, u32) {
        match self.form {
            TileForm::Staged | TileForm::Cooperative { .. } => {
                (self.rows * self.depth / self.threads, self.cols * self.depth / self.threads)
            }
            TileForm::Direct | TileForm::Lanes => (self.rows / self.lanes(), self.thread_cols),
        }
    }

    /// Placeholder and value, for the text of a shader.
    pub(super) fn values(&self) -> Vec<(&'static str, String)> {
        let (piece, shared_a) = match self.form {
            TileForm::Staged => ("tile_staged", ""),
            TileForm::Direct => ("tile_direct", "a_{{ slot }}"),
            TileForm::Lanes => ("tile_direct", "subgroupBroadcast(a_{{ slot }}, {{ lane }}u)"),
            TileForm::Cooperative { .. } => ("tile_cooperative", ""),
        };
        let (a_slots, b_slots) = self.slots();
        let mut values = vec![("tile", piece.to_owned()), ("shared_a", shared_a.to_owned())];
        values.extend(
            [
                ("bm", self.rows),
                ("bn", self.cols),
                ("bk", self.depth),
                ("tm", self.thread_rows),
                ("tn", self.thread_cols),
                ("lanes", self.lanes()),
                ("a_slots", a_slots),
                ("b_slots", b_slots),
                ("threads_across", self.cols / self.thread_cols),
            ]
            .map(|(key, value)| (key, value.to_string())),
        );
        if let TileForm::Cooperative { side, .. } = self.form {
            values.push(("side", side.to_string()));
            values.push(("squares_m", (self.thread_rows / side).to_string()));
            values.push(("squares_n", (self.thread_cols / side).to_string()));
        }
        values
    }

    /// Estimated time of one workgroup, in multiply-adds of one thread.
    const fn weight(&self, k: usize) -> u64 {
        let (a_slots, b_slots) = self.slots();
        let (rows, cols) = (self.thread_rows as u64, self.thread_cols as u64);
        let loads = (a_slots + b_slots) as u64;
        match self.form {
            // Of a workgroup's threads, all at once: loads of memory, of workgroup memory, sums; what is stored.
            TileForm::Staged => {
                let a_step = 8 * loads + self.depth as u64 * (rows + cols + rows * cols) + 20;
                self.threads as u64 * ((k as u64).div_ceil(self.depth as u64) * a_step + 8 * rows * cols + 100)
            }
            // As staged, with sums 8 times as fast.
            TileForm::Cooperative { .. } => {
                let area = (self.rows * self.cols) as u64;
                let a_step = self.threads as u64 * (8 * loads + 20) + self.depth as u64 * area / 8;
                (k as u64).div_ceil(self.depth as u64) * a_step + 8 * area + 100 * self.threads as u64
            }
            TileForm::Direct | TileForm::Lanes => k as u64 * (16 * loads + rows * cols) + 26 * rows * cols + 800,
        }
    }

    /// Workgroups for `m` x `n` values.
    pub fn groups(&self, m: usize, n: usize) -> u64 {
        m.div_ceil(self.rows as usize) as u64 * n.div_ceil(self.cols as usize) as u64
    }
}

/// Every tile, sorted by form; in a form the larger first.
pub const TILES: [Tile; 13] = [
    Tile::staged(128, 128, 8, 8, 8),
    Tile::staged(64, 64, 16, 4, 4),
    Tile::staged(128, 32, 16, 4, 4),
    Tile::staged(32, 128, 16, 4, 4),
    Tile::staged(128, 16, 16, 4, 2),
    Tile::staged(16, 128, 16, 2, 4),
    Tile::one_subgroup(TileForm::Lanes, 32, 4),
    Tile::one_subgroup(TileForm::Lanes, 32, 1),
    Tile::one_subgroup(TileForm::Lanes, 16, 2),
    Tile::one_subgroup(TileForm::Lanes, 8, 4),
    Tile::one_subgroup(TileForm::Direct, 16, 4),
    Tile::one_subgroup(TileForm::Direct, 16, 1),
    Tile::one_subgroup(TileForm::Direct, 4, 4),
];

const fn cooperative(side: u32, threads: u32) -> [Tile; 6] {
    [
        Tile::cooperative(side, threads, [128, 64], [32, 64]),
        Tile::cooperative(side, threads, [64, 128], [32, 64]),
        Tile::cooperative(side, threads, [128, 32], [32, 32]),
        Tile::cooperative(side, threads, [32, 128], [32, 32]),
        Tile::cooperative(side, threads, [128, 16], [32, 16]),
        Tile::cooperative(side, threads, [16, 128], [16, 32]),
    ]
}

/// The tiles on matrix units, for operands of f16: subgroups of 32 and of 64 with squares of 16, of 32 with squares of 8.
pub const COOPERATIVE_TILES: [[Tile; 6]; 3] = [cooperative(16, 128), cooperative(16, 256), cooperative(8, 128)];

/// Every tile of one form.
pub fn tiles_of(form: TileForm) -> impl Iterator<Item = &'static Tile> {
    TILES.iter().chain(COOPERATIVE_TILES.as_flattened()).filter(move |tile| tile.form == form)
}

/// `permutations` with every tile, and those of them whose operands are f16, `half`, also with the tiles on matrix units.
/// For `N`, see [`count`].
pub(super) const fn every<const N: usize>(permutations: &[Permutation], half: &[Permutation]) -> [Permutation; N] {
    assert!(N == count(permutations.len(), half.len()));
    let tiles = COOPERATIVE_TILES.as_flattened();
    let plain = permutations.len() * TILES.len();
    let mut all = [permutations[0]; N];
    let mut i = 0;
    while i < N {
        all[i] = if i < plain {
            permutations[i / TILES.len()].with_tile(&TILES[i % TILES.len()])
        } else {
            half[(i - plain) / tiles.len()].with_tile(&tiles[(i - plain) % tiles.len()])
        };
        i += 1;
    }
    all
}

/// How many permutations [`every`] makes of so many.
pub(super) const fn count(permutations: usize, half: usize) -> usize {
    permutations * TILES.len() + half * COOPERATIVE_TILES.as_flattened().len()
}

#[cfg(test)]
thread_local! {
    /// The tile that a test wants for every shape.
    pub static ONLY_TILE: std::cell::Cell<Option<&'static Tile>> = const { std::cell::Cell::new(None) };
}

/// The tile for a product of `m` x `k` and `k` x `n`, `batch` times, on devices of one form: the one with the least
/// estimated time.
///
/// The weights of the two forms for software were fitted to times on llvmpipe; those for GPUs are counts of instructions,
/// not measured yet.
pub fn tile_for(m: usize, n: usize, k: usize, batch: usize, form: TileForm) -> &'static Tile {
    #[cfg(test)]
    if let Some(tile) = ONLY_TILE.get() {
        return tile;
    }
    let best = tiles_of(form).min_by_key(|tile| tile.groups(m, n).max(1) * batch.max(1) as u64 * tile.weight(k));
    best.expect("every form has tiles")
}
