//! Free space on the disk. SQLite needs some for its log, even to take messages out. Pushes leave that much
//! free.

use std::path::Path;

use anyqueue::{Error, ErrorKind};
use rusqlite::Connection;

use crate::connect;
use crate::error::ERRORS;

/// How many bytes pushes leave free: as much as the log takes before it is written back. On a small disk it
/// is a quarter of the disk.
const RESERVE_BYTES: u64 = 4 * 1024 * 1024;

/// Whether there is space for pushes: on the disk or, after the log was written back, in parts of the file
/// that removed messages have freed. If it cannot be determined, it counts as sufficient.
pub(crate) fn is_left(conn: &Connection, path: &Path) -> bool {
    let in_file = || connect::checkpoint(conn).and_then(|()| connect::free_bytes(conn));
    has_reserve(path, 0) || in_file().is_ok_and(|free_bytes| has_reserve(path, free_bytes))
}

/// The error of a push for which there is no space.
pub(crate) fn full() -> Error {
    let text = "the disk is nearly full, and what is left is kept for taking messages out: free disk space, or take messages out; then pushing continues";
    ERRORS.error(ErrorKind::Full, text)
}

/// Whether the space that pushes must leave is free, counting `more_bytes` that are free within the file.
#[cfg(unix)]
pub(crate) fn has_reserve(path: &Path, more_bytes: u64) -> bool {
    rustix::fs::statvfs(path).map_or(true, |disk| {
        let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
        bytes(disk.f_bavail).saturating_add(more_bytes) >= RESERVE_BYTES.min(bytes(disk.f_blocks) / 4)
    })
}

/// Returns the free bytes on the disk, if that can be determined.
#[cfg(unix)]
pub(crate) fn free_bytes(path: &Path) -> Option<u64> {
    rustix::fs::statvfs(path).ok().map(|disk| disk.f_bavail.saturating_mul(disk.f_frsize))
}

#[cfg(not(unix))]
pub(crate) fn free_bytes(_: &Path) -> Option<u64> {
    None
}

#[cfg(not(unix))]
pub(crate) fn has_reserve(_: &Path, _: u64) -> bool {
    true
}
