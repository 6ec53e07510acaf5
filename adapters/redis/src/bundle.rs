//! The settlements of one script.

use std::collections::{HashMap, HashSet};

use anyqueue::adapter::Action;
use anyqueue::{Error, ErrorKind, MessageId};

use crate::clock::millis;
use crate::link::Call;
use crate::names::word;
use crate::record::GROUPED;
use crate::successors::Groups;
use crate::token::{Proof, Secret};
use crate::window::{Window, window};

/// The position of an answer, and its message.
type IndexedId = (usize, MessageId);

/// The settlements of one script, all in one partition.
#[derive(Default)]
pub(crate) struct Bundle<'s> {
    /// Removals of messages without group and key, by secret and window, with the positions of their answers.
    removals: Vec<((Secret, Window), Vec<IndexedId>)>,
    others: Vec<Ending<'s>>,
    /// What is stored with these ends.
    pub(crate) successors: Groups<'s>,
}

/// The end of a delivery.
#[derive(Clone)]
pub(crate) struct Ending<'s> {
    pub(crate) index: usize,
    pub(crate) proof: Proof,
    pub(crate) action: &'s Action,
    pub(crate) headers: Vec<u8>,
}

impl<'s> Bundle<'s> {
    pub(crate) fn add(&mut self, ending: Ending<'s>) {
        if *ending.action != Action::Remove || ending.proof.flag >= GROUPED {
            self.others.push(ending);
            return;
        }
        let Proof { id, secret, .. } = ending.proof;
        // Usually the last one: messages claimed together are settled together.
        let kind = (secret, window(id));
        match self.removals.iter_mut().rev().find(|(known, _)| *known == kind) {
            Some((_, ids)) => ids.push((ending.index, id)),
            None => self.removals.push((kind, vec![(ending.index, id)])),
        }
    }

    /// The positions of the answers, in their order.
    pub(crate) fn indexes(&self) -> Vec<usize> {
        let removals = self.removals.iter().flat_map(|(_, ids)| ids.iter().map(|(index, _)| *index));
        removals.chain(self.others.iter().map(|other| other.index)).collect()
    }

    /// The approximate number and size of its arguments.
    pub(crate) fn size(&self) -> (usize, usize) {
        let (more, more_bytes) = self.successors.size();
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
        call.arg(&proofs).int(self.others.len() as u64);
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
    }

    /// Adds the successors' arguments, if there are any.
    pub(crate) fn add_successors_to(&self, call: &mut Call, caller: &str) {
        if !self.successors.is_empty() {
            let numbers: HashMap<_, _> = self.indexes().into_iter().zip(1..).collect();
            self.successors.add_to(call, caller, &numbers);
        }
    }

    /// Whether this says that the server cannot store the successors: then nothing was done, and the rest may end without them.
    pub(crate) fn is_in_vain(&self, error: &Error) -> bool {
        matches!(error.kind(), ErrorKind::Full | ErrorKind::Incompatible) && !self.successors.is_empty()
    }

    /// The settlements without successors.
    pub(crate) fn without_successors(&self) -> Self {
        let owners: HashSet<usize> = self.successors.owners().collect();
        let mut rest = Self::default();
        for (kind, ids) in &self.removals {
            let ids: Vec<_> = ids.iter().filter(|(index, _)| !owners.contains(index)).copied().collect();
            if !ids.is_empty() {
                rest.removals.push((*kind, ids));
            }
        }
        rest.others.extend(self.others.iter().filter(|other| !owners.contains(&other.index)).cloned());
        rest
    }
}
