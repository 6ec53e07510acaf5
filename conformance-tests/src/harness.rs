//! What the author of an adapter provides.

use std::pin::Pin;
use std::sync::Arc;

use anyqueue::adapter::{Storage, async_trait};
use anyqueue::{Clock, Error, ErrorKind, MessageId, PartitionId, Result};

use crate::fault_target::FaultTarget;
use crate::need::Need;
use crate::options::PARALLELISM;

/// A storage that is being opened.
pub type Opening<'a> = Pin<Box<dyn Future<Output = Result<Arc<dyn Storage>>> + Send + 'a>>;

/// Gives the suite access to a backend. Later releases may add methods, always with a default.
#[async_trait]
pub trait Harness: Send + Sync + 'static {
    /// Returns the backend's name for reports, with its configuration where that matters:
    /// `"sqlite (synchronous=full)"`.
    fn name(&self) -> &str;

    /// Opens an independent client of the storage called `namespace`, as another process would have one: it
    /// shares no state with other clients except through the storage itself. The suite chooses a namespace
    /// for each case (1 to 40 bytes of `a-z 0-9 _`). The contents of one namespace must not be visible in
    /// another.
    ///
    /// # Errors
    /// Returns an error if the storage cannot be opened; the case then fails.
    async fn open(&self, namespace: &str) -> Result<Arc<dyn Storage>>;

    /// Opens a client that runs on `clock` instead of the machine's own clock, so that a seed decides
    /// everything that happens. Returns `None` if the backend's time cannot be controlled; cases that need it
    /// then do not run.
    fn open_on(&self, namespace: &str, clock: Clock) -> Option<Opening<'_>> {
        let _ = (namespace, clock);
        None
    }

    /// Like [`open`](Self::open), for a client with this clock, which shows a wrong time of day. The clocks
    /// of the server and of other clients are right. Returns `None` if no client can be given such a clock;
    /// cases that need one then do not apply.
    fn open_skewed(&self, namespace: &str, clock: Clock) -> Option<Opening<'_>> {
        let _ = (namespace, clock);
        None
    }

    /// Returns how another process on this host can open the same storage, as text for
    /// [`attach`](Self::attach). Returns `None` if it cannot; cases with child processes then do not run.
    fn address(&self, namespace: &str) -> Option<String> {
        let _ = namespace;
        None
    }

    /// Opens a storage in a child process, by its [`address`](Self::address). The child creates no harness,
    /// because creating one may start servers.
    ///
    /// # Errors
    /// Returns an error if the storage cannot be opened.
    async fn attach(address: &str) -> Result<Arc<dyn Storage>>
    where
        Self: Sized,
    {
        Err(Error::unsupported(format!(
            "this harness gave the address {address:?} but does not implement `attach`"
        )))
    }

    /// Returns the least that the backend must declare. If one of these is not declared, the cases that need
    /// it fail, and so does `life.declares_enough`. This is for a backend's own authors: a declaration cannot
    /// become weaker unnoticed. Empty by default.
    fn least(&self) -> &'static [Need] {
        &[]
    }

    /// Returns the server's rule that prevents the backend from offering this. Reports cite it with each case
    /// that does not apply.
    fn rule(&self, need: Need) -> Option<&'static str> {
        let _ = need;
        None
    }

    /// Returns whether the backend keeps messages as bytes that other programs can write too, as a broker
    /// does. If so, implement [`plant`](Self::plant).
    fn stores_bytes(&self) -> bool {
        false
    }

    /// Writes bytes into a partition without going through the adapter, as an older release or another
    /// program would.
    ///
    /// # Errors
    /// Returns an error if they cannot be written; the case is then inconclusive.
    async fn plant(&self, namespace: &str, partition: &PartitionId, stored: &[u8]) -> Result<()> {
        let _ = (namespace, partition, stored);
        Err(Error::unsupported("this harness stores bytes but does not implement `plant`"))
    }

    /// Returns whether the backend keeps messages in a stored form that can be damaged without going through
    /// the adapter. If so, implement [`corrupt`](Self::corrupt).
    fn corrupts(&self) -> bool {
        false
    }

    /// Damages the stored form of a message that waits, has no priority and was never delivered. Afterwards
    /// it cannot be read, but is still recognised as anyqueue's own, and still contains the payload's bytes:
    /// [`corrupted`] does this to an [`Envelope`](anyqueue::adapter::Envelope). The message may lose its
    /// place, and its id if the server does not know ids. Nothing else may change.
    ///
    /// # Errors
    /// Returns an error if the message cannot be damaged; the case is then inconclusive.
    async fn corrupt(&self, namespace: &str, partition: &PartitionId, id: MessageId) -> Result<()> {
        let _ = (namespace, partition, id);
        Err(Error::unsupported("this harness says that it corrupts but does not implement `corrupt`"))
    }

    /// Returns a server for one case alone, which the case may kill, freeze and cut off, or `None` if there is
    /// none; fault cases then do not run. For a backend without a server they do not apply.
    ///
    /// # Errors
    /// Returns an error if there should be a server but it does not start; the case then fails.
    async fn fault_target(&self) -> Result<Option<Arc<dyn FaultTarget>>> {
        Ok(None)
    }

    /// Returns how many cases a test program runs at once, unless its arguments say otherwise. Choose fewer
    /// for a slow server, where cases would wait for each other's calls.
    fn parallelism(&self) -> usize {
        PARALLELISM
    }

    /// Removes everything that the namespace occupies (a file, a schema). Called when its case is over.
    async fn remove(&self, namespace: &str) {
        let _ = namespace;
    }
}

/// How the first version of an envelope begins.
const MARK: &[u8] = b"\xF6AQ\x01";

/// Damages the envelope in these bytes, wherever it begins, so that it can no longer be parsed.
///
/// # Errors
/// Returns [`Corrupt`](ErrorKind::Corrupt) if there is no envelope.
pub fn corrupted(stored: &[u8]) -> Result<Vec<u8>> {
    let start = stored.windows(MARK.len()).position(|bytes| bytes == MARK);
    let mut damaged = stored.to_vec();
    // The byte here says how many entries the map has; this value is not a valid one.
    match start.and_then(|start| damaged.get_mut(start + MARK.len())) {
        Some(byte) => *byte = 0xFF,
        None => return Err(Error::new(ErrorKind::Corrupt, "there is no envelope to be damaged")),
    }
    Ok(damaged)
}

#[cfg(test)]
mod tests {
    use anyqueue::adapter::Envelope;
    use anyqueue::{Bytes, MessageData};

    use super::*;

    #[test]
    fn what_is_corrupted_has_the_payload_and_cannot_be_read() {
        let stored =
            Envelope::new(MessageData::new("the payload"), std::time::SystemTime::now()).encode().unwrap();
        let damaged = corrupted(&[b"before ", &stored[..]].concat()).unwrap();
        let envelope = Bytes::from(damaged).slice(7..);
        assert!(envelope.ends_with(b"the payload"));
        assert_eq!(Envelope::decode(&envelope).unwrap_err().kind(), ErrorKind::Corrupt);
        assert!(corrupted(b"nothing like it").is_err());
    }
}
