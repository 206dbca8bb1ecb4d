//! Random numbers and angles that come out the same on every machine.

/// `SplitMix64` (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014).
#[derive(Debug, Clone)]
pub(crate) struct Rng(u64);

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Rng {
    /// A generator of its own for every list of keys, so that a thing depends on what it is and not on what was drawn
    /// before it.
    pub fn of(keys: &[u64]) -> Self {
        Self(keys.iter().fold(0, |state, key| mix(state ^ mix(key.wrapping_add(0x9e37_79b9_7f4a_7c15)))))
    }

    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Uniform in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub fn range(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// -1 or 1.
    pub fn sign(&mut self) -> f64 {
        if self.chance(0.5) { 1.0 } else { -1.0 }
    }

    /// About normal with mean 0 and deviation 1, never beyond 3.5: four uniform numbers, because a logarithm may
    /// differ between machines.
    pub fn normal(&mut self) -> f64 {
        let sum: f64 = (0..4).map(|_| self.unit()).sum();
        (sum - 2.0) * 3.0_f64.sqrt()
    }
}

/// Sine and cosine of an angle in [-pi, pi], within 1e-14. The standard library's may differ in the last bit between
/// machines.
pub(super) fn sin_cos(angle: f64) -> (f64, f64) {
    let x = angle / 4.0;
    let (mut sin, mut cos) = (0.0, 0.0);
    // Taylor terms x^n / n!; at |x| <= pi / 4 the last is below 1e-17.
    let mut term = 1.0;
    for n in 0..18 {
        match n % 4 {
            0 => cos += term,
            1 => sin += term,
            2 => cos -= term,
            _ => sin -= term,
        }
        term *= x / f64::from(n + 1);
    }
    for _ in 0..2 {
        (sin, cos) = (2.0 * sin * cos, cos * cos - sin * sin);
    }
    (sin, cos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_mix_gives_the_published_sequence() {
        // First outputs of the reference implementation for seed 1234567.
        let mut rng = Rng(1_234_567);
        let drawn: Vec<u64> = (0..3).map(|_| rng.next_u64()).collect();
        assert_eq!(drawn, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn sine_and_cosine_follow_the_definition() {
        for degrees in -180..=180 {
            let angle = f64::from(degrees).to_radians();
            let (sin, cos) = sin_cos(angle);
            assert!((sin - angle.sin()).abs() < 1e-14 && (cos - angle.cos()).abs() < 1e-14, "at {degrees} degrees");
        }
    }

    #[test]
    fn normal_numbers_have_mean_zero_and_deviation_one() {
        let mut rng = Rng::of(&[7]);
        let drawn: Vec<f64> = (0..100_000).map(|_| rng.normal()).collect();
        let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
        let variance = drawn.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / drawn.len() as f64;
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.02, "mean {mean}, variance {variance}");
    }
}
