//! AVX2 and AVX-512.
#![allow(unsafe_code, clippy::inline_always)]

use std::arch::x86_64::{
    __m256, __m512, _mm256_add_ps, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_set1_ps, _mm256_storeu_ps, _mm512_add_ps,
    _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_set1_ps, _mm512_storeu_ps,
};

use super::simd::{Simd, Work};

/// AVX-512F: 32 registers of 16 lanes.
#[derive(Debug, Clone, Copy)]
pub struct Avx512(());

/// AVX2 and FMA: 16 registers of 8 lanes.
#[derive(Debug, Clone, Copy)]
pub struct Avx2(());

impl Avx512 {
    pub fn detect() -> Option<Self> {
        is_x86_feature_detected!("avx512f").then_some(Self(()))
    }

    pub fn run(self, work: impl Work) {
        #[target_feature(enable = "avx512f")]
        fn compiled(simd: Avx512, work: impl Work) {
            work.run(simd);
        }
        // SAFETY: `self` says that the processor has AVX-512F.
        unsafe { compiled(self, work) }
    }
}

impl Avx2 {
    pub fn detect() -> Option<Self> {
        (is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")).then_some(Self(()))
    }

    pub fn run(self, work: impl Work) {
        #[target_feature(enable = "avx2,fma")]
        fn compiled(simd: Avx2, work: impl Work) {
            work.run(simd);
        }
        // SAFETY: `self` says that the processor has AVX2 and FMA.
        unsafe { compiled(self, work) }
    }
}

macro_rules! simd {
    ($name:ident, $vector:ident, $lanes:literal, $rows:literal, $dots:expr,
     $set1:ident, $loadu:ident, $storeu:ident, $add:ident, $fmadd:ident) => {
        // SAFETY, of all: `self` says that the processor has the instructions; the slices are cut to the lanes first.
        impl Simd for $name {
            type Vector = $vector;
            const LANES: usize = $lanes;
            const ROWS: usize = $rows;
            const DOTS: [usize; 2] = $dots;

            #[inline(always)]
            fn splat(self, value: f32) -> $vector {
                unsafe { $set1(value) }
            }

            #[inline(always)]
            fn load(self, from: &[f32]) -> $vector {
                let from = &from[..$lanes];
                unsafe { $loadu(from.as_ptr()) }
            }

            #[inline(always)]
            fn store(self, value: $vector, to: &mut [f32]) {
                let to = &mut to[..$lanes];
                unsafe { $storeu(to.as_mut_ptr(), value) }
            }

            #[inline(always)]
            fn add(self, a: $vector, b: $vector) -> $vector {
                unsafe { $add(a, b) }
            }

            #[inline(always)]
            fn mul_add(self, a: $vector, b: $vector, c: $vector) -> $vector {
                unsafe { $fmadd(a, b, c) }
            }
        }
    };
}

simd!(Avx512, __m512, 16, 8, [4, 6], _mm512_set1_ps, _mm512_loadu_ps, _mm512_storeu_ps, _mm512_add_ps, _mm512_fmadd_ps);
simd!(Avx2, __m256, 8, 4, [3, 4], _mm256_set1_ps, _mm256_loadu_ps, _mm256_storeu_ps, _mm256_add_ps, _mm256_fmadd_ps);
