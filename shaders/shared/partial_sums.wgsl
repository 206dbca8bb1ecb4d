// Partial results that are sums.
fn combine(a: vec4<f32>, b: vec4<f32>) -> vec4<f32> {
    return a + b;
}

// What the sums of one thread become before they are combined.
fn close(sums: vec4<f32>) -> vec4<f32> {
    return sums;
}
