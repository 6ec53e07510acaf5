//! What a report is about.

use std::thread;

use anyqueue::{Capabilities, Result};
use serde::Serialize;

use super::capabilities::rows;
use crate::harness::Harness;

/// The backend that was run against, as it described itself when the run ended.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct About {
    /// The harness's name.
    pub backend: String,
    /// What the server (or library) says of its version; `None` if it says nothing or could not be reached.
    pub server_version: Option<String>,
    /// Where the suite ran, such as `2 cores, x86_64`.
    pub hardware: String,
    /// What the backend declares, in words; empty if it could not be reached.
    pub capabilities: Vec<(&'static str, String)>,
}

impl About {
    pub(crate) async fn of(harness: &dyn Harness) -> Self {
        let (server_version, capabilities) = match ask(harness).await {
            Ok((version, declared)) => (version, rows(&declared)),
            Err(_) => (None, Vec::new()), // the cases have said why
        };
        Self { backend: harness.name().to_owned(), server_version, hardware: hardware(), capabilities }
    }
}

fn hardware() -> String {
    let cores = thread::available_parallelism().map_or(0, Into::into);
    format!("{cores} cores, {}", std::env::consts::ARCH)
}

async fn ask(harness: &dyn Harness) -> Result<(Option<String>, Capabilities)> {
    const NAMESPACE: &str = "about";
    let storage = harness.open(NAMESPACE).await?;
    storage.init().await?;
    let version = storage.check().await?.server_version;
    let declared = storage.capabilities().clone();
    storage.close().await?;
    harness.remove(NAMESPACE).await;
    Ok((version, declared))
}
