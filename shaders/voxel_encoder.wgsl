// Linear layer, ReLU and maximum over the points of every voxel: the largest values, or the points that have them.
//
// Bindings  0 features {{ elem }} [points, width]   1 order u32 [grouped]: points, those of a voxel together
//           2 starts u32 [voxels + 1], not falling: voxel v has the points order[starts[v]] .. order[starts[v + 1]]
//           3 weights f32 [width + 1, channels], biases last   4 out [voxels, channels] (encoder_{values, winners})
// Params    0 voxels   1 channels   2 width   3 points   4 grouped   5 points of each voxel to leave out, done by earlier
//           launches   6 most points to take; the first launch writes every voxel, later ones add to it
// Dispatch  one thread for a channel of a voxel
// Sums in f32 over features in order, bias first; the first of equal values; NaN is larger than all. Deterministic.
{{ enable }}
@group(0) @binding(0) var<storage, read_write> features: array<{{ elem }}>;
@group(0) @binding(1) var<storage, read_write> order: array<u32>;
@group(0) @binding(2) var<storage, read_write> starts: array<u32>;
@group(0) @binding(3) var<storage, read_write> weights: array<f32>;
//!include params
//!include encoder_{{ result }}

// Values above 0 as integers in the same order, 0 for what ReLU makes 0: compilers may assume that no float is NaN, but
// they cannot assume anything about integers.
fn key_of(value: f32) -> u32 {
    let bits = bitcast<u32>(value);
    return select(select(bits, 0u, bits >= 0x80000000u), 0xffffffffu, (bits & 0x7fffffffu) > 0x7f800000u);
}

// The channel of four points.
fn values_of(points: vec4<u32>, channel: u32) -> vec4<f32> {
    let channels = param(1u);
    let width = param(2u);
    let places = min(points, vec4(param(3u) - 1u)) * width;
    var sums = vec4(weights[width * channels + channel]);
    for (var f = 0u; f < width; f++) {
        let x = vec4(
            f32(features[places.x + f]), f32(features[places.y + f]), f32(features[places.z + f]), f32(features[places.w + f])
        );
        sums += weights[f * channels + channel] * x;
    }
    return sums;
}

@compute @workgroup_size({{ workgroup_size }})
fn main(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let channels = param(1u);
    let skip = param(5u);
    let i = group_index(workgroup_id) * {{ workgroup_size }}u + thread;
    if i >= param(0u) * channels {
        return;
    }
    let channel = i % channels;
    let last = min(starts[i / channels + 1u], param(4u));
    let first = min(starts[i / channels], last);
    let begin = first + min(skip, last - first);
    let end = begin + min(param(6u), last - begin);
    if skip > 0u && begin == end {
        return;
    }
    var best = Best(0u, NOBODY);
    if skip > 0u {
        best = earlier(i, channel);
    }
    for (var place = begin; place < end; place += 4u) {
        // Beyond the end stands the last point again, which changes nothing.
        let four = min(vec4(place) + vec4(0u, 1u, 2u, 3u), vec4(end - 1u));
        let points = vec4(order[four.x], order[four.y], order[four.z], order[four.w]);
        let values = values_of(points, channel);
//!for j in 4
        let key_{{ j }} = key_of(values[{{ j }}]);
        if key_{{ j }} > best.key {
            best = Best(key_{{ j }}, points[{{ j }}]);
        }
//!end
    }
    finish(i, best);
}
