//! Text for people: headings, aligned tables, a little colour on a terminal. What comes from outside is shown without control
//! characters: an error of some node must not write on an operator's terminal.

use crate::domain::encoding::checksummed;
use chrono::{DateTime, SecondsFormat, Utc};
use entity::values::Address;
use std::fmt::Display;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    Plain,
    Good,
    Look,
    Bad,
}

/// One place in a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    text: String,
    tone: Tone,
}

pub fn cell(value: impl Display) -> Cell {
    Cell { text: plain(&value.to_string()), tone: Tone::Plain }
}

/// An address as people read it: with its checksum.
pub fn address(of: &Address) -> Cell {
    cell(checksummed(of))
}

/// `-` for nothing.
pub fn maybe(value: Option<impl Display>) -> Cell {
    value.map_or_else(|| cell("-"), cell)
}

pub fn toned(value: impl Display, tone: Tone) -> Cell {
    Cell { tone, ..cell(value) }
}

/// A time as it is logged.
pub fn time(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}

/// Columns of a line of sentences.
const WIDE: usize = 100;

pub struct Page {
    text: String,
    coloured: bool,
}

impl Page {
    pub fn new(coloured: bool) -> Self {
        Self { text: String::new(), coloured }
    }

    pub fn into_text(self) -> String {
        self.text
    }

    pub fn line(&mut self, text: impl Display) {
        self.toned_line(text, Tone::Plain);
    }

    pub fn toned_line(&mut self, text: impl Display, tone: Tone) {
        let text = self.painted(&plain(&text.to_string()), tone);
        self.text.push_str(text.trim_end());
        self.text.push('\n');
    }

    /// A heading, with room above it.
    pub fn heading(&mut self, text: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.line(text);
    }

    /// Names and values, the values under each other.
    pub fn fields(&mut self, fields: &[(&str, Cell)]) {
        let width = fields.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
        for (name, value) in fields {
            let value = self.painted(&value.text, value.tone);
            self.text.push_str(format!("{name:<width$}  {value}").trim_end());
            self.text.push('\n');
        }
    }

    /// Names and sentences, the sentences broken into lines that fit.
    pub fn story(&mut self, parts: &[(&str, Cell)]) {
        let width = parts.iter().map(|(name, _)| name.chars().count()).max().unwrap_or_default();
        for (name, told) in parts {
            for (place, line) in wrapped(&told.text, WIDE.saturating_sub(width + 2)).into_iter().enumerate() {
                let name = if place == 0 { name } else { "" };
                let line = self.painted(&line, told.tone);
                self.text.push_str(format!("{name:<width$}  {line}").trim_end());
                self.text.push('\n');
            }
        }
    }

    /// A table; `empty` is said in place of one without rows.
    pub fn table(&mut self, heads: &[&str], rows: &[Vec<Cell>], empty: &str) {
        if rows.is_empty() {
            self.line(empty);
            return;
        }
        let mut widths: Vec<usize> = heads.iter().map(|head| head.chars().count()).collect();
        for row in rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.text.chars().count());
            }
        }
        let heads: Vec<_> = heads.iter().map(cell).collect();
        for row in std::iter::once(&heads).chain(rows) {
            let mut line = String::new();
            for (width, cell) in widths.iter().zip(row) {
                // Colour takes no room on the screen, so the padding is counted without it.
                let padding = width - cell.text.chars().count() + 2;
                line.push_str(&self.painted(&cell.text, cell.tone));
                line.extend(std::iter::repeat_n(' ', padding));
            }
            self.text.push_str(line.trim_end());
            self.text.push('\n');
        }
    }

    fn painted(&self, text: &str, tone: Tone) -> String {
        let colour = match tone {
            Tone::Plain => "",
            Tone::Good => "\u{1b}[32m",
            Tone::Look => "\u{1b}[33m",
            Tone::Bad => "\u{1b}[31m",
        };
        if self.coloured && !colour.is_empty() { format!("{colour}{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

/// Breaks at spaces; what is longer than a line has one of its own.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        let fits = lines.last().is_none_or(|line| line.is_empty() || line.chars().count() + 1 + word.chars().count() <= width);
        if !fits {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_under_each_other_with_and_without_colour() {
        let rows = [vec![cell("a"), toned("dead", Tone::Bad), cell(1)], vec![cell("long"), cell("ok"), cell(22)]];
        let text = |coloured| {
            let mut page = Page::new(coloured);
            page.table(&["ID", "STATE", "N"], &rows, "none");
            page.into_text()
        };
        assert_eq!(text(false), "ID    STATE  N\na     dead   1\nlong  ok     22\n");
        assert_eq!(text(true).replace("\u{1b}[31m", "").replace("\u{1b}[0m", ""), text(false));
    }

    #[test]
    fn sentences_are_broken_into_lines_under_each_other() {
        let mut page = Page::new(false);
        let long = ["word"; 40].join(" ");
        page.story(&[("why", cell(&long)), ("next", cell("nothing"))]);
        let text = page.into_text();
        assert!(text.lines().all(|line| line.chars().count() <= WIDE), "{text}");
        assert_eq!(text.lines().nth(1).map(|line| line.starts_with("      word")), Some(true), "{text}");
        assert_eq!(text.split_whitespace().filter(|word| *word == "word").count(), 40);
        let hash = "f".repeat(120);
        assert_eq!(wrapped(&format!("at {hash} now"), 20), ["at", hash.as_str(), "now"]);
    }

    #[test]
    fn what_others_wrote_cannot_move_the_cursor() {
        let mut page = Page::new(false);
        page.line("a\u{1b}[2Jb\rc\nd");
        page.table(&["X"], &[], "none");
        assert_eq!(page.into_text(), "a [2Jb c d\nnone\n");
    }
}
