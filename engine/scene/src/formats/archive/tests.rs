//! Archives written byte by byte, so that each can be wrong in one way.

use super::super::{ReadOptions, read_cloud, read_npz};
use super::*;

#[derive(Clone)]
struct Entry {
    name: &'static str,
    /// As it stands in the archive.
    packed: Vec<u8>,
    method: u16,
    flags: u16,
    checksum: u32,
    size: u64,
    /// Sizes in an extra field of 64 bits, as numpy writes them.
    long: bool,
}

/// CRC-32 of zip (polynomial 0x04c11db7, reflected).
fn crc_32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 })
    })
}

fn stored(name: &'static str, bytes: &[u8]) -> Entry {
    let (checksum, size) = (crc_32(bytes), bytes.len() as u64);
    Entry { name, packed: bytes.to_vec(), method: 0, flags: 0, checksum, size, long: false }
}

/// One block without compression, which every inflater takes.
fn deflated(name: &'static str, bytes: &[u8]) -> Entry {
    let length = u16::try_from(bytes.len()).unwrap();
    let packed = [&[1], &length.to_le_bytes()[..], &(!length).to_le_bytes(), bytes].concat();
    Entry { packed, method: 8, ..stored(name, bytes) }
}

/// Bits of a deflate stream, the lowest of a byte first.
#[derive(Default)]
struct Bits(Vec<u8>, usize);

impl Bits {
    /// Huffman codes come with their highest bit first.
    fn push(&mut self, code: u32, length: usize) {
        for bit in (0..length).rev() {
            if self.1.is_multiple_of(8) {
                self.0.push(0);
            }
            if let Some(last) = self.0.last_mut() {
                *last |= ((code >> bit & 1) as u8) << (self.1 % 8);
            }
            self.1 += 1;
        }
    }
}

/// `1 + 258 * repeats` zeros in one block of fixed codes: RFC 1951, 3.2.6.
fn deflated_zeros(repeats: usize) -> Vec<u8> {
    let mut bits = Bits::default();
    // Last block, fixed codes, and the literal 0.
    bits.push(0b110, 3);
    bits.push(0b0011_0000, 8);
    for _ in 0..repeats {
        // Length 258, distance 1.
        bits.push(0b1100_0101, 8);
        bits.push(0, 5);
    }
    bits.push(0, 7);
    bits.0
}

fn put(out: &mut Vec<u8>, values: &[(u64, usize)]) {
    for (value, size) in values {
        out.extend(&value.to_le_bytes()[..*size]);
    }
}

/// `end_64`: with the end records of zip64, which claim that many members.
fn archive(entries: &[Entry], end_64: Option<u64>) -> Vec<u8> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for entry in entries {
        let start = out.len() as u64;
        let (packed, size) = (entry.packed.len() as u64, entry.size);
        let short = |value: u64| if entry.long { 0xffff_ffff } else { value };
        let mut extra = Vec::new();
        if entry.long {
            put(&mut extra, &[(1, 2), (16, 2), (size, 8), (packed, 8)]);
        }
        let (method, flags, checksum) = (u64::from(entry.method), u64::from(entry.flags), u64::from(entry.checksum));
        let name = entry.name.len() as u64;
        let common = [(45, 2), (flags, 2), (method, 2), (0, 4), (checksum, 4), (short(packed), 4), (short(size), 4)];
        put(&mut out, &[(0x0403_4b50, 4)]);
        put(&mut out, &common);
        put(&mut out, &[(name, 2), (extra.len() as u64, 2)]);
        out.extend(entry.name.bytes());
        out.extend(&extra);
        out.extend(&entry.packed);
        put(&mut directory, &[(0x0201_4b50, 4), (45, 2)]);
        put(&mut directory, &common);
        put(&mut directory, &[(name, 2), (extra.len() as u64, 2), (0, 2), (0, 2), (0, 2), (0, 4), (start, 4)]);
        directory.extend(entry.name.bytes());
        directory.extend(&extra);
    }
    let (start, length, count) = (out.len() as u64, directory.len() as u64, entries.len() as u64);
    out.extend(&directory);
    if let Some(claimed) = end_64 {
        let end = out.len() as u64;
        put(&mut out, &[(0x0606_4b50, 4), (44, 8), (45, 2), (45, 2), (0, 4), (0, 4), (claimed, 8), (claimed, 8)]);
        put(&mut out, &[(length, 8), (start, 8), (0x0706_4b50, 4), (0, 4), (end, 8), (1, 4)]);
    }
    put(&mut out, &[(0x0605_4b50, 4), (0, 2), (0, 2), (count, 2), (count, 2), (length, 4), (start, 4), (0, 2)]);
    out
}

fn npy(descr: &str, shape: &str, body: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    let mut bytes = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    bytes.extend(format!("{header:<117}\n").bytes());
    bytes.extend(body);
    bytes
}

/// Two points.
fn points() -> Vec<u8> {
    npy("<f4", "(2, 3)", &[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0].map(f32::to_le_bytes).concat())
}

fn read(bytes: &[u8]) -> Result<Vec<(String, Array)>> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.npz");
    std::fs::write(&path, bytes).unwrap();
    read_npz(&path)
}

fn names(bytes: &[u8]) -> Vec<String> {
    read(bytes).unwrap().into_iter().map(|(name, _)| name).collect()
}

fn assert_refused(bytes: &[u8], texts: &[&str]) {
    let error = read(bytes).unwrap_err().to_string();
    for text in texts {
        assert!(error.contains(text), "{text:?} not in {error:?}");
    }
}

#[test]
fn stored_and_deflated_members() {
    let bytes = archive(&[stored("a.npy", &points()), deflated("b.npy", &points()), stored("notes.txt", b"x")], None);
    let arrays = read(&bytes).unwrap();
    assert_eq!(arrays.len(), 2);
    assert_eq!(arrays[0].1, arrays[1].1);
    assert_eq!(arrays[0].1.shape, [2, 3]);
}

#[test]
fn zip64_as_numpy_writes_it() {
    let entries = [Entry { long: true, ..deflated("a.npy", &points()) }, stored("b.npy", &points())];
    assert_eq!(names(&archive(&entries, None)), ["a", "b"]);
    assert_eq!(names(&archive(&entries, Some(2))), ["a", "b"]);
}

#[test]
fn zip64_that_claims_more_members_than_there_are() {
    let entries = [stored("a.npy", &points())];
    assert_refused(&archive(&entries, Some(2)), &["damaged archive"]);
    assert_refused(&archive(&entries, Some(70_000)), &["found 70000 members, expected at most 65535"]);
    assert_refused(&archive(&entries, Some(u64::MAX)), &["found 18446744073709551615 members"]);
}

#[test]
fn a_wrong_checksum() {
    for good in [stored("a.npy", &points()), deflated("a.npy", &points())] {
        let bytes = archive(&[Entry { checksum: good.checksum ^ 1, ..good }], None);
        assert_refused(&bytes, &["damaged archive (a.npy: invalid checksum)", "fetch the file again"]);
    }
}

#[test]
fn an_encrypted_member() {
    let bytes = archive(&[Entry { flags: 1, ..stored("a.npy", &points()) }], None);
    assert_refused(
        &bytes,
        &["found the member a.npy, which cannot be unpacked (Password required", "without a password"],
    );
}

#[test]
fn a_method_that_numpy_does_not_use() {
    let bytes = archive(&[Entry { method: 14, ..stored("a.npy", &points()) }], None);
    assert_refused(&bytes, &["found the member a.npy, which cannot be unpacked", "Save it again with numpy"]);
}

#[test]
fn two_members_of_one_name() {
    let bytes = archive(&[stored("a.npy", &points()), stored("a.npy", &npy("|u1", "(1,)", &[1]))], None);
    assert_refused(&bytes, &["found two members a.npy, expected one array of a name"]);
}

#[test]
fn climbing_paths() {
    for name in ["../../x.npy", "a/../../x.npy", "..\\x.npy", "/etc/x.npy", "\\x.npy", "C:\\x.npy", "c:x.npy"] {
        let bytes = archive(&[stored("points.npy", &points()), stored(name, &points())], None);
        assert_refused(
            &bytes,
            &[&format!("found the member {name:?}, expected names inside the archive"), "do not unpack it"],
        );
    }
    for name in ["group/x.npy", "..x.npy", "a..b.npy", "x...npy"] {
        assert_eq!(names(&archive(&[stored(name, &points())], None)), [name.strip_suffix(".npy").unwrap()]);
    }
}

#[test]
fn object_arrays() {
    let object = npy("|O", "(1,)", b"\x80\x04N.");
    let both = archive(&[stored("meta.npy", &object), stored("points.npy", &points())], None);
    assert_refused(&both, &["the type \"|O\" in meta.npy", "pickled Python objects", "without pickle"]);
    // Where the points are known by name, what else is packed with them is not looked at.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.npz");
    std::fs::write(&path, &both).unwrap();
    assert_eq!(read_cloud(&path, &ReadOptions::default()).unwrap().cloud.len(), 2);
    std::fs::write(&path, archive(&[stored("points.npy", &object)], None)).unwrap();
    let error = read_cloud(&path, &ReadOptions::default()).unwrap_err().to_string();
    assert!(error.contains("|O") && error.contains("without pickle"), "{error}");
}

#[test]
fn python_2_shapes() {
    let bytes = archive(&[stored("semantics.npy", &npy("|u1", "(2L, 3L, 2L)", &[17; 12]))], None);
    assert_eq!(read(&bytes).unwrap()[0].1.shape, [2, 3, 2]);
}

#[test]
fn a_member_larger_than_it_claims() {
    let good = stored("a.npy", &points());
    let short = Entry { size: good.size - 4, ..deflated("a.npy", &points()) };
    assert_refused(&archive(&[short], None), &["a.npy holds other than the 148 bytes it claims"]);
    let long = Entry { size: good.size + 4, ..deflated("a.npy", &points()) };
    assert_refused(&archive(&[long], None), &["a.npy holds other than the 156 bytes it claims"]);
    let stored_short = Entry { size: good.size - 4, ..good };
    assert_refused(&archive(&[stored_short], None), &["a.npy holds other than the 148 bytes it claims"]);
}

#[test]
fn an_array_larger_than_its_member() {
    let bytes = archive(&[stored("a.npy", &npy("<f4", "(1000000, 1000000)", &[0; 24]))], None);
    assert_refused(&bytes, &["24 bytes of data in a.npy", "4000000000000 bytes for shape"]);
}

/// Archives that unpack to a GiB, in a process that does not have it.
#[test]
fn bombs() {
    super::super::mutation_tests::in_child("archive::tests::bombs", "bombs", |_| {
        // 1 + 258 * 4,161,790 = 1,073,741,821 bytes in 6.8 MB.
        let packed = deflated_zeros(4_161_790);
        let size = 1_073_741_821;
        let bomb =
            |name, size| Entry { name, packed: packed.clone(), method: 8, flags: 0, checksum: 0, size, long: false };
        assert_refused(&archive(&[bomb("a.npy", size)], None), &["unpacks to 1073741821, expected at most"]);
        assert_refused(&archive(&[bomb("a.npy", 1000)], None), &["holds other than the 1000 bytes it claims"]);
        // What is no array is not unpacked.
        let beside = archive(&[bomb("a.txt", size), stored("b.npy", &points())], None);
        assert_eq!(names(&beside), ["b"]);
        let claims = Entry { size: 0xffff_fff0, ..stored("a.npy", &points()) };
        assert_refused(&archive(&[claims], None), &["the member a.npy of 4294967280 bytes, packed into 152"]);
        // Each is small enough, both together are not.
        let both = archive(&[bomb("a.npy", 700 << 20), bomb("b.npy", 700 << 20)], None);
        assert_refused(&both, &["unpacks to 1468006400, expected at most"]);
    });
}
