//! A worker that has nothing but an id: its name in the registry, and its orders.

use std::time::Duration;

use anyqueue_control::registry::{Order, WorkerInfo, WorkerState};
use axum::http::StatusCode;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::problem::{Answer, Problem};

/// How long a ping is valid: such workers send one each minute.
pub(crate) const VALID: Duration = Duration::from_mins(3);

/// A worker that is known by its id. The id is its secret, so it has another name where others see it.
pub(crate) struct JobWorker {
    id: Uuid,
    pub(crate) name: String,
    pub(crate) session: String,
}

impl JobWorker {
    pub(crate) fn new() -> Self {
        Self::from(Uuid::new_v4())
    }

    /// The worker with this id, however the id is written.
    pub(crate) fn of(id: &str) -> Answer<Self> {
        let id = Uuid::parse_str(id);
        id.map(Self::from).map_err(|_| Problem::invalid("send the worker's id as RegisterWorker returned it"))
    }

    pub(crate) fn id(&self) -> String {
        self.id.to_string()
    }

    /// Whether the worker is to end once it holds nothing.
    pub(crate) fn is_to_end(&self, info: &WorkerInfo) -> bool {
        self.state(info) == WorkerState::Draining
    }

    /// Whether the worker may have another task.
    pub(crate) fn takes_on(&self, info: &WorkerInfo) -> bool {
        self.state(info) == WorkerState::Working
    }

    /// The state that the worker is to have: it cannot be given orders, so its calls are answered
    /// accordingly.
    #[allow(clippy::unused_self, reason = "of this kind of worker alone")]
    pub(crate) fn state(&self, info: &WorkerInfo) -> WorkerState {
        match info.order {
            Some(Order::Quiet) => WorkerState::Quiet,
            Some(Order::Resume) => WorkerState::Working,
            // This includes orders that a later release may know.
            Some(_) => WorkerState::Draining,
            None => info.state,
        }
    }
}

impl From<Uuid> for JobWorker {
    fn from(id: Uuid) -> Self {
        let session = id.simple().to_string();
        let digest = Sha256::digest(session.as_bytes());
        let digest: Vec<String> = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        Self { id, name: format!("jobs-{}", digest.concat()), session }
    }
}

pub(crate) fn expired() -> Problem {
    let text =
        "this worker was silent for too long, or was forgotten: let go of its tasks, and register again";
    Problem::new(StatusCode::GONE, "gone", text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_worker_is_the_same_however_its_id_is_written_and_its_name_does_not_tell_it() {
        let worker = JobWorker::new();
        for text in
            [worker.id(), worker.id().to_uppercase(), format!("{{{}}}", worker.id()), worker.session.clone()]
        {
            let same = JobWorker::of(&text).unwrap();
            assert_eq!((&same.name, &same.session), (&worker.name, &worker.session), "{text}");
        }
        assert!(!worker.name.contains(worker.session.get(..8).unwrap()));
        for text in ["", "w", "00000000-0000-0000-0000-00000000000g"] {
            assert!(JobWorker::of(text).is_err(), "{text:?}");
        }
    }
}
