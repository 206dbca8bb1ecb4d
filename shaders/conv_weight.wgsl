// Weight gradient of a convolution as a product of matrices that is nowhere laid out, or the parts of it for chunks of k:
// rows are output channels, columns input channels times taps, and k runs over the output positions of the whole batch.
//
// Bindings  0 x f32 or f16 [batch, groups, channels, sides]   1 gradient [batch, groups, rows, sides of the output]
//           2 scale f32 [groups * channels]   3 shift, the same; absent ones bind any tensor
//           4 parts f32 [chunks, groups, rows, channels * taps]
// Params    0 groups   1 channels   2 rows   3 batch   4 sides of x (3)   7 sides of the output (3)
//           10 stride (3)   13 padding (3)   16 kernel (3)   19 dilation (3)
//           22 flags: 1 scale and shift on loading, 2 ReLU on loading
//           23 tiles of rows   24 tiles of columns   25 positions of a chunk
// Dispatch  one workgroup a tile: tiles of rows first, then of columns, then groups, then chunks
// Accuracy  sums in f32, k ascending. Deterministic.
{{ enable }}
@group(0) @binding(0) var<storage, read_write> x: array<{{ elem }}>;
@group(0) @binding(1) var<storage, read_write> gradient: array<{{ elem }}>;
@group(0) @binding(2) var<storage, read_write> scale: array<f32>;
@group(0) @binding(3) var<storage, read_write> shift: array<f32>;
@group(0) @binding(4) var<storage, read_write> parts: array<f32>;
//!include params
//!include relu_stops

// Parameters are read once: inside the loop every read would be a load.
var<private> groups: u32;
var<private> group: u32;
var<private> channels: u32;
var<private> rows: u32;
var<private> sides: vec3<u32>;
var<private> out_sides: vec3<u32>;
var<private> out_volume: u32;
var<private> strides: vec3<u32>;
var<private> kernel: vec3<u32>;
var<private> taps: u32;
var<private> flags: u32;
var<private> chunk: u32;

// Where the first k stands: see below.
var<private> begin_k: u32;
var<private> begin_within: u32;
var<private> begin_slopes: u32;
var<private> begin_position: vec3<u32>;
var<private> begin_sample: u32;

// Where a row of the gradient begins; where a column begins in x and how far off it reads; what is done to it.
var<private> gradient_rows: array<u32, {{ a_slots }}>;
var<private> x_channels: array<u32, {{ b_slots }}>;
var<private> offsets: array<vec3<i32>, {{ b_slots }}>;
var<private> factors: array<f32, {{ b_slots }}>;
var<private> addends: array<f32, {{ b_slots }}>;

// Where k stands, for either operand: the place in a sample of the gradient, and where that begins; the position, and
// where its sample of x begins.
var<private> a_k: u32;
var<private> a_within: u32;
var<private> a_sample: u32;
var<private> b_k: u32;
var<private> b_position: vec3<u32>;
var<private> b_sample: u32;

fn three(i: u32) -> vec3<u32> {
    return vec3<u32>(param(i), param(i + 1u), param(i + 2u));
}

fn prepare_a(slot: u32, row: u32) {
    gradient_rows[slot] = (group * rows + min(row, rows - 1u)) * out_volume;
}

fn prepare_b(slot: u32, col: u32) {
    let column = min(col, channels * taps - 1u);
    let channel = group * channels + column / taps;
    let tap = column % taps;
    let line = tap / kernel.z;
    let at = vec3<u32>(line / kernel.y, line % kernel.y, tap % kernel.z);
    x_channels[slot] = channel * sides.x * sides.y * sides.z;
    offsets[slot] = vec3<i32>(at * three(19u)) - vec3<i32>(three(13u));
    factors[slot] = 1.0;
    addends[slot] = 0.0;
    if (flags & 1u) != 0u {
        factors[slot] = scale[channel];
        addends[slot] = shift[channel];
    }
}

// k mostly ascends; where it falls, count from the first one again.
fn at_a(k: u32) {
    if k < a_k {
        a_within = begin_within;
        a_sample = begin_slopes;
        a_k = begin_k;
    }
    a_within += k - a_k;
    a_k = k;
    while a_within >= out_volume {
        a_within -= out_volume;
        a_sample += groups * rows * out_volume;
    }
}

fn at_b(k: u32) {
    if k < b_k {
        b_position = begin_position;
        b_sample = begin_sample;
        b_k = begin_k;
    }
    b_position.z += k - b_k;
    b_k = k;
    while b_position.z >= out_sides.z {
        b_position.z -= out_sides.z;
        b_position.y += 1u;
        if b_position.y == out_sides.y {
            b_position.y = 0u;
            b_position.x += 1u;
            if b_position.x == out_sides.x {
                b_position.x = 0u;
                b_sample += groups * channels * sides.x * sides.y * sides.z;
            }
        }
    }
}

fn load_a(slot: u32, k: u32) -> f32 {
    return f32(gradient[gradient_rows[slot] + a_sample + a_within]);
}

fn load_b(slot: u32, k: u32) -> f32 {
    let at = vec3<u32>(vec3<i32>(b_position * strides) + offsets[slot]);
    let inside = all(at < sides);
    let place = select(0u, (at.x * sides.y + at.y) * sides.z + at.z, inside);
    let value = f32(x[x_channels[slot] + b_sample + place]) * factors[slot] + addends[slot];
    // NaN stays NaN.
    return select(value, 0.0, !inside || ((flags & 2u) != 0u && relu_stops(value)));
}

fn a_along_k() -> bool {
    return true;
}

fn b_along_k() -> bool {
    return true;
}

fn store(row: u32, col: u32, sum: f32) {
    if row < rows && col < channels * taps {
        parts[((chunk * groups + group) * rows + row) * channels * taps + col] = sum;
    }
}
//!include {{ tile }}

@compute @workgroup_size({{ workgroup_size }})
fn main(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    groups = param(0u);
    channels = param(1u);
    rows = param(2u);
    sides = three(4u);
    out_sides = three(7u);
    out_volume = out_sides.x * out_sides.y * out_sides.z;
    strides = three(10u);
    kernel = three(16u);
    taps = kernel.x * kernel.y * kernel.z;
    flags = param(22u);
    let tile_row = group_index(workgroup_id) % param(23u);
    let above = group_index(workgroup_id) / param(23u);
    let tile_column = above % param(24u);
    group = above / param(24u) % groups;
    chunk = above / param(24u) / groups;
    let k_begin = chunk * param(25u);
    let k_end = min(k_begin + param(25u), param(3u) * out_volume);
    let sample = k_begin / out_volume;
    begin_k = k_begin;
    begin_within = k_begin % out_volume;
    begin_slopes = sample * groups * rows * out_volume;
    let line = begin_within / out_sides.z;
    begin_position = vec3<u32>(line / out_sides.y, line % out_sides.y, begin_within % out_sides.z);
    begin_sample = sample * groups * channels * sides.x * sides.y * sides.z;
    a_k = begin_k;
    a_within = begin_within;
    a_sample = begin_slopes;
    b_k = begin_k;
    b_position = begin_position;
    b_sample = begin_sample;
    tile(thread, tile_row * {{ bm }}u, tile_column * {{ bn }}u, k_begin, k_end);
}
