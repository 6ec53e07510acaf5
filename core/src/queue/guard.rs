//! Checks that refuse a call before an adapter sees it.

use std::time::Duration;

use crate::amend::{Amend, Regroup};
use crate::capabilities::{Capabilities, Dedup, DelayCapability, PriorityDiscipline};
use crate::error::{Error, ErrorKind, Result};
use crate::message::{Headers, MAX_KEY_BYTES, MessageData, OnDuplicate, RESERVED_HEADER_PREFIX};
use crate::partition::PartitionId;

/// The maximum length of a header name, in bytes.
pub const MAX_HEADER_NAME_BYTES: usize = 256;

/// Checks a message against what a backend declares, as [`Queue::push`](crate::Queue::push) does. For
/// adapters that offer a way around `Queue`, such as a push inside the caller's own transaction.
/// `encoded_len` is the length that
/// [`PushQueueStorage::encoded_len`](crate::adapter::PushQueueStorage::encoded_len) returns for the message.
///
/// # Errors
/// [`Unsupported`](ErrorKind::Unsupported) for an option that is not declared,
/// [`TooLarge`](ErrorKind::TooLarge) for a message over the limit, [`InvalidInput`](ErrorKind::InvalidInput)
/// for a value outside its range or a reserved header.
pub fn validate(message: &MessageData, encoded_len: u64, capabilities: &Capabilities) -> Result<()> {
    let options = message.options();
    priority(options.priority, capabilities)?;
    key("task id", message.task_id())?;
    key("session id", message.session_id())?;
    key("group", options.group.as_deref())?;
    key("deduplication key", options.dedup_key.as_deref())?;
    if options.group.is_some() && !capabilities.groups {
        return Err(unsupported("groups"));
    }
    if options.dedup_key.is_some() && capabilities.dedup == Dedup::None {
        return Err(unsupported("deduplication keys"));
    }
    if options.on_duplicate != OnDuplicate::Keep {
        if options.dedup_key.is_none() {
            return Err(Error::invalid(
                "on_duplicate says what to do with a taken deduplication key: give the key too",
            ));
        }
        if !capabilities.on_duplicate {
            return Err(unsupported(
                "push that changes what waits with its deduplication key (on_duplicate)",
            ));
        }
    }
    if options.delay.is_some() {
        delay(message.delay(std::time::SystemTime::now()), capabilities.push_delay, "a delay at push")?;
    }
    if options.urgent_after.is_some() {
        let wait = message.urgent_after(std::time::SystemTime::now()).unwrap_or_default();
        urgent_after(wait, capabilities)?;
    }
    headers(message.headers())?;
    if encoded_len > capabilities.limits.message_bytes {
        return Err(too_large(encoded_len, capabilities.limits.message_bytes));
    }
    Ok(())
}

fn priority(priority: u8, capabilities: &Capabilities) -> Result<()> {
    if priority < capabilities.priority_levels.max(1) {
        return Ok(());
    }
    if capabilities.priority == PriorityDiscipline::None {
        return Err(unsupported("priorities"));
    }
    Err(Error::invalid(format!(
        "priority {priority} is out of range: use 0 (least urgent) to {}",
        capabilities.priority_levels.saturating_sub(1)
    )))
}

fn urgent_after(wait: Duration, capabilities: &Capabilities) -> Result<()> {
    const WHAT: &str = "a moment from which a message is urgent (urgent_after)";
    if !capabilities.urgent_after {
        return Err(unsupported(WHAT));
    }
    delay(wait, capabilities.push_delay, WHAT)
}

/// Checks how many members of a group are asked for at once.
pub(crate) fn group_members(members: usize, capabilities: &Capabilities) -> Result<()> {
    match members {
        0 => Err(Error::invalid("whole groups of 0 members: ask for at least 1")),
        1 => Ok(()),
        _ if capabilities.whole_groups => Ok(()),
        _ => Err(unsupported("pull of whole groups (whole_groups)")),
    }
}

/// Checks an amendment against what a backend declares.
pub(crate) fn amendment(partition: &PartitionId, change: &Amend, capabilities: &Capabilities) -> Result<()> {
    if partition.is_dead_letters() {
        return Err(Error::invalid(
            "dead letters do not wait: put them back with a redrive, then amend them",
        ));
    }
    if change.is_empty() {
        return Err(Error::invalid(
            "the amendment changes nothing: set a priority, a moment, a group or disabled",
        ));
    }
    if let Some(level) = change.priority {
        priority(level, capabilities)?;
    }
    if let Some(Regroup::Join(group)) = &change.group {
        key("group", Some(group))?;
        if !capabilities.groups {
            return Err(unsupported("groups"));
        }
    }
    match change.delay(std::time::SystemTime::now()) {
        Some(later) => delay(later, capabilities.push_delay, "a delay"),
        None => Ok(()),
    }
}

fn key(what: &str, value: Option<&str>) -> Result<()> {
    match value {
        Some("") => Err(Error::invalid(format!("the {what} is empty: leave it out instead"))),
        Some(text) if text.len() > MAX_KEY_BYTES => Err(Error::invalid(format!(
            "the {what} has {} bytes: at most {MAX_KEY_BYTES} are allowed",
            text.len()
        ))),
        _ => Ok(()),
    }
}

/// Checks headers given by a caller.
pub(crate) fn headers(headers: &Headers) -> Result<()> {
    for name in headers.keys() {
        if name.is_empty() || name.len() > MAX_HEADER_NAME_BYTES {
            return Err(Error::invalid(format!(
                "a header name has {} bytes: 1 to {MAX_HEADER_NAME_BYTES} are allowed",
                name.len()
            )));
        }
        if name.starts_with(RESERVED_HEADER_PREFIX) {
            return Err(Error::invalid(format!(
                "header {name:?}: names that begin with {RESERVED_HEADER_PREFIX:?} are reserved; choose another"
            )));
        }
    }
    Ok(())
}

/// Checks a delay against what is declared for it.
pub(crate) fn delay(delay: Duration, declared: Option<DelayCapability>, what: &str) -> Result<()> {
    match declared {
        None if delay.is_zero() => Ok(()),
        None => Err(unsupported(what)),
        Some(declared) if delay > declared.max => Err(Error::invalid(format!(
            "{what} of {} is too long: at most {}",
            humantime::format_duration(delay),
            humantime::format_duration(declared.max)
        ))),
        Some(_) => Ok(()),
    }
}

/// Refuses a push into dead letters: those come only from settlements, and a pushed one would have no cause
/// of death.
pub(crate) fn push_target(partition: &PartitionId) -> Result<()> {
    if partition.is_dead_letters() {
        return Err(Error::invalid(
            "messages become dead letters by settling them as Poisonous; push to the live partition",
        ));
    }
    Ok(())
}

pub(crate) fn too_large(encoded_len: u64, limit: u64) -> Error {
    Error::new(
        ErrorKind::TooLarge,
        format!(
            "the message has {encoded_len} bytes in its stored form: at most {limit}; store the data elsewhere and push a reference"
        ),
    )
}

pub(crate) fn unsupported(what: &str) -> Error {
    Error::unsupported(format!("this backend has no {what}; see its capabilities"))
}
