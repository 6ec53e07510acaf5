//! What the calls of job workers have in common.

use std::time::Duration;

use serde::Deserialize;
use utoipa::ToSchema;

use super::job_worker::VALID;
use crate::app::App;

/// A kind of job: the name of its queue. A number stands for its text.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum Kind {
    Name(String),
    Number(u64),
}

impl Kind {
    pub(crate) fn into_name(self) -> String {
        match self {
            Self::Name(name) => name,
            Self::Number(number) => number.to_string(),
        }
    }
}

/// Which worker.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
pub(crate) struct Which {
    /// The id that it got when it registered.
    #[serde(alias = "id", alias = "WorkerId", alias = "workerId")]
    pub(crate) id: String,
}

/// How long a task belongs to a worker, unless the worker pings.
pub(crate) fn lease(app: &App) -> Duration {
    let lease = &app.queue.capabilities().lease;
    VALID.min(lease.max)
}
