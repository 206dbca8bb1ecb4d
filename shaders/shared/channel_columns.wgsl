// Reduction of every channel of [batch, channels, length], short rows: threads go down the columns of the matrix
// [batch, channels * length], as many rows at once as a workgroup holds.
//
// Params 0 batch  1 channels  2 length  3 parts of a column  4 rows of a part
// A thread takes every so many rows of its part in order; then halves are combined with halves. Calls `enter(channel)`
// once a thread and `visit(sums, index, row, along)`; needs `close`, `combine` and the buffer `partials` [parts, columns].
var<workgroup> lanes: array<vec4<f32>, {{ workgroup_size }}>;

fn reduce(group: u32, thread: u32) {
    let batch = param(0u);
    let length = param(2u);
    let columns = param(1u) * length;
    let width = min(columns, {{ workgroup_size }}u);
    let rows = {{ workgroup_size }}u / width;
    let tiles = (columns + width - 1u) / width;
    let part = group / tiles;
    let column = group % tiles * width + thread % width;
    let lane = thread / width;
    let is_inside = lane < rows && column < columns;
    var sums = vec4<f32>();
    if is_inside {
        let channel = column / length;
        enter(channel);
        let end = min((part + 1u) * param(4u), batch);
        for (var row = part * param(4u) + lane; row < end; row += rows) {
            sums = visit(sums, row * columns + column, row, column - channel * length);
        }
    }
    sums = close(sums);
    lanes[thread] = sums;
    var left = rows;
    while left > 1u {
        let reach = (left + 1u) / 2u;
        workgroupBarrier();
        if lane + reach < left {
            sums = combine(sums, lanes[thread + reach * width]);
            lanes[thread] = sums;
        }
        left = reach;
    }
    if lane == 0u && is_inside {
        partials[part * columns + column] = sums;
    }
}
