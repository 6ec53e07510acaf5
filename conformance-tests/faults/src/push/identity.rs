//! Faults of identity: ids, bodies, deduplication keys, and whole messages.

use std::sync::Arc;
use std::time::Duration;

use anyqueue::adapter::Storage;
use anyqueue::{MessageData, MessageId, PartitionId, PushOutcome, Result};
use anyqueue_conformance::Fault;

use crate::basic::{Basic, with_payload};

impl Basic {
    pub(crate) async fn push_twice(
        &self,
        place: &PartitionId,
        messages: &[MessageData],
    ) -> Vec<Result<PushOutcome>> {
        let mut answers = self.inner.push(place, messages).await;
        for (answer, message) in answers.iter_mut().zip(messages) {
            if matches!(answer, Ok(PushOutcome::Duplicate(Some(id))) if *id == message.id()) {
                self.shared.lock().phantoms.push((place.clone(), message.clone()));
                *answer = Ok(PushOutcome::Stored(message.id()));
            }
        }
        answers
    }

    pub(crate) async fn push_new_ids(
        &self,
        place: &PartitionId,
        messages: &[MessageData],
    ) -> Vec<Result<PushOutcome>> {
        let mut answers = Vec::new();
        for message in messages {
            if self.shared.lock().seen.insert(message.id()) {
                answers.extend(self.inner.push(place, std::slice::from_ref(message)).await);
            } else {
                answers.push(Ok(PushOutcome::Duplicate(Some(message.id()))));
            }
        }
        answers
    }

    pub(crate) async fn push_new_bodies(
        &self,
        place: &PartitionId,
        messages: &[MessageData],
    ) -> Vec<Result<PushOutcome>> {
        let mut answers = Vec::new();
        for message in messages {
            if self.shared.lock().bodies.insert(message.payload().to_vec()) {
                answers.extend(self.inner.push(place, std::slice::from_ref(message)).await);
            } else {
                answers.push(Ok(PushOutcome::Stored(message.id())));
            }
        }
        answers
    }

    pub(crate) async fn push_or_tear(
        &self,
        place: &PartitionId,
        messages: &[MessageData],
    ) -> Vec<Result<PushOutcome>> {
        let mut guard = Torn { inner: self.inner.clone(), place: place.clone(), messages: messages.to_vec() };
        tokio::task::yield_now().await;
        guard.messages.clear();
        self.inner.push(place, messages).await
    }

    /// Keeps the keys in a list of its own; the backend sees none.
    pub(crate) async fn push_with_own_keys(
        &self,
        place: &PartitionId,
        messages: &[MessageData],
    ) -> Vec<Result<PushOutcome>> {
        let mut answers = Vec::new();
        for message in messages {
            let key = self.own_key(place, message);
            let first = key.as_ref().and_then(|key| self.shared.lock().keys.get(key).copied());
            if let Some(first) = first {
                answers.push(Ok(PushOutcome::Duplicate(Some(first))));
                continue;
            }
            if self.is(Fault::DedupRace) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let mut options = message.options().clone();
            options.dedup_key = None;
            let stripped = message.clone().with_options(options);
            {
                let mut memory = self.shared.lock();
                memory.originals.insert(message.id(), message.clone());
                memory.keys.extend(key.map(|key| (key, message.id())));
            }
            answers.extend(self.inner.push(place, &[stripped]).await);
        }
        answers
    }

    fn own_key(&self, place: &PartitionId, message: &MessageData) -> Option<(Option<PartitionId>, String)> {
        let forgotten = self.is(Fault::DedupForgetsDelayed) && message.options().delay.is_some();
        if self.is(Fault::DedupIgnored) || forgotten {
            return None;
        }
        let scope = (!self.is(Fault::DedupAcrossPartitions)).then(|| place.clone());
        message.options().dedup_key.as_ref().map(|key| (scope, key.to_string()))
    }

    pub(crate) fn free_key(&self, id: MessageId) {
        if !self.is(Fault::DedupForever) {
            self.shared.lock().keys.retain(|_, first| *first != id);
        }
    }
}

/// Stores halves of its messages when it is dropped.
struct Torn {
    inner: Arc<dyn Storage>,
    place: PartitionId,
    messages: Vec<MessageData>,
}

impl Drop for Torn {
    fn drop(&mut self) {
        let halves: Vec<_> = self
            .messages
            .iter()
            .map(|message| with_payload(message, message.payload().split_at(message.payload().len() / 2).0))
            .collect();
        if !halves.is_empty() {
            let (inner, place) = (self.inner.clone(), self.place.clone());
            tokio::spawn(async move { inner.push(&place, &halves).await });
        }
    }
}
