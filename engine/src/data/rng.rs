//! Random numbers that depend on nothing but what they are for: the same run, epoch and sample give the same numbers,
//! whichever thread asks.

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
pub struct Rng(u64);

impl Rng {
    /// Numbers for one purpose; any difference in `keys` gives unrelated ones.
    pub fn of(keys: &[u64]) -> Self {
        let mut rng = Self(0);
        for key in keys {
            rng.0 ^= key;
            rng.0 = rng.next_u64();
        }
        rng
    }

    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform in [-limit, limit).
    pub fn within(&mut self, limit: f64) -> f64 {
        (2.0 * self.unit() - 1.0) * limit
    }

    /// True half of the time.
    pub fn coin(&mut self) -> bool {
        self.next_u64() >> 63 == 1
    }

    /// Standard normal (Box and Muller 1958).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// The numbers 0..len in random order (Fisher and Yates).
    pub fn permutation(&mut self, len: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..len).collect();
        for last in (1..len).rev() {
            order.swap(last, (self.next_u64() % (last as u64 + 1)) as usize);
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_splitmix64() {
        // First outputs for seed 1234567, from the reference implementation's page (prng.di.unimi.it/splitmix64.c).
        let mut rng = Rng(1234567);
        assert_eq!([rng.next_u64(), rng.next_u64()], [6457827717110365317, 3203168211198807973]);
    }

    #[test]
    fn a_permutation_holds_every_number_once_and_depends_on_the_key() {
        let order = Rng::of(&[1, 2]).permutation(100);
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..100).collect::<Vec<_>>());
        assert_eq!(order, Rng::of(&[1, 2]).permutation(100));
        assert_ne!(order, Rng::of(&[1, 3]).permutation(100));
        assert_ne!(order, Rng::of(&[2, 1]).permutation(100));
    }

    #[test]
    fn normal_numbers_have_mean_zero_and_variance_one() {
        let mut rng = Rng::of(&[7]);
        let numbers: Vec<f64> = (0..10_000).map(|_| rng.normal()).collect();
        let mean = numbers.iter().sum::<f64>() / 1e4;
        let variance = numbers.iter().map(|n| (n - mean).powi(2)).sum::<f64>() / 1e4;
        // Five standard errors of each.
        assert!(mean.abs() < 0.05 && (variance - 1.0).abs() < 0.07, "{mean} {variance}");
    }
}
