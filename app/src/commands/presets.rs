//! `occam presets`: where training can start from.

use occam_engine::train::{TrainConfig, presets};
use serde_json::json;

use crate::print::{Output, Table, human};

pub fn run(out: Output) -> anyhow::Result<u8> {
    let mut table = Table::new(["preset", "grid", "voxel", "network", "for"]).left(&[1, 2, 3, 4]);
    for (name, about) in presets() {
        let config = TrainConfig::from_layers(name, None, &[])?;
        let network = &config.model.network;
        out.json(&json!({
            "preset": name,
            "about": about,
            "grid": config.grid.counts,
            "voxel_size_m": config.grid.voxel_size_m,
            "network": network,
        }))?;
        let voxel = config.grid.voxel_size_m.map(|edge| edge.to_string());
        let same = voxel.iter().all(|edge| *edge == voxel[0]);
        table.row([
            name.to_owned(),
            human::counts(config.grid.counts),
            format!("{} m", if same { voxel[0].clone() } else { voxel.join("x") }),
            network.clone(),
            about.to_owned(),
        ]);
    }
    out.result(table)?;
    out.line("\nStart with one of them: occam train --no-gui --preset NAME; change it with --set or --config")?;
    Ok(0)
}
