//! Processes that stand still between two steps, and are killed there, or go on while a server is killed: what becomes of the tasks.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyqueue::{MessageData, MessageId, Queue};
use anyqueue_worker::task;

use crate::account::Account;
use crate::actors::{Actors, Said, Saying};
use crate::grounds::{FaultTarget, Ground, PARTITION};
use crate::load::empty;

/// What is pushed for the processes of one round: enough that each gets to its step.
const TASKS: usize = 96;
/// Of so many tasks one dies.
const DYING: usize = 8;
/// What is pushed at once until each process goes on.
const MORE: usize = 20;
/// How long is waited for it before more is pushed.
const MOMENT: Duration = Duration::from_millis(200);
/// A pull that failed last is made again within five seconds.
const GOES_ON: Duration = Duration::from_secs(30);

struct Proof<'g> {
    ground: &'g Ground,
    queue: Queue,
    said: Arc<Said>,
    account: Account,
    started: usize,
}

/// Processes are killed, then a ledger's server that is not the queue's, then the queue's: all while a process stands at each step.
/// Afterwards each push that was acknowledged has ended, lives, or is dead, and none of them twice. What had ended runs no more.
pub(crate) async fn killed_at_each_step_each_task_is_in_one_place(ground: Ground) {
    let queue = ground.open_with_ledger().await;
    let (said, account) = (Arc::<Said>::default(), Account::default());
    let mut proof = Proof { ground: &ground, queue, said, account, started: 0 };

    let actors = proof.actors().await;
    let numbers: Vec<_> = actors.numbers().collect();
    actors.kill().await;
    proof.account.harmed(numbers);

    if let Some(ledger) = &ground.ledger {
        let actors = proof.kill_under(ledger.target.as_ref().unwrap()).await;
        proof.until_all_go_on(&actors).await;
        actors.end().await;
    }
    let actors = proof.kill_under(ground.target.as_ref().unwrap()).await;
    proof.account.harmed(actors.numbers());
    proof.until_all_go_on(&actors).await;
    proof.finish(actors).await;
}

impl Proof<'_> {
    async fn actors(&mut self) -> Actors {
        self.push(TASKS).await;
        let first = self.started;
        let actors = Actors::start(self.ground, first, &self.said).await;
        self.started += actors.numbers().count();
        actors
    }

    /// Kills a server while a process stands at each step, and has them go on before it is back.
    async fn kill_under(&mut self, target: &FaultTarget) -> Actors {
        let mut actors = self.actors().await;
        target.end().await.unwrap();
        actors.go_on().await;
        target.server.restart().await.unwrap();
        actors
    }

    async fn until_all_go_on(&mut self, actors: &Actors) {
        let (since, mut tasks) = (Instant::now(), HashSet::new());
        let said = Arc::clone(&self.said);
        loop {
            tasks.extend(self.push(MORE).await);
            if said.until(MOMENT, |lines| actors.late(lines, &tasks).is_empty()).await {
                return;
            }
            let late = actors.late(&said.lines(), &tasks);
            assert!(since.elapsed() < GOES_ON, "what stood at {late:?} does not go on");
        }
    }

    /// Pushes as many, and returns those that were acknowledged. A server that was just killed may need a second try, of others.
    async fn push(&mut self, count: usize) -> Vec<MessageId> {
        let since = Instant::now();
        loop {
            let message = |number: usize| task("k", &number.is_multiple_of(DYING)).unwrap();
            let messages: Vec<_> = (0..count).map(message).collect();
            let ids: Vec<_> = messages.iter().map(MessageData::id).collect();
            let answers = self.queue.push_many(PARTITION, messages).await.unwrap();
            let stored: Vec<_> =
                ids.iter().zip(&answers).filter(|(_, it)| it.is_ok()).map(|(id, _)| *id).collect();
            self.account.pushed(&ids, &stored);
            if !stored.is_empty() {
                return stored;
            }
            assert!(since.elapsed() < GOES_ON, "nothing can be pushed: {answers:?}");
            tokio::time::sleep(MOMENT / 4).await;
        }
    }

    /// Has what is left run by the processes of the last round, and accounts for everything.
    async fn finish(mut self, actors: Actors) {
        let ran = || self.said.ids(&Saying::Begins).len();
        empty(&self.queue, 1, ran).await;
        actors.end().await;
        self.account.heard(&self.said.lines());
        let bare = self.ground.open().await;
        self.account.find(&self.queue, &bare).await;
        println!("{}", self.account.check(&self.ground.backend, self.queue.capabilities()));
        bare.close().await.unwrap();
        self.queue.close().await.unwrap();
    }
}
