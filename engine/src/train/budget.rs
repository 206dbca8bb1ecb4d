//! How much memory a run may take.

use std::fs::read_to_string;
use std::str::FromStr;

use burn::tensor::Device;

use crate::gpu::{self, AdapterKind};
use crate::{Error, Result};

/// What `memory.budget` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Budget {
    None,
    /// Less a margin: on the CPU and on GPUs that share its memory what is free, on a discrete GPU the size of its memory, of
    /// which nobody says how much others hold.
    Auto,
    Bytes(u64),
}

impl FromStr for Budget {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.trim().to_ascii_lowercase().as_str() {
            "none" => Ok(Self::None),
            "auto" => Ok(Self::Auto),
            size => parse_size(size).map(Self::Bytes).ok_or_else(|| {
                Error::Usage(format!("memory.budget = {text:?}, expected none, auto or a size such as 4GiB"))
            }),
        }
    }
}

/// A size in bytes as people write it: `4GiB`, `512 MiB`, `8G`, `1.5gb`, `1000000`.
///
/// A number alone means bytes, and at least a million of them: who types 4 means GiB and is asked.
///
/// K, M, G, T mean powers of 1024 with or without `iB`; `KB`, `MB`, `GB`, `TB` mean powers of 1000.
pub fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: f64 = number.parse().ok()?;
    let unit = unit.trim().to_ascii_lowercase();
    let power = |unit: &str| ["k", "m", "g", "t"].iter().position(|prefix| unit == *prefix).map(|p| p as i32 + 1);
    let factor = match (unit.strip_suffix("ib").or(unit.strip_suffix('i')), unit.strip_suffix('b')) {
        (Some(prefix), _) => 1024f64.powi(power(prefix)?),
        (_, Some("")) => 1.0,
        (_, Some(prefix)) => 1000f64.powi(power(prefix)?),
        _ if unit.is_empty() && number >= 1e6 => 1.0,
        _ if unit.is_empty() => return None,
        _ => 1024f64.powi(power(&unit)?),
    };
    let size = number * factor;
    (1.0..1e18).contains(&size).then_some(size as u64)
}

/// Of what is free, or of all of a discrete GPU's memory, the share that `auto` leaves to others.
const LEFT_FREE: f64 = 0.1;

impl Budget {
    /// Bytes that a run on `device` may take; `None` without a limit. On the CPU, and on GPUs that share its memory, that is
    /// everything the program holds. Of a discrete GPU `auto` takes the size of the memory, not what is free.
    ///
    /// # Errors
    /// [`Error::Usage`] for `auto` where nobody says how much there is.
    pub fn bytes(self, device: &Device) -> Result<Option<u64>> {
        match self {
            Self::None => Ok(None),
            Self::Bytes(bytes) => Ok(Some(bytes)),
            Self::Auto => {
                let free = match gpu::adapter_of(device) {
                    // What the program has already is its own.
                    None => available_bytes()
                        .map(|free| free + gpu::memory_use(device).map_or(0, |memory| memory.in_use_bytes)),
                    Some(adapter) if adapter.kind == AdapterKind::Discrete => adapter.memory_bytes,
                    // Memory of the host.
                    Some(adapter) => match (available_bytes(), adapter.memory_bytes) {
                        (Some(host), Some(own)) => Some(host.min(own)),
                        (host, own) => host.or(own),
                    },
                };
                let free = free.ok_or_else(|| {
                    Error::Usage(
                        "memory.budget = \"auto\": this system does not say how much memory the device has; give a size \
                         such as 4GiB"
                            .into(),
                    )
                })?;
                Ok(Some((free as f64 * (1.0 - LEFT_FREE)) as u64))
            }
        }
    }
}

/// Memory of the host that programs can still have, as the system and the group of processes it is in allow; `None` where
/// nobody says.
fn available_bytes() -> Option<u64> {
    let meminfo = read_to_string("/proc/meminfo").ok().and_then(|text| meminfo(&text, "MemAvailable"));
    let number = |path: &str| read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let group = number("/sys/fs/cgroup/memory.max")
        .zip(number("/sys/fs/cgroup/memory.current"))
        .map(|(most, now)| most.saturating_sub(now));
    match (meminfo, group) {
        (Some(system), Some(group)) => Some(system.min(group)),
        (system, group) => system.or(group),
    }
}

/// Bytes of a line of `/proc/meminfo`.
fn meminfo(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_written() {
        for (text, bytes) in [
            ("4GiB", 4 << 30),
            (" 512 mib ", 512 << 20),
            ("1.5G", 3 << 29),
            ("2ki", 2048),
            ("8GB", 8_000_000_000),
            ("7 b", 7),
            ("1000000", 1_000_000),
            ("1TiB", 1 << 40),
        ] {
            assert_eq!(parse_size(text), Some(bytes), "{text}");
        }
        for wrong in
            ["", "GiB", "4 parsecs", "-1GiB", "0", "1e9", "1.2.3G", "99999999999T", "4iB", "4bb", "4", "999999"]
        {
            assert_eq!(parse_size(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_budget_is_a_word_or_a_size() {
        assert_eq!("None".parse::<Budget>().unwrap(), Budget::None);
        assert_eq!(" auto".parse::<Budget>().unwrap(), Budget::Auto);
        assert_eq!("2GiB".parse::<Budget>().unwrap(), Budget::Bytes(2 << 30));
        let error = "lots".parse::<Budget>().unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("memory.budget = \"lots\""), "{error}");
    }

    #[test]
    fn what_is_free_is_a_line_of_the_system() {
        let text = "MemTotal:       24683652 kB\nMemFree:          446168 kB\nMemAvailable:   22997704 kB\n";
        assert_eq!(meminfo(text, "MemAvailable"), Some(22_997_704 * 1024));
        assert_eq!(meminfo(text, "Mem"), None);
        assert_eq!(meminfo("MemAvailable: lots", "MemAvailable"), None);
    }
}
