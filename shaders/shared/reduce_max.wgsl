// Maximum of f32 that ignores NaN, on unsigned integers in the order of the floats: compilers may assume that no float
// is NaN, but they cannot assume anything about integers. 0 stands for nothing and becomes minus infinity.
alias Partial = u32;

fn nothing() -> Partial {
    return 0u;
}

fn lift(value: f32) -> Partial {
    let bits = bitcast<u32>(value);
    let ordered = select(bits | 0x80000000u, ~bits, (bits & 0x80000000u) != 0u);
    return select(ordered, 0u, (bits & 0x7fffffffu) > 0x7f800000u);
}

fn combine(a: Partial, b: Partial) -> Partial {
    return max(a, b);
}

fn lower(partial: Partial) -> f32 {
    let bits = select(~partial, partial & 0x7fffffffu, (partial & 0x80000000u) != 0u);
    return bitcast<f32>(select(bits, 0xff800000u, partial == 0u));
}
