//! What dispatches cost, in counts: known before a device runs them, so that none runs long enough for a driver to end it.

/// One dispatch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DispatchCost {
    /// The shader.
    pub name: &'static str,
    /// Workgroups.
    pub groups: u64,
    /// Floating-point operations, two a multiply-add.
    pub flops: u64,
    /// Bytes that the workgroups read and write, each counted as often as it asks.
    pub bytes: u64,
}

/// The slow GPU that every dispatch must suit: 1 TFLOP/s, 25 GB/s.
const FLOPS_PER_S: f64 = 1e12;
const BYTES_PER_S: f64 = 25e9;
const LONGEST_S: f64 = 0.1;

impl DispatchCost {
    /// Seconds on a GPU of 1 TFLOP/s and 25 GB/s.
    pub fn seconds(&self) -> f64 {
        (self.flops as f64 / FLOPS_PER_S).max(self.bytes as f64 / BYTES_PER_S)
    }
}

/// A launch of equal workgroups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupCost {
    /// Of one workgroup.
    pub flops: u64,
    /// Of one workgroup.
    pub bytes: u64,
}

impl GroupCost {
    /// Most workgroups of one dispatch: under 100 ms at 1 TFLOP/s and 25 GB/s, and at most 65,535; at least 1.
    pub fn max_groups(self) -> u32 {
        let by_flops = LONGEST_S * FLOPS_PER_S / self.flops.max(1) as f64;
        let by_bytes = LONGEST_S * BYTES_PER_S / self.bytes.max(1) as f64;
        by_flops.min(by_bytes).clamp(1.0, 65_535.0) as u32
    }

    /// The dispatches into which [`super::launch_split`] cuts `groups` workgroups of the shader `name`.
    pub fn dispatches(self, name: &'static str, groups: u64) -> Vec<DispatchCost> {
        let most = u64::from(self.max_groups());
        (0..groups.div_ceil(most))
            .map(|index| most.min(groups - index * most))
            .map(|groups| DispatchCost { name, groups, flops: groups * self.flops, bytes: groups * self.bytes })
            .collect()
    }
}
