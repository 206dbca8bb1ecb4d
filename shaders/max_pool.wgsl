// Largest value of each window, and its place in the window.
//
// Bindings  0 x [planes, sides in]   1 y [planes, sides out]   2 taps u32 [ceil(n / 4)]: the place of y[i] is in bits
//           8 (i % 4) of word i / 4
// Params    0 n, all outputs   1.. pool
// Dispatch  one thread for four outputs
// Exact: the first of equal values in row-major order, the last NaN if there is one; deterministic.
{{ enable }}

@group(0) @binding(0) var<storage, read_write> x: array<{{ elem }}>;
@group(0) @binding(1) var<storage, read_write> y: array<{{ elem }}>;
@group(0) @binding(2) var<storage, read_write> taps: array<u32>;
//!include params
//!include pool

const INFINITY_BITS: u32 = 0x7f800000u;

@compute @workgroup_size({{ workgroup_size }})
fn main(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let word = group_index(workgroup_id) * {{ workgroup_size }}u + thread;
    let n = param(0u);
    if word * 4u >= n {
        return;
    }
    let sides = param3(1u);
    let sides_out = param3(4u);
    let window = param3(7u);
    let stride = param3(10u);
    let padding = param3(13u);
    let step = voxel_at(1u, sides_out);
    var voxel = voxel_at(word * 4u, sides_out);
    var places = 0u;
    // Minus infinity, which has no literal.
    var lowest_bits = 0xff800000u;
    let lowest = bitcast<f32>(lowest_bits);
    for (var i = word * 4u; i < min(word * 4u + 4u, n); i++) {
        let corner = voxel.xyz * stride;
        // The first place inside the grid, for windows that hold nothing above minus infinity.
        let begin = max(padding, corner) - corner;
        var best = lowest;
        var best_tap = (begin.x * window.y + begin.y) * window.z + begin.z;
        var has_nan = false;
        // Every thread walks the whole window, without a branch: what lies outside is never larger.
        var tap = 0u;
        for (var d = 0u; d < window.x; d++) {
            for (var h = 0u; h < window.y; h++) {
                for (var w = 0u; w < window.z; w++) {
                    let at = corner + vec3(d, h, w) - padding;
                    let is_inside = all(at < sides);
                    let place = ((voxel.w * sides.x + at.x) * sides.y + at.y) * sides.z + at.z;
                    let value = f32(x[select(0u, place, is_inside)]);
                    let is_nan = (bitcast<u32>(value) & 0x7fffffffu) > INFINITY_BITS;
                    // Once a NaN is found only another replaces it, whatever a compiler makes of comparing them.
                    let is_larger = is_inside && (is_nan || (value > best && !has_nan));
                    best = select(best, value, is_larger);
                    best_tap = select(best_tap, tap, is_larger);
                    has_nan = has_nan || (is_inside && is_nan);
                    tap++;
                }
            }
        }
        y[i] = {{ elem }}(best);
        places |= best_tap << (8u * (i % 4u));
        voxel = voxel_after(voxel, step, sides_out);
    }
    taps[word] = places;
}
