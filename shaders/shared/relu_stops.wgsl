// Whether ReLU makes a value zero: where it is not above 0, except NaN. On unsigned integers, as compilers may assume that
// no float is NaN.
fn relu_stops(value: f32) -> bool {
    let bits = bitcast<u32>(value);
    return bits == 0u || (bits >= 0x80000000u && bits <= 0xff800000u);
}
