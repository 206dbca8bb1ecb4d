//! Values of flags.

use occam_engine::train::Budget;

/// Three counts as `256x256x32`.
pub fn counts(text: &str) -> Result<[usize; 3], String> {
    let parts: Vec<usize> = text
        .split(['x', 'X', ','])
        .map(|p| p.trim().parse().ok().filter(|n| *n > 0))
        .collect::<Option<_>>()
        .unwrap_or_default();
    parts.try_into().map_err(|_| format!("found {text:?}, expected three counts such as 256x256x32"))
}

/// Two or three counts as `128x128` or `128x128x8`.
pub fn sides(text: &str) -> Result<(usize, usize, Option<usize>), String> {
    if let Ok([x, y, z]) = counts(text) {
        return Ok((x, y, Some(z)));
    }
    let flat = counts(&format!("{text}x1"));
    flat.map(|[x, y, _]| (x, y, None))
        .map_err(|_| format!("found {text:?}, expected counts such as 128x128 or 128x128x8"))
}

/// Edges of a voxel in metres: one number, or three as `0.4,0.4,0.375`.
pub fn edges(text: &str) -> Result<[f32; 3], String> {
    let parts: Vec<f32> = text.split(',').map(|part| metres(part.trim())).collect::<Result<_, _>>().unwrap_or_default();
    match parts[..] {
        [edge] => Ok([edge; 3]),
        [x, y, z] => Ok([x, y, z]),
        _ => Err(format!("found {text:?}, expected a positive number of metres such as 0.4, or three with commas")),
    }
}

/// A count of at least one.
pub fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(value) if value > 0 => Ok(value),
        _ => Err(format!("found {text:?}, expected a whole number of at least 1")),
    }
}

/// `key=value`, both sides trimmed.
pub fn setting(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().to_owned(), value.trim().to_owned())),
        _ => Err(format!("found {text:?}, expected key=value such as optim.lr=1e-3")),
    }
}

/// A budget of memory: none, auto or a size such as `4GiB`.
pub fn budget(text: &str) -> Result<String, String> {
    let known = text.parse::<Budget>().is_ok();
    if known { Ok(text.to_owned()) } else { Err(format!("found {text:?}, expected auto, none or a size such as 4GiB")) }
}

/// A length in metres.
pub fn metres(text: &str) -> Result<f32, String> {
    match text.parse::<f32>() {
        Ok(value) if value.is_finite() && value > 0.0 => Ok(value),
        _ => Err(format!("found {text:?}, expected a positive number of metres such as 0.2")),
    }
}

/// A place as `x,y,z`, metres.
pub fn position(text: &str) -> Result<[f64; 3], String> {
    let parts: Vec<f64> = text
        .split(',')
        .map(|p| p.trim().parse().ok().filter(|v: &f64| v.is_finite()))
        .collect::<Option<_>>()
        .unwrap_or_default();
    parts.try_into().map_err(|_| format!("found {text:?}, expected x,y,z in metres such as 12.5,-3,1.8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grids_and_places() {
        assert_eq!(counts("256x256x32"), Ok([256, 256, 32]));
        assert_eq!(counts("8, 8, 8"), Ok([8, 8, 8]));
        for wrong in ["", "8x8", "8x8x8x8", "8x0x8", "axbxc", "-8x8x8"] {
            assert!(counts(wrong).is_err(), "{wrong}");
        }
        assert_eq!(sides("128x64"), Ok((128, 64, None)));
        assert_eq!(sides("128x64x8"), Ok((128, 64, Some(8))));
        for wrong in ["", "8", "8x8x8x8", "8x0"] {
            assert!(sides(wrong).is_err(), "{wrong}");
        }
        assert_eq!(edges("0.4"), Ok([0.4; 3]));
        assert_eq!(edges("0.4, 0.4,0.375"), Ok([0.4, 0.4, 0.375]));
        for wrong in ["", "0.4,0.4", "0.4,0,0.4", "1,2,3,4"] {
            assert!(edges(wrong).is_err(), "{wrong}");
        }
        assert_eq!(position("12.5,-3, 1.8"), Ok([12.5, -3.0, 1.8]));
        for wrong in ["", "1,2", "1,2,nan", "1,2,3,4"] {
            assert!(position(wrong).is_err(), "{wrong}");
        }
        assert_eq!(metres("0.2"), Ok(0.2));
        assert_eq!(budget("4GiB"), Ok("4GiB".into()));
        assert!(budget("auto").is_ok() && budget("4 parsecs").is_err());
        for wrong in ["0", "-1", "inf", "nan", "a"] {
            assert!(metres(wrong).is_err(), "{wrong}");
        }
    }
}
