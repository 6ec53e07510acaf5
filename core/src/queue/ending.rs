//! What the ledger records of a task when its delivery ends.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::shared::Shared;
use crate::error::{Error, ErrorKind, Operation, Result};
use crate::inspect::Browsed;
use crate::ledger::{
    EndState, MAX_LOG_BYTES, MAX_PROGRESS_BYTES, MAX_RESULT_BYTES, TaskEnd, attempts, cut, kind_of,
};
use crate::message::{Headers, MAX_KEY_BYTES, MessageData, MessageId, header};
use crate::partition::PartitionId;
use crate::status::{MAX_REASON_BYTES, QueueMessageStatus};
use crate::storage::Action;

/// What whoever runs a task reports about its run, for the ledger. Pass it to
/// [`Delivery::report`](crate::Delivery::report); it is kept if the task ends with this delivery.
///
/// ```
/// use anyqueue::{Keep, MessageData, Queue, QueueMessageStatus::Processed, TaskReport, TaskState};
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let queue = Queue::builder(anyqueue_memory::MemoryQueue::new()).ledger(Keep::default()).build()?;
/// queue.push("sums", MessageData::new("2+2")).await?;
///
/// for mut sum in queue.pull("sums").await? {
///     sum.report(TaskReport::new().with_result("4").with_worker("host 7"))?;
///     sum.settle(Processed).await?;
///     let task = queue.task("sums", sum.id()).await?.unwrap();
///     assert_eq!((task.state, task.result.as_deref()), (TaskState::Succeeded, Some(&b"4"[..])));
/// }
/// # Ok::<(), anyqueue::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "a report says nothing until a delivery has it"]
pub struct TaskReport {
    /// How the task ends, if the status does not tell: a task that is removed as `Processed` or `Cancelled`
    /// may have failed for good.
    pub state: Option<EndState>,
    /// Which attempt this is, counted from 1. Default: one more than the header `task-attempts` counts.
    pub attempt: Option<u32>,
    /// How long the task ran. Default: the time since the message was received.
    pub ran: Option<Duration>,
    /// Who ran the task.
    pub worker: Option<Arc<str>>,
    /// Why the task did not succeed.
    pub reason: Option<Arc<str>>,
    /// The failed attempts, including this one. Default: the value of the header `task-errors`.
    pub errors: Option<Arc<str>>,
    /// What was logged during the run, as lines. Whatever exceeds [`MAX_LOG_BYTES`] is cut.
    pub log: Option<Arc<str>>,
    /// How far the run had come, in words or numbers. Whatever exceeds [`MAX_PROGRESS_BYTES`] is cut.
    pub progress: Option<Arc<str>>,
    /// The result of the task, at most [`MAX_RESULT_BYTES`].
    pub result: Option<Bytes>,
}

impl TaskReport {
    /// Creates an empty report.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`state`](Self::state).
    pub fn with_state(mut self, state: EndState) -> Self {
        self.state = Some(state);
        self
    }

    /// Sets [`attempt`](Self::attempt).
    pub fn with_attempt(mut self, attempt: u32) -> Self {
        self.attempt = Some(attempt);
        self
    }

    /// Sets [`ran`](Self::ran).
    pub fn with_ran(mut self, ran: Duration) -> Self {
        self.ran = Some(ran);
        self
    }

    /// Sets [`worker`](Self::worker).
    pub fn with_worker(mut self, worker: impl Into<Arc<str>>) -> Self {
        self.worker = Some(worker.into());
        self
    }

    /// Sets [`reason`](Self::reason).
    pub fn with_reason(mut self, reason: impl Into<Arc<str>>) -> Self {
        self.reason = Some(reason.into());
        self
    }

    /// Sets [`errors`](Self::errors).
    pub fn with_errors(mut self, errors: impl Into<Arc<str>>) -> Self {
        self.errors = Some(errors.into());
        self
    }

    /// Sets [`log`](Self::log).
    pub fn with_log(mut self, log: impl Into<Arc<str>>) -> Self {
        self.log = Some(log.into());
        self
    }

    /// Sets [`progress`](Self::progress).
    pub fn with_progress(mut self, progress: impl Into<Arc<str>>) -> Self {
        self.progress = Some(progress.into());
        self
    }

    /// Sets [`result`](Self::result).
    pub fn with_result(mut self, result: impl Into<Bytes>) -> Self {
        self.result = Some(result.into());
        self
    }

    pub(super) fn check(&self) -> Result<()> {
        let bytes = self.result.as_ref().map_or(0, Bytes::len);
        if bytes <= MAX_RESULT_BYTES {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::TooLarge,
            format!("a result of {bytes} bytes: at most {MAX_RESULT_BYTES} are kept; store it elsewhere and keep where"),
        )
        .with_operation(Operation::Settle))
    }
}

/// The end of a task as core sees it.
pub(super) struct Ending<'a> {
    pub(super) partition: &'a PartitionId,
    pub(super) message: &'a MessageData,
    pub(super) delivery_count: Option<u32>,
    /// The message's age at the beginning of its last run.
    pub(super) waited: Duration,
    pub(super) ran: Duration,
    /// Whether a handler had it.
    pub(super) was_handled: bool,
    pub(super) successors: usize,
}

/// The number of attempts made with this message, including the one that ends now: as the report says, or
/// else by the header `task-attempts`.
pub(super) fn attempt(message: &MessageData, was_handled: bool, report: Option<&TaskReport>) -> u32 {
    let said = report.and_then(|report| report.attempt);
    said.unwrap_or_else(|| attempts(message.headers()).saturating_add(u32::from(was_handled)))
}

impl Ending<'_> {
    /// Describes an end, or a fact about a task that goes on, with all that is known.
    pub(super) fn described(&self, state: EndState, report: Option<&TaskReport>) -> TaskEnd {
        let empty = TaskReport::default();
        let (report, message) = (report.unwrap_or(&empty), self.message);
        let mut end = TaskEnd::new(state).about(message);
        end.attempt = attempt(message, self.was_handled, Some(report));
        end.delivery_count = self.delivery_count.unwrap_or(0);
        end.successors = u32::try_from(self.successors).unwrap_or(u32::MAX);
        end.waited = self.waited;
        end.ran = report.ran.unwrap_or(self.ran);
        end.worker = report.worker.as_deref().map(|worker| cut(worker, MAX_KEY_BYTES));
        end.reason = report.reason.as_deref().map(|reason| cut(reason, MAX_REASON_BYTES));
        if let Some(errors) = &report.errors {
            end = end.with_errors(Some(Arc::clone(errors)));
        }
        end.log = report.log.as_deref().map(|log| cut(log, MAX_LOG_BYTES));
        end.progress = report.progress.as_deref().map(|progress| cut(progress, MAX_PROGRESS_BYTES));
        end.result.clone_from(&report.result);
        end
    }
}

impl Shared {
    /// What a settlement stores in the ledger; nothing if the task does not end with it, or is not to be
    /// kept.
    pub(super) fn end(
        &self,
        ending: &Ending<'_>,
        status: &QueueMessageStatus,
        action: &Action,
        report: Option<&TaskReport>,
    ) -> Option<Arc<TaskEnd>> {
        match action {
            Action::Remove => {}
            Action::Move { to, .. } if to.is_dead_letters() => return self.died(ending, action, report),
            _ => return self.goes_back(ending, status, action, report),
        }
        let said = report.and_then(|report| report.state);
        let state = said.unwrap_or(match status {
            QueueMessageStatus::Processed => EndState::Succeeded,
            _ => EndState::Cancelled,
        });
        self.ended(ending, state, report)
    }

    /// What the ledger counts for a task whose message becomes a dead letter. If the queue itself shows dead
    /// letters, nothing else is kept.
    pub(super) fn died(
        &self,
        ending: &Ending<'_>,
        action: &Action,
        report: Option<&TaskReport>,
    ) -> Option<Arc<TaskEnd>> {
        self.options.ledger?;
        if self.tells_of_living() {
            return Some(ending.told(action, report));
        }
        self.counted(ending, EndState::Failed, report)
    }

    /// An end that is counted and not stored.
    fn counted(
        &self,
        ending: &Ending<'_>,
        state: EndState,
        report: Option<&TaskReport>,
    ) -> Option<Arc<TaskEnd>> {
        if !self.capabilities.series || ending.partition.is_dead_letters() {
            return None;
        }
        let mut end = TaskEnd::new(state).with_keep(Some(Duration::ZERO));
        end.waited = ending.waited;
        end.ran = report.and_then(|report| report.ran).unwrap_or(ending.ran);
        end.kind = kind_of(ending.message.headers());
        Some(Arc::new(end))
    }

    /// What the ledger keeps of a task that is cancelled while it waits, given the message as found before.
    pub(super) fn end_cancelled(
        &self,
        partition: &PartitionId,
        found: Option<&Browsed>,
    ) -> Option<Arc<TaskEnd>> {
        let unknown = MessageData::with_id(MessageId::from_bytes([0; 16]), Bytes::new());
        let ending = Ending {
            partition,
            message: found.map_or(&unknown, |found| &found.message),
            delivery_count: found.and_then(|found| found.delivery_count),
            waited: found.map_or(Duration::ZERO, |found| found.age),
            ran: Duration::ZERO,
            was_handled: false,
            successors: 0,
        };
        self.ended(
            &ending,
            EndState::Cancelled,
            Some(&TaskReport::new().with_reason("cancelled while it waited")),
        )
    }

    /// What the ledger keeps of a task that ended in this state.
    pub(super) fn ended(
        &self,
        ending: &Ending<'_>,
        state: EndState,
        report: Option<&TaskReport>,
    ) -> Option<Arc<TaskEnd>> {
        let default = self.options.ledger?;
        if ending.partition.is_dead_letters() {
            return None;
        }
        let headers = ending.message.headers();
        let kind = headers.get(header::TASK_KIND).map(String::as_str);
        let keep = self.options.of(ending.partition.name()).keep_of(kind).unwrap_or(default);
        let keep = keep_by_header(headers, state).unwrap_or_else(|| keep.of(state));
        if keep == Some(Duration::ZERO) {
            return self.counted(ending, state, report);
        }
        Some(Arc::new(ending.described(state, report).with_keep(keep)))
    }
}

/// How long the task's own headers ask for its end to be kept.
#[allow(clippy::option_option, reason = "not said; forever; for so long")]
fn keep_by_header(headers: &Headers, state: EndState) -> Option<Option<Duration>> {
    let name =
        if state == EndState::Succeeded { header::TASK_KEEP_SUCCESS } else { header::TASK_KEEP_FAILURE };
    match headers.get(name)?.as_str() {
        "forever" => Some(None),
        // An unreadable value is ignored: the task is done, and must not fail because of it.
        text => humantime::parse_duration(text).ok().map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_says_by_its_headers_how_long_it_is_kept() {
        let says = |name: &str, text: &str| Headers::from([(name.to_owned(), text.to_owned())]);
        let success = |text| keep_by_header(&says(header::TASK_KEEP_SUCCESS, text), EndState::Succeeded);
        assert_eq!(success("36h"), Some(Some(Duration::from_hours(36))));
        assert_eq!(success("0s"), Some(Some(Duration::ZERO)));
        assert_eq!(success("forever"), Some(None));
        assert_eq!(success("soon"), None);
        let failure = says(header::TASK_KEEP_FAILURE, "1m");
        assert_eq!(keep_by_header(&failure, EndState::Succeeded), None);
        for state in [EndState::Failed, EndState::TimedOut, EndState::Cancelled] {
            assert_eq!(keep_by_header(&failure, state), Some(Some(Duration::from_mins(1))));
        }
    }

    #[test]
    fn a_result_at_the_limit_is_taken_and_one_beyond_it_refused() {
        let of = |bytes| TaskReport::new().with_result(vec![0; bytes]).check();
        assert!(of(MAX_RESULT_BYTES).is_ok());
        assert_eq!(of(MAX_RESULT_BYTES + 1).unwrap_err().kind(), ErrorKind::TooLarge);
    }
}
