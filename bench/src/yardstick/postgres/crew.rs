//! The tasks that carry out single calls, each on its own connection.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyqueue::{Bytes, MessageId};
use sqlx::postgres::PgListener;
use tokio::sync::futures::OwnedNotified;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinSet;

use super::delivery::{Proof, RawDelivery};
use super::table::{Table, base, schema};
use crate::client::Result;

/// The maximum number of requests that share a statement.
const GROUP: usize = 1000;
/// The number of pushes that may wait: more than any scenario has tasks.
const QUEUED: usize = 1024;
const REAP: Duration = Duration::from_secs(1);
/// The least time between two notifications.
const NOTIFY_PAUSE: Duration = Duration::from_millis(5);

/// Where a caller's answer is sent.
pub(super) struct Asked(oneshot::Sender<bool>);

impl Asked {
    /// Makes a request, and waits until it is done.
    pub(super) async fn wait(ask: impl FnOnce(Self)) -> Result<()> {
        let (answer, answered) = oneshot::channel();
        ask(Self(answer));
        if answered.await? { Ok(()) } else { Err("a lease was lost".into()) }
    }

    fn answer(self, done: bool) {
        // If the caller is gone, nobody misses the answer.
        let _ = self.0.send(done);
    }
}

type Push = ((MessageId, Bytes), Asked);
type Settle = (Proof, Asked);

/// A puller's window.
struct Feeder {
    window: usize,
    held: usize,
    to: mpsc::Sender<RawDelivery>,
}

#[derive(Default)]
struct State {
    settles: VecDeque<Settle>,
    feeder: Option<Feeder>,
}

pub(super) struct Crew {
    url: String,
    idle: Mutex<Vec<Table>>,
    pushes: Mutex<Option<mpsc::Sender<Push>>>,
    state: Mutex<State>,
    work: Notify,
    arrivals: Arc<Notify>,
    outbox: Notify,
    tasks: Mutex<JoinSet<Result<()>>>,
}

impl Crew {
    pub(super) async fn start(url: &str) -> Result<Arc<Self>> {
        let mut table = Table::connect(url).await?;
        table.prepare(url).await?;
        let (pushes, asked) = mpsc::channel(QUEUED);
        let crew = Arc::new(Self {
            url: url.to_owned(),
            idle: Mutex::new(vec![table]),
            pushes: Mutex::new(Some(pushes)),
            state: Mutex::default(),
            work: Notify::new(),
            arrivals: Arc::default(),
            outbox: Notify::new(),
            tasks: Mutex::default(),
        });
        crew.employ(Arc::clone(&crew).push_all(asked));
        // Only one: of two, each carried half, at the same price, and less was drained.
        crew.employ(Arc::clone(&crew).settle_all());
        crew.employ(Arc::clone(&crew).reap());
        crew.employ(Arc::clone(&crew).notify());
        crew.employ(Arc::clone(&crew).listen(Self::listener(url).await?));
        Ok(crew)
    }

    async fn listener(url: &str) -> Result<PgListener> {
        let mut listener = PgListener::connect(base(url)).await?;
        listener.listen(schema(url)).await?;
        Ok(listener)
    }

    fn employ(&self, work: impl Future<Output = Result<()>> + Send + 'static) {
        lock(&self.tasks).spawn(work);
    }

    pub(super) async fn table(&self) -> Result<Table> {
        let idle = lock(&self.idle).pop();
        match idle {
            Some(table) => Ok(table),
            None => Table::connect(&self.url).await,
        }
    }

    pub(super) fn put_back(&self, table: Table) {
        lock(&self.idle).push(table);
    }

    pub(super) fn push(&self, message: (MessageId, Bytes), asked: Asked) {
        if let Some(pushes) = &*lock(&self.pushes) {
            // A push that finds no room is dropped, and its caller gets an error.
            drop(pushes.try_send((message, asked)));
        }
    }

    pub(super) fn settle(&self, proof: Proof, asked: Asked) {
        lock(&self.state).settles.push_back((proof, asked));
        self.work.notify_one();
    }

    pub(super) fn feed(&self, window: usize, to: mpsc::Sender<RawDelivery>) {
        lock(&self.state).feeder = Some(Feeder { window, held: 0, to });
        self.work.notify_one();
    }

    /// Call this before looking, so that nothing comes unseen between looking and waiting.
    pub(super) fn woken(&self) -> OwnedNotified {
        Arc::clone(&self.arrivals).notified_owned()
    }

    /// Called after messages were pushed: notifies waiting pulls, here and elsewhere.
    pub(super) fn pushed(&self) {
        self.arrived();
        self.outbox.notify_one();
    }

    fn arrived(&self) {
        self.arrivals.notify_waiters();
        self.work.notify_one();
    }

    async fn push_all(self: Arc<Self>, mut asked: mpsc::Receiver<Push>) -> Result<()> {
        let mut table = self.table().await?;
        let mut group = Vec::new();
        while asked.recv_many(&mut group, GROUP).await > 0 {
            let (messages, answers): (Vec<_>, Vec<_>) = group.drain(..).unzip();
            table.push(messages.into_iter()).await?;
            for asked in answers {
                asked.answer(true);
            }
            self.pushed();
            // The callers just answered are about to make their next requests.
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    async fn settle_all(self: Arc<Self>) -> Result<()> {
        let mut table = Table::connect(&self.url).await?;
        loop {
            let (settles, wanted) = self.gather();
            if settles.is_empty() && wanted == 0 {
                self.work.notified().await;
                continue;
            }
            let (proofs, answers): (Vec<_>, Vec<_>) = settles.into_iter().unzip();
            let (gone, taken) = if wanted == 0 {
                (table.settle(&proofs).await?, Vec::new())
            } else {
                table.exchange(&proofs, wanted).await?
            };
            let all = gone.len() == proofs.len();
            for (Proof { id, .. }, asked) in proofs.iter().zip(answers) {
                asked.answer(all || gone.contains(id));
            }
            let empty = wanted > 0 && taken.is_empty();
            self.hand_over(taken, wanted);
            tokio::task::yield_now().await;
            if empty {
                self.work.notified().await;
            }
        }
    }

    /// Returns what is to be settled, and how many messages the puller wants after that.
    fn gather(&self) -> (Vec<Settle>, usize) {
        let mut state = lock(&self.state);
        let count = state.settles.len().min(GROUP);
        let settles: Vec<_> = state.settles.drain(..count).collect();
        let Some(feeder) = &mut state.feeder else { return (settles, 0) };
        feeder.held = feeder.held.saturating_sub(settles.len());
        let free = feeder.window - feeder.held;
        let wanted = if free >= (feeder.window / 4).max(1) { free } else { 0 };
        feeder.held += wanted;
        (settles, wanted)
    }

    fn hand_over(&self, taken: Vec<RawDelivery>, wanted: usize) {
        let mut state = lock(&self.state);
        let Some(feeder) = &mut state.feeder else { return };
        feeder.held = feeder.held.saturating_sub(wanted - taken.len());
        for delivery in taken {
            // The channel is as wide as the window.
            drop(feeder.to.try_send(delivery));
        }
        if feeder.to.is_closed() {
            state.feeder = None;
        }
    }

    async fn reap(self: Arc<Self>) -> Result<()> {
        loop {
            tokio::time::sleep(REAP).await;
            let mut table = self.table().await?;
            table.reap().await?;
            self.put_back(table);
        }
    }

    async fn notify(self: Arc<Self>) -> Result<()> {
        loop {
            self.outbox.notified().await;
            let mut table = self.table().await?;
            table.notify(&self.url).await?;
            self.put_back(table);
            tokio::time::sleep(NOTIFY_PAUSE).await;
        }
    }

    async fn listen(self: Arc<Self>, mut listener: PgListener) -> Result<()> {
        loop {
            listener.recv().await?;
            self.arrived();
        }
    }

    pub(super) async fn close(&self) -> Result<()> {
        let mut tasks = std::mem::take(&mut *lock(&self.tasks));
        tasks.shutdown().await;
        drop(lock(&self.pushes).take());
        let idle = std::mem::take(&mut *lock(&self.idle));
        for table in idle {
            table.close().await?;
        }
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
