//! Child processes: the suite's own binary, started again in a role, so that a case can kill it.
//!
//! The child tells on its standard output, one line at a time and flushed, what it is about to do and what was
//! confirmed; the parent writes that into the case's history. A child ends when its standard input does, so none
//! outlives its parent.

mod roles;

use std::collections::HashMap;
use std::io::Write as _;
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyqueue::adapter::{Action, PullRequest, Settlement, Storage};
use anyqueue::{Error, MessageData, MessageId, PartitionId, PushOutcome, Result, SettleOutcome};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{ChildStdin, ChildStdout, Command};

use crate::case::{CaseResult, Stop};
use crate::harness::Harness;
use crate::history::{History, Op, Ticket};

const ROLE: &str = "ANYQUEUE_CONFORMANCE_ROLE";
const ADDRESS: &str = "ANYQUEUE_CONFORMANCE_ADDRESS";

/// A child that says nothing for this long hangs.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a child does. It then waits to be killed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Role {
    /// Pushes `count` messages, one by one.
    Pusher {
        /// The partition's name.
        partition: String,
        /// How many messages.
        count: usize,
    },
    /// Pulls until it has taken `count` messages.
    Consumer {
        /// The partition's name.
        partition: String,
        /// How many messages.
        count: usize,
        /// Deliveries per pull.
        max: usize,
        /// The lease of each, in milliseconds.
        lease_ms: u64,
        /// Whether it removes each, or holds it.
        remove: bool,
    },
    /// Pushes batches until it is killed.
    BatchPusher {
        /// The partition's name.
        partition: String,
        /// Messages per batch.
        batch: usize,
    },
    /// Pulls `count` messages, holds them for a while, and then removes each on its own.
    LateConsumer {
        /// The partition's name.
        partition: String,
        /// How many messages.
        count: usize,
        /// The lease of each, in milliseconds.
        lease_ms: u64,
        /// How long it holds them, in milliseconds.
        hold_ms: u64,
    },
}

/// One line that a child writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ChildEvent {
    /// It is about to push this message.
    Pushing {
        /// The partition's name.
        partition: String,
        /// The id, as text.
        id: String,
        /// The payload.
        payload: String,
    },
    /// The push was acknowledged.
    Pushed {
        /// The id, as text.
        id: String,
    },
    /// It holds this message.
    Took {
        /// The id, as text.
        id: String,
        /// Its delivery count, where known.
        count: Option<u32>,
        /// Its lease, in milliseconds.
        lease_ms: u64,
    },
    /// Its removal was confirmed.
    Removed {
        /// The id, as text.
        id: String,
    },
    /// Its removal was refused: the lease was lost.
    Lost {
        /// The id, as text.
        id: String,
    },
    /// It did all that its role says.
    Done,
    /// A call failed.
    Failed {
        /// The error.
        error: String,
    },
}

/// A child process of a case. Killed when dropped.
#[derive(Debug)]
pub struct Child {
    process: tokio::process::Child,
    lines: Lines<BufReader<ChildStdout>>,
    _stdin: ChildStdin,
    history: Arc<History>,
    name: Arc<str>,
    pushing: HashMap<MessageId, Ticket>,
}

impl Child {
    pub(crate) fn spawn(address: &str, role: &Role, history: Arc<History>) -> CaseResult<Self> {
        let broken =
            |what: String| Stop::Inconclusive(format!("a child process could not be started: {what}"));
        let exe = std::env::current_exe().map_err(|e| broken(e.to_string()))?;
        let role_text = serde_json::to_string(role).map_err(|e| broken(e.to_string()))?;
        let mut process = Command::new(exe)
            .env(ROLE, role_text)
            .env(ADDRESS, address)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|e| broken(e.to_string()))?;
        let (stdin, stdout) =
            process.stdin.take().zip(process.stdout.take()).ok_or_else(|| broken("no pipes".into()))?;
        let name: Arc<str> = format!("child {}", process.id().unwrap_or_default()).into();
        history.note(&name, format!("starts as {role:?}"));
        let lines = BufReader::new(stdout).lines();
        Ok(Self { process, lines, _stdin: stdin, history, name, pushing: HashMap::new() })
    }

    /// The next thing it says; `None` when it has ended.
    ///
    /// # Errors
    /// Inconclusive if it says nothing for long, or something that is no event.
    pub async fn event(&mut self) -> CaseResult<Option<ChildEvent>> {
        let line = tokio::time::timeout(PATIENCE, self.lines.next_line()).await;
        let line =
            line.map_err(|_| Stop::Inconclusive(format!("{} said nothing for {PATIENCE:?}", self.name)))?;
        let Some(line) = line.map_err(|error| Stop::Inconclusive(error.to_string()))? else {
            return Ok(None);
        };
        let event: ChildEvent = serde_json::from_str(&line)
            .map_err(|error| Stop::Inconclusive(format!("{} said {line:?}: {error}", self.name)))?;
        self.record(&event);
        Ok(Some(event))
    }

    /// Reads on until it has said `n` things that `wanted` accepts.
    ///
    /// # Errors
    /// Inconclusive if it ends or falls silent before.
    pub async fn wait_for(
        &mut self,
        n: usize,
        wanted: impl Fn(&ChildEvent) -> bool,
    ) -> CaseResult<Vec<ChildEvent>> {
        let mut got = Vec::new();
        while got.len() < n {
            match self.event().await? {
                Some(ChildEvent::Failed { error }) => {
                    return Err(Stop::Inconclusive(format!("{} failed: {error}", self.name)));
                }
                Some(event) if wanted(&event) => got.push(event),
                Some(_) => {}
                None => return Err(Stop::Inconclusive(format!("{} ended early", self.name))),
            }
        }
        Ok(got)
    }

    /// Kills it (SIGKILL), and reads what it still had said.
    ///
    /// # Errors
    /// Inconclusive if it cannot be killed.
    pub async fn kill(&mut self) -> CaseResult<Vec<ChildEvent>> {
        self.process.kill().await.map_err(|error| Stop::Inconclusive(error.to_string()))?;
        self.history.note(&self.name, "killed");
        let mut rest = Vec::new();
        // The last line may be torn; it then says nothing.
        while let Ok(Some(event)) = self.event().await {
            rest.push(event);
        }
        Ok(rest)
    }

    fn record(&mut self, event: &ChildEvent) {
        match event {
            ChildEvent::Pushing { partition, id, payload } => {
                let (Ok(id), Ok(partition)) = (id.parse::<MessageId>(), PartitionId::new(partition)) else {
                    return;
                };
                self.history.know(&MessageData::with_id(id, payload.clone()));
                let op = Op::Push { partition, ids: vec![id], outcomes: Vec::new() };
                self.pushing.insert(id, self.history.begin(&self.name, op));
            }
            ChildEvent::Pushed { id } => {
                let Ok(id) = id.parse::<MessageId>() else { return };
                let Some(ticket) = self.pushing.remove(&id) else { return };
                self.history.end(ticket, 1, |op| {
                    if let Op::Push { outcomes, .. } = op {
                        outcomes.push(Ok(PushOutcome::Stored(id)));
                    }
                });
            }
            ChildEvent::Done | ChildEvent::Failed { .. } | ChildEvent::Lost { .. } => {
                self.history.note(&self.name, format!("{event:?}"));
            }
            ChildEvent::Took { id, lease_ms, .. } => {
                if let Ok(id) = id.parse() {
                    let lease = Duration::from_millis(*lease_ms);
                    let ticket = self.history.begin(&self.name, Op::ChildTook { id, lease });
                    self.history.end(ticket, 1, |_| ());
                }
            }
            ChildEvent::Removed { id } => {
                if let Ok(id) = id.parse() {
                    let ticket = self.history.begin(&self.name, Op::ChildRemoved { id });
                    self.history.end(ticket, 1, |_| ());
                }
            }
        }
    }
}

/// Plays the role that the environment names, if it names one: then this process is a child, and ends with what is answered.
/// [`main`](crate::main) begins with it; a `main` of one's own does too, if it runs cases with [`Options::with_children`].
///
/// [`Options::with_children`]: crate::Options::with_children
pub fn run_if_child<H: Harness>() -> Option<ExitCode> {
    let (role, address) = (std::env::var(ROLE).ok()?, std::env::var(ADDRESS).ok()?);
    end_with_parent();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let played = match (runtime, serde_json::from_str(&role)) {
        (Ok(runtime), Ok(role)) => runtime.block_on(play::<H>(&address, role)),
        (Err(error), _) => Err(Error::invalid(error.to_string())),
        (_, Err(error)) => Err(Error::invalid(error.to_string())),
    };
    if let Err(error) = played {
        say(&ChildEvent::Failed { error: error.to_string() });
        return Some(ExitCode::FAILURE);
    }
    Some(ExitCode::SUCCESS)
}

/// Ends the process when its parent has gone. In a thread, because reading standard input cannot be cancelled.
fn end_with_parent() {
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(0);
    });
}

async fn play<H: Harness>(address: &str, role: Role) -> Result<()> {
    let storage = H::attach(address).await?;
    match role {
        Role::Pusher { partition, count } => push(&*storage, &partition, count).await?,
        Role::Consumer { partition, count, max, lease_ms, remove } => {
            let request = PullRequest::new(max, Duration::from_secs(1), Duration::from_millis(lease_ms));
            consume(&*storage, &PartitionId::new(&partition)?, count, &request, remove).await?;
        }
        Role::BatchPusher { partition, batch } => roles::push_batches(&*storage, &partition, batch).await?,
        Role::LateConsumer { partition, count, lease_ms, hold_ms } => {
            roles::consume_late(&*storage, &partition, count, lease_ms, hold_ms).await?;
        }
    }
    say(&ChildEvent::Done);
    std::future::pending().await
}

async fn push(storage: &dyn Storage, name: &str, count: usize) -> Result<()> {
    let partition = PartitionId::new(name)?;
    for index in 0..count {
        let payload = format!("from process {}, {index}", std::process::id());
        let message = MessageData::new(&payload);
        let id = message.id().to_string();
        say(&ChildEvent::Pushing { partition: name.to_owned(), id: id.clone(), payload });
        for answer in storage.push(&partition, &[message]).await {
            answer?;
        }
        say(&ChildEvent::Pushed { id });
    }
    Ok(())
}

async fn consume(
    storage: &dyn Storage,
    partition: &PartitionId,
    count: usize,
    request: &PullRequest,
    remove: bool,
) -> Result<()> {
    let lease_ms = u64::try_from(request.lease.as_millis()).unwrap_or(u64::MAX);
    let mut taken = 0;
    while taken < count {
        let mut request = request.clone();
        request.max = request.max.min(count - taken);
        for delivery in storage.pull(partition, request).await? {
            taken += 1;
            let id = delivery.lease.id.to_string();
            say(&ChildEvent::Took { id: id.clone(), count: delivery.delivery_count, lease_ms });
            if remove {
                let settlement = Settlement { lease: delivery.lease, action: Action::Remove };
                for outcome in storage.settle(&[settlement]).await {
                    if outcome? == SettleOutcome::Settled {
                        say(&ChildEvent::Removed { id: id.clone() });
                    }
                }
            }
        }
    }
    Ok(())
}

/// Writes one line, whole, and flushes it. A parent that is gone does not matter any more.
fn say(event: &ChildEvent) {
    let Ok(mut line) = serde_json::to_vec(event) else { return };
    line.push(b'\n');
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(&line).and_then(|()| out.flush());
}
