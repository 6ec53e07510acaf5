//! Opening a client's storage.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyqueue::adapter::Storage;
use anyqueue::{ErrorKind, Result};

use super::timing::scheduling;
use crate::fault_target::FaultTarget;
use crate::harness::Harness;

/// From one attempt to open a client to the next.
const OPEN_PAUSE: Duration = Duration::from_millis(100);

/// A client's storage. A machine that may be late may be too late for a connection: then it is tried again, for as long.
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
