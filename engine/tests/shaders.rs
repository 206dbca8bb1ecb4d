//! Every compute shader, checked without any GPU: a file that only one vendor's compiler takes is found here.

use std::collections::BTreeSet;
use std::path::Path;

use naga::back::{hlsl, msl, spv};
use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};
use naga::{AddressSpace, Module, ShaderStage, TypeInner};
use occam_engine::gpu::Variant;
use occam_engine::gpu::shader::{self, Permutation, Shader};

fn on_matrix_units(permutation: &Permutation) -> bool {
    permutation.tile.is_some_and(|tile| tile.form.variant() == Variant::Cooperative)
}

/// Calls `check` with every permutation of every shader, parsed and validated.
fn every_permutation(check: impl Fn(&Shader, &Permutation, &Module, &ModuleInfo)) {
    for shader in shader::ALL {
        assert!(!shader.permutations.is_empty(), "{} has no permutation", shader.name);
        for permutation in shader.permutations {
            let (name, text) = (format!("{} {}", shader.name, permutation.name), shader.source(permutation));
            assert!(!text.contains("{{") && !text.contains("//!include"), "{name}: unfilled:\n{text}");
            let module = naga::front::wgsl::parse_str(&text)
                .unwrap_or_else(|error| panic!("{name}: {}", error.emit_to_string(&text)));
            let mut capabilities = Capabilities::SHADER_FLOAT16 | Capabilities::SUBGROUP;
            capabilities.set(Capabilities::COOPERATIVE_MATRIX, on_matrix_units(permutation));
            let info = Validator::new(ValidationFlags::all(), capabilities)
                .subgroup_stages(naga::valid::ShaderStages::COMPUTE)
                .subgroup_operations(naga::valid::SubgroupOperationSet::all())
                .validate(&module)
                .unwrap_or_else(|error| panic!("{name}: {}", error.emit_to_string(&text)));
            check(shader, permutation, &module, &info);
        }
    }
}

fn names(folder: &str) -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shaders").join(folder);
    let files = path.read_dir().unwrap().map(|entry| entry.unwrap().path());
    files.filter(|file| file.is_file()).map(|file| file.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
}

#[test]
fn every_file_is_registered() {
    let registered: BTreeSet<_> = shader::ALL.iter().map(|shader| shader.name.to_owned()).collect();
    assert_eq!(registered.len(), shader::ALL.len(), "a name stands twice in the table");
    assert_eq!(names(""), registered);
    let shared: BTreeSet<_> = shader::SHARED.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(names("shared"), shared);
}

#[test]
fn every_file_says_what_it_binds() {
    for shader in shader::ALL {
        let header: String = shader.text.lines().take_while(|line| line.starts_with("//")).collect();
        for word in ["Bindings", "Params", "Dispatch", "eterminis"] {
            assert!(header.contains(word), "{}: the header lacks \"{word}\"", shader.name);
        }
    }
}

#[test]
fn host_and_shader_agree() {
    every_permutation(|shader, permutation, module, info| {
        let name = format!("{} {}", shader.name, permutation.name);
        let [entry] = &module.entry_points[..] else { panic!("{name}: not one entry point") };
        assert_eq!((entry.name.as_str(), entry.stage), ("main", ShaderStage::Compute), "{name}");
        assert_eq!(entry.workgroup_size, [shader.threads(permutation), 1, 1], "{name}");

        // Tensors first, writable; the parameters last, read-only; all of them used.
        let uses = info.get_entry_point(0);
        let mut bindings = Vec::new();
        for (handle, variable) in module.global_variables.iter() {
            if let Some(binding) = &variable.binding {
                assert_eq!(binding.group, 0, "{name}");
                assert!(!uses[handle].is_empty(), "{name}: the binding {} is not used", binding.binding);
                let AddressSpace::Storage { access } = variable.space else {
                    panic!("{name}: the binding {} is not a storage buffer", binding.binding)
                };
                bindings.push((binding.binding, access.contains(naga::StorageAccess::STORE)));
            }
        }
        bindings.sort_unstable();
        let mut expected: Vec<_> = (0..shader.buffers as u32).map(|binding| (binding, true)).collect();
        expected.push((shader.buffers as u32, false));
        assert_eq!(bindings, expected, "{name}: (binding, writable)");
    });
}

#[test]
fn no_shader_asks_for_more_than_every_gpu_has() {
    every_permutation(|shader, permutation, module, _| {
        let name = format!("{} {}", shader.name, permutation.name);
        assert!((shader.buffers as u32) < shader::MAX_STORAGE_BUFFERS, "{name}: no binding left for the parameters");
        assert!(shader.threads(permutation) <= shader::MAX_WORKGROUP_SIZE, "{name}");
        assert!(shader.max_groups <= 65_535, "{name}");
        let memory: u32 = module
            .global_variables
            .iter()
            .filter(|(_, variable)| variable.space == AddressSpace::WorkGroup)
            .map(|(_, variable)| match module.types[variable.ty].inner {
                TypeInner::Array { .. } | TypeInner::Struct { .. } | TypeInner::Scalar(_) | TypeInner::Atomic(_) => {
                    module.types[variable.ty].inner.size(module.to_ctx())
                }
                ref other => panic!("{name}: workgroup variable of {other:?}"),
            })
            .sum();
        assert!(memory <= shader::MAX_WORKGROUP_BYTES, "{name}: {memory} bytes of workgroup memory");
    });
}

#[test]
fn every_permutation_is_written_for_every_api() {
    every_permutation(|shader, permutation, module, info| {
        let name = format!("{} {}", shader.name, permutation.name);
        let words = spv::write_vec(module, info, &spv::Options { lang_version: (1, 3), ..Default::default() }, None)
            .unwrap_or_else(|error| panic!("{name}: SPIR-V: {error}"));
        assert_eq!(words[0], 0x0723_0203, "{name}: SPIR-V");

        let options = msl::Options { fake_missing_bindings: true, lang_version: (2, 4), ..Default::default() };
        let (text, _) = msl::write_string(module, info, &options, &msl::PipelineOptions::default())
            .unwrap_or_else(|error| panic!("{name}: MSL: {error}"));
        assert!(text.contains("kernel void"), "{name}: MSL:\n{text}");

        // HLSL has no cooperative matrices in naga, and wgpu offers none on Direct3D 12: no adapter there gets these.
        if on_matrix_units(permutation) {
            return;
        }
        let options = hlsl::Options { shader_model: hlsl::ShaderModel::V6_2, ..Default::default() };
        let mut text = String::new();
        hlsl::Writer::new(&mut text, &options, &hlsl::PipelineOptions::default())
            .write(module, info, None)
            .unwrap_or_else(|error| panic!("{name}: HLSL: {error}"));
        assert!(text.contains("numthreads"), "{name}: HLSL:\n{text}");
    });
}
