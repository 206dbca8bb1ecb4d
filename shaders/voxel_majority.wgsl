// Most frequent label of every voxel, of equally frequent ones the lowest. One label has no vote: only a voxel without
// any other gets it.
//
// Points are sorted by voxel, then by label; a run is the points of one voxel with one label.
//
// Bindings  0 starts u32 [voxels + 1], place of the first point of a voxel
//           1 ranks u32 [n + 1], runs before each place   2 runs u32 [runs + 1], place of the first point of a run
//           3 labels i32 [n], sorted   4 winners i32 [voxels]
// Params    0 voxels   1 the label without vote, i32
// Dispatch  one thread a voxel; it reads as many runs as the voxel has labels
// Exact; deterministic.

@group(0) @binding(0) var<storage, read_write> starts: array<u32>;
@group(0) @binding(1) var<storage, read_write> ranks: array<u32>;
@group(0) @binding(2) var<storage, read_write> runs: array<u32>;
@group(0) @binding(3) var<storage, read_write> labels: array<i32>;
@group(0) @binding(4) var<storage, read_write> winners: array<i32>;
//!include params

@compute @workgroup_size({{ workgroup_size }})
fn main(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let row = group_index(workgroup_id) * {{ workgroup_size }}u + thread;
    if row >= param(0u) {
        return;
    }
    let ignore = bitcast<i32>(param(1u));
    var winner = ignore;
    var most = 0u;
    let end = ranks[starts[row + 1u]];
    for (var run = ranks[starts[row]]; run < end; run++) {
        let votes = runs[run + 1u] - runs[run];
        let label = labels[runs[run]];
        if label != ignore && votes > most {
            winner = label;
            most = votes;
        }
    }
    winners[row] = winner;
}
