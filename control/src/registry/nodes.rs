//! Machines that are kept for one application.

use anyqueue::control::{Applied, Change, Expect, Key};
use anyqueue::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use super::Registry;
use super::host::host_name;
use crate::entry::{FORMAT, decode, encode, unchanged, update};

const NODES: &str = "node/";
/// The largest number of machines that one list returns.
pub const MAX_NODES: usize = 10_000;
/// The longest name of an application, in bytes.
pub const MAX_APPLICATION_BYTES: usize = 128;

#[derive(Serialize, Deserialize)]
struct Record {
    format: u32,
    application: String,
}

/// A machine that is kept for one application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Node {
    /// The host name, as workers report it.
    pub host: String,
    /// The application whose workers may start there.
    pub application: String,
}

impl Registry {
    /// Keeps a machine for the workers of one application: from then on, other workers fail to
    /// [join](Self::join) there, with an error that names the owner. Workers that have already joined
    /// continue; [`list`](Self::list) shows them. Dedicating the machine to the same application again
    /// changes nothing.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// use anyqueue::{ErrorKind, Queue};
    /// use anyqueue_control::registry::Registry;
    ///
    /// let queue = Queue::new(anyqueue_memory::MemoryQueue::new())?;
    /// let registry = Registry::new(queue.control()?);
    /// registry.dedicate("gpu-7", "video").await?;
    /// let refused = registry.dedicate("gpu-7", "mail").await.unwrap_err();
    /// assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    /// assert_eq!(registry.nodes().await?[0].application, "video");
    /// # Ok::<(), anyqueue::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for names that are empty or too long, and for a machine that
    /// belongs to another application; errors of the server.
    pub async fn dedicate(&self, host: &str, application: &str) -> Result<()> {
        check_application(application)?;
        let key = key_of(host)?;
        let record = Record { format: FORMAT, application: application.to_owned() };
        let put = Change::put(key, Expect::Absent, encode(&record)?);
        match self.store.apply(put).await?.value {
            Applied::Done => Ok(()),
            Applied::Conflict(None) => {
                let text = format!("somebody else is dedicating the node {host}: try again");
                Err(Error::new(ErrorKind::Unavailable, text))
            }
            Applied::Conflict(Some(there)) => {
                let owner = decode::<Record>(&there)?.application;
                if owner == application { Ok(()) } else { Err(belongs(host, &owner)) }
            }
        }
    }

    /// Lets workers of all applications start on a machine again. Returns the application that the machine
    /// was kept for, if any.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for a name that is empty or too long; errors of the server.
    pub async fn release(&self, host: &str) -> Result<Option<String>> {
        let key = key_of(host)?;
        update(&self.store, &key, |there| {
            let Some(entry) = there else { return Ok((None, None)) };
            // An entry that cannot be read can be removed all the same.
            let owner =
                decode::<Record>(entry).map_or_else(|_| "unknown".to_owned(), |record| record.application);
            Ok((Some(Change::delete(key.clone(), unchanged(Some(entry)))), Some(owner)))
        })
        .await
    }

    /// Returns all machines that are kept for an application, in the order of their names.
    ///
    /// # Errors
    /// [`TooLarge`](ErrorKind::TooLarge) if there are more than [`MAX_NODES`]; if an entry cannot be read, or
    /// an error of the server.
    pub async fn nodes(&self) -> Result<Vec<Node>> {
        let found = self.store.list_all(NODES, MAX_NODES).await?.value;
        let node = |entry: &anyqueue::control::Entry| {
            let host = entry.key.as_str().strip_prefix(NODES).unwrap_or_else(|| entry.key.as_str());
            Ok(Node { host: host.to_owned(), application: decode::<Record>(entry)?.application })
        };
        found.iter().map(node).collect()
    }

    /// Checks whether a worker of this application may start on this machine.
    pub(super) async fn check_node(&self, application: Option<&str>) -> Result<()> {
        if let Some(application) = application {
            check_application(application)?;
        }
        let host = host_name();
        let Some(entry) = self.store.get(&key_of(&host)?).await?.value else { return Ok(()) };
        let owner = decode::<Record>(&entry)?.application;
        if application == Some(&*owner) { Ok(()) } else { Err(belongs(&host, &owner)) }
    }
}

fn check_application(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > MAX_APPLICATION_BYTES || name.chars().any(char::is_control) {
        let most = MAX_APPLICATION_BYTES;
        return Err(Error::invalid(format!(
            "the name of an application has 1 to {most} bytes and no control characters"
        )));
    }
    Ok(())
}

fn key_of(host: &str) -> Result<Key> {
    if host.is_empty() || host.len() > anyqueue::MAX_KEY_BYTES {
        let most = anyqueue::MAX_KEY_BYTES;
        return Err(Error::invalid(format!("a host name of {} bytes: give it 1 to {most}", host.len())));
    }
    Key::new(format!("{NODES}{host}"))
}

fn belongs(host: &str, owner: &str) -> Error {
    Error::invalid(format!(
        "the node {host} is kept for the application {owner}: work there under that name, work elsewhere, or release the node"
    ))
}
