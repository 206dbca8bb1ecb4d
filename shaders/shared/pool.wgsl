// Sides and steps of a pooling, along depth, height and width.
//
// Params 1..4 sides of the input  4..7 sides of the output  7..10 window  10..13 stride  13..16 padding
fn param3(i: u32) -> vec3<u32> {
    return vec3(param(i), param(i + 1u), param(i + 2u));
}

// Depth, height and width of a place in row-major order, and the plane it is in.
fn voxel_at(place: u32, sides: vec3<u32>) -> vec4<u32> {
    let row = place / sides.z;
    let slab = row / sides.y;
    let plane = slab / sides.x;
    return vec4(slab - plane * sides.x, row - slab * sides.y, place - row * sides.z, plane);
}

// The voxel `step` places on, where `step` is the `voxel_at` of that number.
fn voxel_after(voxel: vec4<u32>, step: vec4<u32>, sides: vec3<u32>) -> vec4<u32> {
    var next = voxel + step;
    var carry = select(0u, 1u, next.z >= sides.z);
    next.z -= carry * sides.z;
    next.y += carry;
    carry = select(0u, 1u, next.y >= sides.y);
    next.y -= carry * sides.y;
    next.x += carry;
    carry = select(0u, 1u, next.x >= sides.x);
    next.x -= carry * sides.x;
    next.w += carry;
    return next;
}
