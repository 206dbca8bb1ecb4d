//! An RGB picture and its PNG file.

use std::io::Write;
use std::path::Path;

use occam_scene::formats::atomic_write;

use crate::Result;

/// Red, green, blue in rows from the top left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    pub width: usize,
    pub height: usize,
    pub pixels: Vec<[u8; 3]>,
}

impl Image {
    pub fn new(width: usize, height: usize, colour: [u8; 3]) -> Self {
        Self { width, height, pixels: vec![colour; width * height] }
    }

    /// Colour of a pixel inside the picture.
    pub fn pixel(&self, x: usize, y: usize) -> [u8; 3] {
        self.pixels[y * self.width + x]
    }

    /// Paints a rectangle; what lies outside the picture is cut off.
    pub fn fill(&mut self, [x, y]: [usize; 2], [width, height]: [usize; 2], colour: [u8; 3]) {
        let (from, to) = (x.min(self.width), (x + width).min(self.width));
        for row in y.min(self.height)..(y + height).min(self.height) {
            self.pixels[row * self.width + from..row * self.width + to].fill(colour);
        }
    }

    /// Mixes a share of a colour into a pixel, if it is inside the picture.
    pub fn blend(&mut self, [x, y]: [usize; 2], colour: [u8; 3], share: f32) {
        if x < self.width && y < self.height {
            let pixel = &mut self.pixels[y * self.width + x];
            *pixel = std::array::from_fn(|c| {
                let (old, new) = (f32::from(pixel[c]), f32::from(colour[c]));
                (old + (new - old) * share).round() as u8
            });
        }
    }

    /// Copies a picture to a place; what lies outside is cut off.
    pub fn paste(&mut self, other: &Self, [x, y]: [usize; 2]) {
        let width = other.width.min(self.width.saturating_sub(x));
        for row in 0..other.height.min(self.height.saturating_sub(y)) {
            let (to, from) = ((y + row) * self.width + x, row * other.width);
            self.pixels[to..to + width].copy_from_slice(&other.pixels[from..from + width]);
        }
    }
}

/// Writes a PNG file, whole or not at all.
///
/// # Errors
/// What keeps the file from being written: the folder, its permissions, the disk, a picture without pixels.
pub fn write_png(path: impl AsRef<Path>, image: &Image) -> Result<()> {
    let write = |out: &mut dyn Write| {
        let mut encoder = png::Encoder::new(out, image.width as u32, image.height as u32);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        let mut writer = encoder.write_header()?;
        writer.write_image_data(bytemuck::cast_slice(&image.pixels))?;
        Ok(writer.finish()?)
    };
    Ok(atomic_write(path.as_ref(), write)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_picture_reads_back_equal() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("picture.png");
        let mut image = Image::new(3, 2, [1, 2, 3]);
        image.fill([1, 0], [5, 1], [200, 100, 50]);
        image.blend([0, 1], [101, 102, 103], 0.5);
        write_png(&path, &image).unwrap();
        let mut reader =
            png::Decoder::new(std::io::BufReader::new(std::fs::File::open(&path).unwrap())).read_info().unwrap();
        let mut bytes = vec![0; 18];
        let frame = reader.next_frame(&mut bytes).unwrap();
        assert_eq!((frame.width, frame.height, frame.color_type), (3, 2, png::ColorType::Rgb));
        let expected = [[1, 2, 3], [200, 100, 50], [200, 100, 50], [51, 52, 53], [1, 2, 3], [1, 2, 3]];
        assert_eq!(bytes, expected.concat());
    }

    #[test]
    fn a_picture_that_cannot_be_written_names_its_path_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let nowhere = folder.path().join("no such folder").join("picture.png");
        let message = write_png(&nowhere, &Image::new(1, 1, [0; 3])).unwrap_err().to_string();
        assert!(message.contains("no such folder"), "{message}");
        assert!(write_png(folder.path().join("empty.png"), &Image::new(0, 0, [0; 3])).is_err());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
