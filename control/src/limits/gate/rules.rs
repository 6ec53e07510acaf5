//! What the limits say that look at messages.

use std::sync::{Arc, PoisonError};

use anyqueue::MessageData;
use anyqueue::header::TASK_KIND;

use super::Gates;
use super::place::PlaceId;
use crate::limits::limit::{Rate, Scope};
use crate::limits::record::Record;

/// One such limit.
#[derive(Clone, Debug)]
pub(in crate::limits) struct Rule {
    name: Arc<str>,
    of: Scope,
    pub(super) cap: Option<u64>,
    pub(super) rate: Option<Rate>,
    /// Its entry cannot be read any more: nothing starts that it was for.
    pub(super) is_unreadable: bool,
}

impl Rule {
    /// The place that a message belongs to; none if the limit is not for it.
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

impl Gates {
    /// Takes up what the limits say now. Of those that cannot be read it is known what they were for.
    pub(in crate::limits) fn take_up<'a>(&self, limits: impl Iterator<Item = (&'a str, Option<Record>)>) {
        let before = self.rules();
        let rule = |(name, record): (&str, Option<Record>)| match record {
            Some(Record { of: Scope::Partition(_), .. }) => None,
            Some(record) => Some(Rule {
                name: name.into(),
                of: record.of,
                cap: record.cap,
                rate: record.rate,
                is_unreadable: false,
            }),
            None => {
                let known = before.iter().find(|rule| *rule.name == *name).cloned();
                known.map(|rule| Rule { is_unreadable: true, ..rule })
            }
        };
        let rules: Arc<[Rule]> = limits.filter_map(rule).collect();
        *self.rules.write().unwrap_or_else(PoisonError::into_inner) = rules;
    }

    /// Whether a limit of this name still looks at messages.
    pub(super) fn rule(&self, name: &str) -> Option<Rule> {
        self.rules().iter().find(|rule| *rule.name == *name).cloned()
    }
}
