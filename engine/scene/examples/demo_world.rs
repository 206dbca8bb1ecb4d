//! Looks at the demo world: a bird's-eye picture of one scene, or the statistics of many.
//!
//!     cargo run --release -p occam-scene --example demo_world -- picture SEED FRAME OUT.ppm
//!     cargo run --release -p occam-scene --example demo_world -- statistics SCENES

use std::time::Instant;

use occam_scene::demo::{self, DemoScene, class};
use occam_scene::{GridSpec, LabelMap};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["picture", seed, frame, path] => picture(seed.parse()?, frame.parse()?, path)?,
        ["statistics", scenes] => statistics(scenes.parse()?),
        _ => return Err("expected `picture SEED FRAME OUT.ppm` or `statistics SCENES`".into()),
    }
    Ok(())
}

/// Left the dense target around the sensor from above, right the points of the scan.
fn picture(seed: u64, frame: u32, path: &str) -> std::io::Result<()> {
    let spec = GridSpec::new([-40.0, -30.0, -2.4], [0.2; 3], [400, 300, 40]);
    let DemoScene { cloud, target } = demo::scene(seed, frame, &spec);
    let map = LabelMap::built_in("demo").unwrap_or_else(|| unreachable!("the demo's labels ship with the program"));
    let [wide, high, layers] = spec.counts;
    let mut pixels = vec![[20_u8; 3]; 2 * wide * high];
    // x to the right, y up.
    let row = |y: usize| (high - 1 - y) * 2 * wide;
    for x in 0..wide {
        for y in 0..high {
            let top = (0..layers).rev().map(|z| (z, target.label([x, y, z]))).find(|(_, label)| *label != class::EMPTY);
            if let Some((z, label)) = top {
                let light = 0.6 + 0.4 * z as f32 / layers as f32;
                pixels[row(y) + x] = map.colour(label).map(|c| (f32::from(c) * light) as u8);
            }
        }
    }
    for (position, label) in cloud.positions.iter().zip(cloud.label.iter().flatten()) {
        if let Some([x, y, _]) = spec.voxel_of([position[0], position[1], 0.0]) {
            pixels[row(y) + wide + x] = map.colour(*label as u8);
        }
    }
    let mut bytes = format!("P6 {} {high} 255\n", 2 * wide).into_bytes();
    bytes.extend(pixels.iter().flatten());
    std::fs::write(path, bytes)?;
    println!("{path}: seed {seed}, frame {frame}, {} points, {} occupied voxels", cloud.len(), target.occupied());
    Ok(())
}

/// Shares and coverage of the classes, time, and how far simple predictions come, on the grid of the demo.
fn statistics(scenes: u64) {
    let spec = demo::default_spec();
    let start = Instant::now();
    let train: Vec<DemoScene> = (0..scenes).map(|seed| demo::scene(seed, 0, &spec)).collect();
    println!("{scenes} scenes in {:.2} s on one thread", start.elapsed().as_secs_f64());
    let points: Vec<usize> = train.iter().map(|s| s.cloud.len()).collect();
    println!(
        "points: least {}, mean {}, most {}",
        points.iter().min().unwrap_or(&0),
        points.iter().sum::<usize>() / points.len().max(1),
        points.iter().max().unwrap_or(&0)
    );

    let map = LabelMap::built_in("demo").unwrap_or_else(|| unreachable!("the demo's labels ship with the program"));
    let mut votes = vec![[0_u32; class::COUNT]; spec.len()];
    let (mut total, mut present) = ([0_usize; class::COUNT], [0_usize; class::COUNT]);
    for scene in &train {
        let mut here = [0_usize; class::COUNT];
        for (votes, label) in votes.iter_mut().zip(&scene.target.labels) {
            votes[usize::from(*label)] += 1;
            here[usize::from(*label)] += 1;
        }
        for c in 0..class::COUNT {
            total[c] += here[c];
            present[c] += usize::from(here[c] > 0);
        }
    }
    let majority: Vec<u8> =
        votes.iter().map(|v| (0..class::COUNT).max_by_key(|c| (v[*c], class::COUNT - c)).unwrap_or(0) as u8).collect();

    let (mut input, mut dilated) = (Overlap::default(), Overlap::default());
    let mut occupied = Overlap::default();
    let mut classes = [Overlap::default(); class::COUNT];
    for seed in 0..20 {
        let scene = demo::scene(1_000_000 + seed, 0, &spec);
        let mut hit = vec![false; spec.len()];
        let mut near = vec![false; spec.len()];
        for voxel in scene.cloud.positions.iter().filter_map(|p| spec.voxel_of(*p)) {
            hit[spec.index(voxel)] = true;
            for shift in 0..27 {
                let moved = [voxel[0] + shift / 9, voxel[1] + shift / 3 % 3, voxel[2] + shift % 3];
                if (0..3).all(|a| moved[a] > 0 && moved[a] <= spec.counts[a]) {
                    near[spec.index(moved.map(|m| m - 1))] = true;
                }
            }
        }
        for (index, label) in scene.target.labels.iter().enumerate() {
            let truth = *label != class::EMPTY;
            input.add(hit[index], truth);
            dilated.add(near[index], truth);
            occupied.add(majority[index] != class::EMPTY, truth);
            for (c, overlap) in classes.iter_mut().enumerate() {
                overlap.add(usize::from(majority[index]) == c, usize::from(*label) == c);
            }
        }
    }
    println!("class         share of occupied   in scenes   majority IoU");
    let filled: usize = total[1..].iter().sum();
    for c in 1..class::COUNT {
        println!(
            "{:12} {:17.2} % {:9.0} % {:14.3}",
            map.classes[c].name,
            100.0 * total[c] as f64 / filled as f64,
            100.0 * present[c] as f64 / scenes as f64,
            classes[c].iou()
        );
    }
    println!("occupied voxels: {:.1} %", 100.0 * filled as f64 / (scenes as usize * spec.len()) as f64);
    let mean = classes[1..].iter().map(Overlap::iou).sum::<f64>() / (class::COUNT - 1) as f64;
    println!("20 other seeds: IoU of the input {:.3}, dilated {:.3}", input.iou(), dilated.iou());
    println!("majority map of {scenes} scenes: IoU {:.3}, mIoU {mean:.3}", occupied.iou());
}

#[derive(Debug, Clone, Copy, Default)]
struct Overlap {
    both: usize,
    either: usize,
}

impl Overlap {
    fn add(&mut self, predicted: bool, truth: bool) {
        self.both += usize::from(predicted && truth);
        self.either += usize::from(predicted || truth);
    }

    fn iou(&self) -> f64 {
        self.both as f64 / self.either.max(1) as f64
    }
}
