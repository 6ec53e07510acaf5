//! A report about the file, for operators.

use std::path::Path;

use anyqueue::{Operation, Result};
use rusqlite::Connection;

use crate::storage::SqliteQueue;
use crate::{connect, identity, room};

/// A log of this size is worth a warning: it is written back at 4 MiB unless a reader prevents that.
const LARGE_LOG_BYTES: u64 = 256 * 1024 * 1024;

/// The state of the queue's file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileReport {
    /// The size of the file in bytes, without its log.
    pub file_bytes: u64,
    /// The number of pages in the file.
    pub pages: u64,
    /// How many of the pages are free for new messages. The file does not shrink by itself; `VACUUM` releases
    /// free pages.
    pub free_pages: u64,
    /// The size of the write-ahead log in bytes. It keeps growing while a reader stays in a transaction.
    pub log_bytes: u64,
    /// The free bytes on the file's disk; `None` if that cannot be determined.
    pub disk_free_bytes: Option<u64>,
    /// Whether so little is free that pushes are refused with [`Full`](anyqueue::ErrorKind::Full). The rest
    /// is kept for taking messages out.
    pub is_full: bool,
}

impl FileReport {
    fn read(conn: &Connection, path: &Path) -> Result<Self> {
        let (pages, free_pages, page_bytes) = connect::pages(conn)?;
        let log = identity::beside(&std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()), "-wal");
        Ok(Self {
            file_bytes: pages.saturating_mul(page_bytes),
            pages,
            free_pages,
            // The log does not exist before anything was written.
            log_bytes: std::fs::metadata(log).map_or(0, |log| log.len()),
            disk_free_bytes: room::free_bytes(path),
            is_full: !room::has_reserve(path, free_pages.saturating_mul(page_bytes)),
        })
    }

    /// Warnings for an operator, as full sentences.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.is_full {
            warnings.push("pushes are refused, and ends that this file keeps for another queue: the disk is nearly full, and what is left is kept for taking messages out; free disk space".to_owned());
        }
        if self.log_bytes >= LARGE_LOG_BYTES {
            warnings.push(format!(
                "the write-ahead log has grown to {} bytes: look for a reader that stays in a transaction",
                self.log_bytes
            ));
        }
        warnings
    }
}

impl SqliteQueue {
    /// Reports the size of the file and its log, its free pages, and the free space on the disk. This is
    /// cheap.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub async fn file_report(&self) -> Result<FileReport> {
        let path = self.inner.config.path.clone();
        self.read(Operation::Check, move |conn| FileReport::read(conn, &path)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_nobody_writes_back_is_warned_of() {
        assert!(FileReport { log_bytes: 8 * 1024 * 1024, ..FileReport::default() }.warnings().is_empty());
        let full = FileReport { is_full: true, ..FileReport::default() };
        assert!(full.warnings().first().is_some_and(|text| text.contains("nearly full")));
        let worn = FileReport { log_bytes: LARGE_LOG_BYTES, ..FileReport::default() };
        assert!(worn.warnings().first().is_some_and(|text| text.contains("transaction")));
    }
}
