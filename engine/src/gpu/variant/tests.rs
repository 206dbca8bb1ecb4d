use burn::backend::DispatchDevice;
use burn::tensor::Device;

use super::*;
use crate::gpu::shader::{PLAIN, Shader};
use crate::gpu::tile::COOPERATIVE_TILES;
use crate::gpu::{AdapterKind, DeviceChoice, open};

fn adapter(kind: AdapterKind, backend: &str, subgroups: Option<(u32, u32)>, sides: &[u32]) -> AdapterInfo {
    AdapterInfo {
        index: 0,
        name: "GPU".into(),
        backend: backend.into(),
        kind,
        driver: String::new(),
        driver_info: String::new(),
        max_binding_bytes: 1 << 27,
        max_buffer_bytes: 1 << 28,
        max_storage_buffers: 8,
        max_workgroup_memory_bytes: 16384,
        max_workgroup_invocations: 256,
        f16: true,
        subgroup_sizes: subgroups,
        cooperative_matrix: sides.to_vec(),
        timestamps: false,
        memory_bytes: None,
    }
}

fn forms(adapter: &AdapterInfo, dtype: DType) -> Vec<TileForm> {
    offered(adapter, dtype).into_iter().map(|(form, _)| form).collect()
}

const fn squares(side: u32, threads: u32) -> TileForm {
    TileForm::Cooperative { side, threads }
}

#[test]
fn matrix_units_come_first_and_only_for_f16() {
    use AdapterKind::{Discrete, Integrated, Software};
    use TileForm::{Direct, Lanes, Staged};
    let nvidia = adapter(Discrete, "Vulkan", Some((32, 32)), &[16]);
    assert_eq!(forms(&nvidia, DType::F16), [squares(16, 128), Staged]);
    assert_eq!(forms(&nvidia, DType::F32), [Staged]);
    let amd = adapter(Discrete, "Vulkan", Some((32, 64)), &[16]);
    assert_eq!(forms(&amd, DType::F16), [squares(16, 256), Staged]);
    let apple = adapter(Integrated, "Metal", Some((4, 64)), &[8]);
    assert_eq!(forms(&apple, DType::F16), [squares(8, 128), Staged]);
    for other in [adapter(Discrete, "Dx12", Some((32, 32)), &[]), adapter(Integrated, "Vulkan", None, &[])] {
        assert_eq!(forms(&other, DType::F16), [Staged]);
    }
    let software = adapter(Software, "Vulkan", Some((8, 8)), &[8]);
    assert_eq!(forms(&software, DType::F32), [Lanes, Direct]);
    assert_eq!(forms(&software, DType::F16), [Lanes, Direct, squares(8, 128)]);
    assert_eq!(forms(&adapter(Software, "Vulkan", Some((4, 4)), &[]), DType::F32), [Direct]);
    // Every form that may be chosen has tiles.
    let every = [nvidia, amd, apple, software].map(|adapter| forms(&adapter, DType::F16)).concat();
    assert!(every.into_iter().all(|form| tiles_of(form).count() > 0));
}

#[test]
fn variants_have_names() {
    for variant in [Variant::Plain, Variant::Subgroup, Variant::Cooperative] {
        assert_eq!(variant.to_string().parse::<Variant>().unwrap(), variant);
    }
    let Err(Error::Usage(message)) = "tensor".parse::<Variant>() else { panic!("no such variant") };
    assert!(message.contains("tensor") && message.contains("cooperative"), "{message}");
}

#[test]
fn a_form_that_fails_its_product_is_not_used() {
    let offers = |forms: &[TileForm]| forms.iter().map(|form| (*form, String::new())).collect::<Vec<_>>();
    let mut asked = Vec::new();
    let mut chosen = |forms: &[TileForm], wanted, broken: &[TileForm]| {
        asked.clear();
        let form = choose("GPU", &offers(forms), wanted, |form| {
            asked.push(form);
            if broken.contains(&form) { Err("found 1, expected 2".into()) } else { Ok(()) }
        });
        (form, asked.clone())
    };
    let (units, small, staged) = (squares(16, 128), squares(8, 128), TileForm::Staged);
    let hardware = [units, small, staged];
    assert_eq!(chosen(&hardware, None, &[]), (units, vec![units]));
    assert_eq!(chosen(&hardware, None, &[units]), (small, vec![units, small]));
    assert_eq!(chosen(&hardware, None, &[units, small]), (staged, vec![units, small]));
    assert_eq!(chosen(&hardware, Some(Variant::Plain), &[]), (staged, vec![]));
    assert_eq!(chosen(&hardware, Some(Variant::Subgroup), &[]), (staged, vec![]), "the device has none");

    let software = [TileForm::Lanes, TileForm::Direct, small];
    assert_eq!(chosen(&software, None, &[TileForm::Lanes]).0, TileForm::Direct);
    assert_eq!(chosen(&software, Some(Variant::Cooperative), &[]), (small, vec![small]));
    assert_eq!(chosen(&software, Some(Variant::Cooperative), &[small]).0, TileForm::Direct);
}

fn device() -> Device {
    open(&DeviceChoice::Name("llvmpipe".into())).unwrap().device
}

/// Any tensor of `device`.
fn tensor(device: &Device) -> CubeTensor {
    let DispatchDevice::Cube(cube) = device.as_dispatch() else { panic!("{device:?} is no GPU") };
    let client = cube.client();
    CubeTensor::new_contiguous(client.clone(), cube.clone(), [1].into(), client.empty(4), DType::F32)
}

#[test]
fn the_forms_of_every_device_pass_and_are_shown() {
    let tensor = tensor(&device());
    let adapter = adapter_of_tensor(&tensor).unwrap();
    // From Mesa 25.1 or so on, llvmpipe has matrix units too.
    for form in forms(&adapter, DType::F16).into_iter().chain([TileForm::Staged]) {
        check(&tensor, form).unwrap_or_else(|why| panic!("{form:?}: {why}"));
    }
    assert_eq!(tile_form(&tensor), TileForm::Lanes);
    let kernels = kernel_variants(&adapter);
    let gemm = kernels.iter().find(|kernel| kernel.kernel == "gemm" && kernel.dtype == Some(DType::F32)).unwrap();
    assert_eq!(gemm.variant, Variant::Subgroup);
    assert!(gemm.why.contains("share a load"), "{}", gemm.why);
    let scan = kernels.iter().find(|kernel| kernel.kernel == "scan_sums").unwrap();
    assert_eq!((scan.variant, scan.dtype), (Variant::Plain, None));
}

#[test]
fn a_wrong_product_is_seen() {
    let tensor = tensor(&device());
    let tile = tiles_of(TileForm::Direct).last().unwrap();
    let y = product(&tensor, tile, [7, 9, 5], 0).unwrap();
    let equal = |k| (0..63).all(|place| y[place as usize] == expected(place / 9, place % 9, k));
    assert!(equal(5) && !equal(4));
}

/// Where no driver has matrix units, the threads of a subgroup share out the values of a square: what is checked is which
/// places the kernel loads, multiplies and stores, with the device's own subgroups (16 of 8 threads for 4 blocks) and
/// with fewer.
#[test]
fn the_squares_of_matrix_units_cover_the_product() {
    let tensor = tensor(&device());
    let (sixteen, eight) = (&COOPERATIVE_TILES[0][3], &COOPERATIVE_TILES[2][5]);
    for (tile, subgroups) in [(sixteen, None), (sixteen, Some(3)), (eight, Some(1))] {
        for along_k in [0, 3] {
            let [m, n, k] = [tile.rows + 5, tile.cols + 3, 37];
            let y = new_tensor(&tensor, [m as usize, n as usize], DType::F32);
            let groups = tile.groups(m as usize, n as usize) as u32;
            launch(emulated(tile, subgroups), &PLAIN, &[Buffer::Write(&y)], &[m, n, k, along_k], groups);
            let found: Vec<f32> = bytemuck::pod_collect_to_vec(&y.client.read_one(y.handle).unwrap());
            for place in 0..m * n {
                let (row, col) = (place / n, place % n);
                let place = place as usize;
                assert_eq!(found[place], expected(row, col, k), "{tile:?} {subgroups:?} {along_k} [{row}, {col}]");
            }
        }
    }
}

/// The check on matrix units without them, and with so many subgroups where it says.
fn emulated(tile: &'static Tile, subgroups: Option<u32>) -> &'static Shader {
    let number = match subgroups {
        None => "subgroupBroadcastFirst(number); lane = subgroupExclusiveAdd(1u); lanes = subgroupAdd(1u);".to_owned(),
        Some(subgroups) => {
            let (size, last) = (tile.threads / subgroups, subgroups - 1);
            format!(
                "min(thread / {size}u, {last}u); lane = thread - subgroup * {size}u;
                lanes = select({size}u, {}u, subgroup == {last}u);",
                tile.threads - last * size
            )
        }
    };
    let count = subgroups.map_or("atomicLoad(&tile_subgroups)".to_owned(), |subgroups| format!("{subgroups}u"));
    let mut text = shader::TILE_CHECK.source(&shader::F16.with_tile(tile));
    for (from, to) in [
        ("enable wgpu_cooperative_matrix;", ""),
        ("coop_mat8x8", "square"),
        ("coop_mat16x16", "square"),
        // An operand is where it stands in workgroup memory, a square of sums each thread's part of it.
        ("square<f16, A>", "u32"),
        ("square<f16, B>", "u32"),
        ("square<f32, C>", "array<f32, SQUARE / 8u>"),
        ("coopLoadT<SquareA>(&tile_a[", "u32(("),
        ("coopLoad<SquareB>(&tile_b[", "u32(("),
        ("], ROW)", "))"),
        ("coopLoadT<SquareC>(&tile_c[sums], SIDE)", "load_square(sums)"),
        ("&tile_c[sums], SIDE)", "sums)"),
        ("coopMultiplyAdd", "multiply_add"),
        ("coopStoreT", "store_square"),
        ("subgroupBroadcastFirst(number);", &number),
        ("atomicLoad(&tile_subgroups)", &count),
    ] {
        text = text.replace(from, to);
    }
    assert!(!text.contains("coop"), "{text}");
    text.push_str(
        "
var<private> lane: u32;
var<private> lanes: u32;

fn load_square(place: u32) -> SquareC {
    var values: SquareC;
    for (var i = 0u; lane + i * lanes < SQUARE; i++) { values[i] = tile_c[place + lane + i * lanes]; }
    return values;
}
fn multiply_add(a: SquareA, b: SquareB, c: SquareC) -> SquareC {
    var values = c;
    for (var i = 0u; lane + i * lanes < SQUARE; i++) {
        let row = (lane + i * lanes) / SIDE;
        let col = (lane + i * lanes) % SIDE;
        for (var k = 0u; k < SIDE; k++) { values[i] += f32(tile_a[a + row * ROW + k]) * f32(tile_b[b + col * ROW + k]); }
    }
    return values;
}
fn store_square(square: SquareC, place: u32) {
    var values = square;
    for (var i = 0u; lane + i * lanes < SQUARE; i++) { tile_c[place + lane + i * lanes] = values[i]; }
}
",
    );
    // The runtime knows a kernel by its name.
    let name = format!("{tile:?} {subgroups:?}");
    Box::leak(Box::new(Shader {
        name: name.leak(),
        text: text.leak(),
        permutations: &[PLAIN],
        workgroup_size: tile.threads,
        ..shader::TILE_CHECK
    }))
}
