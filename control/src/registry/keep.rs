//! Keeping texts for workers that a service reports on.

use anyqueue::control::{Change, Stamped};
use anyqueue::{Error, ErrorKind, Result};

use super::kept::{Kept, MAX_KEPT_BYTES};
use super::record::{Record, WorkerInfo};
use super::secret::is_of;
use super::{Registry, key_of, said};
use crate::entry::{decode, update};

impl Registry {
    /// Returns a worker that was [admitted](Self::admit), and the texts kept for it; `None` as for
    /// [`beat`](Self::beat).
    ///
    /// # Errors
    /// If its entry cannot be read, or an error of the server.
    pub async fn admitted(&self, name: &str, session: &str) -> Result<Option<(WorkerInfo, Kept)>> {
        let Stamped { value: there, now } = self.store.get(&key_of(name)?).await?;
        let Some(entry) = there else { return Ok(None) };
        let info = WorkerInfo::of(name, &entry)?;
        if !is_of(&info, session) || info.is_lost(now) {
            return Ok(None);
        }
        let record: Record = decode(&entry)?;
        Ok(Some((info, record.kept)))
    }

    /// Changes the texts kept for a worker that was [admitted](Self::admit), which is no sign of the worker's
    /// life, and returns what `change` returned; `change` is called again if somebody else was first. Returns
    /// `None` if the worker is no longer there. Texts must be ASCII, without control characters and quotes.
    ///
    /// # Errors
    /// [`Full`](ErrorKind::Full) if too much would be kept; if its entry cannot be read, or an error of the
    /// server.
    pub async fn keep<T>(
        &self,
        name: &str,
        session: &str,
        mut change: impl FnMut(&mut Kept) -> T,
    ) -> Result<Option<T>> {
        let key = key_of(name)?;
        update(&self.store, &key, |there| {
            let Some(entry) = there else { return Ok((None, None)) };
            if !is_of(&WorkerInfo::of(name, entry)?, session) {
                return Ok((None, None));
            }
            let mut record: Record = decode(entry)?;
            let before = record.kept.clone();
            let returned = change(&mut record.kept);
            let bytes = record.kept.bytes();
            if bytes > MAX_KEPT_BYTES {
                let text =
                    format!("{bytes} bytes would be kept for the worker {name}: at most {MAX_KEPT_BYTES}");
                return Err(Error::new(ErrorKind::Full, text));
            }
            let changed: Option<Change> = if record.kept == before {
                None
            } else {
                // The texts may need room that the tasks had.
                let held = std::mem::take(&mut record.held);
                record.hold(held);
                Some(said(&key, entry, record)?)
            };
            Ok((changed, Some(returned)))
        })
        .await
    }
}
