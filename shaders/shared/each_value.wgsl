// Visits the values of [batch, channels, length], 4096 a workgroup, neighbouring threads beside each other.
//
// Params 0 n, all values  1 channels  2 length. Calls `visit(index, channel)`.
const THREAD_VALUES: u32 = 16u;

fn each_value(group: u32, thread: u32) {
    let channels = param(1u);
    let length = param(2u);
    let first = group * THREAD_VALUES * {{ workgroup_size }}u + thread;
    let end = min(first + THREAD_VALUES * {{ workgroup_size }}u, param(0u));
    // Divided once; then each step goes some rows on, and some values along the row.
    let rows = {{ workgroup_size }}u / length % channels;
    let rest = {{ workgroup_size }}u % length;
    var along = first % length;
    var channel = first / length % channels;
    for (var i = first; i < end; i += {{ workgroup_size }}u) {
        visit(i, channel);
        along += rest;
        channel += rows;
        let carry = select(0u, 1u, along >= length);
        along -= carry * length;
        channel += carry;
        channel -= select(0u, channels, channel >= channels);
    }
}
