// Mean and one over the standard deviation, from count, mean and sum of squared distances.
fn finish(sums: vec4<f32>, epsilon: f32) -> vec2<f32> {
    return vec2(sums.y, 1.0 / sqrt(sums.z / sums.x + epsilon));
}
