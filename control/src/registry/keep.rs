//! Keeping texts for workers for which a service speaks.

use anyqueue::control::{Change, Stamped};
use anyqueue::{Error, ErrorKind, Result};

use super::kept::{Kept, MAX_KEPT_BYTES};
use super::record::{Record, WorkerInfo};
use super::secret::is_of;
use super::{Registry, key_of, said};
use crate::entry::{decode, update};

impl Registry {
    /// A worker that was [admitted](Self::admit), and what is kept for it. `None` as for [`beat`](Self::beat).
    ///
    /// # Errors
    /// If its entry cannot be read, or the server's.
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

    /// Changes what is kept for a worker that was [admitted](Self::admit), which is no sign of its life, and returns what `change` returned, which is asked again
    /// when somebody else came first. `None`: it is not there any more. Texts are ASCII without control characters and quotes.
    ///
    /// # Errors
    /// [`Full`](ErrorKind::Full) if too much would be kept; if its entry cannot be read, or the server's.
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
                // It may take room that the tasks had.
                let held = std::mem::take(&mut record.held);
                record.hold(held);
                Some(said(&key, entry, record)?)
            };
            Ok((changed, Some(returned)))
        })
        .await
    }
}
