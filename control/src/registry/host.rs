//! The machine and the process, as far as they are known.

use std::path::Path;
use std::sync::LazyLock;

use super::record::WorkerInfo;

/// Distinguishes this process from every other, including one that had its number before.
static PROCESS: LazyLock<String> = LazyLock::new(|| uuid::Uuid::new_v4().to_string());

/// The prefix of the session of a worker that somebody else reports on. Nobody here can tell whether its
/// process lives: the worker itself says where it runs.
pub(super) const EXTERNAL: &str = "external/";

/// Makes a session that distinguishes a worker of this process from every other.
pub(super) fn new_session() -> String {
    format!("{}/{}", *PROCESS, uuid::Uuid::new_v4())
}

/// Whether the process of a worker is gone, as far as this machine can tell, though its beats are still
/// valid: the process should be on this machine and is not there, or this process now has its number, as
/// after a restart.
pub(super) fn has_ended(other: &WorkerInfo) -> bool {
    let is_here = other.host == host_name() && !other.session.starts_with(EXTERNAL);
    let is_mine = other.session.starts_with(&*PROCESS);
    let lives = || !cfg!(target_os = "linux") || Path::new(&format!("/proc/{}", other.pid)).exists();
    is_here && !is_mine && (other.pid == std::process::id() || !lives())
}

/// The name of this machine, as the registry reports it.
#[must_use]
pub fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname")
        .or_else(|_| std::env::var("HOSTNAME").map_err(std::io::Error::other));
    name.map_or_else(|_| "unknown".to_owned(), |name| name.trim().to_owned())
}
