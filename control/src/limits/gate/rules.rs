//! The limits that depend on the message.

use std::sync::{Arc, PoisonError};

use super::Gates;
use super::rule::Rule;
use crate::limits::limit::Scope;
use crate::limits::record::Record;

impl Gates {
    /// Takes up what the limits say now. For a limit that cannot be read, what it last applied to is
    /// remembered.
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

    /// Returns the limit of this name, if it still depends on the message.
    pub(super) fn rule(&self, name: &str) -> Option<Rule> {
        self.rules().iter().find(|rule| *rule.name == *name).cloned()
    }
}
