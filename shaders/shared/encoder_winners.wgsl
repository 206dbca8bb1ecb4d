// The result of voxel_encoder as points: the one with the largest value, NOBODY where ReLU gives 0.
@group(0) @binding(4) var<storage, read_write> out: array<u32>;

const NOBODY: u32 = 0xffffffffu;

struct Best {
    key: u32,
    point: u32,
}

// What earlier launches found.
fn earlier(i: u32, channel: u32) -> Best {
    let point = out[i];
    if point == NOBODY {
        return Best(0u, NOBODY);
    }
    return Best(key_of(values_of(vec4(point), channel).x), point);
}

fn finish(i: u32, best: Best) {
    out[i] = best.point;
}
