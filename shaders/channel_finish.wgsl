// From partial results of every channel to the whole.
//
// Bindings  0 partials vec4, as the kernels channel_*.wgsl write them   1 out f32 [results, channels]
// Params    0 channels   1 parts   2 neighbours: partial results beside each other that are of one channel   3 step from a
//           part to the next   4 step from a channel to the next   5 results: 1 or 2   6 epsilon f32 (moments)
// Dispatch  one workgroup for 256 / lanes channels, with 16 lanes or 1
// Lane t of a channel combines the partial results t, t + lanes, ... in order; then halves are combined with halves. The
// results are two sums, or mean and variance, or mean and 1 / sqrt(variance + epsilon). f32; deterministic.

@group(0) @binding(0) var<storage, read_write> partials: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;
//!include params
//!include partial_{{ partial }}
//!include finish_{{ finish }}

const LANES: u32 = {{ lanes }}u;

var<workgroup> lanes: array<vec4<f32>, {{ workgroup_size }}>;

@compute @workgroup_size({{ workgroup_size }})
fn main(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let channels = param(0u);
    let neighbours = param(2u);
    let channel = group_index(workgroup_id) * ({{ workgroup_size }}u / LANES) + thread / LANES;
    let lane = thread % LANES;
    var sums = vec4<f32>();
    if channel < channels {
        for (var i = lane; i < param(1u) * neighbours; i += LANES) {
            let place = i / neighbours * param(3u) + channel * param(4u) + i % neighbours;
            sums = combine(sums, partials[place]);
        }
    }
    lanes[thread] = sums;
    for (var reach = LANES / 2u; reach > 0u; reach >>= 1u) {
        workgroupBarrier();
        if lane < reach {
            sums = combine(sums, lanes[thread + reach]);
            lanes[thread] = sums;
        }
    }
    if lane == 0u && channel < channels {
        let results = finish(sums, bitcast<f32>(param(6u)));
        out[channel] = results.x;
        if param(5u) == 2u {
            out[channels + channel] = results.y;
        }
    }
}
