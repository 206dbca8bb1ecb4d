//! TensorBoard's event files: TFRecord framing around protobuf `Event` messages, written by hand because scalars need
//! five fields of them.
//!
//! Record: length u64, masked CRC of the length u32, data, masked CRC of the data u32, all little-endian. Messages
//! (tensorflow/core/util/event.proto, framework/summary.proto): `Event { double wall_time = 1; int64 step = 2; string
//! file_version = 3; Summary summary = 5 }`, `Summary { repeated Value value = 1 }`, `Value { string tag = 1; float
//! simple_value = 2 }`.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Appends scalars to one event file.
pub struct EventWriter {
    file: File,
}

impl EventWriter {
    /// Creates `events.out.tfevents.SECONDS.occam` in `folder`.
    pub fn create(folder: &Path) -> io::Result<Self> {
        let path = folder.join(format!("events.out.tfevents.{:.0}.occam", wall_time().floor()));
        let mut writer = Self { file: File::options().create(true).append(true).open(path)? };
        let mut event = Vec::new();
        put_double(&mut event, 1, wall_time());
        put_bytes(&mut event, 3, b"brain.Event:2");
        writer.record(&event)?;
        Ok(writer)
    }

    /// Adds one value for each tag at `step`.
    pub fn scalars(&mut self, step: usize, values: &[(&str, f64)]) -> io::Result<()> {
        self.record(&scalar_event(wall_time(), step, values))
    }

    fn record(&mut self, data: &[u8]) -> io::Result<()> {
        self.file.write_all(&frame(data))
    }
}

fn wall_time() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |t| t.as_secs_f64())
}

fn scalar_event(wall_time: f64, step: usize, values: &[(&str, f64)]) -> Vec<u8> {
    let mut summary = Vec::new();
    for (tag, value) in values {
        let mut message = Vec::new();
        put_bytes(&mut message, 1, tag.as_bytes());
        put_key(&mut message, 2, FIXED_32);
        message.extend((*value as f32).to_le_bytes());
        put_bytes(&mut summary, 1, &message);
    }
    let mut event = Vec::new();
    put_double(&mut event, 1, wall_time);
    put_key(&mut event, 2, VARINT);
    put_varint(&mut event, step as u64);
    put_bytes(&mut event, 5, &summary);
    event
}

fn frame(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    let mut record = Vec::with_capacity(data.len() + 16);
    record.extend(length);
    record.extend(masked_crc(&length).to_le_bytes());
    record.extend(data);
    record.extend(masked_crc(data).to_le_bytes());
    record
}

const VARINT: u64 = 0;
const FIXED_64: u64 = 1;
const BYTES: u64 = 2;
const FIXED_32: u64 = 5;

fn put_key(out: &mut Vec<u8>, field: u64, wire_type: u64) {
    put_varint(out, field << 3 | wire_type);
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn put_double(out: &mut Vec<u8>, field: u64, value: f64) {
    put_key(out, field, FIXED_64);
    out.extend(value.to_le_bytes());
}

fn put_bytes(out: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    put_key(out, field, BYTES);
    put_varint(out, bytes.len() as u64);
    out.extend(bytes);
}

/// CRC-32C (Castagnoli, RFC 3720 appendix B.4), bit by bit: records are short.
fn crc32c(bytes: &[u8]) -> u32 {
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 })
    })
}

/// TFRecord stores checksums turned and shifted, so that a checksum of data with checksums in it stays sound.
fn masked_crc(bytes: &[u8]) -> u32 {
    crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_rfc_3720() {
        // Appendix B.4: 32 bytes of zeros, of ones, and 0 to 31; and the check value of the CRC catalogue.
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(&std::array::from_fn::<u8, 32, _>(|i| i as u8)), 0x46dd_794e);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    /// Reads what any protobuf reader sees: field number, and the bytes or number in it.
    fn fields(mut bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
        fn varint(bytes: &mut &[u8]) -> u64 {
            let mut value = 0;
            for shift in (0..).step_by(7) {
                let byte = bytes[0];
                *bytes = &bytes[1..];
                value |= u64::from(byte & 0x7f) << shift;
                if byte < 0x80 {
                    break;
                }
            }
            value
        }
        let mut found = Vec::new();
        while !bytes.is_empty() {
            let key = varint(&mut bytes);
            let len = match key & 7 {
                0 => {
                    found.push((key >> 3, varint(&mut bytes).to_le_bytes().to_vec()));
                    continue;
                }
                1 => 8,
                2 => varint(&mut bytes) as usize,
                5 => 4,
                other => panic!("wire type {other}"),
            };
            found.push((key >> 3, bytes[..len].to_vec()));
            bytes = &bytes[len..];
        }
        found
    }

    #[test]
    fn a_reader_finds_version_step_tags_and_values() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = EventWriter::create(folder.path()).unwrap();
        writer.scalars(300, &[("loss", 0.25), ("lr", -1.5)]).unwrap();
        drop(writer);
        let path = std::fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
        assert!(path.file_name().unwrap().to_str().unwrap().starts_with("events.out.tfevents."));
        let bytes = std::fs::read(path).unwrap();

        let mut rest = bytes.as_slice();
        let mut events = Vec::new();
        while !rest.is_empty() {
            let length = u64::from_le_bytes(rest[..8].try_into().unwrap()) as usize;
            assert_eq!(rest[8..12], masked_crc(&rest[..8]).to_le_bytes());
            assert_eq!(rest[12 + length..16 + length], masked_crc(&rest[12..12 + length]).to_le_bytes());
            events.push(fields(&rest[12..12 + length]));
            rest = &rest[16 + length..];
        }
        assert_eq!(events.len(), 2);
        assert_eq!(events[0][1], (3, b"brain.Event:2".to_vec()));
        let [time, step, summary] = &events[1][..] else { panic!("three fields") };
        assert_eq!(time.0, 1);
        assert_eq!(step, &(2, 300u64.to_le_bytes().to_vec()));
        let values = fields(&summary.1);
        let read: Vec<_> = values.iter().map(|(_, value)| fields(value)).collect();
        assert_eq!(read[0], [(1, b"loss".to_vec()), (2, 0.25f32.to_le_bytes().to_vec())]);
        assert_eq!(read[1], [(1, b"lr".to_vec()), (2, (-1.5f32).to_le_bytes().to_vec())]);
    }
}
