//! Vectors of the processor at hand, chosen when the program runs.

#[cfg(target_arch = "x86_64")]
use super::x86::{Avx2, Avx512};

/// Operations on one vector register of f32.
///
/// A value of the type is leave to use its instructions: it exists only where the processor has them.
pub trait Simd: Copy + Send + Sync {
    type Vector: Copy;
    const LANES: usize;
    /// Output channels that a product keeps in registers at most. Beside them are the columns that `kernels.rs` gives each.
    const ROWS: usize;
    /// Output channels and taps whose dot products are kept in registers.
    const DOTS: [usize; 2];

    fn splat(self, value: f32) -> Self::Vector;
    /// The first [`Self::LANES`] of `from`.
    fn load(self, from: &[f32]) -> Self::Vector;
    fn store(self, value: Self::Vector, to: &mut [f32]);
    fn add(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// `a * b + c`.
    fn mul_add(self, a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector;
}

/// Work that is compiled once for each kind of processor.
pub trait Work {
    /// Inlined, as all it calls in its inner loops must be, into a function compiled for the processor.
    fn run<S: Simd>(self, simd: S);
}

#[derive(Debug, Clone, Copy)]
pub enum Processor {
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512),
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    Plain,
}

/// Constants of [`Simd`].
#[derive(Debug, Clone, Copy)]
pub struct Registers {
    pub lanes: usize,
    pub rows: usize,
    pub dots: [usize; 2],
}

impl Processor {
    /// Every kind of instructions that this processor has, the best first.
    pub fn all() -> Vec<Self> {
        let mut all = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            all.extend(Avx512::detect().map(Self::Avx512));
            all.extend(Avx2::detect().map(Self::Avx2));
        }
        all.push(Self::Plain);
        all
    }

    pub fn best() -> Self {
        Self::all()[0]
    }

    pub fn registers(self) -> Registers {
        fn of<S: Simd>(_: S) -> Registers {
            Registers { lanes: S::LANES, rows: S::ROWS, dots: S::DOTS }
        }
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(simd) => of(simd),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(simd) => of(simd),
            Self::Plain => of(Plain),
        }
    }

    pub fn run(self, work: impl Work) {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(simd) => simd.run(work),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(simd) => simd.run(work),
            Self::Plain => work.run(Plain),
        }
    }
}

/// What every processor can: four lanes, which the compiler puts into a register.
#[derive(Debug, Clone, Copy)]
pub struct Plain;

/// Whether the compiler may always fuse a product and a sum.
const FMA: bool = cfg!(any(target_arch = "aarch64", target_feature = "fma"));

#[allow(clippy::inline_always)]
impl Simd for Plain {
    type Vector = [f32; 4];
    const LANES: usize = 4;
    const ROWS: usize = 4;
    const DOTS: [usize; 2] = [4, 4];

    #[inline(always)]
    fn splat(self, value: f32) -> [f32; 4] {
        [value; 4]
    }

    #[inline(always)]
    fn load(self, from: &[f32]) -> [f32; 4] {
        [from[0], from[1], from[2], from[3]]
    }

    #[inline(always)]
    fn store(self, value: [f32; 4], to: &mut [f32]) {
        to[..4].copy_from_slice(&value);
    }

    #[inline(always)]
    fn add(self, a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        [a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3]]
    }

    #[inline(always)]
    fn mul_add(self, a: [f32; 4], b: [f32; 4], c: [f32; 4]) -> [f32; 4] {
        if FMA {
            [a[0].mul_add(b[0], c[0]), a[1].mul_add(b[1], c[1]), a[2].mul_add(b[2], c[2]), a[3].mul_add(b[3], c[3])]
        } else {
            [a[0] * b[0] + c[0], a[1] * b[1] + c[1], a[2] * b[2] + c[2], a[3] * b[3] + c[3]]
        }
    }
}
