//! The control store of a queue's backend, with deadlines and retries.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::guard;
use super::handle::Queue;
use crate::control::{
    Applied, Change, ControlStorage, Entry, Key, MAX_CONTROL_CALL_BYTES, MAX_CONTROL_CHANGES, Stamped,
};
use crate::error::{Error, ErrorKind, Operation, Result, RetryClass};
use crate::inspect::Page;
use crate::telemetry;

const WHAT: &str = "a control store";

impl Queue {
    /// Returns the backend's store of small shared entries: see [`control`](crate::control). If this queue's
    /// backend has none, use the store of another queue whose backend has one.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) if the backend has none.
    pub fn control(&self) -> Result<ControlStore> {
        if self.capabilities().control && self.storage().control().is_some() {
            return Ok(ControlStore(self.clone()));
        }
        Err(self.0.stamp(guard::unsupported(WHAT), Operation::Control))
    }
}

/// Small shared entries on which processes agree: see [`control`](crate::control). Cheap to clone.
///
/// # Failures
/// A call that fails without a result is repeated as the queue's [`RetryPolicy`](crate::RetryPolicy) allows,
/// even if it may have taken effect: a change recognises its own [version](crate::control::Version) and does
/// not conflict with itself. Two cases remain: if somebody else changed the entry in between, the call
/// returns a conflict though its change was in effect for a while; and an
/// [unconditional](crate::control::Expect::Any) change may be made twice.
///
/// # Cancellation
/// If the future of a change is dropped, the change may or may not be made.
#[derive(Clone, Debug)]
pub struct ControlStore(Queue);

impl ControlStore {
    /// Returns the entry under a key.
    ///
    /// # Errors
    /// The server's error.
    pub async fn get(&self, key: &Key) -> Result<Stamped<Option<Entry>>> {
        let found = self.get_many(std::slice::from_ref(key)).await?;
        Ok(found.map(|entries| entries.into_iter().next().flatten()))
    }

    /// Returns the entries under several keys, in order; at most [`MAX_CONTROL_CHANGES`] keys.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for too many keys, or the server's error.
    pub async fn get_many(&self, keys: &[Key]) -> Result<Stamped<Vec<Option<Entry>>>> {
        if keys.len() > MAX_CONTROL_CHANGES {
            return Err(self.refused(Error::invalid(format!(
                "{} keys at once: read at most {MAX_CONTROL_CHANGES}",
                keys.len()
            ))));
        }
        let keys: Arc<[Key]> = keys.into();
        self.repeat(move |control| {
            let keys = Arc::clone(&keys);
            Box::pin(async move { control.get(&keys).await })
        })
        .await
        .map(|(answer, _)| answer)
    }

    /// Returns the entries whose keys begin with `prefix`, in the order of their keys, at most
    /// [`MAX_CONTROL_CHANGES`] per call.
    ///
    /// # Errors
    /// The server's error.
    pub async fn list(&self, prefix: &str, page: Page<Key>) -> Result<Stamped<Vec<Entry>>> {
        let prefix: Arc<str> = prefix.into();
        let Page { after, limit } = page;
        let limit = limit.min(MAX_CONTROL_CHANGES);
        self.repeat(move |control| {
            let (prefix, page) = (Arc::clone(&prefix), Page::of(limit).after(after.clone()));
            Box::pin(async move { control.list(&prefix, page).await })
        })
        .await
        .map(|(answer, _)| answer)
    }

    /// Returns all entries whose keys begin with `prefix`, read page by page, with the server's time of the
    /// last page. Use it for as many entries as fit into memory.
    ///
    /// # Errors
    /// [`TooLarge`](ErrorKind::TooLarge) if there are more than `most`, or the server's error.
    pub async fn list_all(&self, prefix: &str, most: usize) -> Result<Stamped<Vec<Entry>>> {
        let mut entries: Vec<Entry> = Vec::new();
        loop {
            let after = entries.last().map(|entry| entry.key.clone());
            let page = self.list(prefix, Page::of(MAX_CONTROL_CHANGES).after(after)).await?;
            let is_last = page.value.len() < MAX_CONTROL_CHANGES;
            entries.extend(page.value);
            if entries.len() > most {
                let text = format!("more than {most} entries begin with {prefix:?}");
                return Err(self.refused(Error::new(ErrorKind::TooLarge, text)));
            }
            if is_last {
                return Ok(Stamped::new(page.now, entries));
            }
        }
    }

    /// Makes a change if the entry is as the change expects.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) or [`TooLarge`](ErrorKind::TooLarge) for a bad change, or
    /// the server's error.
    pub async fn apply(&self, change: Change) -> Result<Stamped<Applied>> {
        let applied = self.apply_all(vec![change]).await?;
        let Stamped { now, value } = applied;
        let first = value.into_iter().next().ok_or_else(|| self.refused(miscounted()))?;
        Ok(Stamped::new(now, first))
    }

    /// Makes changes in one round trip and in order, each one only if its entry is as the change expects.
    /// Returns one result per change, in order. The call is not one step: others may see some of its changes
    /// before the rest.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) or [`TooLarge`](ErrorKind::TooLarge) if a change is bad or
    /// there are too many; then none is made. Otherwise the server's error; each change may or may not have
    /// been made.
    pub async fn apply_all(&self, changes: Vec<Change>) -> Result<Stamped<Vec<Applied>>> {
        let changes = self.checked(changes)?;
        if changes.is_empty() {
            let now = self.get_many(&[]).await?.now;
            return Ok(Stamped::new(now, Vec::new()));
        }
        let sent = Arc::clone(&changes);
        let (answer, repeated) = self
            .repeat(move |control| {
                let sent = Arc::clone(&sent);
                Box::pin(async move { control.apply(&sent).await })
            })
            .await?;
        if answer.value.len() != changes.len() {
            return Err(self.refused(miscounted()));
        }
        // A client library may have repeated the call by itself, so a change recognises its own content in
        // any case.
        let knows_its_own = |(applied, change): (Applied, &Change)| applied.of_own(change, repeated);
        Ok(answer.map(|applied| applied.into_iter().zip(changes.iter()).map(knows_its_own).collect()))
    }

    fn checked(&self, changes: Vec<Change>) -> Result<Arc<[Change]>> {
        let (count, bytes) = (changes.len(), changes.iter().map(Change::bytes).sum::<usize>());
        if count > MAX_CONTROL_CHANGES {
            let text = format!("{count} changes at once: make at most {MAX_CONTROL_CHANGES}");
            return Err(self.refused(Error::invalid(text)));
        }
        if bytes > MAX_CONTROL_CALL_BYTES {
            let text =
                format!("changes of {bytes} bytes at once: make them of at most {MAX_CONTROL_CALL_BYTES}");
            return Err(self.refused(Error::new(ErrorKind::TooLarge, text)));
        }
        let changes: Result<Vec<_>> = changes.into_iter().map(Change::normalised).collect();
        changes.map(Arc::from).map_err(|error| self.refused(error))
    }

    fn refused(&self, error: Error) -> Error {
        self.0.0.stamp(error, Operation::Control)
    }

    /// Calls until there is a result, as the retry policy allows. Also returns whether it called more than
    /// once.
    async fn repeat<T: Send + 'static>(
        &self,
        call: impl Fn(&dyn ControlStorage) -> BoxFuture<'_, Result<T>> + Send + Sync + 'static,
    ) -> Result<(T, bool)> {
        let shared = &self.0.0;
        if shared.exec.has_ended() {
            return Err(shared.refusal(Operation::Control));
        }
        let (caller, timeout) = (shared.caller.clone(), shared.options.call_timeout);
        let calls = async move {
            let mut attempt = 1;
            loop {
                let once = async {
                    match caller.storage.control() {
                        Some(control) => call(control).await,
                        None => Err(guard::unsupported(WHAT)),
                    }
                };
                match caller.bounded(Operation::Control, timeout, once).await {
                    Ok(answer) => return Ok((answer, attempt > 1)),
                    Err(error) if attempt < caller.retry.attempts && is_worth_repeating(&error) => {
                        caller.clock.sleep(caller.retry.pause(attempt)).await;
                        attempt += 1;
                    }
                    Err(error) => {
                        telemetry::count_error(caller.name(), Operation::Control, &error);
                        return Err(error);
                    }
                }
            }
        };
        shared.exec.call(calls).await.map_err(|error| shared.stamp(error, Operation::Control))?
    }
}

/// A call that ran into its deadline has used up its time already.
fn is_worth_repeating(error: &Error) -> bool {
    error.retry() != RetryClass::Never && error.kind() != ErrorKind::TimedOut
}

fn miscounted() -> Error {
    Error::new(ErrorKind::Internal, "the adapter returned another number of results than changes")
}
