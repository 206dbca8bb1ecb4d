//! A small pixel font, so that pictures carry their names without a font library.

use super::image::Image;

/// Printable ASCII from the space on, 16 glyphs a block, 9 rows a glyph: 7 above the base line, 2 below.
const ART: &str = include_str!("font.txt");
const ROWS: usize = 9;
const COLUMNS: usize = 5;
const A_BLOCK: usize = 16;

/// Height of a line of text, rows of the font.
pub const LINE: usize = ROWS;

/// Pixels of a glyph by row, without the empty columns at its sides. What is not printable ASCII is a box.
fn glyph(c: char) -> Vec<Vec<bool>> {
    let index = if (' '..='~').contains(&c) { c as usize - ' ' as usize } else { 127 - ' ' as usize };
    let (first_row, first_column) = (index / A_BLOCK * ROWS, index % A_BLOCK * (COLUMNS + 1));
    let rows: Vec<Vec<bool>> = ART
        .lines()
        .skip(first_row)
        .take(ROWS)
        .map(|line| line.bytes().skip(first_column).take(COLUMNS).map(|b| b == b'#').collect())
        .collect();
    let used = |column: &usize| rows.iter().any(|row| row[*column]);
    match ((0..COLUMNS).find(used), (0..COLUMNS).rev().find(used)) {
        (Some(first), Some(last)) => rows.iter().map(|row| row[first..=last].to_vec()).collect(),
        // The space.
        _ => vec![vec![false; 2]; ROWS],
    }
}

/// Width of a text, pixels.
pub fn width(text: &str, scale: usize) -> usize {
    text.chars().map(|c| (glyph(c)[0].len() + 1) * scale).sum::<usize>().saturating_sub(scale)
}

/// Writes a text with its upper left corner at a pixel. The font's pixels are read as samples of a smooth shape, so that
/// slants and corners come out round.
pub fn draw(image: &mut Image, [mut x, y]: [usize; 2], text: &str, scale: usize, colour: [u8; 3]) {
    for c in text.chars() {
        let rows = glyph(c);
        let columns = rows[0].len();
        for py in 0..ROWS * scale {
            for px in 0..columns * scale {
                image.blend([x + px, y + py], colour, coverage(&rows, [px, py], scale));
            }
        }
        x += (columns + 1) * scale;
    }
}

/// Share of an enlarged pixel that a glyph covers.
fn coverage(rows: &[Vec<bool>], [px, py]: [usize; 2], scale: usize) -> f32 {
    const SAMPLES: usize = 4;
    let sample = |row: i32, column: i32| {
        let row = usize::try_from(row).ok().and_then(|row| rows.get(row));
        let on = row.and_then(|row| row.get(usize::try_from(column).ok()?)).is_some_and(|on| *on);
        f32::from(u8::from(on))
    };
    let mut inside = 0;
    for i in 0..SAMPLES * SAMPLES {
        let at = |p: usize, k: usize| (p as f32 + (k as f32 + 0.5) / SAMPLES as f32) / scale as f32 - 0.5;
        let (fx, fy) = (at(px, i % SAMPLES), at(py, i / SAMPLES));
        let (column, row) = (fx.floor(), fy.floor());
        let (tx, ty) = (fx - column, fy - row);
        let (column, row) = (column as i32, row as i32);
        let upper = sample(row, column) * (1.0 - tx) + sample(row, column + 1) * tx;
        let lower = sample(row + 1, column) * (1.0 - tx) + sample(row + 1, column + 1) * tx;
        // Below one half, so that pixels that touch at a corner join.
        inside += usize::from(upper * (1.0 - ty) + lower * ty > 0.42);
    }
    inside as f32 / (SAMPLES * SAMPLES) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_font_has_six_full_blocks() {
        let lines: Vec<&str> = ART.lines().collect();
        assert_eq!(lines.len(), 6 * ROWS);
        assert!(lines.iter().all(|line| line.len() == A_BLOCK * (COLUMNS + 1) - 1));
    }

    #[test]
    fn every_printable_character_but_the_space_has_its_own_pixels() {
        let glyphs: Vec<_> = ('!'..='~').map(glyph).collect();
        for (i, one) in glyphs.iter().enumerate() {
            assert!(one.iter().flatten().any(|on| *on));
            assert!(glyphs[i + 1..].iter().all(|other| other != one), "glyph {i} occurs twice");
        }
        // A box: full above and below, hollow between.
        let unknown = glyph('ü');
        assert_eq!(
            (&unknown[0], &unknown[1], &unknown[6]),
            (&vec![true; 5], &vec![true, false, false, false, true], &vec![true; 5])
        );
    }

    #[test]
    fn text_takes_the_width_it_says() {
        // l is 3 columns wide, L is 5, one column between them, at scale 2.
        assert_eq!(width("lL", 2), (3 + 1 + 5) * 2);
        assert_eq!(width("l L", 1), 3 + 1 + 2 + 1 + 5);
        let mut image = Image::new(40, 20, [255; 3]);
        draw(&mut image, [1, 1], "lL", 2, [0; 3]);
        let last = (0..40).rev().find(|x| (0..20).any(|y| image.pixel(*x, y) != [255; 3])).unwrap();
        assert_eq!(last, 1 + width("lL", 2) - 1);
    }
}
