//! Aligned tables for a terminal.

use std::io::Write as _;

use serde_json::Value;
use unicode_width::UnicodeWidthStr as _;

use super::client::Reply;

/// How a column is aligned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// Columns of standings: field of the reply, and alignment.
const STANDING: [(&str, Align); 4] =
    [("rank", Align::Right), ("score", Align::Right), ("user_id", Align::Left), ("user_name", Align::Left)];

/// Prints a reply as it came.
pub(super) fn print_raw(reply: &Reply) -> anyhow::Result<()> {
    Ok(writeln!(std::io::stdout(), "{}", reply.text.trim_end())?)
}

/// Prints text.
pub(super) fn print(text: &str) -> anyhow::Result<()> {
    Ok(write!(std::io::stdout(), "{text}")?)
}

/// The standings in a reply's `data`, one a line; the user `marked` has an arrow.
pub(super) fn standings(reply: &Value, marked: Option<&str>) -> String {
    let rows = reply.get("data").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let mut cells: Vec<Vec<String>> = vec![STANDING.iter().map(|(field, _)| (*field).to_owned()).collect()];
    cells.extend(rows.iter().map(|row| STANDING.iter().map(|(field, _)| cell(row, field)).collect()));
    if let Some(marked) = marked {
        cells[0].push(String::new());
        for (row, cells) in rows.iter().zip(&mut cells[1..]) {
            cells.push(if cell(row, "user_id") == marked { "<" } else { "" }.to_owned());
        }
    }
    let mut alignments = STANDING.map(|(_, align)| align).to_vec();
    alignments.push(Align::Left);
    table(&cells, &alignments)
}

/// The rows in a reply's `data` with these fields, one a line.
pub(super) fn rows(reply: &Value, names: &[&str]) -> String {
    let rows = reply.get("data").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let mut cells: Vec<Vec<String>> = vec![names.iter().map(|name| (*name).to_owned()).collect()];
    cells.extend(rows.iter().map(|row| names.iter().map(|name| cell(row, name)).collect()));
    table(&cells, &vec![Align::Left; names.len()])
}

/// Names and values of a reply, one a line.
pub(super) fn fields(reply: &Value, names: &[&str]) -> String {
    let cells: Vec<Vec<String>> = names
        .iter()
        .filter(|name| reply.get(**name).is_some_and(|value| !value.is_null()))
        .map(|name| vec![(*name).to_owned(), cell(reply, name)])
        .collect();
    table(&cells, &[Align::Left, Align::Left])
}

/// A field as a person reads it: nothing for null, and no control characters, which a terminal would obey.
pub(super) fn cell(row: &Value, field: &str) -> String {
    let text = match row.get(field) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(values)) => values.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "),
        Some(value) => value.to_string(),
    };
    text.chars().map(|character| if character.is_control() { '\u{fffd}' } else { character }).collect()
}

fn table(rows: &[Vec<String>], alignments: &[Align]) -> String {
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.width()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..alignments.len()).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for ((cell, align), width) in row.iter().zip(alignments).zip(&widths) {
            let padding = " ".repeat(width - cell.width());
            match align {
                Align::Left => line.extend([cell, padding.as_str(), "  "]),
                Align::Right => line.extend([padding.as_str(), cell, "  "]),
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_by_what_a_terminal_shows() {
        let reply = serde_json::json!({ "data": [
            { "user_id": "ada", "user_name": "Ada", "rank": 1, "score": 1200 },
            { "user_id": "日本", "user_name": null, "rank": 10, "score": -3 },
        ]});
        let lines =
            "rank  score  user_id  user_name\n   1   1200  ada      Ada        <\n  10     -3  日本\n";
        assert_eq!(standings(&reply, Some("ada")), lines);
    }

    #[test]
    fn a_name_cannot_command_the_terminal() {
        assert_eq!(cell(&serde_json::json!({ "user_name": "\u{1b}[2Jx" }), "user_name"), "\u{fffd}[2Jx");
    }
}
