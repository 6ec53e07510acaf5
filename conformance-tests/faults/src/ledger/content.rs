//! Ends that come back in another form than they were given in.

use std::sync::Arc;
use std::time::Duration;

use anyqueue::adapter::{PullQueueStorage as _, Settlement, TaskEnd, async_trait};
use anyqueue_conformance::Fault;
use bytes::Bytes;

use super::store::{BREAKS, with_end};
use crate::quirk::{Client, Entry, Quirk, Settled, plain, subtle};

pub(crate) const FAULTS: &[Entry] = &[
    plain(Fault::EndResultForgotten, BREAKS, || by(|end| end.result = None)),
    plain(Fault::EndResultCut, BREAKS, || {
        by(|end| end.result = end.result.take().map(|result| result.slice(..result.len().min(64 << 10))))
    }),
    plain(Fault::EndResultEmpty, BREAKS, || {
        by(|end| end.result = end.result.take().filter(|result| !result.is_empty()))
    }),
    plain(Fault::EndResultAsText, BREAKS, || by(|end| end.result = end.result.as_ref().map(as_text))),
    subtle(Fault::EndRanInMillis, BREAKS, || by(|end| end.ran = in_millis(end.ran))),
    subtle(Fault::EndWaitedInMillis, BREAKS, || by(|end| end.waited = in_millis(end.waited))),
    plain(Fault::EndErrorsForgotten, BREAKS, || by(|end| end.errors = None)),
    plain(Fault::EndKindForgotten, BREAKS, || by(|end| end.kind = None)),
    plain(Fault::EndTaskIdCut, BREAKS, || {
        by(|end| end.task_id = end.task_id.take().map(|id| id.split('\0').next().unwrap_or_default().into()))
    }),
    plain(Fault::EndAttemptForgotten, BREAKS, || by(|end| end.attempt = 0)),
    plain(Fault::EndGenerationForgotten, BREAKS, || by(|end| end.generation = 0)),
];

fn as_text(result: &Bytes) -> Bytes {
    String::from_utf8_lossy(result).into_owned().into()
}

fn in_millis(time: Duration) -> Duration {
    Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

fn by(change: fn(&mut TaskEnd)) -> Arc<dyn Quirk> {
    Arc::new(Changed(change))
}

/// Ends are stored with a change.
#[derive(Debug)]
struct Changed(fn(&mut TaskEnd));

#[async_trait]
impl Quirk for Changed {
    async fn settle(&self, client: &Client, settlements: &[Settlement]) -> Settled {
        let changed = |settlement: &Settlement| {
            let end = settlement.end.as_deref().cloned().map(|mut end| {
                (self.0)(&mut end);
                Arc::new(end)
            });
            with_end(settlement, end)
        };
        client.right.settle(&settlements.iter().map(changed).collect::<Vec<_>>()).await
    }
}
