//! Storing messages.

use std::collections::BTreeSet;
use std::time::SystemTime;

use anyqueue::{Envelope, ErrorKind, MessageData, Operation, PartitionId, PushOutcome, Result};

use crate::RabbitMqQueue;
use crate::capabilities::PRIORITY_LEVELS;
use crate::command::Command;
use crate::error::{NAME, closed, invalid, own};
use crate::ladder;
use crate::names::Line;
use crate::publisher::Publication;

impl RabbitMqQueue {
    pub(crate) async fn push_all(
        &self,
        partition: &PartitionId,
        messages: &[MessageData],
    ) -> Vec<Result<PushOutcome>> {
        let stamp = |error: anyqueue::Error| error.with_backend(NAME).with_operation(Operation::Push);
        if self.is_closed() {
            return vec![Err(closed(Operation::Push)); messages.len()];
        }
        let mut answers: Vec<Result<PushOutcome>> = Vec::with_capacity(messages.len());
        let mut publications = Vec::with_capacity(messages.len());
        for message in messages {
            match self.publication(partition, message) {
                Ok(publication) => {
                    publications.push(publication);
                    answers.push(Ok(PushOutcome::Stored(message.id())));
                }
                Err(error) => answers.push(Err(stamp(error))),
            }
        }
        let sent = self.send(publications).await;
        let mut sent = sent.into_iter();
        for answer in answers.iter_mut().filter(|answer| answer.is_ok()) {
            if let Some(Err(error)) = sent.next() {
                *answer = Err(stamp(error));
            }
        }
        answers
    }

    fn publication(&self, partition: &PartitionId, message: &MessageData) -> Result<Addressed> {
        if message.options().priority >= PRIORITY_LEVELS {
            return Err(invalid(format!("priorities are from 0 to {}", PRIORITY_LEVELS - 1)));
        }
        if Envelope::max_encoded_len(message) > self.inner.tools.config.message_bytes {
            return Err(own(ErrorKind::TooLarge, "the encoded message is larger than message_bytes"));
        }
        let now = SystemTime::now();
        let steps = ladder::steps(message.delay(now));
        let line = Line::new(partition, message.options().priority);
        Ok(Addressed { line, steps, body: Envelope::new(message.clone(), now).encode()? })
    }

    /// Publishes to lines, which are made first if need be.
    pub(crate) async fn send(&self, messages: Vec<Addressed>) -> Vec<Result<()>> {
        if messages.is_empty() {
            return Vec::new();
        }
        if let Err(error) = self.ensure(&messages).await {
            return vec![Err(error); messages.len()];
        }
        let names = &self.inner.tools.names;
        let young = self.young(&messages);
        let publications = messages.into_iter().map(|message| {
            let (exchange, key) = match message.steps {
                0 => (String::new(), names.queue(&message.line)),
                steps => (names.rung(ladder::first_rung(steps)), ladder::key(steps, &message.line)),
            };
            Publication { exchange, key, body: message.body }
        });
        let answers = self.inner.tools.publisher.publish(publications.collect()).await;
        if answers.iter().any(Result::is_ok) {
            self.inner.tools.publisher.grown(young).await;
        }
        answers
    }

    /// The queues that these messages go through, if any is young.
    fn young(&self, messages: &[Addressed]) -> BTreeSet<String> {
        let (names, mut queues) = (&self.inner.tools.names, BTreeSet::new());
        if self.inner.tools.publisher.has_young() {
            for message in messages {
                queues.insert(names.queue(&message.line));
                queues.extend(ladder::rests(message.steps).map(|rest| names.rest(rest)));
            }
        }
        queues
    }

    async fn ensure(&self, messages: &[Addressed]) -> Result<()> {
        let mut seen = BTreeSet::new();
        for message in messages {
            if !seen.insert((&message.line.partition, message.line.level)) {
                continue;
            }
            if self.inner.tools.publisher.ensure(&message.line).await? {
                // Its own consumers need not wait for the news.
                self.tell(&message.line.partition, Command::Level(message.line.level)).await;
            }
        }
        let delays: BTreeSet<u32> = messages.iter().map(|message| message.steps).collect();
        for steps in delays.into_iter().filter(|steps| *steps > 0) {
            self.inner.tools.publisher.ensure_delay(steps).await?;
        }
        Ok(())
    }
}

/// A stored form and where it goes, after so many steps of delay.
pub(crate) struct Addressed {
    pub(crate) line: Line,
    pub(crate) steps: u32,
    pub(crate) body: Vec<u8>,
}
