// From the softmax of a voxel as seen from its label to its loss. The kernel has a struct `LabelSoftmax` with `below`, the
// label's logit less the largest, and `others` and `sum`, the exponentials of the other classes' logits less the largest and
// of all.

// log(1 + x) for x >= 0. The built-in is 2^-21 off near 1, which is much of a small result.
fn log_1p(x: f32) -> f32 {
    if !(x <= 0.5) {
        return log(1.0 + x);
    }
    // Twice the series of the inverse hyperbolic tangent, to 1e-8 at x = 0.5.
    let s = x / (2.0 + x);
    let q = s * s;
    return 2.0 * s * (1.0 + q * (1.0 / 3.0 + q * (0.2 + q * (1.0 / 7.0 + q / 9.0))));
}

// -log of the label's probability, accurate also where that is nearly 1.
fn surprise_of(found: LabelSoftmax) -> f32 {
    if found.below == 0.0 {
        return log_1p(found.others);
    }
    return log(found.sum) - found.below;
}

// One minus the label's probability; the bound keeps the derivative of its power finite.
fn missing_of(found: LabelSoftmax) -> f32 {
    return max(found.others / found.sum, 1e-8);
}
