//! The secrets of workers that somebody else reports on.

use sha2::{Digest as _, Sha256};

use super::host::EXTERNAL;
use super::record::WorkerInfo;

/// What the store knows about a secret. Whoever reads the store cannot speak for the worker.
pub(super) fn hashed(session: &str) -> String {
    let digest = Sha256::digest(session.as_bytes());
    let hex: Vec<String> = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{EXTERNAL}{}", hex.concat())
}

/// Whether this is the worker with this secret.
pub(super) fn is_of(info: &WorkerInfo, session: &str) -> bool {
    info.session == hashed(session)
}
