//! One scale for what files call intensity.

/// Intensities from 0 to 1. Files count to 1 (KITTI), to 255 (nuScenes and whatever has bytes) or to 65,535 (LAS); the
/// largest value of a cloud tells which, with room for the 1.0 that some sensors pass. What lies beyond the scale becomes
/// its end, what is not finite 0.
pub(super) fn from_0_to_1(values: &[f32]) -> impl Iterator<Item = f32> {
    let largest = values.iter().copied().filter(|value| value.is_finite()).fold(0.0, f32::max);
    let full = match largest {
        ..=1.5 => 1.0,
        ..=255.0 => 255.0,
        _ => 65_535.0,
    };
    values.iter().map(move |value| if value.is_finite() { (value / full).clamp(0.0, 1.0) } else { 0.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_value_of_a_cloud_tells_its_scale() {
        let scaled = |values: &[f32]| from_0_to_1(values).collect::<Vec<_>>();
        assert!(scaled(&[]).is_empty());
        assert_eq!(scaled(&[0.0, 0.25, 0.99]), [0.0, 0.25, 0.99]);
        assert_eq!(scaled(&[0.5, 1.2, -0.1]), [0.5, 1.0, 0.0]);
        assert_eq!(scaled(&[0.0, 51.0, 255.0]), [0.0, 0.2, 1.0]);
        assert_eq!(scaled(&[1.0, 2.0]), [1.0 / 255.0, 2.0 / 255.0]);
        assert_eq!(scaled(&[13_107.0, 65_535.0, 1e9]), [0.2, 1.0, 1.0]);
        assert_eq!(scaled(&[f32::NAN, f32::INFINITY, 0.5]), [0.0, 0.0, 0.5]);
    }
}
