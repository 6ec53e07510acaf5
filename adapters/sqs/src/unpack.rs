//! Unpacking the message in a body, even if it cannot be read.

use std::sync::Arc;
use std::time::SystemTime;

use anyqueue::adapter::{Decoded, Envelope};
use anyqueue::{Error, MessageData, MessageId};

use crate::fifo::{GroupName, parse_group};
use crate::record::{self, Body, Unreadable};

/// The content of a body.
pub(crate) struct Content {
    pub(crate) message: MessageData,
    /// When the message was pushed, which only copies store.
    pub(crate) pushed_at: Option<SystemTime>,
    pub(crate) prior_deliveries: u32,
    pub(crate) due_after_secs: u64,
    /// The stored envelope of a message that cannot be read, as text, and the reason.
    pub(crate) stored: Option<Arc<str>>,
    pub(crate) unreadable: Option<Error>,
}

/// Unpacks the body of a message that the server calls `message_id`, in this group.
pub(crate) fn unpack(body: &str, message_id: &str, group: Option<&str>) -> Content {
    let Body { content, due_after_secs, kept } = record::decode(body);
    let mut unpacked = match content {
        record::Content::Readable(decoded) => readable(decoded, message_id),
        record::Content::Unreadable(unreadable) => as_it_is(unreadable, message_id, group, kept.as_ref()),
    };
    if let Some(kept) = &kept {
        unpacked.message = unpacked.message.with_headers(kept.message.headers().clone());
        (unpacked.pushed_at, unpacked.prior_deliveries) = (kept.pushed_at, kept.prior_deliveries);
    }
    unpacked.due_after_secs = due_after_secs;
    unpacked
}

fn readable(decoded: Decoded, message_id: &str) -> Content {
    let (pushed_at, prior_deliveries) = match &decoded {
        Decoded::Envelope(envelope) => (envelope.pushed_at, envelope.prior_deliveries),
        Decoded::Foreign(_) => (None, 0),
    };
    let message = decoded.into_message(message_id);
    Content { message, pushed_at, prior_deliveries, due_after_secs: 0, stored: None, unreadable: None }
}

/// Returns a message with its stored form as payload. Its id is the first one known: the one stored next to
/// it, the one in its group on the server, or the server's own.
fn as_it_is(
    unreadable: Unreadable<'_>,
    message_id: &str,
    group: Option<&str>,
    kept: Option<&Envelope>,
) -> Content {
    let Unreadable { text, bytes, why } = unreadable;
    let group_name = group.map_or(GroupName::Unknown, parse_group);
    let id = match (kept, &group_name) {
        (Some(kept), _) => kept.message.id(),
        (None, GroupName::Alone(id)) => *id,
        (None, GroupName::Group(_) | GroupName::Unknown) => MessageId::from_foreign(message_id),
    };
    let mut message = MessageData::with_id(id, bytes);
    let kept_group = kept.and_then(|kept| kept.message.options().group.clone());
    if let Some(group) = kept_group {
        message = message.with_group(group);
    } else if let GroupName::Group(group) = group_name {
        message = message.with_group(group);
    }
    Content {
        message,
        pushed_at: None,
        prior_deliveries: 0,
        due_after_secs: 0,
        stored: Some(text.into()),
        unreadable: Some(why),
    }
}
