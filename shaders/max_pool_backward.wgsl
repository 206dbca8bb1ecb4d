// Gradient of the input of a max pooling: each voxel gathers from the windows that took it.
//
// Bindings  0 gradient [planes, sides out]   1 taps u32 [ceil(n out / 4)], as max_pool.wgsl writes them
//           2 out [planes, sides in]
// Params    0 n, all voxels of the input   1.. pool
// Dispatch  one workgroup for 4096 voxels, neighbouring threads beside each other
// Sums in f32 over the windows in order, rounded once; deterministic.
{{ enable }}

@group(0) @binding(0) var<storage, read_write> gradient: array<{{ elem }}>;
@group(0) @binding(1) var<storage, read_write> taps: array<u32>;
@group(0) @binding(2) var<storage, read_write> out: array<{{ elem }}>;
//!include params
//!include pool

const THREAD_VALUES: u32 = 16u;

@compute @workgroup_size({{ workgroup_size }})
fn main(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let first = group_index(workgroup_id) * THREAD_VALUES * {{ workgroup_size }}u + thread;
    let end = min(first + THREAD_VALUES * {{ workgroup_size }}u, param(0u));
    let sides = param3(1u);
    let sides_out = param3(4u);
    let window = param3(7u);
    let stride = param3(10u);
    let padding = param3(13u);
    // How many windows, up to the last that may hold a voxel, may.
    let windows = (window + stride - 1u) / stride;
    let step = voxel_at({{ workgroup_size }}u, sides);
    var voxel = voxel_at(first, sides);
    for (var i = first; i < end; i += {{ workgroup_size }}u) {
        let at = voxel.xyz + padding;
        // Exact below 2^20, where the half keeps every quotient clear of whole numbers; faster than whole division.
        let last = vec3<u32>((vec3<f32>(at) + 0.5) / vec3<f32>(stride));
        var sum = 0.0;
        // Every thread looks at as many windows, without a branch: those that do not hold the voxel add nothing.
        for (var d = windows.x; d > 0u; d--) {
            for (var h = windows.y; h > 0u; h--) {
                for (var w = windows.z; w > 0u; w--) {
                    let before = vec3(d, h, w) - 1u;
                    let chosen = last - before;
                    let inside = at - chosen * stride;
                    let is_held = all(before <= last) && all(chosen < sides_out) && all(inside < window);
                    let place = ((voxel.w * sides_out.x + chosen.x) * sides_out.y + chosen.y) * sides_out.z + chosen.z;
                    let safe_place = select(0u, place, is_held);
                    let tap = (inside.x * window.y + inside.y) * window.z + inside.z;
                    let took = is_held && (taps[safe_place / 4u] >> (8u * (safe_place % 4u)) & 255u) == tap;
                    sum += select(0.0, f32(gradient[safe_place]), took);
                }
            }
        }
        out[i] = {{ elem }}(sum);
        voxel = voxel_after(voxel, step, sides);
    }
}
