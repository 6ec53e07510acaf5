//! How much memory this process occupies.

/// The resident memory of this process, in bytes: `VmRSS` in `/proc/self/status`. Returns `None` if there is
/// no such file, as outside Linux.
#[must_use]
pub fn resident_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}
