//! What an adapter's author provides.

use std::pin::Pin;
use std::sync::Arc;

use anyqueue::{Clock, Error, Result, Storage, async_trait};

/// A storage on its way.
pub type Opening<'a> = Pin<Box<dyn Future<Output = Result<Arc<dyn Storage>>> + Send + 'a>>;

/// How the suite reaches a backend. Later releases may add methods, always with a default.
#[async_trait]
pub trait Harness: Send + Sync + 'static {
    /// The backend as reports call it, with its configuration where that matters: `"sqlite (synchronous=full)"`.
    fn name(&self) -> &str;

    /// An independent client of the storage called `namespace`, as another process would have: no state shared with
    /// the other clients but through the storage itself. The suite makes up a namespace per case (1 to 40 bytes of
    /// `a-z 0-9 _`); what is in one must not be seen in another.
    ///
    /// # Errors
    /// If the storage cannot be opened; the case then fails.
    async fn open(&self, namespace: &str) -> Result<Arc<dyn Storage>>;

    /// The same, running by `clock` instead of the machine's own: with it, a seed decides everything that happens. `None`:
    /// the backend's time cannot be controlled, and cases that need it do not run.
    fn open_on(&self, namespace: &str, clock: Clock) -> Option<Opening<'_>> {
        let _ = (namespace, clock);
        None
    }

    /// How another process on this host can open the same storage, in words that [`attach`](Self::attach) understands.
    /// `None`: it cannot, and cases with child processes do not run.
    fn address(&self, namespace: &str) -> Option<String> {
        let _ = namespace;
        None
    }

    /// Opens a storage in a child process, by its [`address`](Self::address). There is no harness in the child, so
    /// that constructing one can start servers.
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

    /// Frees what the namespace takes (a file, a schema). Called when its case is over.
    async fn remove(&self, namespace: &str) {
        let _ = namespace;
    }
}
