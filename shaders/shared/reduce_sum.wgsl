// Sum of f32, in the order in which `combine` is called.
alias Partial = f32;

fn nothing() -> Partial {
    return 0.0;
}

fn lift(value: f32) -> Partial {
    return value;
}

fn combine(a: Partial, b: Partial) -> Partial {
    return a + b;
}

fn lower(partial: Partial) -> f32 {
    return partial;
}
