//! Numbers as people read them.

use occam_engine::scene::GridSpec;

/// Bytes in binary units: `512 B`, `1.5 GiB`.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    // What would round to 1024 is one of the next unit.
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// An integer with thousands separators: `124,668`.
pub fn count(value: usize) -> String {
    let digits = value.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A count and its noun: `1 point`, `2,000 points`.
pub fn counted(value: usize, noun: &str) -> String {
    format!("{} {noun}{}", count(value), if value == 1 { "" } else { "s" })
}

/// A length of time: `850 ms`, `12.3 s`, `3 min 05 s`, `2 h 10 min`.
pub fn duration(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match whole {
        _ if seconds < 0.9995 => format!("{:.0} ms", seconds * 1e3),
        _ if seconds < 59.95 => format!("{seconds:.1} s"),
        0..3600 => format!("{} min {:02} s", whole / 60, whole % 60),
        _ => format!("{} h {:02} min", whole / 3600, whole / 60 % 60),
    }
}

/// Counts of a grid: `64x64x16`.
pub fn counts(counts: [usize; 3]) -> String {
    counts.map(|n| n.to_string()).join("x")
}

/// A grid: `64x64x16 voxels of 0.4 m`, or of three edges `0.4 x 0.4 x 0.375 m`.
pub fn grid(grid: &GridSpec) -> String {
    let [x, y, z] = grid.voxel_size_m;
    let edges = if x == y && y == z { format!("{x}") } else { format!("{x} x {y} x {z}") };
    format!("{} voxels of {edges} m", counts(grid.counts))
}

/// A share as a percentage with one decimal; `-` when there is none.
pub fn percent(share: f64) -> String {
    if share.is_finite() { format!("{:.1} %", share * 100.0) } else { "-".into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1024), "1.0 KiB");
        assert_eq!(bytes((1 << 30) - 1), "1.0 GiB");
        assert_eq!(bytes(3 << 29), "1.5 GiB");
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(124_668), "124,668");
        assert_eq!(count(1_000_000), "1,000,000");
        assert_eq!(counted(1, "point"), "1 point");
        assert_eq!(duration(0.85), "850 ms");
        assert_eq!(duration(12.34), "12.3 s");
        assert_eq!(duration(185.0), "3 min 05 s");
        assert_eq!(duration(7800.0), "2 h 10 min");
        let cubes = GridSpec::new([0.0; 3], [0.4; 3], [64, 64, 16]);
        assert_eq!(grid(&cubes), "64x64x16 voxels of 0.4 m");
        let flat = GridSpec::new([0.0; 3], [0.4, 0.4, 0.375], [128, 128, 8]);
        assert_eq!(grid(&flat), "128x128x8 voxels of 0.4 x 0.4 x 0.375 m");
        assert_eq!(percent(f64::NAN), "-");
        assert_eq!(percent(0.4567), "45.7 %");
    }
}
