//! Text tables: the first column to the left, numbers to the right.

use std::fmt;

/// Rows of cells under a header.
pub struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
    /// Columns that hold text and keep to the left.
    left: Vec<usize>,
}

impl Table {
    pub fn new<const N: usize>(header: [&str; N]) -> Self {
        Self { header: header.map(String::from).to_vec(), rows: Vec::new(), left: vec![0] }
    }

    /// A header whose length is only known when the program runs.
    pub fn with_header(header: Vec<String>) -> Self {
        Self { header, rows: Vec::new(), left: vec![0] }
    }

    /// Keeps these columns to the left as well.
    #[must_use]
    pub fn left(mut self, columns: &[usize]) -> Self {
        self.left.extend_from_slice(columns);
        self
    }

    /// Adds a row; cells that are missing stay blank.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = || std::iter::once(&self.header).chain(&self.rows);
        let columns = all().map(Vec::len).max().unwrap_or(0);
        let cell = |row: &[String], column: usize| row.get(column).cloned().unwrap_or_default();
        let widths: Vec<usize> =
            (0..columns).map(|c| all().map(|row| cell(row, c).chars().count()).max().unwrap_or(0)).collect();
        for row in all() {
            let line: Vec<String> = (0..columns)
                .map(|c| {
                    let (text, width) = (cell(row, c), widths[c]);
                    if self.left.contains(&c) { format!("{text:<width$}") } else { format!("{text:>width$}") }
                })
                .collect();
            writeln!(f, "{}", line.join("  ").trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(["name", "n"]);
        table.row(["road".into(), "5".into()]);
        table.row(["person".into(), "1,000".into()]);
        assert_eq!(table.to_string(), "name        n\nroad        5\nperson  1,000\n");
        let mut text = Table::new(["a", "b"]).left(&[1]);
        text.row(["x".into(), "yy".into()]);
        text.row(["x".into()]);
        assert_eq!(text.to_string(), "a  b\nx  yy\nx\n", "no blanks at the end of a line");
    }
}
