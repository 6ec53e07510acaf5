//! Room: in memory for what servers write, and on the disk for what is built.
//!
//! The tests end processes, and never the machine: what a server has written it finds again, wherever that is. On a disk a dozen
//! servers wait for each other's flushes, for seconds on a slow one, and tests of time fail that are right.

use std::fs;
use std::path::{Path, PathBuf};

/// Where Linux keeps files in memory.
const SHARED_MEMORY: &str = "/dev/shm";
/// Bytes that have to be free, as memory and as files: several times what the servers of a run wrote at any moment.
const ROOM: u64 = 12 << 30;
/// With fewer bytes free on the disk, that is what a build has most likely failed of.
const SHORT: u64 = 2 << 30;

/// A folder whose files are in memory, if there is enough of that.
pub(super) fn in_memory() -> Option<PathBuf> {
    let folder = Path::new(SHARED_MEMORY);
    let memory = available(&fs::read_to_string("/proc/meminfo").ok()?)?;
    let is_enough = memory >= ROOM && free(folder)? >= ROOM;
    is_enough.then(|| folder.to_owned())
}

/// What to say of a build that failed into this folder, if its disk is almost full: a linker dies of that without a word of it.
pub(super) fn short_of_disk(folder: &Path) -> Option<String> {
    let free = free(folder)?;
    (free < SHORT).then(|| format!("only {} MiB are free on the disk of {}", free >> 20, folder.display()))
}

/// The bytes that files can take there.
fn free(folder: &Path) -> Option<u64> {
    let files = rustix::fs::statvfs(folder).ok()?;
    Some(files.f_bavail.saturating_mul(files.f_frsize))
}

/// The bytes of memory that programs can get.
fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::available;

    #[test]
    fn available_memory_is_read_from_what_the_kernel_says() {
        let meminfo = "MemTotal:       24683656 kB\nMemFree:        100 kB\nMemAvailable:   19969076 kB\n";
        assert_eq!(available(meminfo), Some(19_969_076 * 1024));
        assert_eq!(available("MemTotal: 1 kB\n"), None);
        assert_eq!(available("MemAvailable: much\n"), None);
    }
}
