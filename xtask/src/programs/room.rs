//! Room: in memory for what servers write, and on the disk for what is built.
//!
//! The tests kill processes, but never the machine: what a server has written is there when it restarts, on
//! whatever medium. On a disk, a dozen servers wait for each other's flushes, for seconds if it is slow, and
//! correct tests of timing fail.

use std::fs;
use std::path::{Path, PathBuf};

/// Where Linux keeps files in memory.
const SHARED_MEMORY: &str = "/dev/shm";
/// How many bytes must be free, both in memory and as files: several times what the servers of a run wrote at
/// any moment.
const ROOM: u64 = 12 << 30;
/// If fewer bytes than this are free on the disk, that is most likely why a build failed.
const SHORT: u64 = 2 << 30;

/// Returns a folder whose files are in memory, if there is enough of it.
pub(super) fn in_memory() -> Option<PathBuf> {
    let folder = Path::new(SHARED_MEMORY);
    let memory = available(&fs::read_to_string("/proc/meminfo").ok()?)?;
    let is_enough = memory >= ROOM && free(folder)? >= ROOM;
    is_enough.then(|| folder.to_owned())
}

/// Returns a note on a build that failed in this folder, if its disk is almost full: a linker then dies
/// without saying why.
pub(super) fn short_of_disk(folder: &Path) -> Option<String> {
    let free = free(folder)?;
    (free < SHORT).then(|| format!("only {} MiB are free on the disk of {}", free >> 20, folder.display()))
}

/// Returns how many bytes files can take there.
fn free(folder: &Path) -> Option<u64> {
    let files = rustix::fs::statvfs(folder).ok()?;
    Some(files.f_bavail.saturating_mul(files.f_frsize))
}

/// Returns how many bytes of memory programs can get.
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
