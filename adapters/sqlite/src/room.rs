//! Room on the disk. SQLite needs some to take messages out too, for its log: pushes leave it that much.

use std::path::Path;

use anyqueue::{Error, ErrorKind};
use rusqlite::Connection;

use crate::connect;
use crate::error::ERRORS;

/// What pushes leave free, in bytes: as much as the log takes before it is written back. On a small disk a quarter of it.
const RESERVE_BYTES: u64 = 4 * 1024 * 1024;

/// Whether there is room for pushes: on the disk, or, once the log was written back, in the file where messages were taken
/// out. What cannot be found out is no obstacle.
pub(crate) fn is_left(conn: &Connection, path: &Path) -> bool {
    let in_file = || connect::checkpoint(conn).and_then(|()| connect::free_bytes(conn));
    has_reserve(path, 0) || in_file().is_ok_and(|free_bytes| has_reserve(path, free_bytes))
}

/// The answer to a push that finds no room.
pub(crate) fn full() -> Error {
    let text = "the disk is nearly full, and what is left is kept for taking messages out: free disk space, or take messages out; then pushing goes on";
    ERRORS.error(ErrorKind::Full, text)
}

/// Whether what pushes leave free is free, with what is free within the file.
#[cfg(unix)]
pub(crate) fn has_reserve(path: &Path, more_bytes: u64) -> bool {
    rustix::fs::statvfs(path).map_or(true, |disk| {
        let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
        bytes(disk.f_bavail).saturating_add(more_bytes) >= RESERVE_BYTES.min(bytes(disk.f_blocks) / 4)
    })
}

/// What is free on the disk, if that can be found out.
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
