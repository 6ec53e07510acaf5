//! Registration of workers over HTTP: how many there may be, and under which names.

use anyqueue_control::registry::{Admission, External, WorkerInfo};
use axum::http::StatusCode;

use crate::access;
use crate::app::App;
use crate::problem::{Answer, Problem};

/// Registers a worker, and returns the secret that proves that a later request comes from it.
pub(crate) async fn admit(app: &App, worker: &External) -> Answer<String> {
    let (registry, name) = (app.registry()?, worker.name());
    app.places.take(name, worker.stays_for())?;
    let may_replace = |other: Option<&WorkerInfo>| other.map_or_else(access::covers_all, is_ours);
    let refused = match registry.admit_where(worker, may_replace).await {
        Ok(Admission::Admitted { session }) => {
            app.places.keep(name, worker.stays_for());
            return Ok(session);
        }
        Ok(Admission::Taken(other)) => taken(&other),
        Ok(_) => concealed(name),
        Err(error) => error.into(),
    };
    app.places.give_up(name);
    Err(refused)
}

/// Whether the caller could have registered this worker too.
fn is_ours(other: &WorkerInfo) -> bool {
    let are_covered = || other.partitions.iter().all(|name| access::covers(name));
    access::covers_all() || (!other.partitions.is_empty() && are_covered())
}

fn taken(other: &WorkerInfo) -> Problem {
    if !is_ours(other) {
        return concealed(&other.name);
    }
    conflict(format!(
        "a worker on {} with process id {} has the name {:?}: give this one another name or none, or wait until that one has ended or is silent",
        other.host, other.pid, other.name
    ))
}

/// Where the worker runs is not for everybody to see.
fn concealed(name: &str) -> Problem {
    conflict(format!(
        "a worker that this token could not have registered has the name {name:?}: give this one another name or none"
    ))
}

fn conflict(text: String) -> Problem {
    Problem { retry: "safe", ..Problem::new(StatusCode::CONFLICT, "conflict", text) }
}
