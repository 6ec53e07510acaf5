//! Entries as JSON, and changes to them while others change them too.

use anyqueue::control::{Applied, Change, ControlStore, Entry, Expect, Key, Stamped, Version};
use anyqueue::{Error, ErrorKind, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// How often a change is tried that conflicts with the changes of others.
const ROUNDS: usize = 16;

/// The layout of the values that this release writes.
pub(crate) const FORMAT: u32 = 1;

#[derive(serde::Deserialize)]
struct Formatted {
    format: u32,
}

/// Decodes the value of an entry.
///
/// # Errors
/// [`Incompatible`](ErrorKind::Incompatible) if a newer release wrote it, [`Corrupt`](ErrorKind::Corrupt) if
/// it cannot be read.
pub(crate) fn decode<T: DeserializeOwned>(entry: &Entry) -> Result<T> {
    let damaged = |error: serde_json::Error| {
        let text = format!("the control entry {} cannot be read: delete it, or write it again", entry.key);
        Error::new(ErrorKind::Corrupt, text).with_source(error)
    };
    let Formatted { format } = serde_json::from_slice(&entry.value).map_err(damaged)?;
    if format > FORMAT {
        let text =
            format!("the control entry {} is of a newer release (format {format}): upgrade", entry.key);
        return Err(Error::new(ErrorKind::Incompatible, text));
    }
    serde_json::from_slice(&entry.value).map_err(damaged)
}

pub(crate) fn encode(value: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|error| {
        Error::new(ErrorKind::Internal, "a control entry cannot be written").with_source(error)
    })
}

/// The expectation that nothing changes in the meantime.
pub(crate) fn unchanged(entry: Option<&Entry>) -> Expect {
    entry.map_or(Expect::Absent, |entry| Expect::Version(entry.version))
}

/// Changes one entry. `decide` gets the current entry and returns the change, or `None` to leave the entry as
/// it is; it is called again if somebody else was first.
pub(crate) async fn update<T>(
    store: &ControlStore,
    key: &Key,
    mut decide: impl FnMut(Option<&Entry>) -> Result<(Option<Change>, T)>,
) -> Result<T> {
    update_at(store, key, |there| decide(there.value.as_ref())).await
}

/// Like [`update`], for a decision that also depends on the time of the server.
pub(crate) async fn update_at<T>(
    store: &ControlStore,
    key: &Key,
    mut decide: impl FnMut(&Stamped<Option<Entry>>) -> Result<(Option<Change>, T)>,
) -> Result<T> {
    let mut there = store.get(key).await?;
    for _ in 0..ROUNDS {
        let (change, answer) = decide(&there)?;
        let Some(change) = change else { return Ok(answer) };
        let applied = store.apply(change).await?;
        match applied.value {
            Applied::Done => return Ok(answer),
            Applied::Conflict(instead) => there = Stamped::new(applied.now, instead),
        }
    }
    let text = format!("others keep changing the control entry {key}: try again");
    Err(Error::new(ErrorKind::Unavailable, text))
}

/// The version that a change writes; any version for a change that writes none.
pub(crate) fn version_of(change: &Change) -> Version {
    change.version().unwrap_or_else(Version::random)
}
