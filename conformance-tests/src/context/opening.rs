//! Opens a client's storage.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyqueue::adapter::Storage;
use anyqueue::{ErrorKind, Result};

use super::timing::scheduling;
use crate::fault_target::FaultTarget;
use crate::harness::Harness;

/// The pause between two attempts to open a client.
const OPEN_PAUSE: Duration = Duration::from_millis(100);

/// Opens a client's storage. A machine that may be late may be too late for a connection: then the attempt is
/// repeated, for as long as the machine may be late.
pub(super) async fn open_storage(
    harness: &dyn Harness,
    target: Option<&dyn FaultTarget>,
    namespace: &str,
) -> Result<Arc<dyn Storage>> {
    let until = Instant::now() + scheduling();
    loop {
        match open_once(harness, target, namespace).await {
            Err(error)
                if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::TimedOut)
                    && Instant::now() < until => {}
            opened => return opened,
        }
        tokio::time::sleep(OPEN_PAUSE).await;
    }
}

async fn open_once(
    harness: &dyn Harness,
    target: Option<&dyn FaultTarget>,
    namespace: &str,
) -> Result<Arc<dyn Storage>> {
    let storage = match target {
        Some(target) => target.open(namespace).await?,
        None => harness.open(namespace).await?,
    };
    storage.init().await?;
    Ok(storage)
}
