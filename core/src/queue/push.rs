//! Pushing: one message at a time, joined with those of other callers, or many at once, split into the
//! backend's batches.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

use super::caller::Callers;
use super::coalesce::Call;
use super::guard;
use super::handle::Queue;
use super::shared::{PushCall, Shared};
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::message::{MessageData, header};
use crate::partition::{IntoPartitionId, PartitionId};
use crate::storage::PushOutcome;

impl Call for PushCall {
    type Lane = PartitionId;
    type Request = Waiting;
    type Answer = Result<PushOutcome>;

    async fn call(&self, lane: &PartitionId, requests: Vec<Waiting>) -> Vec<Self::Answer> {
        let (messages, room): (Vec<_>, Vec<_>) = requests.into_iter().map(|w| (w.message, w.room)).unzip();
        let answers = self.0.push(lane, &messages, Callers::Several).await;
        drop(room);
        answers
    }

    fn size(&self, request: &Waiting) -> u64 {
        request.encoded_len
    }
}

/// A message on its way to the storage. It keeps its room in the push buffer until the call ends, even if its
/// caller goes away.
pub(crate) struct Waiting {
    message: MessageData,
    encoded_len: u64,
    room: OwnedSemaphorePermit,
}

impl Queue {
    /// Pushes one message. `Ok` means that it is stored, as durably as the backend declares. Single pushes
    /// from many tasks share calls; a lone caller does not wait for others. Waits while the push buffer is
    /// full.
    ///
    /// # Errors
    /// See [`validate`](crate::adapter::validate) for what is refused before anything is sent. After an error
    /// of class [`MayDuplicate`](crate::RetryClass::MayDuplicate) the message may have been stored.
    ///
    /// # Cancellation
    /// If the future is dropped, the message may or may not be stored.
    pub async fn push(&self, partition: impl IntoPartitionId, message: MessageData) -> Result<PushOutcome> {
        let shared = &self.0;
        let partition = partition.into_partition_id()?;
        let _active = shared.enter(Operation::Push)?;
        let (message, encoded_len) = shared.checked(&partition, message)?;
        let room = shared.push_room(encoded_len).await?;
        let mut answer =
            shared.pusher.submit(&shared.exec, partition, Waiting { message, encoded_len, room });
        let answer = match answer.try_recv() {
            Ok(answer) => Ok(answer),
            Err(_) => shared.exec.answer(&mut answer).await,
        };
        answer.unwrap_or_else(|error| Err(shared.unsure_push(error)))
    }

    /// Pushes messages in order; there may be any number of them, including none. Returns one result per
    /// message: a bad message does not affect the others, and after a broken connection the messages that
    /// were stored before it still have `Ok` results.
    ///
    /// # Errors
    /// The call as a whole fails only for a bad partition name or a closed queue. For the errors of single
    /// messages see [`push`](Self::push).
    ///
    /// # Cancellation
    /// If the future is dropped, each message may or may not be stored.
    pub async fn push_many(
        &self,
        partition: impl IntoPartitionId,
        messages: Vec<MessageData>,
    ) -> Result<Vec<Result<PushOutcome>>> {
        let shared = &self.0;
        let partition = partition.into_partition_id()?;
        let _active = shared.enter(Operation::Push)?;
        let mut answers = Vec::with_capacity(messages.len());
        let mut chunk = Chunk::default();
        for message in messages {
            match shared.checked(&partition, message) {
                Ok((message, encoded_len)) => {
                    if !chunk.fits(encoded_len, shared) {
                        chunk.flush(shared, &partition, &mut answers).await;
                    }
                    chunk.add(message, encoded_len, answers.len());
                    answers.push(None); // filled when the chunk is flushed
                }
                Err(error) => answers.push(Some(Err(error))),
            }
        }
        chunk.flush(shared, &partition, &mut answers).await;
        Ok(answers.into_iter().flatten().collect())
    }
}

impl Queue {
    /// Checks whether a message could be pushed, without asking the server: refuses whatever
    /// [`push`](Self::push) would refuse before sending anything.
    ///
    /// # Errors
    /// Those of [`validate`](crate::adapter::validate), and [`InvalidInput`](crate::ErrorKind::InvalidInput)
    /// for a bad partition name.
    pub fn check_push(&self, partition: impl IntoPartitionId, message: &MessageData) -> Result<()> {
        self.0.checked(&partition.into_partition_id()?, message.clone()).map(drop)
    }
}

/// The messages of one call, and where their results go.
#[derive(Default)]
struct Chunk {
    messages: Vec<MessageData>,
    places: Vec<usize>,
    bytes: u64,
}

impl Chunk {
    fn fits(&self, encoded_len: u64, shared: &Shared) -> bool {
        let limits = &shared.capabilities.limits;
        self.messages.is_empty()
            || (self.messages.len() < limits.push_batch
                && self.bytes + encoded_len <= limits.push_batch_bytes)
    }

    fn add(&mut self, message: MessageData, encoded_len: u64, place: usize) {
        self.messages.push(message);
        self.places.push(place);
        self.bytes += encoded_len;
    }

    async fn flush(
        &mut self,
        shared: &Shared,
        partition: &PartitionId,
        answers: &mut [Option<Result<PushOutcome>>],
    ) {
        let Self { messages, places, .. } = std::mem::take(self);
        if messages.is_empty() {
            return;
        }
        let (caller, partition, items) = (shared.caller.clone(), partition.clone(), messages.len());
        let call = shared.exec.call(async move { caller.push(&partition, &messages, Callers::One).await });
        let made = call.await.unwrap_or_else(|error| vec![Err(shared.unsure_push(error)); items]);
        for (place, answer) in places.into_iter().zip(made) {
            if let Some(slot) = answers.get_mut(place) {
                *slot = Some(answer);
            }
        }
    }
}

impl Shared {
    /// Checks and completes the message as the storage will see it; also returns its encoded length.
    pub(super) fn checked(
        &self,
        partition: &PartitionId,
        mut message: MessageData,
    ) -> Result<(MessageData, u64)> {
        let stamp = |error: Error| error.with_backend(self.name()).with_operation(Operation::Push);
        guard::push_target(partition).map_err(stamp)?;
        if let Some(trace) = &self.options.trace
            && !message.headers().contains_key(header::TRACEPARENT)
            && let Some(traceparent) = trace()
        {
            message = message.with_header(header::TRACEPARENT, traceparent);
        }
        if message.has_absolute_times() {
            message = message.normalised(self.caller.clock.wall());
        }
        message = self.options.of(partition.name()).grouped(message);
        let encoded_len = self.storage().encoded_len(&message);
        guard::validate(&message, encoded_len, &self.capabilities).map_err(stamp)?;
        Ok((message, encoded_len))
    }

    /// The error of a push that may still be carried out though nobody waits for it any more.
    fn unsure_push(&self, error: Error) -> Error {
        self.stamp(error.with_retry(self.caller.uncertain_push()).uncertain_if(true), Operation::Push)
    }

    /// Takes room in the push buffer; waits for it at most as long as one call may take.
    async fn push_room(&self, encoded_len: u64) -> Result<OwnedSemaphorePermit> {
        let kib = u32::try_from(encoded_len / 1024 + 1).unwrap_or(u32::MAX).min(self.push_room_permits);
        let full = || {
            Error::new(
                ErrorKind::Full,
                "the push buffer is full: the server takes messages more slowly than they are pushed",
            )
            .with_backend(self.name())
            .with_operation(Operation::Push)
        };
        if let Ok(room) = Arc::clone(&self.push_room).try_acquire_many_owned(kib) {
            return Ok(room);
        }
        tokio::select! {
            biased;
            room = Arc::clone(&self.push_room).acquire_many_owned(kib) => room.map_err(|_| full()),
            () = self.exec.sleep(self.options.call_timeout) => Err(full()),
        }
    }
}
