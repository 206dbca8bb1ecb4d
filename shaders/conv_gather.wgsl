// Convolution, or the input gradient of one (a transposed convolution), as a product of matrices that is nowhere laid
// out: rows are output channels, columns output positions, and k runs over taps and channels.
//
// Output positions fall into phases: those that differ by whole steps along each axis meet the same taps. A convolution
// has one phase; an input gradient one for each residue of the position modulo the stride. In a phase, output position
// first + q * output step reads the source at q * source step + the tap's offset.
//
// Bindings  0 source f32 or f16 [batch, groups, channels, sides]
//           1 weight: by strides
//           2 scale f32 [groups * channels]   3 shift, the same   4 bias f32 [groups * rows]
//           5 residual, as out   6 out [batch, groups, rows, sides]. An absent one of 2 to 5 binds any tensor.
// Params    0 groups   1 channels   2 rows   3 batch   4 sides of the source (3)   7 sides of out (3)
//           10 source step (3)   13 output step (3)   16 strides of the weight: group, row, channel (3)
//           19 flags: 1 scale and shift on loading, 2 ReLU on loading, 4 bias, 8 residual, 16 ReLU on storing
//           20 tiles of rows   21 tiles of columns   22 phases
//           23 of each phase: first position (3), positions (3), first tap, taps
//           then of each tap: offset in the source (3, signed), place in the weight
// Dispatch  one workgroup a tile: tiles of rows first, then of columns, then groups, then phases
// Accuracy  sums in f32, k ascending; one rounding to f16. Deterministic.
{{ enable }}
@group(0) @binding(0) var<storage, read_write> source: array<{{ elem }}>;
@group(0) @binding(1) var<storage, read_write> weight: array<{{ elem }}>;
@group(0) @binding(2) var<storage, read_write> scale: array<f32>;
@group(0) @binding(3) var<storage, read_write> shift: array<f32>;
@group(0) @binding(4) var<storage, read_write> bias: array<f32>;
@group(0) @binding(5) var<storage, read_write> residual: array<{{ elem }}>;
@group(0) @binding(6) var<storage, read_write> out: array<{{ elem }}>;
//!include params
//!include relu_stops

const PHASES: u32 = 23u;
const PHASE_WORDS: u32 = 8u;
const TAP_WORDS: u32 = 4u;

// Parameters are read once: inside the loop every read would be a load.
var<private> groups: u32;
var<private> group: u32;
var<private> channels: u32;
var<private> rows: u32;
var<private> sides: vec3<u32>;
var<private> volume: u32;
var<private> out_sides: vec3<u32>;
var<private> steps: vec3<u32>;
var<private> out_steps: vec3<u32>;
var<private> weight_strides: vec3<u32>;
var<private> flags: u32;
var<private> first: vec3<u32>;
var<private> counts: vec3<u32>;
var<private> columns: u32;
// Words of the first tap of the phase.
var<private> first_tap: u32;

// Where a row of the weight begins; where a column reads the source, and its sample (in channels).
var<private> weight_rows: array<u32, {{ a_slots }}>;
var<private> positions: array<vec3<i32>, {{ b_slots }}>;
var<private> samples: array<u32, {{ b_slots }}>;

// Where k stands, for either operand: words of the tap, channel, and what follows from them.
var<private> a_k: u32;
var<private> a_tap: u32;
var<private> a_channel: u32;
var<private> tap_weight: u32;
var<private> a_place: u32;
var<private> b_k: u32;
var<private> b_tap: u32;
var<private> b_channel: u32;
var<private> tap_offset: vec3<i32>;
var<private> factor: f32;
var<private> addend: f32;

fn three(i: u32) -> vec3<u32> {
    return vec3<u32>(param(i), param(i + 1u), param(i + 2u));
}

fn prepare_a(slot: u32, row: u32) {
    weight_rows[slot] = group * weight_strides.x + min(row, rows - 1u) * weight_strides.y;
}

// The q of a column.
fn position(within: u32) -> vec3<u32> {
    let line = within / counts.z;
    let plane = line / counts.y;
    return vec3<u32>(plane, line - plane * counts.y, within - line * counts.z);
}

fn prepare_b(slot: u32, col: u32) {
    let column = min(col, columns - 1u);
    let size = counts.x * counts.y * counts.z;
    let sample = column / size;
    positions[slot] = vec3<i32>(position(column - sample * size) * steps);
    samples[slot] = (sample * groups + group) * channels;
}

// k mostly ascends; where it falls, count from the first tap again.
fn at_a(k: u32) {
    let again = k < a_k;
    a_channel = select(a_channel + k - a_k, k, again);
    a_tap = select(a_tap, first_tap, again);
    a_k = k;
    if again || a_channel >= channels {
        while a_channel >= channels {
            a_channel -= channels;
            a_tap += TAP_WORDS;
        }
        tap_weight = param(a_tap + 3u);
    }
    a_place = tap_weight + a_channel * weight_strides.z;
}

fn at_b(k: u32) {
    let again = k < b_k;
    b_channel = select(b_channel + k - b_k, k, again);
    b_tap = select(b_tap, first_tap, again);
    b_k = k;
    if again || b_channel >= channels {
        while b_channel >= channels {
            b_channel -= channels;
            b_tap += TAP_WORDS;
        }
        tap_offset = bitcast<vec3<i32>>(three(b_tap));
    }
    if (flags & 1u) != 0u {
        factor = scale[group * channels + b_channel];
        addend = shift[group * channels + b_channel];
    }
}

fn load_a(slot: u32, k: u32) -> f32 {
    return f32(weight[weight_rows[slot] + a_place]);
}

fn load_b(slot: u32, k: u32) -> f32 {
    let at = vec3<u32>(positions[slot] + tap_offset);
    let inside = all(at < sides);
    let place = select(0u, (at.x * sides.y + at.y) * sides.z + at.z, inside);
    let value = f32(source[(samples[slot] + b_channel) * volume + place]) * factor + addend;
    // NaN stays NaN.
    return select(value, 0.0, !inside || ((flags & 2u) != 0u && relu_stops(value)));
}

fn a_along_k() -> bool {
    return weight_strides.z < weight_strides.y;
}

fn b_along_k() -> bool {
    return false;
}

fn store(row: u32, col: u32, sum: f32) {
    if row >= rows || col >= columns {
        return;
    }
    let size = counts.x * counts.y * counts.z;
    let sample = col / size;
    let at = first + position(col - sample * size) * out_steps;
    let channel = group * rows + row;
    let place = (((sample * groups * rows + channel) * out_sides.x + at.x) * out_sides.y + at.y) * out_sides.z + at.z;
    var value = sum;
    if (flags & 4u) != 0u {
        value += bias[channel];
    }
    if (flags & 8u) != 0u {
        value += f32(residual[place]);
    }
    // NaN stays NaN.
    if (flags & 16u) != 0u && relu_stops(value) {
        value = 0.0;
    }
    out[place] = {{ elem }}(value);
}
//!include {{ tile }}

@compute @workgroup_size({{ workgroup_size }})
fn main(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    groups = param(0u);
    channels = param(1u);
    rows = param(2u);
    sides = three(4u);
    volume = sides.x * sides.y * sides.z;
    out_sides = three(7u);
    steps = three(10u);
    out_steps = three(13u);
    weight_strides = three(16u);
    flags = param(19u);
    factor = 1.0;
    addend = 0.0;
    let tile_row = group_index(workgroup_id) % param(20u);
    let above = group_index(workgroup_id) / param(20u);
    let tile_column = above % param(21u);
    group = above / param(21u) % groups;
    let phase = PHASES + above / param(21u) / groups * PHASE_WORDS;
    first = three(phase);
    counts = three(phase + 3u);
    columns = param(3u) * counts.x * counts.y * counts.z;
    // Other phases may have more positions; the whole workgroup leaves.
    if tile_column * {{ bn }}u >= columns {
        return;
    }
    first_tap = PHASES + param(22u) * PHASE_WORDS + param(phase + 6u) * TAP_WORDS;
    a_tap = first_tap;
    b_tap = first_tap;
    let count = param(phase + 7u);
    if count > 0u {
        tap_offset = bitcast<vec3<i32>>(three(first_tap));
        tap_weight = param(first_tap + 3u);
    }
    tile(thread, tile_row * {{ bm }}u, tile_column * {{ bn }}u, 0u, count * channels);
}
