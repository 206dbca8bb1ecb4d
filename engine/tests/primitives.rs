//! Kernels against their CPU twins, on software Vulkan (Debian: mesa-vulkan-drivers). One device for all tests.

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use occam_engine::gpu::{self, DeviceChoice};
use occam_engine::ops;

fn vulkan() -> Device {
    gpu::open(&DeviceChoice::Name("llvmpipe".into())).unwrap().device
}

fn cpu() -> Device {
    gpu::open(&DeviceChoice::Cpu).unwrap().device
}

/// Numbers without any pattern, the same on every run.
fn random(n: usize, seed: u32) -> Vec<u32> {
    let mut state = seed;
    let step = |state: u32| (state ^ (state >> 15)).wrapping_mul(0x2c1b_3c6d) ^ (state >> 12);
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9);
        step(step(state))
    };
    (0..n).map(|_| next()).collect()
}

fn ints(values: &[u32], device: &Device) -> Tensor<1, Int> {
    Tensor::from_data(TensorData::new(values.to_vec(), [values.len()]), (device, DType::U32))
}

fn words<const D: usize>(tensor: Tensor<D, Int>) -> Vec<u32> {
    tensor.try_into_data().unwrap().try_to_vec::<u32>().unwrap()
}

/// 0, 1, around a workgroup, around a block, and an odd number of blocks of blocks.
const SIZES: [usize; 10] = [0, 1, 2, 255, 256, 257, 1023, 1024, 1025, 8_191];

#[test]
fn scan_equals_its_twin() {
    let (vulkan, cpu) = (vulkan(), cpu());
    for n in SIZES.into_iter().chain([1024 * 1024 + 1025]) {
        let values = random(n, 7);
        let on_cpu = words(ops::exclusive_scan(ints(&values, &cpu)));
        assert_eq!(on_cpu.len(), n + 1);
        let on_vulkan = words(ops::exclusive_scan(ints(&values, &vulkan)));
        assert!(on_vulkan == on_cpu, "{n} values");
        assert!(words(ops::exclusive_scan(ints(&values, &vulkan))) == on_vulkan, "{n} values: two runs differ");
    }
}

/// More blocks than one dispatch takes, more than 65,535 workgroups' worth of threads.
#[test]
fn a_long_scan_is_split() {
    let n = 16_384 * 1024 + 77_777;
    let device = vulkan();
    let out = words(ops::exclusive_scan(ints(&vec![3; n], &device)));
    assert_eq!(out.len(), n + 1);
    let wrong = out.iter().enumerate().find(|(i, sum)| **sum != 3 * *i as u32);
    assert_eq!(wrong, None);
}

/// Sorts on both devices, twice on Vulkan, and compares all of it with the standard library's stable sort.
fn check_sort(keys: &[u32], key_bits: u32) {
    let places: Vec<u32> = (0..keys.len() as u32).collect();
    let mask = ((1u64 << key_bits) - 1) as u32;
    let mut expected: Vec<_> = keys.iter().copied().zip(places.iter().copied()).collect();
    expected.sort_by_key(|(key, _)| key & mask);
    let expected: (Vec<u32>, Vec<u32>) = expected.into_iter().unzip();
    for device in [cpu(), vulkan(), vulkan()] {
        let (keys, places) = ops::sort_pairs(ints(keys, &device), ints(&places, &device), key_bits);
        assert!((words(keys), words(places)) == expected, "{} keys of {key_bits} bits on {device:?}", expected.0.len());
    }
}

#[test]
fn sort_is_stable_on_every_size() {
    for n in SIZES.into_iter().chain([2047, 2048, 2049, 30_011]) {
        check_sort(&random(n, 3), 32);
    }
}

#[test]
fn sort_takes_keys_of_any_kind() {
    let n = 5_001;
    check_sort(&vec![7; n], 32);
    check_sort(&(0..n as u32).collect::<Vec<_>>(), 13);
    check_sort(&(0..n as u32).rev().collect::<Vec<_>>(), 13);
    check_sort(&random(n, 5).iter().map(|key| key % 5).collect::<Vec<_>>(), 3);
    check_sort(&[u32::MAX, 0, u32::MAX, 1 << 31], 32);
    // Bits above the asked ones do not count, also within a digit.
    for key_bits in [0, 1, 4, 6, 30] {
        check_sort(&random(n, 9), key_bits);
    }
}

#[test]
fn two_sorts_order_keys_of_two_words() {
    let n = 4_999;
    let (low, high) = (random(n, 1), random(n, 2).iter().map(|word| word % 3).collect::<Vec<_>>());
    let mut expected: Vec<u32> = (0..n as u32).collect();
    expected.sort_by_key(|&i| (high[i as usize], low[i as usize]));
    for device in [cpu(), vulkan()] {
        let places = ints(&(0..n as u32).collect::<Vec<_>>(), &device);
        let (_, places) = ops::sort_pairs(ints(&low, &device), places, 32);
        let high = ints(&high, &device).select(0, places.clone());
        let (_, places) = ops::sort_pairs(high, places, 2);
        assert!(words(places) == expected, "{device:?}");
    }
}

/// Rows of segments: none, one, around the 16 threads of a segment, and more than one dispatch takes of `columns`.
fn segment_offsets(columns: usize) -> Vec<u32> {
    let rows = [0, 1, 0, 2, 15, 16, 17, 255, 256, 257, 1, 16 * (16_384 / columns as u32) + 5, 3, 0];
    std::iter::once(0)
        .chain(rows.iter().scan(0, |end, rows| {
            *end += rows;
            Some(*end)
        }))
        .collect()
}

fn floats<const D: usize>(tensor: Tensor<D>) -> Vec<u32> {
    tensor.try_into_data().unwrap().try_to_vec::<f32>().unwrap().into_iter().map(f32::to_bits).collect()
}

#[test]
fn segments_equal_their_twin_bit_for_bit() {
    let (vulkan, cpu) = (vulkan(), cpu());
    for columns in [1, 3, 8] {
        let offsets = segment_offsets(columns);
        let n = offsets[offsets.len() - 1] as usize;
        let mut values: Vec<f32> = random(n * columns, 4).iter().map(|word| *word as i32 as f32 * 1e-6).collect();
        let on = |device: &Device, values: &[f32], offsets: &[u32]| {
            let data = TensorData::new(values.to_vec(), [values.len() / columns, columns]);
            let (values, offsets) = (Tensor::<2>::from_data(data, device), ints(offsets, device));
            let sum = floats(ops::segment_sum(values.clone(), offsets.clone()));
            (sum, floats(ops::segment_max(values, offsets)))
        };
        assert!(on(&vulkan, &values, &offsets) == on(&cpu, &values, &offsets), "{columns} columns");
        for (place, odd) in [(4, f32::NAN), (9, f32::INFINITY), (40, f32::NEG_INFINITY), (0, -0.0)] {
            values[place] = odd;
        }
        // The bits of a NaN sum are the device's own business; the maximum ignores NaN on both.
        assert!(on(&vulkan, &values, &offsets).1 == on(&cpu, &values, &offsets).1, "{columns} columns with NaN");
        // No rows at all, no segments at all, offsets beyond the rows.
        for offsets in [&[0, 0, 0][..], &[0], &[0, 1, 900_000_000, 900_000_001]] {
            assert_eq!(on(&vulkan, &values, offsets), on(&cpu, &values, offsets), "{columns} columns {offsets:?}");
        }
        assert_eq!(on(&vulkan, &[], &[0, 0]), on(&cpu, &[], &[0, 0]));
    }
    let counts = |device| words(ops::segment_counts(ints(&[0, 3, 3, 10], device)));
    assert_eq!((counts(&vulkan), counts(&cpu)), (vec![3, 0, 7], vec![3, 0, 7]));
}

/// Parts of tensors, at the alignment of the device (which Burn passes on as a view) and off it, and one tensor twice.
#[test]
fn operations_take_views() {
    let (n, columns) = (2_000, 3);
    let values = random(n, 11);
    let on = |device: &Device| {
        let all = ints(&values, device);
        let scans = [64, 3].map(|start| words(ops::exclusive_scan(all.clone().slice(start..n - start))));
        let (keys, copies) = ops::sort_pairs(all.clone(), all, 32);
        let rows = n / columns;
        let table: Vec<f32> = values[..rows * columns].iter().map(|word| *word as f32).collect();
        // The same table, written column by column and turned: its rows do not lie together.
        let columns_first = (0..table.len()).map(|i| table[i % rows * columns + i / rows]).collect::<Vec<_>>();
        let turned = Tensor::<2>::from_data(TensorData::new(columns_first, [columns, rows]), device).transpose();
        let table = Tensor::<2>::from_data(TensorData::new(table, [rows, columns]), device);
        let sums = floats(ops::segment_sum(turned, ints(&[0, 100, 600], device)));
        (scans, words(keys), words(copies), sums, floats(ops::segment_sum(table, ints(&[0, 100, 600], device))))
    };
    let (on_cpu, on_vulkan) = (on(&cpu()), on(&vulkan()));
    assert!(on_vulkan == on_cpu);
    assert_eq!(on_cpu.0[1][1], values[3]);
    assert_eq!(on_cpu.1, on_cpu.2);
    assert_eq!(on_cpu.3, on_cpu.4);
}

#[test]
fn operations_run_on_an_autodiff_device() {
    for device in [cpu().autodiff(), vulkan().autodiff()] {
        let counts = ints(&[2, 1], &device);
        let values = Tensor::<2>::from_floats([[1.0], [2.0], [5.0]], &device).require_grad();
        let sum = ops::segment_sum(values, ops::exclusive_scan(counts));
        assert_eq!(floats(sum), [3.0f32.to_bits(), 5.0f32.to_bits()]);
        let (keys, values) = ops::sort_pairs(ints(&[2, 1], &device), ints(&[7, 8], &device), 2);
        assert_eq!((words(keys), words(values)), (vec![1, 2], vec![8, 7]));
    }
}
