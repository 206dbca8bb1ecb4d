// Gradient of the sums of trilinear weights with respect to the positions of the points.
//
// Bindings  0 points f32 [n, 3], metres   1 offsets u32 [members + 1]   2 gradient f32 [members, nz, nx, ny]
//           3 out f32 [n, 3], per metre
// Params    0 n   1 members   2 nx   3 ny   4 nz   5..17 grid (voxel_cell)
// Dispatch  one thread a point
// f32, eight terms in a fixed order: deterministic.

@group(0) @binding(0) var<storage, read_write> points: array<u32>;
@group(0) @binding(1) var<storage, read_write> offsets: array<u32>;
@group(0) @binding(2) var<storage, read_write> gradient: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;
//!include params
//!include voxel_batch
//!include soft_cell

@compute @workgroup_size({{ workgroup_size }})
fn main(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let i = group_index(workgroup_id) * {{ workgroup_size }}u + thread;
    if i >= param(0u) {
        return;
    }
    let bits = vec3(points[3u * i], points[3u * i + 1u], points[3u * i + 2u]);
    let cell = soft_cell_of(bits, 5u);
    var slope = vec3<f32>();
    if cell.inside {
        let counts = vec3(param(2u), param(3u), param(4u));
        let member = batch_of(i, param(1u));
        var share: vec3<f32>;
        for (var axis = 0u; axis < 3u; axis++) {
            share[axis] = soft_share(soft_place(bitcast<f32>(bits[axis]), axis, 5u), cell.low[axis]);
        }
        for (var corner = 0u; corner < 8u; corner++) {
            let is_high = vec3((corner >> 1u) & 1u, corner & 1u, corner >> 2u);
            let voxel = vec3<u32>(cell.low + vec3<i32>(is_high));
            // Below zero is far above as well.
            if all(voxel < counts) {
                let upstream = gradient[((member * counts.z + voxel.z) * counts.x + voxel.x) * counts.y + voxel.y];
                let weight = select(1.0 - share, share, is_high == vec3<u32>(1u));
                let sign = select(vec3<f32>(-1.0), vec3<f32>(1.0), is_high == vec3<u32>(1u));
                slope += upstream * sign * weight.yxx * weight.zzy;
            }
        }
    }
    for (var axis = 0u; axis < 3u; axis++) {
        out[3u * i + axis] = slope[axis] * bitcast<f32>(param(5u + 3u + axis));
    }
}
