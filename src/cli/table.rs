//! Plain tables for terminals and pipes alike. Pure.

const GAP: &str = "  ";

/// Rows below their headings, every column as wide as its widest cell.
pub(super) fn draw<const N: usize>(headings: [&str; N], rows: &[[String; N]]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.fold(headings[column].chars().count(), usize::max)
    };
    let widths: [usize; N] = std::array::from_fn(width);
    let mut text = String::new();
    let mut add = |cells: [&str; N]| {
        let padded: Vec<String> =
            cells.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        text.push_str(padded.join(GAP).trim_end());
        text.push('\n');
    };
    add(headings);
    for row in rows {
        add(std::array::from_fn(|column| row[column].as_str()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_lines_end_without_blanks() {
        let rows = [["ann", "cek_…x"], ["bartholomew", "-"]].map(|it| it.map(str::to_owned));
        let expected = "NAME         KEY\nann          cek_…x\nbartholomew  -\n";
        assert_eq!(draw(["NAME", "KEY"], &rows), expected);
    }

    #[test]
    fn a_table_without_rows_has_its_headings() {
        assert_eq!(draw(["NAME", "KEY"], &[]), "NAME  KEY\n");
    }
}
