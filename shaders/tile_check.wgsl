// y = A B for matrices of small integers that the kernel makes up, by the core of GEMM and the convolutions: whether one
// form of the core multiplies rightly on a device.
//
// Bindings  0 y [m, n]
// Params    0 m   1 n   2 k   3 whether k runs along memory: 1 for A, 2 for B
// Dispatch  one workgroup a tile: tiles of cols, then of rows
// Accuracy  exact: operands of -8 to 8 are values of f16. Deterministic.
{{ enable }}
@group(0) @binding(0) var<storage, read_write> y: array<f32>;
//!include params

var<private> a_rows: array<u32, {{ a_slots }}>;
var<private> b_cols: array<u32, {{ b_slots }}>;

fn prepare_a(slot: u32, row: u32) {
    a_rows[slot] = row;
}

fn prepare_b(slot: u32, col: u32) {
    b_cols[slot] = col;
}

fn at_a(k: u32) {}

fn at_b(k: u32) {}

// As `a` and `b` in `variant.rs`.
fn load_a(slot: u32, k: u32) -> f32 {
    return f32((a_rows[slot] * 5u + k * 3u) % 13u) - 6.0;
}

fn load_b(slot: u32, k: u32) -> f32 {
    return f32((k * 7u + b_cols[slot] * 11u) % 17u) - 8.0;
}

fn a_along_k() -> bool {
    return (param(3u) & 1u) != 0u;
}

fn b_along_k() -> bool {
    return (param(3u) & 2u) != 0u;
}

fn store(row: u32, col: u32, sum: f32) {
    if row < param(0u) && col < param(1u) {
        y[row * param(1u) + col] = sum;
    }
}
//!include {{ tile }}

@compute @workgroup_size({{ workgroup_size }})
fn main(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let across = (param(1u) + {{ bn }}u - 1u) / {{ bn }}u;
    let group = group_index(workgroup_id);
    tile(thread, group / across * {{ bm }}u, group % across * {{ bn }}u, 0u, param(2u));
}
