//! Faults of pushing.

use std::time::{Duration, Instant};

use anyqueue::{Error, ErrorKind, Headers, MessageData, PartitionId, PushOutcome, Result, When};
use anyqueue_conformance::Fault;

use crate::basic::{Basic, MOMENT, with_payload};

const CUT_AT: usize = 64 * 1024;
const YEAR: Duration = Duration::from_hours(365 * 24);

impl Basic {
    pub(crate) async fn faulty_push(
        &self,
        partition: &PartitionId,
        messages: &[MessageData],
    ) -> Vec<Result<PushOutcome>> {
        let place = self.place(partition);
        match self.fault {
            Some(Fault::LosesEleventh) => self.push_without(&place, messages, |index, _| index != 10).await,
            Some(Fault::DropsEmpty) => {
                self.push_without(&place, messages, |_, message| !message.payload().is_empty()).await
            }
            Some(Fault::OkBeforeStored) => {
                let (inner, late) = (self.inner.clone(), messages.to_vec());
                tokio::spawn(async move {
                    tokio::time::sleep(MOMENT).await;
                    inner.push(&place, &late).await
                });
                stored(messages)
            }
            Some(Fault::BufferLostAtClose) => self.push_buffered(&place, messages),
            Some(Fault::AnswersReversed) => {
                let mut answers = self.inner.push(&place, messages).await;
                answers.reverse();
                answers
            }
            Some(Fault::TiesReversed) => {
                let reversed: Vec<_> = messages.iter().rev().cloned().collect();
                let mut answers = self.inner.push(&place, &reversed).await;
                answers.reverse();
                answers
            }
            Some(Fault::RepeatStoresTwice) => self.push_twice(&place, messages).await,
            Some(Fault::IdNeverFree) => self.push_new_ids(&place, messages).await,
            Some(Fault::SameBodyDropped) => self.push_new_bodies(&place, messages).await,
            Some(Fault::DroppedPushTears) => self.push_or_tear(&place, messages).await,
            Some(
                Fault::DedupRace
                | Fault::DedupForever
                | Fault::DedupAcrossPartitions
                | Fault::DedupIgnored
                | Fault::DedupUntilDelivery
                | Fault::DedupForgetsDelayed,
            ) => self.push_with_own_keys(&place, messages).await,
            Some(Fault::PauseRefusesPush) if self.paused(&place).await => {
                messages.iter().map(|_| Err(Error::new(ErrorKind::Full, "paused"))).collect()
            }
            _ => self.push_changed(&place, messages).await,
        }
    }

    async fn paused(&self, place: &PartitionId) -> bool {
        match self.inner.pause() {
            Some(pause) => pause.is_paused(place).await.unwrap_or(false),
            None => false,
        }
    }

    async fn push_without(
        &self,
        place: &PartitionId,
        messages: &[MessageData],
        keep: impl Fn(usize, &MessageData) -> bool,
    ) -> Vec<Result<PushOutcome>> {
        let kept: Vec<_> = messages
            .iter()
            .enumerate()
            .filter(|(index, message)| keep(*index, message))
            .map(|(_, m)| m.clone())
            .collect();
        if !kept.is_empty() {
            self.inner.push(place, &kept).await;
        }
        stored(messages)
    }

    /// Stores the messages a moment later, unless the client is closed by then.
    fn push_buffered(&self, place: &PartitionId, messages: &[MessageData]) -> Vec<Result<PushOutcome>> {
        self.local().buffer.extend(messages.iter().map(|message| (place.clone(), message.clone())));
        let (inner, local) = (self.inner.clone(), self.local.clone());
        tokio::spawn(async move {
            tokio::time::sleep(MOMENT).await;
            let buffer = match local.lock() {
                Ok(mut local) => std::mem::take(&mut local.buffer),
                Err(_) => return,
            };
            for (place, message) in buffer {
                inner.push(&place, &[message]).await;
            }
        });
        stored(messages)
    }

    async fn push_changed(&self, place: &PartitionId, messages: &[MessageData]) -> Vec<Result<PushOutcome>> {
        let changed: Vec<_> = messages.iter().map(|message| self.changed(place, message)).collect();
        let answers = self.inner.push(place, &changed).await;
        if self.is(Fault::CountsLocal) {
            let stored = answers.iter().filter(|answer| matches!(answer, Ok(PushOutcome::Stored(_)))).count();
            *self.local().pushed.entry(place.clone()).or_default() += stored as u64;
        }
        answers
    }

    fn changed(&self, place: &PartitionId, message: &MessageData) -> MessageData {
        let payload = message.payload();
        match self.fault {
            Some(Fault::CutAtNul) => {
                with_payload(message, payload.split(|byte| *byte == 0).next().unwrap_or_default())
            }
            Some(Fault::CutAt64KiB) => with_payload(message, payload.get(..CUT_AT).unwrap_or(payload)),
            Some(Fault::Trimmed) => with_payload(message, payload.trim_ascii()),
            Some(Fault::LossyUtf8) => with_payload(message, String::from_utf8_lossy(payload).as_bytes()),
            Some(Fault::HeadersLowercased) => {
                let lower: Headers = message
                    .headers()
                    .iter()
                    .map(|(name, value)| (name.to_lowercase(), value.clone()))
                    .collect();
                message.clone().with_headers(lower)
            }
            Some(_) => self.with_changed_options(place, message),
            None => message.clone(),
        }
    }

    fn with_changed_options(&self, place: &PartitionId, message: &MessageData) -> MessageData {
        let mut options = message.options().clone();
        match self.fault {
            Some(
                Fault::EarlyDelay
                | Fault::DelayWholeSeconds
                | Fault::ZeroDelayForever
                | Fault::LongDelayOverflows,
            ) => {
                options.delay = options.delay.map(|delay| match delay {
                    When::In(delay) => When::In(self.changed_delay(delay)),
                    When::At(_) => delay,
                });
            }
            Some(Fault::DelayBlocks) => {
                if let Some(When::In(delay)) = options.delay {
                    self.shared.lock().delayed.push((place.clone(), Instant::now() + delay));
                }
            }
            Some(Fault::PriorityInverted) => {
                options.priority =
                    (self.inner.capabilities().priority_levels - 1).saturating_sub(options.priority);
            }
            Some(Fault::PriorityIgnored) => options.priority = 0,
            Some(Fault::GroupUnlocksAtDelivery) => options.group = None,
            _ => return message.clone(),
        }
        self.shared.lock().originals.insert(message.id(), message.clone());
        message.clone().with_options(options)
    }

    pub(crate) fn changed_delay(&self, delay: Duration) -> Duration {
        match self.fault {
            Some(Fault::EarlyDelay) => delay / 2,
            Some(Fault::DelayWholeSeconds) => Duration::from_secs(delay.as_secs()),
            Some(Fault::ZeroDelayForever) if delay.is_zero() => Duration::from_hours(1),
            Some(Fault::LongDelayOverflows) if delay > YEAR => Duration::ZERO,
            _ => delay,
        }
    }
}

fn stored(messages: &[MessageData]) -> Vec<Result<PushOutcome>> {
    messages.iter().map(|message| Ok(PushOutcome::Stored(message.id()))).collect()
}
