//! Forwards the bytes of one direction of one connection, or does what the orders say.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::orders::{Direction, End, Fault, Orders, Traffic};

const CHUNK_BYTES: usize = 16 * 1024;
/// How many chunks may wait until they are due. Further bytes stay in the sender's buffers.
const MAX_CHUNKS: usize = 64;

/// One direction of one connection.
pub(super) struct Pump<'a> {
    direction: Direction,
    orders: watch::Receiver<Orders>,
    born: Orders,
    traffic: &'a watch::Sender<Traffic>,
    waiting: VecDeque<Chunk>,
    /// How many bytes passed since the current orders came.
    passed: Passed,
    /// Whether no more bytes come in.
    ended: bool,
    /// Whether no more bytes go out, because of a fault.
    closed: bool,
}

struct Chunk {
    due: Instant,
    bytes: Vec<u8>,
}

#[derive(Default)]
struct Passed {
    version: u64,
    bytes: u64,
}

impl<'a> Pump<'a> {
    pub(super) fn new(
        direction: Direction,
        orders: watch::Receiver<Orders>,
        born: Orders,
        traffic: &'a watch::Sender<Traffic>,
    ) -> Self {
        let (waiting, passed) = (VecDeque::new(), Passed::default());
        Self { direction, orders, born, traffic, waiting, passed, ended: false, closed: false }
    }

    /// Runs until the sender has ended and everything is delivered. The error says how the whole connection
    /// has to end.
    pub(super) async fn run(mut self, mut from: ReadHalf<'_>, mut to: WriteHalf<'_>) -> Result<(), End> {
        let mut buffer = vec![0; CHUNK_BYTES];
        loop {
            let orders = *self.orders.borrow_and_update();
            self.obey(orders, &mut to).await?;
            if self.ended && self.waiting.is_empty() {
                // The other side may be gone. Then there is nobody to notify.
                let _ = to.shutdown().await;
                return Ok(());
            }
            let flowing = orders.fault != Fault::Stall;
            let room = self.waiting.len() < MAX_CHUNKS;
            let allowed = self.allowed(orders.fault)?;
            tokio::select! {
                // Orders first: they apply to everything that comes after them.
                biased;
                changed = self.orders.changed() => changed.map_err(|_| End::Close)?,
                sent = deliver(self.waiting.front(), allowed, &mut to), if flowing => self.sent(sent)?,
                read = from.read(&mut buffer), if flowing && room && !self.ended => self.take(read, &buffer)?,
            }
        }
    }

    async fn obey(&mut self, orders: Orders, to: &mut WriteHalf<'_>) -> Result<(), End> {
        if let Some(end) = orders.end(&self.born) {
            return Err(end);
        }
        if orders.version != self.passed.version {
            self.passed = Passed { version: orders.version, bytes: 0 };
        }
        if orders.fault == Fault::HalfClose(self.direction) && !self.closed {
            self.closed = true;
            let _ = to.shutdown().await;
        }
        if self.closed || self.swallows(orders.fault) {
            let bytes: usize = self.waiting.drain(..).map(|chunk| chunk.bytes.len()).sum();
            if bytes > 0 {
                self.traffic.send_modify(|traffic| traffic.swallowed_bytes += bytes as u64);
            }
        }
        Ok(())
    }

    fn swallows(&self, fault: Fault) -> bool {
        fault == Fault::DropReplies && self.direction == Direction::ToClient
    }

    /// How many of the waiting bytes may go out; an error once the connection has to be cut.
    fn allowed(&self, fault: Fault) -> Result<usize, End> {
        match fault {
            Fault::CutAfter { direction, bytes } if direction == self.direction => {
                let left = bytes.saturating_sub(self.passed.bytes);
                let over = left == 0 && (bytes > 0 || !self.waiting.is_empty());
                if over { Err(End::Close) } else { Ok(usize::try_from(left).unwrap_or(usize::MAX)) }
            }
            _ => Ok(usize::MAX),
        }
    }

    fn take(&mut self, read: io::Result<usize>, buffer: &[u8]) -> Result<(), End> {
        let length = read.map_err(|_| End::Reset)?;
        match buffer.get(..length) {
            Some(bytes) if length > 0 => {
                // The latest orders: they may have come since this turn began.
                let delay = match self.orders.borrow().fault {
                    Fault::Delay(delay) => delay,
                    _ => Duration::ZERO,
                };
                self.waiting.push_back(Chunk { due: Instant::now() + delay, bytes: bytes.to_vec() });
            }
            _ => self.ended = true,
        }
        Ok(())
    }

    fn sent(&mut self, sent: io::Result<usize>) -> Result<(), End> {
        let length = sent.map_err(|_| End::Reset)?;
        if let Some(chunk) = self.waiting.front_mut() {
            chunk.bytes.drain(..length);
            if chunk.bytes.is_empty() {
                self.waiting.pop_front();
            }
        }
        self.passed.bytes += length as u64;
        self.traffic.send_modify(|traffic| traffic.passed(self.direction, length as u64));
        Ok(())
    }
}

/// Writes part of the chunk once it is due. If it is dropped before that, it has written nothing.
async fn deliver(chunk: Option<&Chunk>, allowed: usize, to: &mut WriteHalf<'_>) -> io::Result<usize> {
    let Some(chunk) = chunk else { return std::future::pending().await };
    if chunk.due > Instant::now() {
        sleep_until(chunk.due).await;
    }
    to.write(chunk.bytes.get(..allowed).unwrap_or(&chunk.bytes)).await
}
