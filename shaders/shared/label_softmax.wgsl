// Softmax of one voxel's logits as seen from its label.
//
// The kernel binds `logits` [batch, classes, voxels] as {{ elem }} and `labels` [batch * voxels] as u32; its parameters
// begin with 1 voxels, 2 classes, 3 gamma.

struct LabelSoftmax {
    // Place of the voxel's first logit; those of the other classes follow at every `voxels`.
    first: u32,
    label: u32,
    largest: f32,
    // The label's logit less the largest.
    below: f32,
    // Sum of the exponentials of the other classes' logits less the largest, and of all.
    others: f32,
    sum: f32,
}

// Of voxel `i` of the batch, whose label is one of the classes.
fn label_softmax(i: u32) -> LabelSoftmax {
    let voxels = param(1u);
    let classes = param(2u);
    var found: LabelSoftmax;
    found.first = i / voxels * classes * voxels + i % voxels;
    found.label = labels[i];
    found.largest = f32(logits[found.first]);
    for (var c = 1u; c < classes; c++) {
        found.largest = max(found.largest, f32(logits[found.first + c * voxels]));
    }
    found.below = f32(logits[found.first + found.label * voxels]) - found.largest;
    found.others = 0.0;
    for (var c = 0u; c < classes; c++) {
        let term = exp(f32(logits[found.first + c * voxels]) - found.largest);
        found.others += select(term, 0.0, c == found.label);
    }
    found.sum = found.others + exp(found.below);
    return found;
}

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
