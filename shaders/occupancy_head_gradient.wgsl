// Gradients of occupancy_head: of the features, in their place where one pass takes all classes, and partial sums of those
// of weights and biases.
//
// Bindings  0 x {{ elem }} [batch, channels, voxels]   1 labels u32 [n]: `classes` or more counts for nothing
//           2 head f32 [classes, channels + 2]   3 gradient of the loss f32 [n]   4 by_x {{ elem }}, as x: the gradient of
//           x if there are more than {{ quads }} times four classes, else unused   5 partials f32 [groups, classes,
//           channels + 1], biases last
// Params    head_logits, then 5 tiles of a workgroup
// Dispatch  one workgroup for so many tiles of {{ workgroup_size }} voxels
// Logits are made again, a thread a voxel. A thread adds up one class and channel over the voxels of a tile in order, then
// over tiles. f32; deterministic.
{{ enable }}
@group(0) @binding(0) var<storage, read_write> x: array<{{ elem }}>;
@group(0) @binding(1) var<storage, read_write> labels: array<u32>;
@group(0) @binding(2) var<storage, read_write> head: array<f32>;
@group(0) @binding(3) var<storage, read_write> gradient: array<f32>;
@group(0) @binding(4) var<storage, read_write> by_x: array<{{ elem }}>;
@group(0) @binding(5) var<storage, read_write> partials: array<f32>;
//!include params
//!include head_logits
//!include label_loss

const VOXELS: u32 = {{ workgroup_size }}u;
// One more than the voxels, so that rows begin in different banks of memory.
const STEP: u32 = VOXELS + 1u;
// Channels that a thread adds up side by side: of the tile, `thread % HALF` and that plus HALF.
const HALF: u32 = TILE / 2u;

// Gradients of the logits, four classes a row, and features, a channel a row: a column a voxel.
var<workgroup> slopes: array<vec4<f32>, QUADS * STEP>;
var<workgroup> values: array<f32, TILE * STEP>;

fn slope_of(classes: vec4<u32>, logits: vec4<f32>, label: u32, slope: f32, minus_others: f32) -> vec4<f32> {
    // The probabilities of the others stand for 1 - p: nothing cancels where p is nearly 1.
    let terms = select(exp(logits - largest), vec4(minus_others), classes == vec4(label));
    return select(slope * terms, vec4<f32>(), classes >= vec4(param(2u)));
}

fn add_partial(group: u32, tile: u32, class_index: u32, channel: u32, sum: f32) {
    let channels = param(3u);
    if class_index < param(2u) && channel <= channels {
        let place = (group * param(2u) + class_index) * (channels + 1u) + channel;
        if tile == 0u {
            partials[place] = sum;
        } else {
            partials[place] += sum;
        }
    }
}

@compute @workgroup_size({{ workgroup_size }})
fn main(@builtin(workgroup_id) workgroup_id: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let group = group_index(workgroup_id);
    let n = param(0u);
    let voxels = param(1u);
    let classes = param(2u);
    let channels = param(3u);
    let is_one_pass = classes <= PASS_CLASSES;
    let tiles = min(param(5u), (n + VOXELS - 1u) / VOXELS - group * param(5u));
    for (var tile = 0u; tile < tiles; tile++) {
        let voxel = (group * param(5u) + tile) * VOXELS + thread;
        let i = min(voxel, n - 1u);
        let label = labels[i];
        let class_weight = head[min(label, classes - 1u) * (channels + 2u) + channels + 1u];
        let is_counted = voxel < n && label < classes && class_weight != 0.0;
        let place = i / voxels * channels * voxels + i % voxels;
        begin_softmax();
        for (var first = 0u; first < classes; first += PASS_CLASSES) {
            take_logits(first, place, is_counted, thread);
            add_logits(first, label);
        }
        let found = finish_softmax();
        var slope = 0.0;
        if is_counted {
            let gamma = bitcast<f32>(param(4u));
            slope = class_weight * gradient[i] / found.sum;
            if gamma != 0.0 {
                let missing = missing_of(found);
                slope *= pow(missing, gamma) * (1.0 + gamma / missing * (1.0 - missing) * surprise_of(found));
            }
        }
        for (var first_class = 0u; first_class < classes; first_class += PASS_CLASSES) {
            if !is_one_pass {
                take_logits(first_class, place, is_counted, thread);
            }
//!for q in {{ quads }}
            var slope_{{ q }} = vec4<f32>();
//!end
            if is_counted {
//!for q in {{ quads }}
                slope_{{ q }} = slope_of(quad(first_class, {{ q }}u), logit_{{ q }}, label, slope, -found.others);
//!end
            }
//!for q in {{ quads }}
            slopes[{{ q }}u * STEP + thread] = slope_{{ q }};
//!end
            // The bias counts as the weight of one more channel, whose values are 1.
            for (var first = 0u; first <= channels; first += TILE) {
                workgroupBarrier();
                load_weights(first_class, first, thread);
                let count = min(TILE, channels - min(first, channels));
                for (var c = 0u; c < TILE; c++) {
                    var value = select(0.0, 1.0, first + c == channels);
                    if c < count && voxel < n {
                        value = f32(x[place + (first + c) * voxels]);
                    }
                    values[c * STEP + thread] = value;
                }
                workgroupBarrier();
                if voxel < n {
                    for (var c = 0u; c < count; c++) {
                        var sum = 0.0;
//!for q in {{ quads }}
                        sum += dot(slope_{{ q }}, weights[c * QUADS + {{ q }}u]);
//!end
                        let at = place + (first + c) * voxels;
                        if is_one_pass {
                            x[at] = {{ elem }}(sum);
                        } else if first_class == 0u {
                            by_x[at] = {{ elem }}(sum);
                        } else {
                            by_x[at] = {{ elem }}(f32(by_x[at]) + sum);
                        }
                    }
                }
                let row = thread / HALF;
                let c = thread % HALF;
                if row < QUADS {
                    var low = vec4<f32>();
                    var high = vec4<f32>();
                    for (var v = 0u; v < VOXELS; v++) {
                        let four = slopes[row * STEP + v];
                        low += four * values[c * STEP + v];
                        high += four * values[(c + HALF) * STEP + v];
                    }
                    let at = quad(first_class, row);
//!for j in 4
                    add_partial(group, tile, at[{{ j }}], first + c, low[{{ j }}]);
                    add_partial(group, tile, at[{{ j }}], first + c + HALF, high[{{ j }}]);
//!end
                }
            }
            // The next gradients of logits are written when these have been read.
            workgroupBarrier();
        }
    }
}
