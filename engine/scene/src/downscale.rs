//! Targets of the coarser scales of a multiscale network.

/// The label of each block of `factor`^3 voxels: the majority of its occupied voxels that are not ignored (ties to the
/// lowest id), else `empty_id` if any is empty, else `ignore_id` (LMSCNet's label pyramid).
///
/// `labels` is in row-major order over `counts`, whichever axes these are; each count divides by `factor`.
pub fn downscale_target(labels: &[u8], counts: [usize; 3], factor: usize, empty_id: u8, ignore_id: u8) -> Vec<u8> {
    debug_assert_eq!(labels.len(), counts.iter().product::<usize>());
    debug_assert!(counts.iter().all(|count| count % factor == 0));
    let [blocks_a, blocks_b, blocks_c] = counts.map(|count| count / factor);
    let mut coarse = Vec::with_capacity(blocks_a * blocks_b * blocks_c);
    let mut votes = [0u32; 256];
    for a in 0..blocks_a {
        for b in 0..blocks_b {
            for c in 0..blocks_c {
                votes.fill(0);
                for i in a * factor..(a + 1) * factor {
                    for j in b * factor..(b + 1) * factor {
                        let row = (i * counts[1] + j) * counts[2] + c * factor;
                        for &label in &labels[row..row + factor] {
                            votes[usize::from(label)] += 1;
                        }
                    }
                }
                coarse.push(vote(&votes, empty_id, ignore_id));
            }
        }
    }
    coarse
}

fn vote(votes: &[u32; 256], empty_id: u8, ignore_id: u8) -> u8 {
    let mut winner = if votes[usize::from(empty_id)] > 0 { empty_id } else { ignore_id };
    let mut most = 0;
    for (id, &count) in (0u8..).zip(votes) {
        if count > most && id != empty_id && id != ignore_id {
            (winner, most) = (id, count);
        }
    }
    winner
}
