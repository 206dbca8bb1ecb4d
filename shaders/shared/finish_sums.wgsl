// The two sums themselves.
fn finish(sums: vec4<f32>, epsilon: f32) -> vec2<f32> {
    return sums.xy;
}
