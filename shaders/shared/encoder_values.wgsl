// The result of voxel_encoder as values.
@group(0) @binding(4) var<storage, read_write> out: array<{{ elem }}>;

const NOBODY: u32 = 0xffffffffu;

struct Best {
    key: u32,
    point: u32,
}

// What earlier launches found.
fn earlier(i: u32, channel: u32) -> Best {
    return Best(key_of(f32(out[i])), NOBODY);
}

fn finish(i: u32, best: Best) {
    // The largest key becomes a NaN.
    out[i] = {{ elem }}(bitcast<f32>(min(best.key, 0x7fc00000u)));
}
