//! Detecting whether the path still leads to the file that was opened.
//!
//! A connection keeps writing to the file that it opened, even if that was deleted or another one was put in
//! its place. Nobody sees what it commits then. With a write-ahead log SQLite does not notice, so after each
//! commit the writer checks the path before it answers.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use anyqueue::{Error, ErrorKind, Result};

use crate::error::ERRORS;

/// How often opening is repeated if the file is replaced at that moment.
const TRIES: usize = 10;

/// The identity of a file on this system: its device, and its number there.
#[cfg(unix)]
type FileId = (u64, u64);
/// Unused: Windows lets no file be replaced or deleted while SQLite has it open.
#[cfg(not(unix))]
type FileId = ();

/// The files that a handle has opened. All its connections use these.
#[derive(Debug, Default)]
pub(crate) struct Identity {
    database: OnceLock<FileId>,
    // A std mutex, because it is held for a few system calls and never across an await.
    logs: Mutex<Vec<(PathBuf, FileId)>>,
}

/// What has become of a file.
enum Fate {
    There(FileId),
    Gone,
    /// It cannot be determined, which is not treated as an error.
    Unknown,
}

impl Identity {
    /// Fails if the database or its log is not the file that was opened. Takes two system calls of a
    /// microsecond each.
    pub(crate) fn look(&self, path: &Path) -> Result<()> {
        self.look_at(path, 1)
    }

    /// Does the same as [`look`](Self::look), and checks the index of the log too.
    pub(crate) fn look_closely(&self, path: &Path) -> Result<()> {
        self.look_at(path, usize::MAX)
    }

    fn look_at(&self, path: &Path, logs: usize) -> Result<()> {
        self.look_at_database(path)?;
        for (log, id) in self.logs().iter().take(logs) {
            match fate(log) {
                Fate::Unknown => {}
                Fate::There(found) if found == *id => {}
                Fate::There(_) | Fate::Gone => return Err(log_replaced(log)),
            }
        }
        Ok(())
    }

    /// Does the same as [`look`](Self::look) for the database only, since its logs come and go with the last
    /// connection.
    pub(crate) fn look_at_database(&self, path: &Path) -> Result<()> {
        match (self.database.get(), fate(path)) {
            (None, _) | (_, Fate::Unknown) => Ok(()),
            (Some(_), Fate::Gone) => Err(gone(path)),
            (Some(opened), Fate::There(found)) if found == *opened => Ok(()),
            (Some(_), Fate::There(_)) => Err(replaced(path)),
        }
    }

    /// Opens the database, and makes sure which file was opened: the path must lead to the same one before
    /// and after.
    pub(crate) fn open<T>(&self, path: &Path, open: impl Fn() -> Result<T>) -> Result<T> {
        for _ in 0..TRIES {
            self.look_at_database(path)?;
            let before = fate(path);
            let opened = open()?;
            match (before, fate(path)) {
                (Fate::There(before), Fate::There(after)) if before == after => {
                    return if *self.database.get_or_init(|| after) == after {
                        Ok(opened)
                    } else {
                        Err(replaced(path))
                    };
                }
                (Fate::Unknown, _) | (_, Fate::Unknown) => return Ok(opened),
                _ => {} // it was made just now, by this or by another
            }
        }
        Err(replaced(path))
    }

    /// Learns which logs belong to the connection that writes. They exist as long as it is open.
    pub(crate) fn learn_logs(&self, path: &Path) {
        // SQLite, too, resolves links before it names the logs.
        let database = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let known = |suffix| {
            let log = beside(&database, suffix);
            match fate(&log) {
                Fate::There(id) => Some((log, id)),
                Fate::Gone | Fate::Unknown => None,
            }
        };
        *self.logs() = ["-wal", "-shm"].into_iter().filter_map(known).collect();
    }

    /// Forgets the logs, because the connection that writes is closed.
    pub(crate) fn forget_logs(&self) {
        self.logs().clear();
    }

    fn logs(&self) -> MutexGuard<'_, Vec<(PathBuf, FileId)>> {
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The path of the file with this suffix next to the database.
pub(crate) fn beside(database: &Path, suffix: &str) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

#[cfg(unix)]
fn fate(path: &Path) -> Fate {
    match file_id(path) {
        Ok(id) => Fate::There(id),
        Err(error) => match error.kind() {
            std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => Fate::Gone,
            _ => Fate::Unknown,
        },
    }
}

/// Asks only for the inode number. If a file was asked for its times, its next write updates them (Linux 6.13
/// and later, "multigrain timestamps"), and each commit's sync would have to write those too.
#[cfg(target_os = "linux")]
fn file_id(path: &Path) -> std::io::Result<FileId> {
    use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
    use rustix::io::Errno;
    match statx(CWD, path, AtFlags::empty(), StatxFlags::INO) {
        Ok(file) => Ok((rustix::fs::makedev(file.stx_dev_major, file.stx_dev_minor), file.stx_ino)),
        // An old kernel, or a sandbox without this call.
        Err(Errno::NOSYS | Errno::PERM) => metadata_id(path),
        Err(error) => Err(error.into()),
    }
}

#[cfg(all(unix, not(target_os = "linux")))]
fn file_id(path: &Path) -> std::io::Result<FileId> {
    metadata_id(path)
}

#[cfg(unix)]
fn metadata_id(path: &Path) -> std::io::Result<FileId> {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).map(|file| (file.dev(), file.ino()))
}

#[cfg(not(unix))]
fn fate(_: &Path) -> Fate {
    Fate::Unknown
}

fn gone(path: &Path) -> Error {
    let text = format!(
        "{}: the file is gone, it was moved or deleted while open: put it back, or close this handle and open another",
        path.display()
    );
    ERRORS.error(ErrorKind::Unavailable, text)
}

fn replaced(path: &Path) -> Error {
    let text = format!(
        "{}: another file was put in the place of the one that is open: put that one back, or close this handle and open another, as must every process that uses it",
        path.display()
    );
    ERRORS.error(ErrorKind::Unavailable, text)
}

fn log_replaced(log: &Path) -> Error {
    let text = format!(
        "{}: SQLite's log was replaced or deleted while open: stop every process that uses the file, then open it again",
        log.display()
    );
    ERRORS.error(ErrorKind::Unavailable, text)
}
