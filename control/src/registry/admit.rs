//! Registering workers that somebody else reports on, and deciding who gets a name.

use super::external::{External, ROUNDS};
use super::host::has_ended;
use super::record::WorkerInfo;
use super::{Registry, key_of};
use crate::entry::{encode, unchanged};
use anyqueue::control::{Applied, Change, Expect, Stamped};
use anyqueue::{Error, ErrorKind, Result};

/// The result of an admission.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Admission {
    /// The worker is registered, and proves its identity with this secret.
    Admitted {
        /// The secret, of which the store has only a hash.
        session: String,
    },
    /// A living worker has the name.
    Taken(Box<WorkerInfo>),
    /// The entry under that name cannot be read, and must not be replaced.
    Unreadable,
}

impl Registry {
    /// Registers a worker for which somebody else will send [beats](Self::beat). It replaces a worker that
    /// was silent for too long, one whose process is seen to have ended, and an entry that cannot be read.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for bad information about the worker, or an error of the
    /// server; then the worker may be registered until its first beat is missed.
    pub async fn admit(&self, worker: &External) -> Result<Admission> {
        self.admit_where(worker, |_| true).await
    }

    /// Registers a worker like [`admit`](Self::admit), if not everybody may replace everything. `may_replace`
    /// is asked about a worker whose beats are still valid although its process seems to have ended: this
    /// machine has no process of its number, but the process may be one of another container. For an entry
    /// that cannot be read, it gets `None`.
    ///
    /// # Errors
    /// As [`admit`](Self::admit).
    pub async fn admit_where(
        &self,
        worker: &External,
        may_replace: impl Fn(Option<&WorkerInfo>) -> bool,
    ) -> Result<Admission> {
        worker.check()?;
        let key = key_of(worker.name())?;
        let session = worker.session.clone().unwrap_or_else(|| uuid::Uuid::new_v4().simple().to_string());
        let record = worker.record(&session);
        for _ in 0..ROUNDS {
            let change = Change::put(key.clone(), Expect::Absent, encode(&record)?).with_ttl(record.ttl());
            let Stamped { value: applied, now } = self.store.apply(change).await?;
            let Applied::Conflict(there) = applied else { return Ok(Admission::Admitted { session }) };
            let Some(entry) = there else { continue };
            match WorkerInfo::of(worker.name(), &entry) {
                Ok(other) if other.is_lost(now) || (has_ended(&other) && may_replace(Some(&other))) => {
                    self.bury(&entry, &other).await?;
                }
                Ok(other) => return Ok(Admission::Taken(Box::new(other))),
                Err(_) if may_replace(None) => {
                    let unread = Change::delete(key.clone(), unchanged(Some(&entry)));
                    let _ = self.store.apply(unread).await?;
                }
                Err(_) => return Ok(Admission::Unreadable),
            }
        }
        let text = format!("others keep changing the entry of the worker {}: try again", worker.name());
        Err(Error::new(ErrorKind::Unavailable, text))
    }
}
