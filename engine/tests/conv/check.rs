//! A convolution and all its gradients against sums in f64.

use burn::tensor::{DType, Device};
use occam_engine::ops::Activation;
use occam_engine::ops::conv::{Epilogue, Prologue};

use crate::case::{Case, RELU};
use crate::common::{Sums, Values, assert_within, read, tensor};

/// A prologue as numbers, and what it makes of x.
struct Loaded {
    activation: Activation,
    scale: Vec<f64>,
    shift: Vec<f64>,
    /// scale x + shift.
    value: Vec<f64>,
    /// The size of its terms.
    magnitude: Vec<f64>,
}

impl Loaded {
    fn new(case: &Case, x: &[f64], activation: Activation, values: Values) -> Self {
        let [scale, shift] = [6, 7].map(|seed| values.take(DType::F32, case.channels[0], seed));
        let mut sums = Sums::zeros(x.len());
        for (place, x) in x.iter().enumerate() {
            let channel = channel(&case.shape_x(), place);
            sums.add(place, scale[channel] * x);
            sums.add(place, shift[channel]);
        }
        Self { activation, scale, shift, value: sums.value, magnitude: sums.magnitude }
    }

    /// Whether x has a gradient here.
    fn kept(&self, place: usize) -> bool {
        self.activation == Activation::Identity || self.value[place] > 0.0
    }

    /// Whether rounding decides that.
    fn doubtful(&self, place: usize) -> bool {
        self.activation == RELU && self.value[place] != 0.0 && self.value[place].abs() < 1e-6 * self.magnitude[place]
    }
}

fn channel(shape: &[usize; 5], place: usize) -> usize {
    place / (shape[2] * shape[3] * shape[4]) % shape[1]
}

/// Checks the convolution and its gradients.
pub fn check(case: &Case, dtype: DType, values: Values, device: &Device) {
    let what = |part: &str| format!("{} {dtype:?} {values:?} on {device:?}: {part}", case.name);
    let (shape_x, shape_weight, shape_y) = (case.shape_x(), case.shape_weight(), case.shape_y());
    let count = |shape: [usize; 5]| shape.iter().product::<usize>();
    let [channels_in, channels_out] = case.channels;
    let x = values.take(dtype, count(shape_x), 1);
    let weight = values.take(dtype, count(shape_weight), 2);
    // Vectors may be of either type.
    let vector_dtype = if values == Values::Integers { dtype } else { DType::F32 };
    let bias = case.bias.then(|| values.take(vector_dtype, channels_out, 3));
    let residual = case.residual.then(|| values.take(dtype, count(shape_y), 4));
    let loaded = case.prologue.map(|activation| Loaded::new(case, &x, activation, values));
    // What meets the kernel, and its size, which its own two roundings are parts of.
    let input = |place: usize| match &loaded {
        Some(loaded) if loaded.kept(place) => (loaded.value[place], loaded.magnitude[place]),
        Some(loaded) => (0.0, if loaded.doubtful(place) { loaded.magnitude[place] } else { 0.0 }),
        None => (x[place], x[place].abs()),
    };

    let mut y = Sums::zeros(count(shape_y));
    case.terms(|in_x, tap, in_y| {
        let (value, magnitude) = input(in_x);
        y.value[in_y] += value * weight[tap];
        y.magnitude[in_y] += magnitude * weight[tap].abs();
    });
    for place in 0..count(shape_y) {
        if let Some(bias) = &bias {
            y.add(place, bias[channel(&shape_y, place)]);
        }
        if let Some(residual) = &residual {
            y.add(place, residual[place]);
        }
    }
    let rounded = |sums: &Sums, dtype: DType, terms: usize, place: usize| {
        let error = values.error(dtype, terms) * sums.magnitude[place];
        error + values.rounding(dtype, sums.value[place], error)
    };
    let taps: usize = case.kernel.iter().product();
    let y_error = |place: usize| rounded(&y, dtype, channels_in / case.groups * taps + 4, place);

    let on = device.clone().autodiff();
    let x_on = tensor(&x, shape_x, dtype, &on).require_grad();
    let weight_on = tensor(&weight, shape_weight, dtype, &on).require_grad();
    let vector = |values: &[f64]| tensor(values, [values.len()], vector_dtype, &on).require_grad();
    let prologue = loaded.as_ref().map(|loaded| Prologue {
        scale: vector(&loaded.scale),
        shift: vector(&loaded.shift),
        activation: loaded.activation,
    });
    let epilogue = Epilogue {
        bias: bias.as_deref().map(vector),
        residual: residual.as_ref().map(|residual| tensor(residual, shape_y, dtype, &on).require_grad()),
        activation: if case.relu { RELU } else { Activation::Identity },
    };
    let y_on = case.run(x_on.clone(), weight_on.clone(), prologue.clone(), epilogue.clone());
    let y_on = y_on.unwrap_or_else(|error| panic!("{}: {error}", what("y")));
    assert_eq!((y_on.dims(), y_on.dtype()), (shape_y, dtype), "{}", what("y"));
    let kept = |place: usize| !case.relu || y.value[place] > 0.0;
    let expected: Vec<f64> = (0..y.value.len()).map(|place| if kept(place) { y.value[place] } else { 0.0 }).collect();
    assert_within(&read(y_on.clone()), &expected, y_error, &what("y"));

    // Where rounding decides on which side of the kink a value falls, the upstream gradient is zero.
    let upstream: Vec<f64> = (values.take(dtype, count(shape_y), 5).into_iter().enumerate())
        .map(
            |(place, g)| if case.relu && (0.0..2.0 * y_error(place)).contains(&y.value[place].abs()) { 0.0 } else { g },
        )
        .collect();
    let g: Vec<f64> = upstream.iter().enumerate().map(|(place, g)| if kept(place) { *g } else { 0.0 }).collect();
    let (mut g_input, mut g_weight) = (Sums::zeros(x.len()), Sums::zeros(weight.len()));
    case.terms(|in_x, tap, in_y| {
        g_input.add(in_x, weight[tap] * g[in_y]);
        let (value, magnitude) = input(in_x);
        g_weight.value[tap] += value * g[in_y];
        g_weight.magnitude[tap] += magnitude * g[in_y].abs();
    });
    let mut gradients = (y_on * tensor(&upstream, shape_y, dtype, &on)).sum().backward();

    let terms = channels_out / case.groups * taps;
    let input_error = |place: usize| rounded(&g_input, dtype, terms, place);
    let found = x_on.grad_remove(&mut gradients).unwrap();
    assert_eq!((found.dims(), found.dtype()), (shape_x, dtype), "{}", what("gradient of x"));
    let found = read(found);
    match &loaded {
        None => assert_within(&found, &g_input.value, input_error, &what("gradient of x")),
        Some(loaded) => {
            let (mut g_x, mut x_error) = (Vec::new(), Vec::new());
            let (mut g_scale, mut g_shift) = (Sums::zeros(channels_in), Sums::zeros(channels_in));
            let (mut scale_error, mut shift_error) = (vec![0.0; channels_in], vec![0.0; channels_in]);
            for place in 0..x.len() {
                let channel = channel(&shape_x, place);
                let kept = if loaded.kept(place) { 1.0 } else { 0.0 };
                // The gradient behind the activation is stored once between.
                let error = if loaded.kept(place) { input_error(place) } else { 0.0 };
                let value = kept * g_input.value[place];
                g_x.push(value * loaded.scale[channel]);
                let error_x = error * loaded.scale[channel].abs() + values.error(dtype, 1) * g_x[place].abs();
                // On which side a doubtful value falls is free.
                let either = if loaded.doubtful(place) { g_input.magnitude[place] } else { 0.0 };
                x_error.push(either + error_x + values.rounding(dtype, g_x[place], error_x));
                g_scale.add(channel, value * x[place]);
                g_shift.add(channel, value);
                scale_error[channel] += (either + error) * x[place].abs();
                shift_error[channel] += either + error;
            }
            let terms = x.len() / channels_in;
            let Prologue { scale, shift, .. } = prologue.unwrap();
            assert_within(&found, &g_x, |place| x_error[place], &what("gradient of x"));
            let error = |place| scale_error[place] + rounded(&g_scale, vector_dtype, terms, place);
            assert_within(
                &read(scale.grad_remove(&mut gradients).unwrap()),
                &g_scale.value,
                error,
                &what("gradient of scale"),
            );
            let error = |place| shift_error[place] + rounded(&g_shift, vector_dtype, terms, place);
            assert_within(
                &read(shift.grad_remove(&mut gradients).unwrap()),
                &g_shift.value,
                error,
                &what("gradient of shift"),
            );
        }
    }
    let found = weight_on.grad_remove(&mut gradients).unwrap();
    assert_eq!((found.dims(), found.dtype()), (shape_weight, dtype), "{}", what("gradient of weight"));
    // Each tap meets at most every voxel of the smaller side.
    let terms = count(shape_x) / channels_in + count(shape_y) / channels_out;
    assert_within(
        &read(found),
        &g_weight.value,
        |place| rounded(&g_weight, dtype, terms, place),
        &what("gradient of weight"),
    );
    if let Some(bias) = epilogue.bias {
        let mut expected = Sums::zeros(channels_out);
        g.iter().enumerate().for_each(|(place, g)| expected.add(channel(&shape_y, place), *g));
        let error = |place| rounded(&expected, vector_dtype, g.len() / channels_out, place);
        assert_within(
            &read(bias.grad_remove(&mut gradients).unwrap()),
            &expected.value,
            error,
            &what("gradient of bias"),
        );
    }
    if let Some(residual) = epilogue.residual {
        assert_within(&read(residual.grad_remove(&mut gradients).unwrap()), &g, |_| 0.0, &what("gradient of residual"));
    }
}
