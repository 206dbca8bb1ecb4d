// Mean and variance, from count, mean and sum of squared distances.
fn finish(sums: vec4<f32>, epsilon: f32) -> vec2<f32> {
    return vec2(sums.y, sums.z / sums.x);
}
