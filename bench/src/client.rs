//! What a scenario drives: anyqueue's `Queue`, or a hand-written client for one backend.

use std::future::Future;
use std::path::Path;
use std::time::Duration;

use anyqueue::{Bytes, MessageId};

use crate::scenario::Scenario;

/// Any failure of a client or of a check.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// The result of every fallible step of a measurement.
pub(crate) type Result<T> = std::result::Result<T, BoxError>;

/// The lease of every delivery: longer than any scenario, so that no side spends time on extensions.
pub(crate) const LEASE: Duration = Duration::from_mins(5);

/// One side of a comparison, connected to one place that holds a single queue.
///
/// The calls are generic, not `dyn`: a boxed future per call would weigh on the faster side.
pub(crate) trait Client: Clone + Send + Sync + 'static {
    /// The side that an error message names.
    const SIDE: &'static str = "hand-written client";
    /// A message that this client holds under a lease.
    type RawDelivery: Send + 'static;
    /// Where a puller gets its messages while it holds at most a window of them.
    type Source: Source<Self::RawDelivery>;

    /// Connects to the place, and creates what is needed there.
    fn open(url: &str) -> impl Future<Output = Result<Self>> + Send;

    /// Stores one message as durably as the backend promises.
    fn push(&self, payload: Bytes) -> impl Future<Output = Result<MessageId>> + Send;

    /// Stores messages in order and returns their ids in order.
    fn push_batch(&self, payloads: Vec<Bytes>) -> impl Future<Output = Result<Vec<MessageId>>> + Send;

    /// Pulls up to `max` messages; waits up to `wait` for the first one, and not at all for more.
    fn pull(&self, max: usize, wait: Duration)
    -> impl Future<Output = Result<Vec<Self::RawDelivery>>> + Send;

    /// Removes one message for good; fails if its lease was lost.
    fn settle(&self, delivery: Self::RawDelivery) -> impl Future<Output = Result<()>> + Send;

    /// Removes messages for good; fails if any lease was lost.
    fn settle_batch(&self, deliveries: Vec<Self::RawDelivery>) -> impl Future<Output = Result<()>> + Send;

    /// Removes messages for good and stores as many others, in one transaction: the successor of a message
    /// whose lease was lost is not stored. Returns their ids; fails if any lease was lost.
    fn settle_then(
        &self,
        deliveries: Vec<Self::RawDelivery>,
        payloads: Vec<Bytes>,
    ) -> impl Future<Output = Result<Vec<MessageId>>> + Send {
        let _ = (deliveries, payloads);
        async { Err("this yardstick stores nothing with a settlement".into()) }
    }

    /// Returns a stream of deliveries, of which at most `window` are unsettled at any moment.
    fn source(&self, window: usize) -> impl Future<Output = Result<Self::Source>> + Send;

    /// Returns how many messages are stored, in whatever state.
    fn remaining(&self) -> impl Future<Output = Result<u64>> + Send;

    /// Disconnects from the place.
    fn close(&self) -> impl Future<Output = Result<()>> + Send;

    /// Returns the id of a held message.
    fn id(delivery: &Self::RawDelivery) -> MessageId;

    /// Returns the payload of a held message.
    fn payload(delivery: &Self::RawDelivery) -> &[u8];
}

/// A stream of deliveries; see [`Client::source`].
pub(crate) trait Source<D>: Send {
    /// Returns the next delivery; waits for it without limit.
    fn next(&mut self) -> impl Future<Output = Result<D>> + Send;
}

/// A hand-written client: what somebody would write who needs only this backend, and needs it to be fast.
pub(crate) trait Yardstick: Client {
    /// The backend's name on the command line.
    const NAME: &'static str;
    /// Whether two processes can see the same queue.
    const ACROSS_PROCESSES: bool;
    /// Whether the server reports how many messages are held.
    const COUNTS_HELD: bool = true;
    /// Whether the server confirms a settlement.
    const ANSWERS_SETTLEMENTS: bool = true;

    /// Whether the server stores messages with settlements.
    const SETTLES_THEN: bool = false;

    /// Whether the server also keeps ends of tasks and control entries. If not, PostgreSQL keeps the ends
    /// beside it.
    const KEEPS_MORE: bool = true;

    /// Returns how many messages the warm-up of a scenario takes. In a scenario that measures a rate, the
    /// rounds then take as many as the warm-up shows to be possible; in any other, they take this many too.
    fn messages(scenario: Scenario) -> usize;

    /// Returns the URL of a new, empty place that either side can open. `scratch` is this place's own
    /// directory.
    fn place(scratch: &Path) -> impl Future<Output = Result<String>> + Send;

    /// Returns the version of the server, if it does not report that to anyqueue. Called once there was a
    /// place.
    fn server_version() -> Option<String> {
        None
    }

    /// Removes what a place has left outside its directory, once its client is closed.
    fn clear(_url: &str) -> impl Future<Output = Result<()>> + Send {
        async { Ok(()) }
    }
}
