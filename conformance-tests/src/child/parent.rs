//! A child process, as seen by the case that started it.

use std::collections::HashMap;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyqueue::{MessageData, MessageId, PartitionId, PushOutcome};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{ChildStdin, ChildStdout, Command};

use super::event::{ADDRESS, ChildEvent, ROLE, Role};
use crate::history::{History, Op, Ticket};
use crate::verdict::{CaseResult, Stop};

/// A child that reports nothing for this long counts as hung.
const PATIENCE: Duration = Duration::from_secs(20);

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

    /// Returns the next event of the child, or `None` when the child has ended.
    ///
    /// # Errors
    /// Inconclusive if the child reports nothing for long, or something that is not an event.
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

    /// Reads on until the child has reported `n` events that `wanted` accepts.
    ///
    /// # Errors
    /// Inconclusive if the child ends or falls silent before.
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

    /// Kills the child (SIGKILL), and reads what it had still reported.
    ///
    /// # Errors
    /// Inconclusive if the child cannot be killed.
    pub async fn kill(&mut self) -> CaseResult<Vec<ChildEvent>> {
        self.process.kill().await.map_err(|error| Stop::Inconclusive(error.to_string()))?;
        self.history.note(&self.name, "killed");
        let mut rest = Vec::new();
        // The last line may be incomplete; it is then ignored.
        while let Ok(Some(event)) = self.event().await {
            rest.push(event);
        }
        Ok(rest)
    }

    /// Stops the child (SIGSTOP): it keeps what it holds, and does nothing.
    ///
    /// # Errors
    /// Inconclusive if the child cannot be stopped.
    pub async fn stop(&self) -> CaseResult {
        self.signal("STOP").await
    }

    /// Lets the child continue (SIGCONT).
    ///
    /// # Errors
    /// Inconclusive if the child cannot continue.
    pub async fn resume(&self) -> CaseResult {
        self.signal("CONT").await
    }

    async fn signal(&self, name: &str) -> CaseResult {
        let failed = |what: String| Stop::Inconclusive(format!("no SIG{name} could be sent: {what}"));
        let id = self.process.id().ok_or_else(|| failed("the process has ended".to_owned()))?;
        let sent = Command::new("kill").arg(format!("-{name}")).arg(id.to_string()).status().await;
        let status = sent.map_err(|error| failed(error.to_string()))?;
        self.history.note(&self.name, format!("SIG{name}"));
        if status.success() { Ok(()) } else { Err(failed(status.to_string())) }
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
            ChildEvent::Idle | ChildEvent::Done | ChildEvent::Failed { .. } | ChildEvent::Lost { .. } => {
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
