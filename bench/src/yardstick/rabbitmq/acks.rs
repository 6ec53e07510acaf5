//! The acknowledgements that allow the server to send more.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use lapin::Channel;
use lapin::options::BasicAckOptions;

use crate::client::Result;

/// What was settled on a channel, and how much of it the server knows.
pub(super) struct Acks {
    channel: Channel,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The number of the last message that arrived.
    last: u64,
    /// All messages up to this number are settled.
    floor: u64,
    /// Whether the messages after it are settled.
    settled: VecDeque<bool>,
    told: u64,
    tell_after: u64,
}

impl Acks {
    pub(super) fn new(channel: Channel) -> Self {
        Self { channel, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets how many settled messages it takes before the server is told. Returns the number up to which it
    /// has been told already.
    pub(super) fn tell_after(&self, many: usize) -> u64 {
        let mut state = self.state();
        state.tell_after = many as u64;
        state.told
    }

    /// Returns the number up to which the server has been told.
    pub(super) fn told(&self) -> u64 {
        self.state().told
    }

    /// Notes that this message has arrived.
    pub(super) fn came(&self, number: u64) {
        self.state().last = number;
    }

    /// Tells the server once enough messages in a row are settled, or all.
    pub(super) fn settle(&self, numbers: &[u64]) -> Result<()> {
        if !self.channel.status().connected() {
            return Err("a lease was lost".into());
        }
        let mut state = self.state();
        for number in numbers {
            let place = usize::try_from(number - state.floor - 1)?;
            if state.settled.len() <= place {
                state.settled.resize(place + 1, false);
            }
            state.settled.get_mut(place).into_iter().for_each(|settled| *settled = true);
        }
        while state.settled.front() == Some(&true) {
            state.settled.pop_front();
            state.floor += 1;
        }
        let untold = state.floor - state.told;
        if untold > 0 && (untold >= state.tell_after || state.floor == state.last) {
            state.told = state.floor;
            // Under the lock, because the server accepts no number after a larger one.
            let told = self.channel.basic_ack(state.floor, BasicAckOptions { multiple: true }).now_or_never();
            told.transpose()?;
        }
        Ok(())
    }
}
