//! What the limits say that look at messages.

use std::sync::{Arc, PoisonError};

use super::Gates;
use super::rule::Rule;
use crate::limits::limit::Scope;
use crate::limits::record::Record;

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
