// Sum or maximum of every column over the rows of each segment.
//
// Bindings  0 values f32 [n, columns]
//           1 offsets u32 [segments + 1], not falling: segment s has the rows offsets[s] .. offsets[s + 1]
//           2 out f32 [segments, columns]
// Params    0 n   1 columns   2 segments   3 rows of each segment to leave out, done by earlier launches   4 most rows to
//           take; the first launch writes every segment, later ones add to it
// Dispatch  one workgroup for 16 segments, 16 threads each
// f32 in a fixed order: thread t of 16 takes the rows t, t + 16, ...; then halves are added to halves. Deterministic, and
// equal to the CPU twin bit for bit. Reads are best with few columns.

@group(0) @binding(0) var<storage, read_write> values: array<f32>;
@group(0) @binding(1) var<storage, read_write> offsets: array<u32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
//!include params
//!include reduce_{{ reduction }}

const LANES: u32 = 16u;

var<workgroup> partials: array<Partial, {{ workgroup_size }}>;

@compute @workgroup_size({{ workgroup_size }})
fn main(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let n = param(0u);
    let columns = param(1u);
    let skip = param(3u);
    let segment = group_index(workgroup_id) * ({{ workgroup_size }}u / LANES) + thread / LANES;
    let lane = thread % LANES;
    var rows = 0u;
    var first = 0u;
    if segment < param(2u) {
        let end = min(offsets[segment + 1u], n);
        let begin = min(offsets[segment], end);
        let left = end - begin;
        rows = min(left - min(skip, left), param(4u));
        first = begin + skip;
    }
    for (var column = 0u; column < columns; column++) {
        var partial = nothing();
        for (var row = lane; row < rows; row += LANES) {
            partial = combine(partial, lift(values[(first + row) * columns + column]));
        }
        partials[thread] = partial;
        for (var reach = LANES / 2u; reach > 0u; reach >>= 1u) {
            workgroupBarrier();
            if lane < reach {
                partials[thread] = combine(partials[thread], partials[thread + reach]);
            }
        }
        workgroupBarrier();
        if lane == 0u && segment < param(2u) {
            let place = segment * columns + column;
            if skip == 0u {
                out[place] = lower(partials[thread]);
            } else if rows > 0u {
                out[place] = lower(combine(lift(out[place]), partials[thread]));
            }
        }
        workgroupBarrier();
    }
}
