//! A hand-written client for SQLite: one thread owns the connection and joins whatever is requested at the
//! same time into one transaction.

mod delivery;
mod table;
mod writer;

use std::path::Path;
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyqueue::{Bytes, MessageId};
use tokio::sync::{mpsc as async_mpsc, oneshot};

use self::delivery::RawDelivery;
use self::table::Table;
use self::writer::{Feeder, Request, Writer};
use crate::client::{Client, Result, Source, Yardstick};
use crate::scenario::Scenario;

/// A handle; the work is done by [`Writer`] on its own thread, which ends when `requests` is taken away.
#[derive(Clone)]
pub(crate) struct Sqlite(Arc<Handle>);

struct Handle {
    requests: Mutex<Option<mpsc::SyncSender<Request>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Sqlite {
    fn send(&self, request: Request) -> Result<()> {
        let requests = self.0.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let sender = requests.as_ref().ok_or("the client was closed")?;
        sender.send(request).map_err(|_| "the writer's thread has ended".into())
    }

    async fn ask<T>(&self, request: impl FnOnce(oneshot::Sender<Result<T>>) -> Request) -> Result<T> {
        let (answer, answered) = oneshot::channel();
        self.send(request(answer))?;
        answered.await?
    }

    async fn insert(&self, payloads: Vec<Bytes>) -> Result<Vec<MessageId>> {
        let ids: Vec<_> = payloads.iter().map(|_| MessageId::new()).collect();
        let rows = ids.iter().copied().zip(payloads).collect();
        self.ask(|answer| Request::Push(rows, answer)).await?;
        Ok(ids)
    }
}

/// The number of requests that may wait for the writer: more than any scenario has tasks.
const QUEUED: usize = 1024;

impl Client for Sqlite {
    type RawDelivery = RawDelivery;
    type Source = Fed;

    async fn open(url: &str) -> Result<Self> {
        let path = url.strip_prefix("sqlite://").ok_or("not a sqlite URL")?.to_owned();
        let (requests, received) = mpsc::sync_channel(QUEUED);
        let (opened, open) = oneshot::channel();
        let thread = std::thread::Builder::new().name("sqlite-yardstick".to_owned()).spawn(move || {
            let connection = match Table::connect(&path) {
                Ok(connection) => connection,
                Err(error) => return drop(opened.send(Err(error))),
            };
            match Table::prepare(&connection) {
                Ok(table) => {
                    drop(opened.send(Ok(())));
                    Writer::new(table, received).run();
                }
                Err(error) => drop(opened.send(Err(error))),
            }
        })?;
        open.await??;
        Ok(Self(Arc::new(Handle { requests: Mutex::new(Some(requests)), thread: Mutex::new(Some(thread)) })))
    }

    async fn push(&self, payload: Bytes) -> Result<MessageId> {
        let id = MessageId::new();
        self.ask(|answer| Request::Push(vec![(id, payload)], answer)).await?;
        Ok(id)
    }

    async fn push_batch(&self, payloads: Vec<Bytes>) -> Result<Vec<MessageId>> {
        self.insert(payloads).await
    }

    async fn pull(&self, max: usize, wait: Duration) -> Result<Vec<RawDelivery>> {
        let until = Instant::now() + wait;
        self.ask(|answer| Request::Pull { max, until, answer }).await
    }

    async fn settle(&self, delivery: RawDelivery) -> Result<()> {
        self.settle_batch(vec![delivery]).await
    }

    async fn settle_batch(&self, deliveries: Vec<RawDelivery>) -> Result<()> {
        let rows = deliveries.iter().map(|d| (d.place, d.token)).collect();
        self.ask(|answer| Request::Settle(rows, answer)).await
    }

    async fn settle_then(
        &self,
        deliveries: Vec<RawDelivery>,
        payloads: Vec<Bytes>,
    ) -> Result<Vec<MessageId>> {
        let ids: Vec<_> = payloads.iter().map(|_| MessageId::new()).collect();
        let held = deliveries.iter().map(|d| (d.place, d.token));
        let rows = held.zip(ids.iter().copied().zip(payloads)).collect();
        self.ask(|answer| Request::SettleThen(rows, answer)).await?;
        Ok(ids)
    }

    async fn source(&self, window: usize) -> Result<Fed> {
        let (deliveries, fed) = async_mpsc::channel(window);
        self.send(Request::Feed(Feeder::new(window, deliveries)))?;
        Ok(Fed(fed))
    }

    async fn remaining(&self) -> Result<u64> {
        self.ask(Request::Count).await
    }

    async fn close(&self) -> Result<()> {
        drop(self.0.requests.lock().unwrap_or_else(PoisonError::into_inner).take());
        let thread = self.0.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            tokio::task::spawn_blocking(|| thread.join())
                .await?
                .map_err(|_| "the writer's thread panicked")?;
        }
        Ok(())
    }

    fn id(delivery: &RawDelivery) -> MessageId {
        delivery.id
    }

    fn payload(delivery: &RawDelivery) -> &[u8] {
        &delivery.payload
    }
}

impl Yardstick for Sqlite {
    const NAME: &'static str = "sqlite";
    const ACROSS_PROCESSES: bool = true;
    const SETTLES_THEN: bool = true;

    fn messages(scenario: Scenario) -> usize {
        match scenario {
            Scenario::PushOne | Scenario::Latency | Scenario::LatencyAcross => 100,
            _ => 2_000,
        }
    }

    async fn place(scratch: &Path) -> Result<String> {
        let path = scratch.join("queue.db");
        Ok(format!("sqlite://{}", path.to_str().ok_or("the scratch directory's name is not UTF-8")?))
    }
}

/// What the writer's thread hands to a puller.
pub(crate) struct Fed(async_mpsc::Receiver<RawDelivery>);

impl Source<RawDelivery> for Fed {
    async fn next(&mut self) -> Result<RawDelivery> {
        self.0.recv().await.ok_or_else(|| "the writer's thread gave up".into())
    }
}
