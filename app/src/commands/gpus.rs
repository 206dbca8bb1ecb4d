//! `occam gpus`: what training can run on.

use occam_engine::gpu::{self, AdapterInfo};
use serde_json::json;

use crate::print::{Output, Table, human};

pub fn run(out: Output) -> anyhow::Result<u8> {
    let adapters = gpu::adapters();
    for adapter in &adapters {
        out.json(&as_json(adapter))?;
    }
    if adapters.is_empty() {
        out.result(
            "No GPU found; training runs on the CPU. For a GPU install its Vulkan driver (Debian, Ubuntu: \
             mesa-vulkan-drivers for AMD and Intel, nvidia-driver for NVIDIA).",
        )?;
        return Ok(0);
    }
    let mut devices = Table::new(["", "name", "kind", "memory", "driver"]).left(&[1, 2, 4]);
    let mut limits =
        Table::new(["", "largest tensor", "largest buffer", "workgroup memory", "threads", "bindings", "features"])
            .left(&[6]);
    for adapter in &adapters {
        let driver = [&adapter.backend, &adapter.driver, &adapter.driver_info].map(|word| word.trim());
        devices.row([
            adapter.index.to_string(),
            adapter.name.clone(),
            adapter.kind.to_string(),
            adapter.memory_bytes.map_or_else(|| "-".into(), human::bytes),
            driver.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(", "),
        ]);
        limits.row([
            adapter.index.to_string(),
            human::bytes(adapter.max_binding_bytes),
            human::bytes(adapter.max_buffer_bytes),
            human::bytes(adapter.max_workgroup_memory_bytes.into()),
            adapter.max_workgroup_invocations.to_string(),
            adapter.max_storage_buffers.to_string(),
            features(adapter).join(", "),
        ]);
    }
    out.result(format!("{devices}\n{limits}"))?;
    out.line("")?;
    for adapter in &adapters {
        out.line(format!("kernels on {}: {}", adapter.index, variants(adapter)))?;
    }
    out.line("--device takes an index or a part of a name; software adapters run only when named, `cpu` needs no GPU")?;
    Ok(0)
}

fn features(adapter: &AdapterInfo) -> Vec<String> {
    let mut features = Vec::new();
    if adapter.f16 {
        features.push("f16".into());
    }
    match adapter.subgroup_sizes {
        Some((low, high)) if low == high => features.push(format!("subgroups of {low}")),
        Some((low, high)) => features.push(format!("subgroups of {low} to {high}")),
        None => {}
    }
    for side in &adapter.cooperative_matrix {
        features.push(format!("cooperative matrix {side}x{side}"));
    }
    if adapter.timestamps {
        features.push("timestamps".into());
    }
    features
}

/// What every kernel runs as: `34 plain; gemm: f32 plain (...), f16 cooperative (...)`.
fn variants(adapter: &AdapterInfo) -> String {
    let kernels = gpu::kernel_variants(adapter);
    let simple = kernels.iter().filter(|kernel| kernel.dtype.is_none()).count();
    // Kernels on the same core have the same forms, so they stand together.
    let mut forms: Vec<(String, Vec<&str>)> = Vec::new();
    for kernel in kernels.iter().filter(|kernel| kernel.dtype.is_some()) {
        let dtype = kernel.dtype.map_or("", |dtype| dtype.name());
        let text = format!("{dtype} {}: {}", kernel.variant, kernel.why);
        match forms.iter_mut().find(|(known, _)| *known == text) {
            Some((_, names)) => names.push(kernel.kernel),
            None => forms.push((text, vec![kernel.kernel])),
        }
    }
    let forms = forms.iter().map(|(text, names)| format!("\n  {} {text}", names.join(", ")));
    format!("{simple} plain{}", forms.collect::<String>())
}

fn as_json(adapter: &AdapterInfo) -> serde_json::Value {
    let kernels: Vec<_> = gpu::kernel_variants(adapter)
        .iter()
        .map(|kernel| {
            json!({
                "kernel": kernel.kernel,
                "dtype": kernel.dtype.map(|dtype| dtype.name()),
                "variant": kernel.variant.to_string(),
                "why": kernel.why,
            })
        })
        .collect();
    json!({
        "index": adapter.index,
        "name": adapter.name,
        "kind": adapter.kind.to_string(),
        "hardware": adapter.kind.is_hardware(),
        "backend": adapter.backend,
        "driver": adapter.driver,
        "driver_info": adapter.driver_info,
        "max_binding_bytes": adapter.max_binding_bytes,
        "max_buffer_bytes": adapter.max_buffer_bytes,
        "max_storage_buffers": adapter.max_storage_buffers,
        "max_workgroup_memory_bytes": adapter.max_workgroup_memory_bytes,
        "max_workgroup_invocations": adapter.max_workgroup_invocations,
        "f16": adapter.f16,
        "subgroup_sizes": adapter.subgroup_sizes,
        "cooperative_matrix": adapter.cooperative_matrix,
        "timestamps": adapter.timestamps,
        "memory_bytes": adapter.memory_bytes,
        "kernels": kernels,
    })
}
