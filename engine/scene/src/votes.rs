//! Points that vote on the voxel they lie in.

/// Votes for labels, voxel by voxel, in eight bytes each.
#[derive(Debug, Clone, Default)]
pub struct Votes(Vec<u64>);

impl Votes {
    /// One vote of a point in the voxel at that position in memory, below 2^48.
    pub fn add(&mut self, voxel: usize, label: u16) {
        self.0.push((voxel as u64) << 16 | u64::from(label));
    }

    /// The voxel of each vote.
    pub fn voxels(&self) -> impl Iterator<Item = usize> {
        self.0.iter().map(|vote| (vote >> 16) as usize)
    }

    /// Calls `each` with every voxel that has votes, in order, and the label with the most of them, the lowest of equals.
    pub fn count(mut self, mut each: impl FnMut(usize, u16)) {
        self.0.sort_unstable();
        for voxel in self.0.chunk_by(|a, b| a >> 16 == b >> 16) {
            // The last of equals is taken.
            let most = voxel.chunk_by(|a, b| a == b).rev().max_by_key(|same| same.len());
            if let Some(&[vote, ..]) = most {
                each((vote >> 16) as usize, vote as u16);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_label_with_the_most_votes_wins_and_the_lowest_of_equals() {
        let mut votes = Votes::default();
        for (voxel, label) in [(7, 3), (2, 9), (7, 1), (2, 9), (2, 1), (7, 1), (7, 3), (7, 65_535), (1 << 40, 4)] {
            votes.add(voxel, label);
        }
        assert_eq!(votes.voxels().filter(|voxel| *voxel == 7).count(), 5);
        let mut found = Vec::new();
        votes.count(|voxel, label| found.push((voxel, label)));
        assert_eq!(found, [(2, 9), (7, 1), (1 << 40, 4)]);
    }
}
