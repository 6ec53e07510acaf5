//! The task that joins settlements, and fills a puller's window in the same call.

use std::sync::Weak;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc;

use super::delivery::RawDelivery;
use super::handle::Handle;
use super::request::{CYCLES, Feeder, GATHERED, Request, Settle};
use crate::client::Result;

/// How long an idle feeder blocks at a time.
const IDLE: Duration = Duration::from_millis(500);

/// The answer of a cycle: the settlements with whether each was held, what was claimed, and how many were
/// wanted.
type Cycle = (Vec<Settle>, Vec<bool>, Vec<RawDelivery>, usize);

pub(super) struct Pump {
    handle: Weak<Handle>,
    requests: mpsc::Receiver<Request>,
    feeder: Option<Feeder>,
    batch: Vec<Settle>,
    cycles: FuturesUnordered<BoxFuture<'static, Result<Cycle>>>,
}

impl Pump {
    pub(super) fn new(handle: Weak<Handle>, requests: mpsc::Receiver<Request>) -> Self {
        Self { handle, requests, feeder: None, batch: Vec::new(), cycles: FuturesUnordered::new() }
    }

    /// Runs until the client is gone. A failed call drops its answers, so that its callers get an error.
    pub(super) async fn run(mut self) -> Result<()> {
        loop {
            while self.batch.len() < GATHERED
                && let Ok(request) = self.requests.try_recv()
            {
                self.take(request);
            }
            if self.cycles.len() < CYCLES && (!self.batch.is_empty() || self.wanted() > 0) {
                self.begin()?;
            } else if !self.step().await? {
                return Ok(());
            }
        }
    }

    /// Returns how many messages are worth claiming now.
    fn wanted(&self) -> usize {
        self.feeder.as_ref().filter(|feeder| !feeder.dry).map_or(0, Feeder::wanted)
    }

    /// Waits for a request, the end of a cycle, or, with nothing else to do, for messages. Returns whether
    /// the client still lives.
    async fn step(&mut self) -> Result<bool> {
        let is_dry = self.feeder.as_ref().is_some_and(|feeder| feeder.dry);
        let waiting = self.handle.upgrade().filter(|_| is_dry && self.cycles.is_empty());
        let idle = async move {
            match waiting {
                Some(handle) => handle.wait(IDLE).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            Some(cycle) = self.cycles.next() => self.end(cycle?).await,
            request = self.requests.recv(), if self.batch.len() < GATHERED => match request {
                Some(request) => self.take(request),
                None => return Ok(false),
            },
            waited = idle => {
                waited?;
                self.feeder.iter_mut().for_each(|feeder| feeder.dry = false);
            }
        }
        Ok(true)
    }

    fn take(&mut self, request: Request) {
        match request {
            Request::Settle(settle) => self.batch.push(settle),
            Request::Feed(feeder) => self.feeder = Some(feeder),
        }
    }

    fn begin(&mut self) -> Result<()> {
        let handle = self.handle.upgrade().ok_or("the client is gone")?;
        let batch = std::mem::take(&mut self.batch);
        if let Some(feeder) = &mut self.feeder {
            feeder.held -= batch.len().min(feeder.held);
        }
        let wanted = self.wanted();
        if let Some(feeder) = &mut self.feeder {
            feeder.held += wanted;
        }
        self.cycles.push(Box::pin(async move {
            let held: Vec<_> = batch.iter().map(|settle| (settle.id, settle.token)).collect();
            let (settled, claimed) = handle.cycle(&held, wanted).await?;
            Ok((batch, settled, claimed, wanted))
        }));
        Ok(())
    }

    async fn end(&mut self, (batch, settled, claimed, wanted): Cycle) {
        for (settle, held) in batch.into_iter().zip(settled) {
            let _ = settle.done.send(held); // the asker may be gone
        }
        let Some(feeder) = &mut self.feeder else { return };
        feeder.dry = claimed.len() < wanted;
        feeder.held -= wanted - claimed.len();
        for delivery in claimed {
            if feeder.to.send(delivery).await.is_err() {
                self.feeder = None; // the puller is gone
                break;
            }
        }
    }
}
