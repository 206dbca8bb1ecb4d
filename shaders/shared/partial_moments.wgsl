// Partial results that are a count, a mean and a sum of squared distances from it.
//
// A thread sums distances from its own first value, so that no large mean drowns the variance; partial results are
// combined as Chan, Golub and LeVeque do ("Updating formulae and a pairwise algorithm for computing sample variances").
fn combine(a: vec4<f32>, b: vec4<f32>) -> vec4<f32> {
    let count = a.x + b.x;
    if count == 0.0 {
        return a;
    }
    let delta = b.y - a.y;
    let share = b.x / count;
    return vec4(count, a.y + delta * share, a.z + b.z + delta * delta * a.x * share, 0.0);
}

// From count, sum and sum of squares of distances from the fourth.
fn close(sums: vec4<f32>) -> vec4<f32> {
    if sums.x == 0.0 {
        return sums;
    }
    let mean = sums.y / sums.x;
    return vec4(sums.x, sums.w + mean, max(sums.z - sums.y * mean, 0.0), 0.0);
}
