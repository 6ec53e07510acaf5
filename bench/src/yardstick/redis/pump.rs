//! The task that joins settlements, and fills a puller's window in the same call.

use std::sync::Weak;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::{Delivery, GATHERED, Handle};
use crate::client::Result;

/// How long an idle feeder blocks at a time.
const IDLE: Duration = Duration::from_millis(500);

pub(super) enum Request {
    Settle(Settle),
    Feed(Feeder),
}

/// A removal, and who waits for it.
pub(super) struct Settle {
    pub(super) id: anyqueue::MessageId,
    pub(super) token: [u8; 16],
    pub(super) done: oneshot::Sender<bool>,
}

/// A puller's window.
pub(super) struct Feeder {
    window: usize,
    held: usize,
    /// Whether the last claim found less than it wanted.
    dry: bool,
    to: mpsc::Sender<Delivery>,
}

impl Feeder {
    pub(super) fn new(window: usize, to: mpsc::Sender<Delivery>) -> Self {
        Self { window, held: 0, dry: false, to }
    }

    fn wanted(&self) -> usize {
        let free = self.window - self.held;
        if free >= (self.window / 4).max(1) { free } else { 0 }
    }
}

pub(super) struct Pump {
    handle: Weak<Handle>,
    requests: mpsc::Receiver<Request>,
    feeder: Option<Feeder>,
    batch: Vec<Settle>,
}

impl Pump {
    pub(super) fn new(handle: Weak<Handle>, requests: mpsc::Receiver<Request>) -> Self {
        Self { handle, requests, feeder: None, batch: Vec::new() }
    }

    /// Runs until the client is gone. A failed call drops its answers, which fails their askers.
    pub(super) async fn run(mut self) -> Result<()> {
        loop {
            if !self.gather().await? {
                return Ok(());
            }
            self.serve().await?;
        }
    }

    /// Takes in what is there; waits for something if there is nothing to do. Whether the client still lives.
    async fn gather(&mut self) -> Result<bool> {
        while self.batch.len() < GATHERED
            && let Ok(request) = self.requests.try_recv()
        {
            self.take(request);
        }
        let may_claim = self.feeder.as_ref().is_some_and(|feeder| feeder.wanted() > 0);
        let is_dry = self.feeder.as_ref().is_some_and(|feeder| feeder.dry);
        if !self.batch.is_empty() || (may_claim && !is_dry) {
            return Ok(true);
        }
        let idle = async {
            match self.handle.upgrade().filter(|_| may_claim) {
                Some(handle) => handle.wait(IDLE).await,
                None => std::future::pending().await,
            }
        };
        let request = tokio::select! {
            request = self.requests.recv() => request,
            waited = idle => {
                waited?;
                self.feeder.iter_mut().for_each(|feeder| feeder.dry = false);
                return Ok(true);
            }
        };
        Ok(request.map(|request| self.take(request)).is_some())
    }

    fn take(&mut self, request: Request) {
        match request {
            Request::Settle(settle) => self.batch.push(settle),
            Request::Feed(feeder) => self.feeder = Some(feeder),
        }
    }

    async fn serve(&mut self) -> Result<()> {
        let handle = self.handle.upgrade().ok_or("the client is gone")?;
        let batch = std::mem::take(&mut self.batch);
        let held: Vec<_> = batch.iter().map(|settle| (settle.id, settle.token)).collect();
        let wanted = self.feeder.as_mut().map_or(0, |feeder| {
            feeder.held -= held.len().min(feeder.held);
            feeder.wanted()
        });
        let (settled, claimed) = handle.cycle(&held, wanted).await?;
        for (settle, held) in batch.into_iter().zip(settled) {
            let _ = settle.done.send(held); // the asker may be gone
        }
        let Some(feeder) = &mut self.feeder else { return Ok(()) };
        feeder.dry = claimed.len() < wanted;
        feeder.held += claimed.len();
        for delivery in claimed {
            if feeder.to.send(delivery).await.is_err() {
                self.feeder = None; // the puller is gone
                break;
            }
        }
        Ok(())
    }
}
