// Reduction of every channel of [batch, channels, length], long rows: {{ lanes }} threads share a part of a channel.
//
// Params 0 batch  1 channels  2 length  3 parts of a channel  4 values of a part
// The values of a channel are counted through all rows of the batch. Thread t takes the values t, t + {{ lanes }}, ... of
// its part in order; then halves are combined with halves. Calls `enter(channel)` once a thread and
// `visit(sums, index, row, along)`; needs `close`, `combine` and the buffer `partials` [channels, parts].
const LANES: u32 = {{ lanes }}u;

var<workgroup> lanes: array<vec4<f32>, {{ workgroup_size }}>;

fn reduce(group: u32, thread: u32) {
    let channels = param(1u);
    let length = param(2u);
    let parts = param(3u);
    let place = group * ({{ workgroup_size }}u / LANES) + thread / LANES;
    let lane = thread % LANES;
    let is_inside = place < channels * parts;
    var sums = vec4<f32>();
    if is_inside {
        let channel = place / parts;
        let begin = place % parts * param(4u);
        let end = min(begin + param(4u), param(0u) * length);
        enter(channel);
        let rows = LANES / length;
        let rest = LANES % length;
        var row = (begin + lane) / length;
        var along = (begin + lane) % length;
        for (var i = begin + lane; i < end; i += LANES) {
            sums = visit(sums, (row * channels + channel) * length + along, row, along);
            row += rows;
            along += rest;
            let carry = select(0u, 1u, along >= length);
            along -= carry * length;
            row += carry;
        }
    }
    sums = close(sums);
    lanes[thread] = sums;
    for (var reach = LANES / 2u; reach > 0u; reach >>= 1u) {
        workgroupBarrier();
        if lane < reach {
            sums = combine(sums, lanes[thread + reach]);
            lanes[thread] = sums;
        }
    }
    if lane == 0u && is_inside {
        partials[place] = sums;
    }
}
