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
