//! The plain faults: one quirk for all of them, of which each client has its own. What a call does under each
//! fault is in `push`, `pull`, `settle` and `inspect`, with the other faults of that call; the calls
//! themselves are in `plain`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyqueue::adapter::{InspectQueueStorage, Lease, PauseQueueStorage, Storage};
use anyqueue::{Error, MessageData, Page, PartitionId, Result};
use anyqueue_conformance::Fault;

use crate::state::{Local, Shared};

/// One client of a backend with a plain fault.
#[derive(Debug)]
pub(crate) struct Basic {
    pub(crate) inner: Arc<dyn Storage>,
    /// `None` if the backend is correct after all.
    pub(crate) fault: Option<Fault>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) local: Arc<Mutex<Local>>,
}

impl Basic {
    pub(crate) fn new(inner: Arc<dyn Storage>, fault: Option<Fault>, shared: Arc<Shared>) -> Self {
        Self { inner, fault, shared, local: Arc::default() }
    }

    pub(crate) fn is(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    pub(crate) fn local(&self) -> MutexGuard<'_, Local> {
        self.local.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns where the fault puts what belongs into `partition`.
    pub(crate) fn place(&self, partition: &PartitionId) -> PartitionId {
        let name = match self.fault {
            Some(Fault::PartitionIgnored) => "all".to_owned(),
            Some(Fault::NamesSanitised) => partition.name().to_lowercase().replace(['.', '-'], "_"),
            _ => return partition.clone(),
        };
        match PartitionId::new(&name) {
            Ok(place) if partition.is_dead_letters() => place.dead_letters(),
            Ok(place) => place,
            Err(_) => partition.clone(),
        }
    }

    pub(crate) fn place_lease(&self, lease: &Lease) -> Lease {
        Lease { partition: self.place(&lease.partition), ..lease.clone() }
    }

    pub(crate) fn open(&self) -> Result<()> {
        let closed = self.local().closed || self.shared.lock().closed;
        if closed { Err(Error::closed()) } else { Ok(()) }
    }

    pub(crate) fn inspector(&self) -> Result<&dyn InspectQueueStorage> {
        self.open()?;
        self.inner.inspect().ok_or_else(|| Error::unsupported("no inspection"))
    }

    pub(crate) fn pauser(&self) -> Result<&dyn PauseQueueStorage> {
        self.open()?;
        self.inner.pause().ok_or_else(|| Error::unsupported("no pause"))
    }

    pub(crate) async fn empty_all(&self) -> Result<()> {
        let inspect = self.inspector()?;
        for partition in inspect.partitions(Page::of(anyqueue::MAX_PAGE)).await? {
            while inspect.purge(&partition, anyqueue::MAX_PAGE).await? > 0 {}
        }
        Ok(())
    }
}

/// How long a fault holds something back that a correct backend would not.
pub(crate) const MOMENT: Duration = Duration::from_millis(250);

pub(crate) fn with_payload(message: &MessageData, payload: &[u8]) -> MessageData {
    let mut changed = MessageData::with_id(message.id(), payload.to_vec())
        .with_headers(message.headers().clone())
        .with_options(message.options().clone());
    if let Some(task_id) = message.task_id() {
        changed = changed.with_task_id(Arc::from(task_id));
    }
    if let Some(session_id) = message.session_id() {
        changed = changed.with_session_id(Arc::from(session_id));
    }
    changed
}
