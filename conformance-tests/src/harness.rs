//! What an adapter's author provides.

use std::pin::Pin;
use std::sync::Arc;

use anyqueue::adapter::{Storage, async_trait};
use anyqueue::{Clock, Error, ErrorKind, MessageId, PartitionId, Result};

use crate::fault_target::FaultTarget;
use crate::need::Need;
use crate::options::PARALLELISM;

/// A storage on its way.
pub type Opening<'a> = Pin<Box<dyn Future<Output = Result<Arc<dyn Storage>>> + Send + 'a>>;

/// How the suite reaches a backend. Later releases may add methods, always with a default.
#[async_trait]
pub trait Harness: Send + Sync + 'static {
    /// The backend as reports call it, with its configuration where that matters: `"sqlite (synchronous=full)"`.
    fn name(&self) -> &str;

    /// An independent client of the storage called `namespace`, as another process would have one: it shares no state with
    /// other clients except through the storage itself. The suite makes up a namespace for each case (1 to 40 bytes of
    /// `a-z 0-9 _`). What is in one must not be seen in another.
    ///
    /// # Errors
    /// If the storage cannot be opened; the case then fails.
    async fn open(&self, namespace: &str) -> Result<Arc<dyn Storage>>;

    /// The same on `clock` instead of the machine's own, so that a seed decides everything that happens. `None`: the
    /// backend's time cannot be controlled, and cases that need it do not run.
    fn open_on(&self, namespace: &str, clock: Clock) -> Option<Opening<'_>> {
        let _ = (namespace, clock);
        None
    }

    /// As [`open`](Self::open), for a client with this clock, which tells a wrong time of day. The clocks of the server and of other
    /// clients are right. `None`: no client can be given such a clock, and cases that need one do not apply.
    fn open_skewed(&self, namespace: &str, clock: Clock) -> Option<Opening<'_>> {
        let _ = (namespace, clock);
        None
    }

    /// How another process on this host can open the same storage, as text for [`attach`](Self::attach).
    /// `None`: it cannot, and cases with child processes do not run.
    fn address(&self, namespace: &str) -> Option<String> {
        let _ = namespace;
        None
    }

    /// Opens a storage in a child process, by its [`address`](Self::address). The child makes no harness, because making
    /// one may start servers.
    ///
    /// # Errors
    /// If the storage cannot be opened.
    async fn attach(address: &str) -> Result<Arc<dyn Storage>>
    where
        Self: Sized,
    {
        Err(Error::unsupported(format!(
            "this harness gave the address {address:?} but does not implement `attach`"
        )))
    }

    /// What the backend must declare at least. If one of these is not declared, the cases that need it fail, and so does
    /// `life.declares_enough`. For a backend's own authors: a declaration cannot become weaker unnoticed. Empty by default.
    fn least(&self) -> &'static [Need] {
        &[]
    }

    /// The rule of the server that keeps the backend from having this. Reports cite it with each case that does not apply.
    fn rule(&self, need: Need) -> Option<&'static str> {
        let _ = need;
        None
    }

    /// Whether the backend keeps messages as bytes that other programs can write too, as a broker does. Then implement
    /// [`plant`](Self::plant).
    fn stores_bytes(&self) -> bool {
        false
    }

    /// Puts bytes into a partition past the adapter, as an older release or another program would.
    ///
    /// # Errors
    /// If they cannot be put there; the case is then inconclusive.
    async fn plant(&self, namespace: &str, partition: &PartitionId, stored: &[u8]) -> Result<()> {
        let _ = (namespace, partition, stored);
        Err(Error::unsupported("this harness stores bytes but does not implement `plant`"))
    }

    /// Whether the backend keeps messages in a stored form that can be damaged past the adapter. Then implement
    /// [`corrupt`](Self::corrupt).
    fn corrupts(&self) -> bool {
        false
    }

    /// Damages the stored form of a message that waits, has no priority and was never delivered. Afterwards it cannot be read, but is
    /// still known as anyqueue's own, and still has the payload's bytes in it: [`corrupted`] does so to an
    /// [`Envelope`](anyqueue::adapter::Envelope). The message may lose its place by that, and its id if the server does not know ids.
    /// Nothing else may change.
    ///
    /// # Errors
    /// If it cannot be damaged; the case is then inconclusive.
    async fn corrupt(&self, namespace: &str, partition: &PartitionId, id: MessageId) -> Result<()> {
        let _ = (namespace, partition, id);
        Err(Error::unsupported("this harness says that it corrupts but does not implement `corrupt`"))
    }

    /// A server for one case alone, which the case may kill, freeze and cut off. `None`: there is none, and fault cases do not
    /// run. For a backend without a server they do not apply.
    ///
    /// # Errors
    /// If there should be one but it does not start; the case then fails.
    async fn fault_target(&self) -> Result<Option<Arc<dyn FaultTarget>>> {
        Ok(None)
    }

    /// How many cases a test program runs at once, unless its arguments say. Choose fewer for a slow server, where cases would
    /// wait for each other's calls.
    fn parallelism(&self) -> usize {
        PARALLELISM
    }

    /// Removes what the namespace occupies (a file, a schema). Called when its case is over.
    async fn remove(&self, namespace: &str) {
        let _ = namespace;
    }
}

/// How the first version of an envelope begins.
const MARK: &[u8] = b"\xF6AQ\x01";

/// Damages the envelope in these bytes, wherever it begins, so that it does not parse any more.
///
/// # Errors
/// [`Corrupt`](ErrorKind::Corrupt) if there is none.
pub fn corrupted(stored: &[u8]) -> Result<Vec<u8>> {
    let start = stored.windows(MARK.len()).position(|bytes| bytes == MARK);
    let mut damaged = stored.to_vec();
    // There it says of how many entries it is a map: this byte begins none.
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
