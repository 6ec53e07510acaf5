//! Directories for databases, on a real disk, removed at the end.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::client::Result;

/// The directory that holds all others.
#[derive(Debug)]
pub(crate) struct Scratch(TempDir);

impl Scratch {
    /// Creates a directory in `parent`, or beside this program.
    pub(crate) fn new(parent: Option<&Path>) -> Result<Self> {
        let parent = match parent {
            Some(parent) => parent.to_owned(),
            None => beside_this_program()?,
        };
        if is_in_memory(&parent)? {
            return Err(format!(
                "{} is in memory, not on a disk: choose another --scratch",
                parent.display()
            )
            .into());
        }
        Ok(Self(TempDir::with_prefix_in("anyqueue-bench-", parent)?))
    }

    /// Creates a directory that is removed when it is dropped.
    pub(crate) fn directory(&self) -> Result<TempDir> {
        Ok(TempDir::new_in(&self.0)?)
    }
}

/// Flushing to a file system in memory costs nothing, so a measurement there means nothing.
#[cfg(target_os = "linux")]
fn is_in_memory(directory: &Path) -> Result<bool> {
    const TMPFS: u64 = 0x0102_1994; // see `man 2 statfs`
    const RAMFS: u64 = 0x8584_58f6;
    let file_system = u64::try_from(rustix::fs::statfs(directory)?.f_type)?;
    Ok([TMPFS, RAMFS].contains(&file_system))
}

#[cfg(not(target_os = "linux"))]
fn is_in_memory(_directory: &Path) -> Result<bool> {
    Ok(false)
}

fn beside_this_program() -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    Ok(program.parent().ok_or("this program is in no directory")?.to_owned())
}
