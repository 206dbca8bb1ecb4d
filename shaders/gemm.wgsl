// y[batch] = act(op(a[batch]) op(b[batch]) + bias + residual[batch]) for matrices of f32 or f16, or the partial sums of it
// over one part of k.
//
// Bindings  0 a, 1 b: matrices of any layout, by strides   2 bias f32 [n]   3 residual [batch, m, n]
//           4 y [batch, m, n], or partial sums f32 [batch, parts, m, n]. An absent bias or residual binds any tensor.
// Params    0 m   1 n   2 k   strides in values: 3 a row   4 a k   5 a batch   6 b k   7 b col   8 b batch
//           9 k of one matrix: less than k when the product sums over batches; then 10, 11 strides of a and b between them
//           12 k of a part   13 parts   14 flags: 1 bias, 2 residual, 4 ReLU, 8 partial sums
// Dispatch  one workgroup a tile: tiles of cols, then of rows, then parts, then batches
// Accuracy  sums in f32, k ascending: |error| <= gamma(k) |a| |b|, see `gemm_error_bound`; one rounding to f16.
//           Deterministic.
{{ enable }}
@group(0) @binding(0) var<storage, read_write> a: array<{{ elem }}>;
@group(0) @binding(1) var<storage, read_write> b: array<{{ elem }}>;
@group(0) @binding(2) var<storage, read_write> bias: array<f32>;
@group(0) @binding(3) var<storage, read_write> residual: array<{{ elem }}>;
@group(0) @binding(4) var<storage, read_write> y: array<{{ out }}>;
//!include params
//!include relu_stops

// Parameters are read once: inside the loop every read would be a load.
var<private> sides: vec3<u32>;
var<private> a_start: u32;
var<private> b_start: u32;
var<private> y_start: u32;
var<private> a_stride: vec2<u32>;
var<private> b_stride: vec2<u32>;
var<private> matrix_k: u32;
var<private> outer_stride: vec2<u32>;
var<private> flags: u32;
var<private> a_rows: array<u32, {{ a_slots }}>;
var<private> b_cols: array<u32, {{ b_slots }}>;
var<private> a_place: u32;
var<private> b_place: u32;

fn prepare_a(slot: u32, row: u32) {
    a_rows[slot] = a_start + min(row, sides.x - 1u) * a_stride.x;
}

fn prepare_b(slot: u32, col: u32) {
    b_cols[slot] = b_start + min(col, sides.y - 1u) * b_stride.y;
}

fn at_a(k: u32) {
    a_place = k * a_stride.y;
    if matrix_k < sides.z {
        a_place = k % matrix_k * a_stride.y + k / matrix_k * outer_stride.x;
    }
}

fn at_b(k: u32) {
    b_place = k * b_stride.x;
    if matrix_k < sides.z {
        b_place = k % matrix_k * b_stride.x + k / matrix_k * outer_stride.y;
    }
}

fn load_a(slot: u32, k: u32) -> f32 {
    return f32(a[a_rows[slot] + a_place]);
}

fn load_b(slot: u32, k: u32) -> f32 {
    return f32(b[b_cols[slot] + b_place]);
}

fn a_along_k() -> bool {
    return a_stride.y == 1u;
}

fn b_along_k() -> bool {
    return b_stride.x == 1u;
}

fn store(row: u32, col: u32, sum: f32) {
    if row >= sides.x || col >= sides.y {
        return;
    }
    let place = y_start + row * sides.y + col;
    var value = sum;
    if (flags & 1u) != 0u {
        value += bias[col];
    }
    if (flags & 2u) != 0u {
        value += f32(residual[place]);
    }
    if (flags & 4u) != 0u && relu_stops(value) {
        value = 0.0;
    }
    y[place] = {{ out }}(value);
}
//!include {{ tile }}

@compute @workgroup_size({{ workgroup_size }})
fn main(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    sides = vec3(param(0u), param(1u), param(2u));
    a_stride = vec2(param(3u), param(4u));
    b_stride = vec2(param(6u), param(7u));
    matrix_k = param(9u);
    outer_stride = vec2(param(10u), param(11u));
    flags = param(14u);
    let across = (sides.y + {{ bn }}u - 1u) / {{ bn }}u;
    let down = (sides.x + {{ bm }}u - 1u) / {{ bm }}u;
    let group = group_index(workgroup_id);
    let tile_col = group % across;
    let tile_row = group / across % down;
    let member = group / across / down;
    let part = member % param(13u);
    let batch = member / param(13u);
    a_start = batch * param(5u);
    b_start = batch * param(8u);
    y_start = member * sides.x * sides.y;
    let k_begin = part * param(12u);
    tile(thread, tile_row * {{ bm }}u, tile_col * {{ bn }}u, k_begin, min(sides.z, k_begin + param(12u)));
}
