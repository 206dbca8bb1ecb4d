// Gradient of voxel_encoder by the features of the points.
//
// Bindings  0 winners u32 [voxels, channels], as voxel_encoder writes them   1 gradient {{ elem }} [voxels, channels]
//           2 order u32 [grouped]   3 starts u32 [voxels + 1]   4 weights f32 [width + 1, channels]
//           5 by_features {{ elem }} [points, width], zero before: points in no voxel are left out
// Params    0 voxels   1 channels   2 width   3 points   4 grouped
// Dispatch  one thread for four features of a point
// Sums in f32 over channels in order: deterministic, as every point is in one voxel.
{{ enable }}
@group(0) @binding(0) var<storage, read_write> winners: array<u32>;
@group(0) @binding(1) var<storage, read_write> gradient: array<{{ elem }}>;
@group(0) @binding(2) var<storage, read_write> order: array<u32>;
@group(0) @binding(3) var<storage, read_write> starts: array<u32>;
@group(0) @binding(4) var<storage, read_write> weights: array<f32>;
@group(0) @binding(5) var<storage, read_write> by_features: array<{{ elem }}>;
//!include params

@compute @workgroup_size({{ workgroup_size }})
fn main(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let voxels = param(0u);
    let channels = param(1u);
    let width = param(2u);
    let fours = (width + 3u) / 4u;
    let i = group_index(workgroup_id) * {{ workgroup_size }}u + thread;
    let place = i / fours;
    if place >= param(4u) {
        return;
    }
    // The first voxel that ends behind the place.
    var low = 0u;
    var high = voxels;
    while low < high {
        let middle = (low + high) / 2u;
        if starts[middle + 1u] <= place {
            low = middle + 1u;
        } else {
            high = middle;
        }
    }
    let point = order[place];
    if low == voxels || starts[low] > place || point >= param(3u) {
        return;
    }
    let first = i % fours * 4u;
    let rows = min(vec4(first) + vec4(0u, 1u, 2u, 3u), vec4(width - 1u)) * channels;
    var sums = vec4<f32>();
    for (var c = 0u; c < channels; c++) {
        if winners[low * channels + c] == point {
            let four = vec4(weights[rows.x + c], weights[rows.y + c], weights[rows.z + c], weights[rows.w + c]);
            sums += f32(gradient[low * channels + c]) * four;
        }
    }
//!for j in 4
    if first + {{ j }}u < width {
        by_features[point * width + first + {{ j }}u] = {{ elem }}(sums[{{ j }}]);
    }
//!end
}
