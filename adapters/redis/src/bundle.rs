//! The settlements of one script.

use std::collections::{HashMap, HashSet};

use anyqueue::adapter::Action;
use anyqueue::{Error, ErrorKind, MessageId};

use crate::clock::millis;
use crate::ends::{self, StoredEnd};
use crate::link::Call;
use crate::names::word;
use crate::record::GROUPED;
use crate::successors::Groups;
use crate::token::{Proof, Secret};
use crate::window::{Window, window};

/// The index of a result, and the message.
type IndexedId = (usize, MessageId);

/// The settlements of one script, all in one partition.
#[derive(Default)]
pub(crate) struct Bundle<'s> {
    /// Removals of messages without group and key, by secret and window, with the indexes of their results.
    removals: Vec<((Secret, Window), Vec<IndexedId>)>,
    others: Vec<Ending<'s>>,
    /// The ends of tasks that are stored, with the indexes of the results.
    ends: Vec<(IndexedId, StoredEnd)>,
    /// The successors that are stored with these settlements.
    pub(crate) successors: Groups<'s>,
}

/// The end of a delivery.
#[derive(Clone)]
pub(crate) struct Ending<'s> {
    pub(crate) index: usize,
    pub(crate) proof: Proof,
    pub(crate) action: &'s Action,
    pub(crate) headers: Vec<u8>,
    /// The end of the task, if its message is removed.
    pub(crate) end: Option<StoredEnd>,
}

impl<'s> Bundle<'s> {
    pub(crate) fn add(&mut self, mut ending: Ending<'s>) {
        if let Some(end) = ending.end.take() {
            self.ends.push(((ending.index, ending.proof.id), end));
        }
        if *ending.action != Action::Remove || ending.proof.flag >= GROUPED {
            self.others.push(ending);
            return;
        }
        let Proof { id, secret, .. } = ending.proof;
        // Usually it is the last one, because messages that were claimed together are settled together.
        let kind = (secret, window(id));
        match self.removals.iter_mut().rev().find(|(known, _)| *known == kind) {
            Some((_, ids)) => ids.push((ending.index, id)),
            None => self.removals.push((kind, vec![(ending.index, id)])),
        }
    }

    /// Returns the indexes of the results, in the order in which the script answers.
    pub(crate) fn indexes(&self) -> Vec<usize> {
        let removals = self.removals.iter().flat_map(|(_, ids)| ids.iter().map(|(index, _)| *index));
        removals.chain(self.others.iter().map(|other| other.index)).collect()
    }

    /// Returns the approximate number and size of the arguments.
    pub(crate) fn size(&self) -> (usize, usize) {
        let (mut more, mut more_bytes) = self.successors.size();
        if !self.ends.is_empty() {
            let (args, bytes) = ends::size(self.ends.iter().map(|(_, end)| end));
            more += args;
            more_bytes += bytes;
        }
        let removals: usize = self.removals.iter().map(|(_, ids)| 18 + 16 * ids.len()).sum();
        let others: usize = self.others.iter().map(|other| 160 + other.headers.len()).sum();
        (2 + 4 * self.others.len() + more, removals + others + more_bytes)
    }

    /// Adds the arguments, except those of the successors.
    pub(crate) fn add_to(&self, call: &mut Call) {
        let mut proofs = Vec::with_capacity(self.removals.iter().map(|(_, ids)| 18 + 16 * ids.len()).sum());
        for ((secret, _), ids) in &self.removals {
            proofs.extend_from_slice(secret);
            let count = u16::try_from(ids.len()).unwrap_or(u16::MAX); // a batch is much smaller
            proofs.extend_from_slice(&count.to_be_bytes());
            for (_, id) in ids {
                proofs.extend_from_slice(id.as_bytes());
            }
        }
        call.arg(&proofs);
        if self.ends.is_empty() {
            call.int(self.others.len() as u64);
        } else {
            call.arg((-1 - self.others.len().cast_signed()).to_string().as_bytes()); // so scripts know of the ends
        }
        for Ending { proof, action, headers, .. } in &self.others {
            let (code, value) = match action {
                Action::Remove => ("D", String::new()),
                Action::Release => ("R", String::new()),
                Action::Retry => ("F", String::new()),
                Action::Postpone { delay, .. } => ("P", (1000 * millis(*delay)).to_string()),
                Action::Move { to, .. } => ("M", word(to)),
            };
            call.arg(code.as_bytes()).arg(&proof.to_bytes()).arg(value.as_bytes()).arg(headers);
        }
        if !self.ends.is_empty() {
            let numbers = self.numbers();
            let number = |index| numbers.get(index).copied().unwrap_or_default();
            ends::add_to(call, self.ends.iter().map(|((index, id), end)| (number(index), *id, end)));
        }
    }

    /// Returns the number of each answer, from 1, by its index.
    fn numbers(&self) -> HashMap<usize, u16> {
        self.indexes().into_iter().zip(1..).collect()
    }

    /// Whether some of the stored ends expire.
    pub(crate) fn has_lapsing_ends(&self) -> bool {
        self.ends.iter().any(|(_, end)| end.lapses)
    }

    /// Adds the successors' arguments, if there are any.
    pub(crate) fn add_successors_to(&self, call: &mut Call, caller: &str) {
        if !self.successors.is_empty() {
            self.successors.add_to(call, caller, &self.numbers());
        }
    }

    /// Returns the settlements that may still succeed after this error, which says that something cannot be
    /// stored and that nothing was done. These are the settlements without successors or, if there are no
    /// successors, those that store no end.
    pub(crate) fn rest(&self, error: &Error) -> Option<Self> {
        let left_out: HashSet<usize> = match error.kind() {
            ErrorKind::Full | ErrorKind::Incompatible if !self.successors.is_empty() => {
                self.successors.owners().collect()
            }
            ErrorKind::Incompatible if !self.ends.is_empty() => {
                self.ends.iter().map(|((index, _), _)| *index).collect()
            }
            _ => return None,
        };
        Some(self.without(&left_out))
    }

    /// Returns the settlements except those with these indexes, without successors.
    fn without(&self, left_out: &HashSet<usize>) -> Self {
        let mut rest = Self::default();
        for (kind, ids) in &self.removals {
            let ids: Vec<_> = ids.iter().filter(|(index, _)| !left_out.contains(index)).copied().collect();
            if !ids.is_empty() {
                rest.removals.push((*kind, ids));
            }
        }
        rest.others.extend(self.others.iter().filter(|other| !left_out.contains(&other.index)).cloned());
        rest.ends.extend(self.ends.iter().filter(|((index, _), _)| !left_out.contains(index)).cloned());
        rest
    }
}
