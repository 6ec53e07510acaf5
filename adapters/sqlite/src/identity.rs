//! Whether the path still leads to the file that was opened.
//!
//! A connection keeps writing to the file that it has open, though another one was put in its place or it was deleted: what it
//! commits then is seen by nobody. SQLite does not notice that while it writes a log ahead, so the writer looks, and answers nobody for
//! what it committed before it has looked once more.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use anyqueue::{Error, ErrorKind, Result};

use crate::error::ERRORS;

/// How often a file is opened anew that was replaced in that moment.
const TRIES: usize = 10;

/// Which file it is, as the system knows it: its device and its number there.
#[cfg(unix)]
type FileId = (u64, u64);
/// There are no such numbers: a file that SQLite has open can be neither replaced nor deleted on Windows.
#[cfg(not(unix))]
type FileId = ();

/// The files that a handle has opened. All its connections are to these.
#[derive(Debug, Default)]
pub(crate) struct Identity {
    database: OnceLock<FileId>,
    // A std mutex: it is held for some system calls and never across an await.
    logs: Mutex<Vec<(PathBuf, FileId)>>,
}

/// What became of a file.
enum Fate {
    There(FileId),
    Gone,
    /// It cannot be found out, which is no obstacle.
    Unknown,
}

impl Identity {
    /// Fails if the database or its log are not those that were opened. Two system calls, of a microsecond each.
    pub(crate) fn look(&self, path: &Path) -> Result<()> {
        self.look_at(path, 1)
    }

    /// As [`look`](Self::look), and at the log's index too.
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

    /// As [`look`](Self::look), of the database alone: its logs come and go with the last connection.
    pub(crate) fn look_at_database(&self, path: &Path) -> Result<()> {
        match (self.database.get(), fate(path)) {
            (None, _) | (_, Fate::Unknown) => Ok(()),
            (Some(_), Fate::Gone) => Err(gone(path)),
            (Some(opened), Fate::There(found)) if found == *opened => Ok(()),
            (Some(_), Fate::There(_)) => Err(replaced(path)),
        }
    }

    /// Opens the database such that it is known which file that is: the one that the path led to before and after.
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

    /// Learns which logs belong to the connection that writes. They stay as long as it is open.
    pub(crate) fn learn_logs(&self, path: &Path) {
        // SQLite follows links too before it names them.
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

    /// The connection that writes is closed.
    pub(crate) fn forget_logs(&self) {
        self.logs().clear();
    }

    fn logs(&self) -> MutexGuard<'_, Vec<(PathBuf, FileId)>> {
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The file of this ending beside the database.
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

/// Asks for the number alone. A file whose times were asked for gets new ones with the next write (Linux 6.13 and later, "multigrain
/// timestamps"), and each commit's sync would have to write those as well.
#[cfg(target_os = "linux")]
fn file_id(path: &Path) -> std::io::Result<FileId> {
    use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
    use rustix::io::Errno;
    match statx(CWD, path, AtFlags::empty(), StatxFlags::INO) {
        Ok(file) => Ok((rustix::fs::makedev(file.stx_dev_major, file.stx_dev_minor), file.stx_ino)),
        // An old kernel, or a sandbox that knows no such call.
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
        "{}: SQLite's log was replaced or deleted while open: stop every process that uses the file, then open it anew",
        log.display()
    );
    ERRORS.error(ErrorKind::Unavailable, text)
}
