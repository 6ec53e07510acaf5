//! The audit trail: a managing request is entered before anything is done, and its outcome afterwards.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use anyqueue::control::ControlStore;
use anyqueue_control::audit::{Audit, Begun, Call};
use axum::http::StatusCode;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};

use crate::access::{Access, Who};
use crate::noted::Notes;
use crate::peer::Peer;
use crate::problem::{Answer, Problem};

/// How long the store may take for an entry.
const DEADLINE: Duration = Duration::from_secs(3);
/// The most requests that are being entered at once, including those whose clients have left meanwhile.
const MAX_ENTERING: usize = 4096;
/// The outcome of a request whose client left before the response: no HTTP status, but the usual number for
/// it.
pub(crate) const LEFT: u16 = 499;

/// Enters managing requests.
pub(crate) struct Trail {
    audit: Option<Audit>,
    room: Arc<Semaphore>,
}

/// A request that has been entered. If it is dropped before its outcome is entered, its client has left, and
/// that is entered as the outcome.
pub(crate) struct Entered {
    audit: Audit,
    /// `None` once the outcome is being entered.
    begun: Option<Begun>,
    pub(crate) notes: Notes,
}

impl Trail {
    /// Creates the trail of this store. Nothing is entered without a store, nor by a read-only service.
    pub(crate) fn new(store: Option<&ControlStore>, read_only: bool) -> Self {
        let audit = store.filter(|_| !read_only).map(|store| Audit::new(store.clone()));
        Self { audit, room: Arc::new(Semaphore::new(MAX_ENTERING)) }
    }

    /// Enters a request before it does anything; its caller has already been admitted. Returns `None` where
    /// there is no trail.
    ///
    /// # Errors
    /// If the request cannot be entered: then it must not be carried out.
    pub(crate) async fn begin(
        &self,
        access: &Access,
        peer: Option<Peer>,
        method: &str,
        path: &str,
        notes: Notes,
    ) -> Answer<Option<Entered>> {
        let Some(audit) = &self.audit else { return Ok(None) };
        let mut call = Call::new(method, path);
        if let Who::Token(token) = &access.who {
            call = call.with_token(&token.name);
        }
        if let Some(certificate) = &access.certificate {
            // Several certificates can stand for one token.
            notes.detail("certificate", certificate);
        }
        if let Some(Peer(address)) = peer {
            call = call.with_from(&address.to_string());
        }
        let Ok(place) = self.room.clone().try_acquire_owned() else {
            return Err(refused("too many wait for it already"));
        };
        let (tell, mut told) = oneshot::channel();
        let (audit, known) = (audit.clone(), notes.clone());
        // Runs to completion even if the client leaves: the entry that is made all the same is then dropped
        // here, which ends it.
        tokio::spawn(async move {
            let begun = audit.begin(&call).await;
            drop(place);
            let _ = tell.send(begun.map(|begun| Entered { audit, begun: Some(begun), notes: known }));
        });
        let why = match tokio::time::timeout(DEADLINE, &mut told).await {
            Ok(Ok(Ok(entered))) => return Ok(Some(entered)),
            Ok(Ok(Err(error))) => error.to_string(),
            Ok(Err(_)) => "the service is shutting down".to_owned(),
            Err(_) => "the store does not answer".to_owned(),
        };
        // The store may still enter it later: then it is dropped, by the other side or with this one.
        notes.decide(StatusCode::SERVICE_UNAVAILABLE.as_u16());
        Err(refused(&why))
    }
}

fn refused(why: &str) -> Problem {
    tracing::warn!(why, "a request could not be recorded in the audit trail, and was refused");
    let text = "this cannot be recorded in the audit trail now, so nothing was done: try again";
    Problem { retry: "safe", ..Problem::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", text) }
}

impl Entered {
    /// Enters the outcome, even if the caller of this goes away. If that fails, the entry still says only
    /// that the request has begun.
    pub(crate) async fn end(mut self, status: StatusCode) {
        if let Some(ending) = self.ending(status.as_u16()) {
            // It ends early only if the service ends.
            let _ = tokio::spawn(ending).await;
        }
    }

    fn ending(&mut self, status: u16) -> Option<impl Future<Output = ()> + Send + use<>> {
        let (begun, audit, outcome) = (self.begun.take()?, self.audit.clone(), self.notes.outcome(status));
        Some(async move {
            let why = match tokio::time::timeout(DEADLINE, audit.end(begun, &outcome)).await {
                Ok(Ok(())) => return,
                Ok(Err(error)) => error.to_string(),
                Err(_) => "the store does not answer".to_owned(),
            };
            tracing::warn!(why, "the outcome of a request could not be recorded in the audit trail");
        })
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let Ok(runtime) = Handle::try_current() else { return };
        let has_failed = std::thread::panicking();
        let status = if has_failed { StatusCode::INTERNAL_SERVER_ERROR.as_u16() } else { LEFT };
        if let Some(ending) = self.ending(status) {
            runtime.spawn(ending);
        }
    }
}

#[cfg(test)]
mod tests {
    use anyqueue::{Page, Queue};
    use anyqueue_memory::MemoryQueue;

    use super::*;

    fn trail() -> (Trail, Audit) {
        let store = Queue::new(MemoryQueue::new()).unwrap().control().unwrap();
        (Trail::new(Some(&store), false), Audit::new(store))
    }

    /// The outcome of the newest request, once it is entered: its status and queues.
    async fn outcome(audit: &Audit) -> (u16, Vec<String>) {
        let ended = async {
            loop {
                let entry = audit.list(Page::of(1)).await.unwrap().entries.pop();
                if let Some(outcome) = entry.and_then(|entry| entry.outcome) {
                    return (outcome.status, outcome.queues);
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), ended).await.unwrap()
    }

    #[tokio::test]
    async fn a_request_whose_handler_panics_is_entered_as_failed() {
        let (trail, audit) = trail();
        let access = Access::everything(Who::Anybody);
        let entered = trail.begin(&access, None, "POST", "/", Notes::default()).await.unwrap().unwrap();
        let handler = tokio::spawn(async move {
            let _entered = entered;
            assert!(std::hint::black_box(false), "on purpose");
        });
        assert!(handler.await.unwrap_err().is_panic());
        assert_eq!(outcome(&audit).await.0, 500);
    }

    #[tokio::test]
    async fn whoever_leaves_while_it_is_being_entered_is_entered_as_gone() {
        let (trail, audit) = trail();
        let (access, notes) = (Access::everything(Who::Anybody), Notes::default());
        notes.queue("mail");
        let mut begin = Box::pin(trail.begin(&access, None, "POST", "/v1/partitions/mail/pause", notes));
        assert!(futures_util::poll!(&mut begin).is_pending());
        drop(begin);
        assert_eq!(outcome(&audit).await, (LEFT, vec!["mail".to_owned()]));
    }

    #[tokio::test]
    async fn no_more_are_entered_at_once_than_there_is_room_for() {
        let (mut trail, audit) = trail();
        trail.room = Arc::new(Semaphore::new(0));
        let access = Access::everything(Who::Anybody);
        let refused = trail.begin(&access, None, "POST", "/", Notes::default()).await;
        assert_eq!(refused.err().map(|problem| problem.status), Some(503));
        assert!(audit.list(Page::of(1)).await.unwrap().entries.is_empty());
    }
}
