//! Control entries.

use std::time::{Duration, SystemTime};

use anyqueue::adapter::{ControlStorage, async_trait};
use anyqueue::control::{Applied, Change, Entry, Expect, Key, Stamped, Version};
use anyqueue::{ErrorKind, Operation, Page, Result};
use redis::Value;

use crate::RedisQueue;
use crate::clock::millis;
use crate::error::{ERRORS, unexpected_reply};
use crate::link::Call;
use crate::reply::{bytes, list, optional_bytes, text};
use crate::script::{self, Script};

/// Entries that would be kept for longer than this are kept until they are deleted, since scripts cannot
/// calculate with longer times.
const LONGEST_MS: u64 = 1 << 50;
const ANYTHING: &[u8] = b"*";
const NOTHING: &[u8] = b"-";

#[async_trait]
impl ControlStorage for RedisQueue {
    async fn get(&self, keys: &[Key]) -> Result<Stamped<Vec<Option<Entry>>>> {
        let mut call = self.control_call(&script::CONTROL_GET, keys.len(), 64 * keys.len());
        for key in keys {
            call.arg(key.as_str().as_bytes());
        }
        let Stamped { now, value } = self.control(&call).await?;
        let read = |(key, value): (&Key, Value)| {
            optional_bytes(value)?.map(|stored| entry(key.clone(), &stored)).transpose()
        };
        let found: Result<Vec<_>> = keys.iter().zip(value).map(read).collect();
        Ok(Stamped::new(now, found?))
    }

    async fn list(&self, prefix: &str, page: Page<Key>) -> Result<Stamped<Vec<Entry>>> {
        let limit = page.limit.max(1);
        let mut after = page.after.as_ref().map_or("", Key::as_str).to_owned();
        let (mut entries, mut first) = (Vec::new(), None);
        loop {
            let Stamped { now, value } = self.list_some(prefix, &after, limit - entries.len()).await?;
            // The first time is returned, since nothing that was found had expired at that time.
            let now = *first.get_or_insert(now);
            let mut values = value.into_iter();
            let next = optional_bytes(values.next().ok_or_else(unexpected_reply)?)?;
            while let (Some(name), Some(stored)) = (values.next(), values.next()) {
                entries.push(entry(Key::new(text(name)?)?, &bytes(stored)?)?);
            }
            match next {
                Some(next) if entries.len() < limit => {
                    after = String::from_utf8(next).map_err(|_| unexpected_reply())?;
                }
                _ => {
                    entries.truncate(page.limit);
                    return Ok(Stamped::new(now, entries));
                }
            }
        }
    }

    async fn apply(&self, changes: &[Change]) -> Result<Stamped<Vec<Applied>>> {
        let size = changes.iter().map(size).sum();
        let mut call = self.control_call(&script::CONTROL_APPLY, 5 * changes.len(), size);
        for change in changes {
            add_to(&mut call, change);
        }
        let Stamped { now, value } = self.control(&call).await?;
        let read = |(change, value): (&Change, Value)| match value {
            Value::Int(1) => Ok(Applied::Done),
            value => {
                let there = optional_bytes(value)?.map(|stored| entry(change.key().clone(), &stored));
                Ok(Applied::Conflict(there.transpose()?))
            }
        };
        let applied: Result<Vec<_>> = changes.iter().zip(value).map(read).collect();
        Ok(Stamped::new(now, applied?))
    }
}

impl RedisQueue {
    fn control_call(&self, script: &'static Script, args: usize, bytes: usize) -> Call {
        Call::new(script, &self.inner.names.control(), args, bytes + 256)
    }

    /// Runs one step over the names. Its cost does not depend on the number of expired entries.
    async fn list_some(&self, prefix: &str, after: &str, limit: usize) -> Result<Stamped<Vec<Value>>> {
        let mut call = self.control_call(&script::CONTROL_LIST, 3, 128);
        call.arg(prefix.as_bytes()).arg(after.as_bytes()).int(limit as u64);
        self.control(&call).await
    }

    /// Returns the time of the reply, and the rest of it.
    async fn control(&self, call: &Call) -> Result<Stamped<Vec<Value>>> {
        let mut values = list(self.run(call, Operation::Control).await?)?;
        if values.is_empty() {
            return Err(unexpected_reply());
        }
        let now_ms = text(values.remove(0))?.parse().map_err(|_| unexpected_reply())?;
        Ok(Stamped::new(moment(now_ms), values))
    }
}

fn add_to(call: &mut Call, change: &Change) {
    call.arg(change.key().as_str().as_bytes());
    match change.expect() {
        Expect::Any => call.arg(ANYTHING),
        Expect::Absent => call.arg(NOTHING),
        Expect::Version(version) => call.int(version.get()),
    };
    match change {
        Change::Put { version, value, ttl, .. } => {
            let keep = ttl.map(millis).filter(|keep| *keep < LONGEST_MS).unwrap_or(0);
            call.int(version.get()).int(keep).arg(value)
        }
        _ => call.arg(b"").arg(b"").arg(b""),
    };
}

fn size(change: &Change) -> usize {
    let value = if let Change::Put { value, .. } = change { value.len() } else { 0 };
    value + change.key().as_str().len() + 96
}

fn moment(ms: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(ms)).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// Reads an entry as scripts write it.
fn entry(key: Key, stored: &[u8]) -> Result<Entry> {
    let damaged = || {
        ERRORS.error(
            ErrorKind::Corrupt,
            format!("the control entry {key} is damaged: delete it, or put it anew"),
        )
    };
    let mut parts = stored.splitn(3, |byte| *byte == b' ');
    let mut number = || {
        parts.next().and_then(|part| std::str::from_utf8(part).ok()?.parse::<u64>().ok()).ok_or_else(damaged)
    };
    let (version, ends_ms) = (number()?, number()?);
    let value = parts.next().ok_or_else(damaged)?.to_vec();
    let expires_at = (ends_ms > 0).then(|| moment(ends_ms));
    Ok(Entry::new(key, Version::from_u64(version), value).with_expires_at(expires_at))
}
