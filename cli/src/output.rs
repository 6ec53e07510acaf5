//! What commands write: tables for people, JSON for programs.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use serde::Serialize;

use crate::escape::{harmless_bytes, harmless_json, printable};
use crate::failure::Result;
use crate::say::say;

/// Where a command's output goes: results to standard output, everything else to standard error.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    /// One JSON object on each line instead of tables.
    pub(crate) json: bool,
    /// No notes and no progress.
    pub(crate) quiet: bool,
}

#[allow(clippy::unused_self, reason = "every command writes through its output")]
impl Output {
    /// One line of text.
    pub(crate) fn text(self, text: &str) -> Result {
        let mut out = io::stdout().lock();
        writeln!(out, "{text}")?;
        Ok(())
    }

    /// A payload and a newline: unchanged for programs, escaped on a terminal.
    pub(crate) fn bytes(self, bytes: &[u8]) -> Result {
        let mut out = io::stdout().lock();
        if out.is_terminal() {
            out.write_all(harmless_bytes(bytes).as_bytes())?;
        } else {
            out.write_all(bytes)?;
        }
        writeln!(out)?;
        Ok(())
    }

    /// Writes bytes exactly, without a newline; on a terminal they are escaped.
    pub(crate) fn exact(self, bytes: &[u8]) -> Result {
        let mut out = io::stdout().lock();
        if out.is_terminal() {
            writeln!(out, "{}", harmless_bytes(bytes))?;
        } else {
            out.write_all(bytes)?;
        }
        Ok(out.flush()?)
    }

    /// One JSON object on a line of its own.
    pub(crate) fn object(self, value: &impl Serialize) -> Result {
        let text = harmless_json(&serde_json::to_string(value)?);
        let mut out = io::stdout().lock();
        writeln!(out, "{text}")?;
        Ok(())
    }

    /// The result of a command: a sentence for people or an object for programs.
    pub(crate) fn result(self, text: &str, value: &impl Serialize) -> Result {
        if self.json { self.object(value) } else { self.text(text) }
    }

    /// Flushes what was written so far.
    pub(crate) fn flush(self) -> Result {
        Ok(io::stdout().flush()?)
    }

    /// A note for people.
    pub(crate) fn note(self, text: &str) {
        if !self.quiet {
            self.warn(text);
        }
    }

    /// Reports a problem that does not stop the command.
    pub(crate) fn warn(self, text: &str) {
        say(text);
    }
}

/// A table for people: columns as wide as their longest cell, numbers aligned to the right.
#[derive(Debug)]
pub(crate) struct Table {
    header: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(header: &[&'static str]) -> Self {
        Self { header: header.to_vec(), rows: Vec::new() }
    }

    /// Adds a row. Characters that could disturb a terminal are escaped.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|cell| printable(&cell)).collect());
    }

    pub(crate) fn print(&self, output: Output) -> Result {
        output.text(self.render().trim_end())
    }

    fn render(&self) -> String {
        let header: Vec<String> = self.header.iter().map(|name| (*name).to_owned()).collect();
        let all = || std::iter::once(&header).chain(&self.rows);
        let widths: Vec<usize> = (0..header.len())
            .map(|column| {
                all().filter_map(|row| row.get(column)).map(|c| c.chars().count()).max().unwrap_or(0)
            })
            .collect();
        let right: Vec<bool> = (0..header.len())
            .map(|column| self.rows.iter().filter_map(|row| row.get(column)).all(|cell| is_number(cell)))
            .collect();
        let mut text = String::new();
        for row in all() {
            let cells = row.iter().zip(&widths).zip(&right).map(|((cell, width), right)| {
                let pad = " ".repeat(width.saturating_sub(cell.chars().count()));
                if *right { format!("{pad}{cell}") } else { format!("{cell}{pad}") }
            });
            text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
            text.push('\n');
        }
        text
    }
}

fn is_number(cell: &str) -> bool {
    cell == "?" || cell == "-" || cell.bytes().all(|byte| byte.is_ascii_digit())
}

/// The beginning of a payload, on one line.
pub(crate) fn preview(bytes: &[u8], longest: usize) -> String {
    let Ok(text) = std::str::from_utf8(bytes) else { return format!("({} bytes)", bytes.len()) };
    let mut shown: String = text.chars().take(longest).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    printable(&shown)
}

/// A count, or `?` if the backend does not know it.
pub(crate) fn count(count: Option<u64>) -> String {
    count.map_or_else(|| "?".to_owned(), |count| count.to_string())
}

/// A duration for people, in at most two units.
pub(crate) fn duration(duration: Duration) -> String {
    let rounded = match duration.as_secs() {
        0 if duration.as_millis() == 0 => return "under 1ms".to_owned(),
        0 => Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(0)),
        seconds if seconds < 3600 => Duration::from_secs(seconds),
        seconds => Duration::from_secs(seconds / 60 * 60),
    };
    humantime::format_duration(rounded).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_numbers_stand_to_the_right() {
        let mut table = Table::new(&["queue", "ready"]);
        table.row(["mail".to_owned(), "7".to_owned()]);
        table.row(["thumbnails".to_owned(), "?".to_owned()]);
        assert_eq!(table.render(), "queue       ready\nmail            7\nthumbnails      ?\n");
    }

    #[test]
    fn what_disturbs_a_terminal_is_escaped() {
        let mut table = Table::new(&["payload"]);
        table.row([preview(b"\x1b[2Jgone\nnext", 40)]);
        assert_eq!(table.render(), "payload\n\\u{1b}[2Jgone\\nnext\n");
        assert_eq!(preview(&[0xff, 0xfe], 40), "(2 bytes)");
        assert_eq!(preview("äöüß".as_bytes(), 2), "äö…");
    }
}
