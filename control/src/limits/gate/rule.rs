//! One limit that depends on the message.

use std::sync::Arc;

use anyqueue::MessageData;
use anyqueue::header::TASK_KIND;

use super::place::PlaceId;
use crate::limits::limit::{Rate, Scope};

/// One such limit.
#[derive(Clone, Debug)]
pub(in crate::limits) struct Rule {
    pub(super) name: Arc<str>,
    pub(super) of: Scope,
    pub(super) cap: Option<u64>,
    pub(super) rate: Option<Rate>,
    /// Whether its entry can no longer be read: then none of the tasks that it applied to start.
    pub(super) is_unreadable: bool,
}

impl Rule {
    /// The place that a message belongs to; `None` if the limit does not apply to it.
    pub(super) fn place(&self, message: &MessageData) -> Option<PlaceId> {
        let headers = message.headers();
        let value = match &self.of {
            Scope::Kind(kind) => headers.get(TASK_KIND).filter(|text| *text == kind).map(|_| ""),
            Scope::Header(name) => headers.get(name).map(String::as_str),
            Scope::Partition(_) => None,
        };
        value.map(|value| PlaceId::new(&self.name, value))
    }
}
