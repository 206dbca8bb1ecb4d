// Logits of one voxel a thread, {{ quads }} times four classes at a time, and the softmax of all as seen from the label.
//
// The kernel binds `x` [batch, channels, voxels] as {{ elem }} and `head` f32 [classes, channels + 2]: of every class its
// weights, its bias and its weight in the loss. Its parameters begin with 0 n = batch * voxels, 1 voxels, 2 classes,
// 3 channels, 4 gamma, f32.

const QUADS: u32 = {{ quads }}u;
const PASS_CLASSES: u32 = 4u * QUADS;
// Channels whose weights the workgroup holds.
const TILE: u32 = 16u;
// Takes the part of minus infinity, which has no literal.
const LEAST: f32 = -3e38;

var<workgroup> weights: array<vec4<f32>, TILE * QUADS>;

//!for q in {{ quads }}
var<private> logit_{{ q }}: vec4<f32>;
//!end
// The largest logit so far.
var<private> largest: f32;
// The label's logit.
var<private> own: f32;
// Sum of the exponentials of the other classes' logits less the largest.
var<private> others: f32;

fn quad(first_class: u32, q: u32) -> vec4<u32> {
    return vec4(first_class + 4u * q) + vec4(0u, 1u, 2u, 3u);
}

// A column of `head` for four classes; `none` for those beyond.
fn head_column(classes: vec4<u32>, column: u32, none: f32) -> vec4<f32> {
    let last = param(2u) - 1u;
    let places = min(classes, vec4(last)) * (param(3u) + 2u) + column;
    let values = vec4(head[places.x], head[places.y], head[places.z], head[places.w]);
    return select(values, vec4(none), classes > vec4(last));
}

// Weights of a pass over the classes for the channels from `first` on: all threads take part.
fn load_weights(first_class: u32, first: u32, thread: u32) {
    for (var i = thread; i < TILE * QUADS; i += {{ workgroup_size }}u) {
        let channel = first + i / QUADS;
        if channel < param(3u) {
            weights[i] = head_column(quad(first_class, i % QUADS), channel, 0.0);
        }
    }
}

// Logits of a pass over the classes for the voxel whose first value is x[place]: all threads take part.
fn take_logits(first_class: u32, place: u32, is_inside: bool, thread: u32) {
    let voxels = param(1u);
    let channels = param(3u);
//!for q in {{ quads }}
    logit_{{ q }} = head_column(quad(first_class, {{ q }}u), channels, LEAST);
//!end
    for (var first = 0u; first < channels; first += TILE) {
        workgroupBarrier();
        load_weights(first_class, first, thread);
        workgroupBarrier();
        if is_inside {
            let count = min(TILE, channels - first);
            for (var c = 0u; c < count; c++) {
                let value = f32(x[place + (first + c) * voxels]);
//!for q in {{ quads }}
                logit_{{ q }} += value * weights[c * QUADS + {{ q }}u];
//!end
            }
        }
    }
}

// Starts the softmax of a voxel.
fn begin_softmax() {
    largest = LEAST;
    own = 0.0;
    others = 0.0;
}

// Takes the logits of a pass into the softmax.
fn add_logits(first_class: u32, label: u32) {
    var four = logit_0;
//!for q in {{ quads }}
    four = max(four, logit_{{ q }});
//!end
    let most = max(max(four.x, four.y), max(four.z, four.w));
    if most > largest {
        others *= exp(largest - most);
        largest = most;
    }
//!for q in {{ quads }}
    add_quad(quad(first_class, {{ q }}u), logit_{{ q }}, label);
//!end
}

fn add_quad(classes: vec4<u32>, logits: vec4<f32>, label: u32) {
    let is_own = classes == vec4(label);
    let terms = select(exp(logits - largest), vec4<f32>(), is_own | (classes >= vec4(param(2u))));
    others += (terms.x + terms.y) + (terms.z + terms.w);
    let kept = select(vec4<f32>(), logits, is_own);
    own += (kept.x + kept.y) + (kept.z + kept.w);
}

struct LabelSoftmax {
    // The label's logit less the largest.
    below: f32,
    // Sums of the exponentials of the other classes' logits less the largest, and of all.
    others: f32,
    sum: f32,
}

fn finish_softmax() -> LabelSoftmax {
    let below = own - largest;
    return LabelSoftmax(below, others, others + exp(below));
}
