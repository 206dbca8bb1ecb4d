//! Weights in files: what Occam writes, and what it takes and refuses of files by `torch.save` (those of
//! tests/generators/weights.py).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use burn::store::{ModuleStore, SafetensorsStore, bridge};
use burn::tensor::{Device, TensorData};
use occam_engine::Error;
use occam_engine::gpu::{self, DeviceChoice};
use occam_engine::models::Network;

fn cpu() -> Device {
    gpu::open(&DeviceChoice::Cpu).unwrap().device
}

fn tensors(path: &Path) -> BTreeMap<String, TensorData> {
    let mut store = SafetensorsStore::from_file(path);
    let all = store.get_all_tensors().unwrap();
    all.iter().map(|(name, tensor)| (name.clone(), bridge::to_data(tensor).unwrap())).collect()
}

fn torch_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/weights").join(name)
}

fn refusal(result: occam_engine::Result<()>) -> String {
    match result {
        Err(Error::Input(error)) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

// ---------------------------------------------------------------------------------------------- written by Occam

#[test]
fn weights_survive_a_file_bit_for_bit() {
    let folder = tempfile::tempdir().unwrap();
    let paths: [PathBuf; 2] = std::array::from_fn(|i| folder.path().join(format!("{i}.safetensors")));
    let saved = Network::new("lmscnet", [8, 8, 16], 1, 4, 1, &cpu()).unwrap();
    saved.save_weights(&paths[0]).unwrap();
    let mut loaded = Network::new("lmscnet", [8, 8, 16], 1, 4, 2, &cpu()).unwrap();
    loaded.load_weights(&paths[0]).unwrap();
    loaded.save_weights(&paths[1]).unwrap();
    assert!(std::fs::read(&paths[0]).unwrap() == std::fs::read(&paths[1]).unwrap());
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let plain = folder.path().join("plain");
        std::fs::write(&plain, "").unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&paths[0]), mode(&plain), "readable by whom other files are");
    }
    let names: Vec<String> = tensors(&paths[0]).into_keys().collect();
    for name in
        ["Encoder_block1.2.weight", "Encoder_block2.1.bias", "deconv_1_8__1_2.weight", "seg_head_1_8.bn2.0.weight"]
    {
        assert!(names.iter().any(|known| known == name), "{name} not in {names:?}");
    }
}

/// A network keeps its weights when a file does not fit, and the error says what does not.
#[test]
fn weights_that_do_not_fit_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.safetensors");
    let mut network = Network::new("lmscnet-ss", [8, 8, 16], 1, 4, 1, &cpu()).unwrap();
    network.save_weights(&path).unwrap();
    let before = tensors(&path);
    let refuse = |network: &mut Network, path: &Path| match network.load_weights(path) {
        Err(Error::Input(error)) => error.to_string(),
        other => panic!("{other:?}"),
    };

    let other = folder.path().join("other.safetensors");
    Network::new("lmscnet-ss", [8, 8, 16], 1, 5, 1, &cpu()).unwrap().save_weights(&other).unwrap();
    let message = refuse(&mut network, &other);
    assert!(message.contains("seg_head_1_1.conv_classes.bias") && message.contains("other.safetensors"), "{message}");
    assert!(message.contains("of shape [5], expected shape [4]. The file holds lmscnet-ss for 5 classes"), "{message}");

    Network::new("lmscnet", [8, 8, 16], 1, 4, 1, &cpu()).unwrap().save_weights(&other).unwrap();
    assert!(refuse(&mut network, &other).contains("a tensor seg_head_1_2.bn1.0.bias"));

    let mut multiscale = Network::new("lmscnet", [8, 8, 16], 1, 4, 1, &cpu()).unwrap();
    assert!(refuse(&mut multiscale, &path).contains("no tensor seg_head_1_2.bn1.0.bias"));

    std::fs::write(&other, &std::fs::read(&path).unwrap()[..1000]).unwrap();
    refuse(&mut network, &other);
    std::fs::write(&other, "version https://git-lfs.github.com/spec/v1").unwrap();
    refuse(&mut network, &other);
    std::fs::write(&other, [0xff; 64]).unwrap();
    refuse(&mut network, &other);
    assert!(refuse(&mut network, &folder.path().join("none")).contains("none"));

    network.save_weights(&other).unwrap();
    assert!(tensors(&other) == before);
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_told_as_such() {
    let network = Network::new("lmscnet-ss", [8, 8, 16], 1, 4, 1, &cpu()).unwrap();
    let error = network.save_weights(Path::new("/dev/full")).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull, "{error}");
}

// ---------------------------------------------------------------------------------------------- written by PyTorch

/// The values of tests/generators/weights.py: all tensors look into one row of 1024 numbers, with these steps along
/// their axes, the one at place `k` in the order of names from number `k` on.
fn assert_shared_values(network: &Network, what: &str) {
    const STEPS: [usize; 5] = [2, 1, 7, 5, 3];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.safetensors");
    network.save_weights(&path).unwrap();
    for (place, (name, data)) in tensors(&path).into_iter().enumerate() {
        let shape = data.shape().to_vec();
        for (i, found) in data.try_to_vec::<f32>().unwrap().into_iter().enumerate() {
            let (mut rest, mut at) = (i, place);
            for axis in (0..shape.len()).rev() {
                at += rest % shape[axis] * STEPS[axis];
                rest /= shape[axis];
            }
            assert_eq!(found, ((37 * at % 64) as f32 - 32.0) / 64.0, "{what}: {name}, value {i}");
        }
    }
}

/// Zip and legacy containers, protocols 2 and 4, single, half and double precision, a plain state dict and one inside a
/// checkpoint, with and without the names of parallel training.
#[test]
fn files_of_pytorch_load_exactly() {
    let cases = [
        ("lmscnet-ss.pt", "lmscnet-ss"),
        ("lmscnet-ss-legacy.pt", "lmscnet-ss"),
        ("lmscnet-ss-protocol4.pth", "lmscnet-ss"),
        ("lmscnet-checkpoint.pth", "lmscnet"),
        ("sscnet.pt", "sscnet"),
    ];
    for (file, name) in cases {
        let path = torch_file(file);
        let info = Network::describe_weights(&path).unwrap();
        let height = (name != "sscnet").then_some(8);
        assert_eq!((info.network, info.channels, info.height, info.classes), (name, 1, height, 3), "{file}");
        let mut network = Network::new(name, [8, 8, 8], 1, 3, 5, &cpu()).unwrap();
        network.load_weights(&path).unwrap();
        assert_shared_values(&network, file);
    }
}

#[test]
fn weights_for_another_grid_or_other_classes_say_what_they_are_for() {
    let path = torch_file("lmscnet-ss.pt");
    let mut network = Network::new("lmscnet-ss", [8, 8, 16], 1, 3, 5, &cpu()).unwrap();
    let message = refusal(network.load_weights(&path));
    assert!(
        message.contains("lmscnet-ss.pt: found Encoder_block1.0.bias of shape [8], expected shape [16]"),
        "{message}"
    );
    assert!(message.contains("The file holds lmscnet-ss for 3 classes, grids 8 voxels high"), "{message}");
    let mut network = Network::new("sscnet", [8, 8, 8], 1, 3, 5, &cpu()).unwrap();
    let message = refusal(network.load_weights(&path));
    let advice = "occupancy alone. Choose that network with model.network = \"lmscnet-ss\"";
    assert!(message.contains("The file holds lmscnet-ss") && message.contains(advice), "{message}");
    let mut network = Network::new("sscnet", [8, 8, 8], 1, 4, 5, &cpu()).unwrap();
    let message = refusal(network.load_weights(&torch_file("sscnet.pt")));
    assert!(message.contains("found deconv_classes.bias of shape [3], expected shape [4]"), "{message}");
    assert!(message.contains("The file holds sscnet for 3 classes and occupancy alone"), "{message}");
}

#[test]
fn files_of_pytorch_that_are_no_weights_are_refused_and_nothing_is_run() {
    let cases = [
        // `os.system` by the name it has on Linux.
        ("hostile.pt", "the Python object posix.system"),
        ("hostile-protocol4.pt", "the Python object posix.system"),
        ("module.pt", "the Python object torch.nn.modules.linear.Linear"),
        ("two-networks.pt", "the same network under student, teacher"),
        ("integers.pt", "conv1_1.bias of type I64"),
        ("infinite.pt", "inf as value 31 of conv2_2.bias"),
        ("plain.pt", "a pickle without tensors"),
    ];
    let mut network = Network::new("sscnet", [8, 8, 8], 1, 2, 5, &cpu()).unwrap();
    for (file, found) in cases {
        let message = refusal(network.load_weights(&torch_file(file)));
        assert!(message.contains(file) && message.contains(&format!("found {found}")), "{message}");
        assert_eq!(message.lines().count(), 1);
    }
    assert!(!Path::new("the-pickle-was-run").exists());
}

#[test]
fn what_is_no_file_of_weights_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let mut network = Network::new("sscnet", [8, 8, 8], 1, 2, 5, &cpu()).unwrap();
    let tar = [vec![b'a'; 257], b"ustar".to_vec(), vec![0; 300]].concat();
    let cases: [(&[u8], &str); 6] = [
        (b"", "an empty file"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0", "a Git LFS pointer"),
        (b"\n<!DOCTYPE html><html>", "a web page"),
        (&tar, "a tar archive"),
        (b"ply\nformat ascii 1.0", "something else"),
        (b"PK\x03\x04 and no more", "no directory of a zip archive"),
    ];
    for (bytes, found) in cases {
        let path = folder.path().join("weights.pt");
        std::fs::write(&path, bytes).unwrap();
        let message = refusal(network.load_weights(&path));
        assert!(message.contains(found), "{message}");
    }
    assert!(refusal(network.load_weights(folder.path())).contains("a folder"));
    #[cfg(unix)]
    assert!(refusal(network.load_weights(Path::new("/dev/zero"))).contains("a pipe or a device"));
}

/// An archive may claim what it likes.
#[test]
fn archives_that_claim_too_much_are_refused() {
    let whole = std::fs::read(torch_file("lmscnet-ss.pt")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.pt");
    let mut network = Network::new("lmscnet-ss", [8, 8, 8], 1, 3, 5, &cpu()).unwrap();
    let mut refuse = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        refusal(network.load_weights(&path))
    };
    // The directory's entries begin with PK 1 2; the first is that of data.pkl.
    let entry = whole.windows(4).position(|bytes| bytes == b"PK\x01\x02").unwrap();
    let edited = |at: usize, bytes: &[u8]| {
        let mut edited = whole.clone();
        edited[at..at + bytes.len()].copy_from_slice(bytes);
        edited
    };
    // Method 8 is deflate: a bomb would use it.
    assert!(refuse(&edited(entry + 10, &[8])).contains("compressed or encrypted"));
    let claimed = [0xf0, 0xff, 0xff, 0x7f].repeat(2);
    assert!(refuse(&edited(entry + 20, &claimed)).contains("of 2147483632 bytes"));
    assert!(refuse(&edited(entry + 46, b"../")).contains("names that stay inside the archive"));
    let end = whole.len() - 22;
    assert!(refuse(&edited(end - 76 + 32, &[0xff; 8])).contains("entries in a directory of"));
    for cut in [1, 22, 98, whole.len() / 2, whole.len() - 10] {
        refuse(&whole[..whole.len() - cut]);
    }
    let legacy = std::fs::read(torch_file("lmscnet-ss-legacy.pt")).unwrap();
    for cut in [1, 4096, 8000, legacy.len() - 20] {
        refuse(&legacy[..legacy.len() - cut]);
    }
}

// ---------------------------------------------------------------------------------------------- damaged files

/// SplitMix64 (Steele, Lea, Flood 2014).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) as usize % limit
    }
}

const OPCODES: &[u8] = b"(.012NRbdltsaeu)]}KMJGXBChjqrQ\x80\x81\x85\x86\x87\x8a\x8b\x8d\x93\x94\x95";

/// One to four changes: bytes, numbers, opcodes, pieces taken out, doubled or put elsewhere, the end cut off.
fn damage(whole: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = whole.to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len());
        let length = (1 + random.below(16)).min(bytes.len() - at);
        match random.below(10) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5)],
            2 => bytes[at] = OPCODES[random.below(OPCODES.len())],
            3 => bytes[at..at + length].fill(0xff),
            4 => bytes[at..at + length].fill(0),
            5 => drop(bytes.splice(at..at + length, [])),
            6 => drop(bytes.splice(at..at, vec![random.below(256) as u8; length])),
            7 => {
                let piece = bytes[at..at + length].to_vec();
                let to = random.below(bytes.len());
                drop(bytes.splice(to..to, piece));
            }
            8 => {
                let piece = bytes[at..at + length].to_vec();
                let to = random.below(bytes.len() - length + 1);
                bytes[to..to + length].copy_from_slice(&piece);
            }
            _ if random.below(8) == 0 => bytes.truncate(at.max(1)),
            _ => bytes[at] = bytes[at].wrapping_add(1),
        }
    }
    bytes
}

/// Without checksums, which would keep the reader from ever seeing a changed pickle: 0 stands for none.
fn without_checksums(mut bytes: Vec<u8>) -> Vec<u8> {
    for at in 0..bytes.len().saturating_sub(20) {
        match bytes[at..at + 4] {
            [b'P', b'K', 1, 2] => bytes[at + 16..at + 20].fill(0),
            [b'P', b'K', 3, 4] => bytes[at + 14..at + 18].fill(0),
            _ => {}
        }
    }
    bytes
}

const EDITS: u64 = 5000;
/// Names the folder to the child process that reads the damaged files.
const FOLDER: &str = "OCCAM_DAMAGED_WEIGHTS";

/// Five thousand damaged files of PyTorch and of safetensors: each loads, or is refused in one line that names it; none ends or stalls the program.
#[cfg(unix)]
#[test]
fn damaged_files_never_end_the_program() {
    use std::time::{Duration, Instant};

    if let Some(folder) = std::env::var_os(FOLDER) {
        return read_damaged(Path::new(&folder));
    }
    let folder = tempfile::tempdir().unwrap();
    let mut child = std::process::Command::new("sh")
        .args(["-c", "ulimit -v 1500000; exec \"$0\" --exact damaged_files_never_end_the_program"])
        .arg(std::env::current_exe().unwrap())
        .env(FOLDER, folder.path())
        .spawn()
        .unwrap();
    let began = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break Some(status);
        }
        if began.elapsed() > Duration::from_mins(10) {
            child.kill().unwrap();
            child.wait().unwrap();
            break None;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let last = std::fs::read_to_string(folder.path().join("last")).unwrap_or_default();
    assert!(status.is_some_and(|status| status.success()), "ended with {status:?} at edit {last} of {EDITS}");
    assert_eq!(last, (EDITS - 1).to_string());
}

#[cfg(unix)]
fn read_damaged(folder: &Path) {
    let names = ["lmscnet-ss.pt", "lmscnet-ss-legacy.pt", "lmscnet-ss-protocol4.pth", "lmscnet-checkpoint.pth"];
    let mut whole = names.map(|name| without_checksums(std::fs::read(torch_file(name)).unwrap())).to_vec();
    let mut networks = ["lmscnet-ss", "lmscnet"].map(|name| Network::new(name, [8, 8, 8], 1, 3, 5, &cpu()).unwrap());
    let ours = folder.join("ours.safetensors");
    networks[0].save_weights(&ours).unwrap();
    whole.push(std::fs::read(&ours).unwrap());
    let (mut loaded, mut refused) = (0, 0);
    for edit in 0..EDITS {
        std::fs::write(folder.join("last"), edit.to_string()).unwrap();
        let which = edit as usize % whole.len();
        let path = folder.join("damaged.pt");
        std::fs::write(&path, damage(&whole[which], &mut Random(edit))).unwrap();
        match networks[usize::from(which == 3)].load_weights(&path) {
            Ok(()) => loaded += 1,
            Err(Error::Input(error)) => {
                let message = error.to_string();
                assert!(message.contains("damaged.pt") && message.lines().count() == 1, "edit {edit}: {message}");
                refused += 1;
            }
            Err(other) => panic!("edit {edit}: {other:?}"),
        }
    }
    // Changed weights are still weights.
    assert!(loaded > 100 && refused > 1000, "{loaded} loaded, {refused} refused");
}
